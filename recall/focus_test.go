package recall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/state"
)

// markerLine is the document's regular expression for a marker.
var markerLine = regexp.MustCompile(`(?m)^⟦PRUNÉ: prune_id=(?P<prune_id>[^\s]+) lignes (?P<start>\d+)-(?P<end>\d+) \((?P<count>\d+)\) raison=(?P<reason>.*)⟧$`)

func asLogs(string) prune.Kind { return prune.Logs }

func lookingFor(goal string) *Focus {
	return &Focus{Goal: goal, Kind: asLogs, Budget: prune.Budget{MaxRatio: .7, MinKeep: 5}}
}

// focused is shrink for a reader who looks for something.
func focused(t testing.TB, r *Recall, body []byte, p Policy, f *Focus) ([]byte, Shrunk) {
	t.Helper()
	strs, _, err := jsonscan.New(body, 0).Long(nil, p.MaxChars)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Shrink(context.Background(), Doc{Tenant: "t", From: Origin{"srv", "tool"}, Body: body, Strings: strs, Focus: f}, p)
	return jsonscan.AppendSpliced(nil, body, s.Edits), s
}

// journal is a text of n lines, one of which matters.
func journal(n int) string {
	var b strings.Builder
	for i := range n {
		if i == n/2 {
			b.WriteString("the payment of order 4711 was declined: card expired\n")
			continue
		}
		fmt.Fprintf(&b, "worker %d has fetched page %d of the catalogue in %d ms\n", i%7, i*i, i%90)
	}
	return b.String()
}

// spelled is text as a JSON string, with escapes that need not be.
func spelled(text string, random *rand.Rand) []byte {
	b := []byte{'"'}
	for _, r := range text {
		switch {
		case r < 0x10000 && random.IntN(12) == 0:
			b = fmt.Appendf(b, `\u%04X`, r)
		case r == '/' && random.IntN(2) == 0:
			b = append(b, `\/`...)
		default:
			b = jsonscan.AppendRaw(b, string(r))
		}
	}
	return append(b, '"')
}

// P4, P5, I3, I5: a pruned text is the engine's, to the byte; what stays of the string keeps its
// spelling; it is smaller; and the markers, replaced by what recover_text gives for their ranges,
// give the original.
func TestP4PrunedTextIsTheEnginesAndComesBack(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 100, 100
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields(`error declined "quoted" back\slash tab	here ünïcode 汉字 😀 a/b func main() { } # heading order 4711 -`)
	cuts := 0
	for range 150 {
		var lines []string
		for range 10 + random.IntN(80) {
			var line []string
			for range random.IntN(30) {
				line = append(line, words[random.IntN(len(words))])
			}
			lines = append(lines, strings.Join(line, " "))
		}
		text := strings.Join(lines, []string{"\n", "\r\n"}[random.IntN(2)]) + strings.Repeat("\n", random.IntN(3))
		f := lookingFor("which order was declined")
		kind := prune.Kind(random.IntN(3))
		f.Kind = func(string) prune.Kind { return kind }
		body := spelled(text, random)
		out, s := focused(t, r, body, p, f)
		doc, err := prune.Read(t.Context(), text, f.Goal, kind)
		if err != nil {
			t.Fatal(err)
		}
		blocks := doc.Cut(f.Budget)
		if len(blocks) == 0 {
			continue
		}
		cuts += len(blocks)
		id := r.ID("t", text)
		pruned := unquote(t, out)
		if want := string(doc.Append(nil, blocks, prune.Style{ID: id, Markers: true})); pruned != want {
			t.Fatalf("got %q\nwant %q", pruned, want)
		}
		if len(out) >= len(body) || s.Kept != 1 || len(s.Edits) != len(blocks) {
			t.Fatalf("%d bytes of %d: %+v", len(out), len(body), s)
		}
		if got := restored(t, r, pruned, id); got != text {
			t.Fatalf("got %q\nwant %q", got, text)
		}
	}
	if cuts < 50 {
		t.Errorf("only %d blocks were left out", cuts)
	}
}

