//go:build unix

package recall

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
)

// hostilePattern is one of testdata/patterns.json.
type hostilePattern struct {
	name, expr string
}

// hostilePatterns take other engines exponential time, or this one much memory or many states: from
// the literature about denial of service by regular expressions, and our own.
func hostilePatterns(t testing.TB) []hostilePattern {
	t.Helper()
	raw, err := os.ReadFile("testdata/patterns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name    string
		Pattern [][2]any // texts, and how often each is repeated
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var out []hostilePattern
	for _, p := range list {
		var b strings.Builder
		for _, part := range p.Pattern {
			b.WriteString(strings.Repeat(part[0].(string), int(part[1].(float64))))
		}
		out = append(out, hostilePattern{p.Name, b.String()})
	}
	return out
}

// hostileTexts are single lines of 12 MB, and many short and empty lines: of one letter, of random
// letters, of many scripts, of invalid UTF-8.
func hostileTexts() map[string]string {
	rnd := rand.New(rand.NewPCG(1, 2))
	const size = 12 << 20
	random, scripts := make([]byte, size), make([]rune, size/3)
	for i := range random {
		random[i] = "ab"[rnd.IntN(2)]
	}
	for i := range scripts {
		scripts[i] = rune(0xa0 + rnd.IntN(0x9000))
	}
	texts := map[string]string{
		"one letter":      strings.Repeat("a", size),
		"random letters":  string(random),
		"many scripts":    string(scripts),
		"a short line":    strings.Repeat("a", 30) + "!",
		"lines of a word": strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n", 1<<20/35),
		"empty lines":     strings.Repeat("\n", 1<<19),
		"no text":         strings.Repeat("\xff\x80\xe6\xbc", 1<<18),
		"spaces":          strings.Repeat(" ", 1<<19) + "x" + strings.Repeat(" \t", 1<<18),
	}
	if slower > 1 {
		for name, text := range texts {
			texts[name] = text[:min(len(text), 1<<16)]
		}
	}
	return texts
}

// No pattern takes more than 100 ms of processor time on any text. Each is answered or refused; a search
// that did not reach the end says where to go on.
func TestHostilePatternsTakeLittleTime(t *testing.T) { // not parallel: it measures the process
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	patterns := hostilePatterns(t)
	if len(patterns) < 50 {
		t.Fatalf("%d patterns", len(patterns))
	}
	r, _ := open(t, nil)
	texts := hostileTexts()
	ids := map[string]string{}
	for name, text := range texts {
		id, err := r.StoreText(t.Context(), "t", text, Origin{})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = id
	}
	var most time.Duration
	worst := ""
	for _, p := range patterns {
		args, _ := json.Marshal(map[string]any{"prune_id": "ID", "pattern": p.expr, "include_line_numbers": true})
		for name, id := range ids {
			took := cputime.Least(20, slower*90*time.Millisecond, func() {
				w, err := ParseReadRequest([]byte(strings.Replace(string(args), `"ID"`, `"`+id+`"`, 1)))
				if err == nil {
					_, err = r.RecoverText(t.Context(), "t", w, anyOrigin, 0)
				}
				if err != nil && fault.KindOf(err) != fault.BadParams {
					t.Fatalf("%s on %s: %v", p.name, name, err)
				}
			})
			if took > slower*100*time.Millisecond {
				t.Errorf("%s on %s: %v", p.name, name, took)
			}
			if took > most {
				most, worst = took, p.name+" on "+name
			}
		}
	}
	t.Logf("%d patterns on %d texts: at most %v of processor time (%s)", len(patterns), len(texts), most, worst)
}

// A search ends as soon as its context does, in the middle of a line too.
func TestHostilePatternsEndWithTheirContext(t *testing.T) { // not parallel: it measures the process
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	r, _ := open(t, nil)
	for name, text := range hostileTexts() {
		id, err := r.StoreText(t.Context(), "t", text, Origin{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.Open(t.Context(), "t", id)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range hostilePatterns(t) {
			w, err := ParseReadRequest([]byte(`{"prune_id":"` + id + `","pattern":` + quoted(p.expr) + `}`))
			if err != nil {
				continue
			}
			took := cputime.Least(20, slower*90*time.Millisecond, func() {
				ctx := &endingContext{Context: t.Context(), after: 3} // the blocks ask too
				_, err = o.Read(ctx, w, ReadLimit{})                  // no limit of work: only the client's leaving ends it
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s on %s: %v", p.name, name, err)
			}
			if err != nil && took > slower*100*time.Millisecond {
				t.Errorf("%s on %s goes on for %v", p.name, name, took)
			}
		}
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// endingContext is a context that ends after some number of calls of Err.
type endingContext struct {
	context.Context
	after int
}

func (l *endingContext) Err() error {
	if l.after--; l.after < 0 {
		return context.Canceled
	}
	return nil
}

// Ordinary patterns search a log of some megabytes to its end.
func TestOrdinaryPatternsAreSearchedToTheEnd(t *testing.T) {
	lines := slices.Repeat([]string{"2026-03-14T10:00:00Z INFO request served in 12 ms path=/api/v1/things"}, 60_000) // 4 MB
	lines = append(lines, "2026-03-14T10:00:01Z ERROR Quorum lost: node-17 (10.0.0.7) at cluster.go:112")
	text := strings.Join(lines, "\n")
	for _, expr := range []string{
		`ERROR`, `error|panic|FAIL|ERROR`, `(?i)quorum`, `\b\d{1,3}(\.\d{1,3}){3}\b`, `^\S+ ERROR .*node-\d+`, `cluster\.go:\d+$`, `(?i)quorum (lost|gained): [a-z0-9-]+`, `\(10\.[0-9.]{1,20}\)`,
	} {
		got := readText(t, text, 1<<20, ReadRequest{Pattern: pattern(t, expr)}, ReadLimit{Bytes: 8 << 20, SearchWork: searchWork})
		if string(got.Text) != lines[len(lines)-1]+"\n" || got.Next != nil {
			t.Errorf("%s: %.100q, %+v", expr, got.Text, got.Next)
		}
	}
}
