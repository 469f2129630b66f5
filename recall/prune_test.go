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
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
)

// markerLine is the contract's regular expression for a marker.
var markerLine = regexp.MustCompile(`(?m)^⟦PRUNÉ: prune_id=(?P<prune_id>[^\s]+) lignes (?P<start>\d+)-(?P<end>\d+) \((?P<count>\d+)\) raison=(?P<reason>.*)⟧$`)

// pruneFor prunes texts, as logs, for a goal.
func pruneFor(goal string) reduce.Choice {
	return reduce.Choice{Reducer: "prune", Goal: goal, Prune: reduce.PruneOptions{Type: "logs", Ratio: .7, MinKeep: 5}}
}

// shrinkWithGoal is shrink with pruning.
func shrinkWithGoal(t testing.TB, r *Recall, body []byte, p Policy, f reduce.Choice) ([]byte, ShrinkResult) {
	t.Helper()
	strs, _, err := jsonscan.New(body, 0).LongStrings(nil, p.MaxChars)
	if err != nil {
		t.Fatal(err)
	}
	p.Choice = f
	s := r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: Origin{"srv", "tool"}, Body: body, Strings: strs}, p)
	return jsonscan.AppendSpliced(nil, body, s.Edits), s
}

// logText is a log of n lines, one of which matters.
func logText(n int) string {
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

// jsonWithEscapes is text as a JSON string with unnecessary escapes at random.
func jsonWithEscapes(text string, random *rand.Rand) []byte {
	b := []byte{'"'}
	for _, r := range text {
		switch {
		case r < 0x10000 && random.IntN(12) == 0:
			b = fmt.Appendf(b, `\u%04X`, r)
		case r == '/' && random.IntN(2) == 0:
			b = append(b, `\/`...)
		default:
			b = jsonscan.AppendEscaped(b, string(r))
		}
	}
	return append(b, '"')
}

// P4, P5, I3, I5: a pruned text is what the engine returns, byte for byte; what stays keeps its escapes;
// it is smaller; and replacing each marker by what recover_text returns for its range gives the
// original.
func TestP4PrunedTextIsTheEnginesAndRecoverable(t *testing.T) {
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
		f := pruneFor("which order was declined")
		kind := prune.Kind(random.IntN(3))
		f.Prune.Type = kind.String()
		body := jsonWithEscapes(text, random)
		out, s := shrinkWithGoal(t, r, body, p, f)
		doc, err := prune.Score(t.Context(), text, f.Goal, kind)
		if err != nil {
			t.Fatal(err)
		}
		blocks := doc.Cut(prune.Budget{MaxPruneRatio: f.Prune.Ratio, MinKeepLines: f.Prune.MinKeep})
		if len(blocks) == 0 {
			continue
		}
		cuts += len(blocks)
		id := r.ID("t", text)
		pruned := unquote(t, out)
		if want := string(doc.AppendPruned(nil, blocks, prune.Format{ID: id, Markers: true})); pruned != want {
			t.Fatalf("got %q\nwant %q", pruned, want)
		}
		if len(out) >= len(body) || s.Recoverable != 1 || len(s.Edits) != len(blocks) {
			t.Fatalf("%d bytes of %d: %+v", len(out), len(body), s)
		}
		if got := restoreFromMarkers(t, r, pruned, id); got != text {
			t.Fatalf("got %q\nwant %q", got, text)
		}
	}
	if cuts < 50 {
		t.Errorf("only %d blocks were left out", cuts)
	}
}

// restoreFromMarkers replaces each marker of a pruned text by the lines it names, read back.
func restoreFromMarkers(t testing.TB, r *Recall, pruned, id string) string {
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
		lines := string(readText(t, original, 1<<20, ReadRequest{Ranges: []Range{{first, last}}}, ReadLimit{}).Text)
		if n := strings.Count(lines, "\n"); n != last-first+1 {
			t.Errorf("%s gives %d lines", marker, n)
		}
		return strings.TrimSuffix(lines, "\n")
	})
}

// P+3, I2: the same text and goal give the same bytes in every process; another goal gives the same
// id.
func TestPPlus3PruningIsDeterministic(t *testing.T) {
	one, _ := open(t, nil)
	two, _ := open(t, nil)
	body := quote(logText(400))
	a, _ := shrinkWithGoal(t, one, body, DefaultPolicy(), pruneFor("which order was declined"))
	b, _ := shrinkWithGoal(t, two, body, DefaultPolicy(), pruneFor("which order was declined"))
	if !bytes.Equal(a, b) || !strings.Contains(unquote(t, a), "card expired") || len(a) > len(body)*2/3 {
		t.Errorf("%d and %d bytes of %d", len(a), len(b), len(body))
	}
	other, _ := shrinkWithGoal(t, one, body, DefaultPolicy(), pruneFor("page 14641"))
	for _, out := range [][]byte{a, other} {
		for _, m := range markerLine.FindAllStringSubmatch(unquote(t, out), -1) {
			if m[1] != one.ID("t", logText(400)) {
				t.Errorf("got %s", m[0])
			}
		}
	}
}