// restored is a pruned text with what was left out in its place, read back by the markers.
func restored(t testing.TB, r *Recall, pruned, id string) string {
	t.Helper()
	original, err := fetch(t, r, "t", id)
	if err != nil {
		t.Fatal(err)
	}
	return markerLine.ReplaceAllStringFunc(pruned, func(marker string) string {
		m := markerLine.FindStringSubmatch(marker)
		first, _ := strconv.Atoi(m[2])
		last, _ := strconv.Atoi(m[3])
		if m[1] != id || m[4] != strconv.Itoa(last-first+1) {
			t.Errorf("%s, want the id %s", marker, id)
		}
		lines := string(readText(t, original, 1<<20, Wish{Ranges: []Range{{first, last}}}, Limit{}).Text)
		if n := strings.Count(lines, "\n"); n != last-first+1 {
			t.Errorf("%s gives %d lines", marker, n)
		}
		return strings.TrimSuffix(lines, "\n")
	})
}

// P+3, I2: the same text and goal give the same bytes in every process, and another goal the same
// id.
func TestPPlus3PrunedAlikeEverywhere(t *testing.T) {
	one, _ := open(t, nil)
	two, _ := open(t, nil)
	body := quote(journal(400))
	a, _ := focused(t, one, body, DefaultPolicy(), lookingFor("which order was declined"))
	b, _ := focused(t, two, body, DefaultPolicy(), lookingFor("which order was declined"))
	if !bytes.Equal(a, b) || !strings.Contains(unquote(t, a), "card expired") || len(a) > len(body)*2/3 {
		t.Errorf("%d and %d bytes of %d", len(a), len(b), len(body))
	}
	other, _ := focused(t, one, body, DefaultPolicy(), lookingFor("page 14641"))
	for _, out := range [][]byte{a, other} {
		for _, m := range markerLine.FindAllStringSubmatch(unquote(t, out), -1) {
			if m[1] != one.ID("t", journal(400)) {
				t.Errorf("got %s", m[0])
			}
		}
	}
}

// Where lines cannot be left out, or not so that they can be read back, the text is masked or sent
// whole: I1, I10, G+2.
func TestPrunedOnlyWhereItHelps(t *testing.T) {
	long := journal(400)
	off := func(c *Config, _ *state.Config) { c.Enabled = false }
	plain := DefaultPolicy()
	hard, bare, short := plain, plain, plain
	hard.HardLimit = 1000
	bare.RecoverLine = false
	short.MaxChars = len(long)
	for name, tt := range map[string]struct {
		text   string
		policy Policy
		mend   func(*Config, *state.Config)
		refuse bool
		want   string // pruned, masked, bare or whole
	}{
		"long":                      {long, plain, nil, false, "pruned"},
		"without the recover line":  {long, bare, nil, false, "pruned"}, // a marker of this form always names the id
		"not too long":              {long, short, nil, false, "whole"},
		"one line":                  {strings.ReplaceAll(long, "\n", " "), plain, nil, false, "masked"},
		"few lines":                 {"one\ntwo\n" + strings.ReplaceAll(long, "\n", " "), plain, nil, false, "masked"},
		"too large to be read":      {strings.Repeat(long, maxFocus/len(long)+1), plain, nil, false, "masked"},
		"the store refuses":         {long, plain, nil, true, "whole"},
		"and it is over the limit":  {long, hard, nil, true, "bare"},
		"nothing is kept":           {long, plain, off, false, "bare"},
		"nothing is kept, one line": {strings.ReplaceAll(long, "\n", " "), plain, off, false, "bare"},
	} {
		t.Run(name, func(t *testing.T) {
			r, driver := open(t, tt.mend)
			driver.refuse.Store(tt.refuse)
			body := quote(tt.text)
			out, _ := focused(t, r, body, tt.policy, lookingFor("which order was declined"))
			got := "whole"
			switch text := unquote(t, out); {
			case strings.Contains(text, "⟦PRUNÉ"):
				got = "pruned"
			case strings.Contains(text, "[recover: "):
				got = "masked"
			case !bytes.Equal(out, body):
				got = "bare"
			}
			if got != tt.want {
				t.Errorf("it is %s, want %s", got, tt.want)
			}
			masked, _ := shrink(t, r, "t", body, tt.policy)
			if (got == "masked" || got == "bare") && !bytes.Equal(out, masked) {
				t.Errorf("it is not masked as without a goal")
			}
		})
	}
}

