package recall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/unit"
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
	s := r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: Origin{Server: "srv", Tool: "tool"}, Body: body, Strings: strs}, p)
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
// it is within max_chars; and replacing each marker by what recover_text returns for its range gives the
// original.
func TestP4PrunedTextIsTheEnginesAndRecoverable(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
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
		p.MaxChars = 600 + random.IntN(5000) // in which no line is long
		p.HeadChars, p.TailChars = 100, 100
		body := jsonWithEscapes(text, random)
		if utf8.RuneCountInString(text) <= p.MaxChars {
			continue
		}
		out, s := shrinkWithGoal(t, r, body, p, f)
		doc, err := prune.Score(t.Context(), text, f.Goal, kind)
		if err != nil {
			t.Fatal(err)
		}
		cut, ok := doc.CutToFit(prune.Budget{MaxPruneRatio: f.Prune.Ratio, MinKeepLines: f.Prune.MinKeep}, prune.Limit{MaxChars: p.MaxChars})
		if !ok {
			t.Fatalf("nothing of %d characters fits into %d", len(text), p.MaxChars)
		}
		cuts += len(cut.Blocks)
		id := r.ID("t", text)
		pruned := unquote(t, out)
		if want := string(doc.AppendPruned(nil, cut.Blocks, prune.Format{ID: id, Markers: true})); pruned != want {
			t.Fatalf("got %q\nwant %q", pruned, want)
		}
		if len(out) >= len(body) || utf8.RuneCountInString(pruned) > p.MaxChars || s.Recoverable != 1 || len(s.Edits) != len(cut.Blocks) {
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

// restoreFromMarkers replaces each marker of a pruned text by the lines it names, read back. All name the id.
func restoreFromMarkers(t testing.TB, r *Recall, pruned, id string) string {
	t.Helper()
	for _, m := range markerLine.FindAllStringSubmatch(pruned, -1) {
		first, _ := strconv.Atoi(m[2])
		last, _ := strconv.Atoi(m[3])
		if m[1] != id || m[4] != strconv.Itoa(last-first+1) {
			t.Errorf("%s, want the id %s", m[0], id)
		}
	}
	return readBack(t, r, pruned)
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
		"few lines":                   {"one\ntwo\n" + strings.ReplaceAll(long, "\n", " "), plain, nil, false, "masked"}, // within the long one
		"all lines protected":         {"⟦NO_PRUNE_BEGIN⟧\n" + long, plain, nil, false, "pruned"},
		"too large to be read":        {strings.Repeat(long, (16<<20)/len(long)+1), plain, nil, false, "masked"},
		"the store refuses":           {long, plain, nil, true, "whole"},
		"and it is over the limit":    {long, hard, nil, true, "bare"},
		"nothing is stored":           {long, plain, off, false, "bare"},
		"nothing is stored, one line": {strings.ReplaceAll(long, "\n", " "), plain, off, false, "bare"},
	} {
		t.Run(name, func(t *testing.T) {
			r, driver := open(t, func(c *Config, s *state.Config) { // a busy machine must not make the store too slow to cut
				c.KeepTimeout, s.Timeout = unit.Duration(10*time.Minute), unit.Duration(10*time.Minute)
				if tt.mend != nil {
					tt.mend(c, s)
				}
			})
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
			if n := utf8.RuneCountInString(unquote(t, out)); got != "whole" && tt.mend == nil && n > tt.policy.MaxChars {
				t.Errorf("%d characters, the limit is %d", n, tt.policy.MaxChars)
			}
			// Where nothing is stored the text is masked as without a goal.
			if masked, _ := shrink(t, r, "t", body, tt.policy); tt.mend != nil && !bytes.Equal(out, masked) {
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
	less := DefaultPolicy()
	less.MaxChars, less.HeadChars, less.TailChars = 1000, 400, 400
	for name, f := range map[string]reduce.Choice{"same goal": pruneFor("which order was declined"), "another": pruneFor("page 14641"), "none": {}} {
		for _, body := range [][]byte{out, quote(pruned), ascii} {
			if again, s := shrinkWithGoal(t, r, body, less, f); !bytes.Equal(again, body) || s.AlreadyCut != 1 {
				t.Errorf("%s: cut again: %+v", name, s)
			}
			forged := bytes.Replace(body, []byte("catalogue"), []byte("catalogus"), 1)
			if _, s := shrinkWithGoal(t, r, forged, less, f); s.Recoverable != 1 {
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

// checkPruned shortens a text with a goal and checks the laws of reduce = "prune": it has at most max_chars characters
// with its markers, or is a text that reads the same; what the markers name joins to the original, byte for byte;
// every other line is one of the original, in its order; the same bytes come again.
func checkPruned(t testing.TB, r *Recall, body []byte, p Policy, f reduce.Choice) {
	t.Helper()
	text := unquote(t, body)
	out, s := shrinkWithGoal(t, r, body, p, f)
	if s.Err != nil {
		t.Fatal(s.Err)
	}
	shown := unquote(t, out)
	if n := utf8.RuneCountInString(shown); n > p.MaxChars {
		t.Fatalf("%d characters of %d, the limit is %d (%s): %.200q", n, utf8.RuneCountInString(text), p.MaxChars, p.Markers, shown)
	}
	if got := readBack(t, r, shown); got != text {
		t.Fatalf("got %.500q\nwant %.500q", got, text)
	}
	rest := strings.Split(text, "\n")
	for _, line := range strings.Split(lineMarkers.ReplaceAllString(charMarkers.ReplaceAllString(shown, "\x00"), "\x00"), "\n") {
		if strings.Contains(line, "\x00") {
			continue
		}
		at := slices.Index(rest, line)
		if at < 0 {
			t.Fatalf("%.200q is no line of the original, or in another order", line)
		}
		rest = rest[at+1:]
	}
	if again, _ := shrinkWithGoal(t, r, bytes.Clone(body), p, f); !bytes.Equal(out, again) {
		t.Fatal("not deterministic")
	}
}

// smallestLimit holds a marker of any text of these tests, and little more.
const smallestLimit = 170

func anyPrunePolicy(t *rapid.T) (Policy, reduce.Choice) {
	p := DefaultPolicy()
	p.Markers = rapid.SampledFrom([]reduce.Markers{reduce.DocumentMarkers, reduce.PlainMarkers}).Draw(t, "markers")
	p.MaxChars = smallestLimit + rapid.SampledFrom([]int{0, 1, 50, 200, 400, 1000, 4000, 20_000}).Draw(t, "max") + rapid.IntRange(0, 99).Draw(t, "more")
	p.HeadChars = rapid.IntRange(0, p.MaxChars).Draw(t, "head")
	p.TailChars = rapid.IntRange(0, p.MaxChars-p.HeadChars).Draw(t, "tail")
	p.JSON = rapid.Bool().Draw(t, "json")
	p.RecoverLine = true
	f := pruneFor(rapid.SampledFrom([]string{"which order was declined", "zzyzx", "func main", "the"}).Draw(t, "goal"))
	f.Prune.Type = rapid.SampledFrom([]string{"auto", "code", "logs", "docs"}).Draw(t, "type")
	f.Prune.Ratio = rapid.SampledFrom([]float64{0, .3, .7, .95, 1}).Draw(t, "ratio")
	f.Prune.MinKeep = rapid.SampledFrom([]int{0, 20, 1000}).Draw(t, "least")
	return p, f
}

// I1, I2, I3: whatever the text, the goal and the limit, the laws of checkPruned hold.
func TestPrunedWithinTheLimit(t *testing.T) {
	r, _ := open(t, nil)
	piece := rapid.SampledFrom([]string{
		"a line of words about the order 4711\n", "error: it was declined\n", "\n", "é汉字😀 ", "\"q\"\\ ", "\t", "func main() {\n", "}\n", "\r\n", "# heading\n",
		"👩\u200d👧", strings.Repeat("word ", 40), strings.Repeat("x", 3000), strings.Repeat("a line that is repeated\n", 60), "```\ncode that stays together\n```\n",
		"@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "⟦NO_PRUNE_BEGIN⟧\nprotected\n⟦NO_PRUNE_END⟧\n", `{"id":1},` + "\n",
	})
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 10, 200).Draw(rt, "pieces"), "")
		p, f := anyPrunePolicy(rt)
		checkPruned(t, r, jsonWithEscapes(text, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "escapes"), 1))), p, f)
	})
}

// The same for real texts, up to some megabytes: this repository's code and documents, and a log.
func TestPrunedWithinTheLimitRealTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	r, _ := open(t, nil)
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var code, docs strings.Builder
	for _, f := range append(files, documents...) {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, ".go") {
			code.Write(data)
		} else {
			docs.Write(data)
		}
	}
	for _, text := range []string{code.String(), docs.String(), logText(40_000)} {
		for limit, style := range map[int]reduce.Markers{
			smallestLimit: reduce.DocumentMarkers, 1000: reduce.PlainMarkers, 4000: reduce.DocumentMarkers, 20_000: reduce.PlainMarkers,
		} {
			p := DefaultPolicy()
			p.MaxChars, p.HeadChars, p.TailChars, p.Markers = limit, limit/2, limit/2, style
			f := pruneFor("which order was declined after a retry")
			f.Prune = reduce.DefaultPruneOptions()
			checkPruned(t, r, quote(text), p, f)
		}
	}
}

// G+4: every text of a result has the limit to itself, and a text that comes twice is shortened twice alike.
func TestPrunedTextsOfAResult(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	texts := []string{logText(900), strings.ReplaceAll(logText(300), "\n", " "), "short", logText(200), logText(900)}
	out, s := shrinkWithGoal(t, r, textBlocks(texts...), p, pruneFor("which order was declined"))
	content := read(t, out).Result.Content
	for i, b := range content {
		if n := utf8.RuneCountInString(b.Text); n > p.MaxChars || readBack(t, r, b.Text) != texts[i] {
			t.Errorf("text %d: %d characters", i, n)
		}
	}
	if content[0].Text != content[4].Text || s.Recoverable != 4 {
		t.Errorf("%+v", s)
	}
}