// I1, I10, G+2: where no lines can be left out, or they could not be read back, the text is masked or
// sent whole.
func TestPrunedOnlyWhereItHelps(t *testing.T) {
	long := logText(400)
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
		"long":                        {long, plain, nil, false, "pruned"},
		"without the recover line":    {long, bare, nil, false, "pruned"}, // a marker of this form always names the id
		"not too long":                {long, short, nil, false, "whole"},
		"one line":                    {strings.ReplaceAll(long, "\n", " "), plain, nil, false, "masked"},
		"few lines":                   {"one\ntwo\n" + strings.ReplaceAll(long, "\n", " "), plain, nil, false, "masked"},
		"too large to be read":        {strings.Repeat(long, (16<<20)/len(long)+1), plain, nil, false, "masked"},
		"the store refuses":           {long, plain, nil, true, "whole"},
		"and it is over the limit":    {long, hard, nil, true, "bare"},
		"nothing is stored":           {long, plain, off, false, "bare"},
		"nothing is stored, one line": {strings.ReplaceAll(long, "\n", " "), plain, off, false, "bare"},
	} {
		t.Run(name, func(t *testing.T) {
			r, driver := open(t, tt.mend)
			driver.refuse.Store(tt.refuse)
			body := quote(tt.text)
			out, _ := shrinkWithGoal(t, r, body, tt.policy, pruneFor("which order was declined"))
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
				t.Errorf("it is not masked as it is without a goal")
			}
		})
	}
}

// A pruned text that is shown again is not cut again, with a goal or without, however it is escaped; a
// text that only looks like one is.
func TestPrunedOnce(t *testing.T) {
	r, _ := open(t, nil)
	long := logText(1000)
	out, _ := shrinkWithGoal(t, r, quote(long), DefaultPolicy(), pruneFor("which order was declined"))
	pruned := unquote(t, out)
	ascii := []byte(strings.NewReplacer("⟦", `\u27e6`, "É", `\u00c9`, "⟧", `\u27e7`).Replace(string(out))) // as Python writes it
	for name, f := range map[string]reduce.Choice{"same goal": pruneFor("which order was declined"), "another": pruneFor("page 14641"), "none": {}} {
		for _, body := range [][]byte{out, quote(pruned), ascii} {
			if again, s := shrinkWithGoal(t, r, body, DefaultPolicy(), f); !bytes.Equal(again, body) || s.AlreadyCut != 1 {
				t.Errorf("%s: cut again: %+v", name, s)
			}
			forged := bytes.Replace(body, []byte("catalogue"), []byte("catalogus"), 1)
			if _, s := shrinkWithGoal(t, r, forged, DefaultPolicy(), f); s.Recoverable != 1 {
				t.Errorf("%s: a forged text is taken for a shortened one: %+v", name, s)
			}
		}
	}
}

// G+4: a text in content and in structuredContent is pruned alike, under one id; if it is JSON and the
// policy says so, both are thinned.
func TestGPlus4PrunedCopies(t *testing.T) {
	r, _ := open(t, nil)
	long := logText(300)
	for _, asJSON := range []bool{false, true} {
		p := DefaultPolicy()
		p.JSON = asJSON
		body := toolReply(long, `{"result":`+string(quote(long))+`,"n":1.0}`, "")
		out, s := shrinkWithGoal(t, r, body, p, pruneFor("which order was declined"))
		got := read(t, out)
		var inner struct{ Result string }
		if err := json.Unmarshal(got.Result.StructuredContent, &inner); err != nil {
			t.Fatal(err)
		}
		text := got.Result.Content[0].Text
		if text != inner.Result || s.Recoverable != 2 || restoreFromMarkers(t, r, text, r.ID("t", long)) != long {
			t.Errorf("json = %v: %+v", asJSON, s)
		}
	}
	var list []string
	for i := range 300 {
		list = append(list, fmt.Sprintf("{\n  \"n\": %d,\n  \"s\": \"some words\"\n}", i))
	}
	data := "[\n" + strings.Join(list, ",\n") + "\n]"
	body := toolReply(data, data, "")
	with, _ := shrinkWithGoal(t, r, body, jsonPolicy(), pruneFor("words"))
	without, _ := shrink(t, r, "t", body, jsonPolicy())
	if !bytes.Equal(with, without) || !json.Valid([]byte(read(t, with).Result.Content[0].Text)) {
		t.Errorf("JSON is not thinned: %.300s", with)
	}
}

// The empty line after a line break at the very end has a number, and can be read by it.
func TestP4LastLine(t *testing.T) {
	for _, tt := range []struct{ text, ranges, want string }{
		{"a\nb\n", "1-3", "a\nb\n\n"}, {"a\nb\n", "3", "\n"}, {"a\nb\n", "3-9", "\n"}, {"a\nb\n", "2-9", "b\n"}, {"a\nb\n", "1-", "a\nb\n"},
		{"a\nb", "1-3", "a\nb\n"}, {"a\nb", "3", ""}, {"a\n\n", "2-3", "\n\n"}, {"\n", "1-2", "\n\n"}, {"a\nb\n", "4-5", ""},
	} {
		ranges, err := ParseRanges(tt.ranges)
		if err != nil {
			t.Fatal(err)
		}
		if got := readText(t, tt.text, 1, ReadRequest{Ranges: ranges}, ReadLimit{}).Text; string(got) != tt.want {
			t.Errorf("lines %s of %q: got %q, want %q", tt.ranges, tt.text, got, tt.want)
		}
	}
}