// Cut once: a pruned text that comes by again is left alone, with a goal or without, however it is
// spelled; a text that only looks like one is not.
func TestPrunedOnce(t *testing.T) {
	r, _ := open(t, nil)
	long := journal(1000)
	out, _ := focused(t, r, quote(long), DefaultPolicy(), lookingFor("which order was declined"))
	pruned := unquote(t, out)
	ascii := []byte(strings.NewReplacer("⟦", `\u27e6`, "É", `\u00c9`, "⟧", `\u27e7`).Replace(string(out))) // as Python writes it
	for name, f := range map[string]*Focus{"same goal": lookingFor("which order was declined"), "another": lookingFor("page 14641"), "none": nil} {
		for _, body := range [][]byte{out, quote(pruned), ascii} {
			if again, s := focused(t, r, body, DefaultPolicy(), f); !bytes.Equal(again, body) || s.Known != 1 {
				t.Errorf("%s: cut again: %+v", name, s)
			}
			forged := bytes.Replace(body, []byte("catalogue"), []byte("catalogus"), 1)
			if _, s := focused(t, r, forged, DefaultPolicy(), f); s.Kept != 1 {
				t.Errorf("%s: a forged one is taken for ours: %+v", name, s)
			}
		}
	}
}

// G+4: what stands in content and in structuredContent is pruned alike, under one id; what is JSON
// is thinned where the policy says so, in both.
func TestGPlus4PrunedTwins(t *testing.T) {
	r, _ := open(t, nil)
	long := journal(300)
	for _, asJSON := range []bool{false, true} {
		p := DefaultPolicy()
		p.JSON = asJSON
		body := toolReply(long, `{"result":`+string(quote(long))+`,"n":1.0}`, "")
		out, s := focused(t, r, body, p, lookingFor("which order was declined"))
		got := read(t, out)
		var inner struct{ Result string }
		if err := json.Unmarshal(got.Result.StructuredContent, &inner); err != nil {
			t.Fatal(err)
		}
		text := got.Result.Content[0].Text
		if text != inner.Result || s.Kept != 2 || restored(t, r, text, r.ID("t", long)) != long {
			t.Errorf("json = %v: %+v", asJSON, s)
		}
	}
	var list []string
	for i := range 300 {
		list = append(list, fmt.Sprintf("{\n  \"n\": %d,\n  \"s\": \"some words\"\n}", i))
	}
	data := "[\n" + strings.Join(list, ",\n") + "\n]"
	body := toolReply(data, data, "")
	with, _ := focused(t, r, body, jsonPolicy(), lookingFor("words"))
	without, _ := shrink(t, r, "t", body, jsonPolicy())
	if !bytes.Equal(with, without) || !json.Valid([]byte(read(t, with).Result.Content[0].Text)) {
		t.Errorf("JSON is not thinned: %.300s", with)
	}
}

// A line break at the very end: the empty line after it has a number, by which it can be read.
func TestP4LastLine(t *testing.T) {
	for _, tt := range []struct{ text, ranges, want string }{
		{"a\nb\n", "1-3", "a\nb\n\n"}, {"a\nb\n", "3", "\n"}, {"a\nb\n", "3-9", "\n"}, {"a\nb\n", "2-9", "b\n"}, {"a\nb\n", "1-", "a\nb\n"},
		{"a\nb", "1-3", "a\nb\n"}, {"a\nb", "3", ""}, {"a\n\n", "2-3", "\n\n"}, {"\n", "1-2", "\n\n"}, {"a\nb\n", "4-5", ""},
	} {
		ranges, err := ParseRanges(tt.ranges)
		if err != nil {
			t.Fatal(err)
		}
		if got := readText(t, tt.text, 1, Wish{Ranges: ranges}, Limit{}).Text; string(got) != tt.want {
			t.Errorf("lines %s of %q: got %q, want %q", tt.ranges, tt.text, got, tt.want)
		}
	}
}
