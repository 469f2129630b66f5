package prune

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// fittedText writes a text without the blocks, with long lines cut to their limit by x.
func fittedText(d *ScoredText, cut Fitted, l Limit) string {
	var out []string
	keep := func(from, to int) {
		for n := from; n <= to; n++ {
			line := d.Lines(n, n)
			if slices.Contains(cut.LongLines, n) {
				line = strings.Repeat("x", l.LongLine)
			}
			out = append(out, line)
		}
	}
	at := 1
	for _, b := range cut.Blocks {
		keep(at, b.First-1)
		marker := b.Marker(testID)
		if l.PlainMarkers {
			marker = b.PlainMarker(testID)
		}
		out = append(out, marker)
		at = b.Last + 1
	}
	keep(at, d.LineCount())
	return strings.Join(out, "\n")
}

// checkFitLaws checks one cut with a limit against all laws, and returns how long the result is; 0 if there is none.
func checkFitLaws(tb testing.TB, c cutting, d *ScoredText, l Limit) int {
	tb.Helper()
	cut, ok := d.CutToFit(c.budget, l)
	again, _ := c.read(tb).CutToFit(c.budget, l)
	if !slices.Equal(cut.Blocks, again.Blocks) || !slices.Equal(cut.LongLines, again.LongLines) {
		tb.Fatalf("not deterministic: %v, %v", cut, again)
	}
	if !ok {
		if len(cut.Blocks)+len(cut.LongLines) > 0 {
			tb.Fatalf("nothing fits, and %v is left out", cut)
		}
		return 0
	}
	blocksTile(tb, cut.Blocks, d.LineCount())
	for _, b := range cut.Blocks {
		markerIsSound(tb, d, b)
	}
	kept := keptOf(d.LineCount(), cut.Blocks)
	for _, n := range cut.LongLines {
		if !kept[n-1] || utf8.RuneCountInString(d.Lines(n, n)) <= l.LongLine {
			tb.Fatalf("line %d is not a long one that stays: %v", n, cut)
		}
	}
	out := fittedText(d, cut, l)
	if n := utf8.RuneCountInString(out); n > l.MaxChars {
		tb.Fatalf("%d characters, the limit is %+v", n, l)
	}
	// What Cut keeps stays if it fits.
	if usual := (Fitted{Blocks: d.Cut(c.budget)}); utf8.RuneCountInString(fittedText(d, usual, l)) <= l.MaxChars && !slices.Equal(usual.Blocks, cut.Blocks) {
		tb.Fatalf("%v instead of %v", cut, usual)
	}
	return utf8.RuneCountInString(out)
}

// anyLimit generates limits, from those that hold nothing but a marker on.
func anyLimit(most int) *rapid.Generator[Limit] {
	return rapid.Custom(func(t *rapid.T) Limit {
		l := Limit{MaxChars: rapid.IntRange(0, most+10).Draw(t, "max"), PlainMarkers: rapid.Bool().Draw(t, "plain")}
		if rapid.Bool().Draw(t, "long") {
			l.LongLine = l.MaxChars / 2
		}
		return l
	})
}

// The limit holds for any text, goal, budget and limit. Atoms stay whole or go.
func TestFitLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		c := cutting{text.text, anyGoal().Draw(t, "goal"), Kind(rapid.IntRange(0, len(kindNames)-1).Draw(t, "kind")), anyBudget().Draw(t, "budget")}
		tb := rapidTB{t: t}
		d := c.read(tb)
		l := anyLimit(utf8.RuneCountInString(c.text)).Draw(t, "limit")
		if checkFitLaws(tb, c, d, l) == 0 {
			return
		}
		cut, _ := d.CutToFit(c.budget, l)
		kept := keptOf(d.LineCount(), cut.Blocks)
		for _, p := range text.parts {
			if of := kept[p.first : p.first+p.lines]; p.whole(c.kind) && slices.Contains(of, true) && slices.Contains(of, false) && !isShort(d, p) {
				t.Fatalf("of lines %d to %d stays %v", p.first+1, p.first+p.lines, of)
			}
		}
	})
}

// isShort reports whether a part of an atom may stay because the rest of it is not longer than a marker.
func isShort(d *ScoredText, p drawn) bool {
	return d.blockBytes(Block{p.first + 1, p.first + p.lines}) <= maxMarker
}

// A larger limit keeps as much as a smaller one or more, but for what a longer line may take instead of shorter ones;
// and what is kept nearly fills it.
func TestFitGrowsWithTheLimit(t *testing.T) {
	texts := realTexts(t)
	for name, c := range texts {
		d := c.read(t)
		before := 0
		for most := 400; most < len(c.text); most += 1 + most/3 {
			for _, plain := range []bool{false, true} {
				n := checkFitLaws(t, c, d, Limit{MaxChars: most, PlainMarkers: plain})
				if n < before-300 {
					t.Errorf("%s: %d of %d characters, %d of fewer", name, n, most, before)
				}
				cut, _ := d.CutToFit(c.budget, Limit{MaxChars: most, PlainMarkers: plain})
				if usual := d.Cut(c.budget); n < most-300 && !slices.Equal(cut.Blocks, usual) {
					t.Errorf("%s: only %d of %d characters", name, n, most)
				}
				if !plain {
					before = n
				}
			}
		}
	}
}

// realTexts are a log, code and a document.
func realTexts(tb testing.TB) map[string]cutting {
	budget := Budget{MaxPruneRatio: .7, MinKeepLines: 20}
	document, err := os.ReadFile("../docs/llm-proxy.md")
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]cutting{
		"log":      {serviceLog(4000), "why was order 4711 not written", Logs, budget},
		"code":     {ownSource(tb, 3000), "retry the connection when the session has expired", Code, budget},
		"document": {string(document), "how is the window moved when the cache is warm", Docs, budget},
	}
}

// What went wrong and what the goal asks for stays when nearly nothing may: one error and one line about the goal in
// 350,000 characters, within 1,000.
func TestFitKeepsTheBestLines(t *testing.T) {
	lines := strings.Split(serviceLog(4000), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "INFO") })
	const failed, asked = "2026-03-14T10:00:00.000Z ERROR could not write: disk full", "2026-03-14T10:00:00.000Z INFO the parcel went to the neighbour"
	lines = slices.Insert(lines, 700, failed)
	lines = slices.Insert(lines, 2500, asked)
	c := cutting{strings.Join(lines, "\n"), "who got the parcel", Logs, Budget{MaxPruneRatio: .7, MinKeepLines: 20}}
	l := Limit{MaxChars: 1000}
	d := c.read(t)
	checkFitLaws(t, c, d, l)
	cut, ok := d.CutToFit(c.budget, l)
	if out := fittedText(d, cut, l); !ok || !strings.Contains(out, failed) || !strings.Contains(out, asked) {
		t.Errorf("got %s", out)
	}
}

// Protected lines come before better ones, as far as they fit (P8).
func TestFitKeepsProtectedLinesFirst(t *testing.T) {
	c := cutting{serviceLog(500) + noPruneBegin + "\nstays\n" + noPruneEnd + "\n" + serviceLog(500), "order 4711", Logs, Budget{MaxPruneRatio: .9}}
	d := c.read(t)
	l := Limit{MaxChars: 400}
	cut, ok := d.CutToFit(c.budget, l)
	if out := fittedText(d, cut, l); !ok || !strings.Contains(out, noPruneBegin+"\nstays\n"+noPruneEnd) {
		t.Errorf("got %s", out)
	}
}

// Where no line has a word of the goal the start and the end of code and of a document say more. Logs are about what
// went wrong.
func TestFitNeedsAWordOfTheGoal(t *testing.T) {
	for name, c := range realTexts(t) {
		for goal, want := range map[string]bool{c.goal: true, "zzyzx": name == "log"} {
			c.goal = goal
			if _, ok := c.read(t).CutToFit(c.budget, Limit{MaxChars: 2000}); ok != want {
				t.Errorf("%s, %q: %v", name, goal, ok)
			}
		}
	}
}

// A long line counts with the length to which it is shortened, and stays whole if there is room for it.
func TestFitLongLines(t *testing.T) {
	long := "order 4711 was declined " + strings.Repeat("x", 3000)
	for _, tt := range []struct{ max, want int }{{1000, 1}, {2000, 1}, {4000, 0}} {
		c := cutting{serviceLog(100) + long + "\n" + serviceLog(100), "which order was declined", Logs, Budget{MaxPruneRatio: .99}}
		d := c.read(t)
		l := Limit{MaxChars: tt.max, LongLine: tt.max / 2}
		checkFitLaws(t, c, d, l)
		cut, ok := d.CutToFit(c.budget, l)
		if !ok || !keptOf(d.LineCount(), cut.Blocks)[100] || len(cut.LongLines) != tt.want {
			t.Errorf("%d: %v", tt.max, cut)
		}
	}
}

// lineSet finds the neighbours that a search line by line finds.
func TestLineSet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 63, 64, 65, 4096, 4097, 300_000} {
		s, in := newLineSet(n), make([]bool, n)
		for range 40 {
			i := random.IntN(n)
			s.addLine(i)
			in[i] = true
			for range 20 {
				at := random.IntN(n)
				before, from := at-1, at
				for ; before >= 0 && !in[before]; before-- {
				}
				for ; from < n && !in[from]; from++ {
				}
				if s.before(at) != before || s.from(at) != from || s.has(at) != in[at] {
					t.Fatalf("%d of %d: %d and %d, want %d and %d", at, n, s.before(at), s.from(at), before, from)
				}
			}
		}
	}
}

// The time to keep a limit grows with the text, not with its square, also where every line needs all lines above it.
func BenchmarkFit(b *testing.B) {
	for name, text := range map[string]string{"log 0.35 MB": serviceLog(3200), "log 10 MB": serviceLog(95_000)} {
		b.Run(name, func(b *testing.B) {
			c := cutting{text, "why was order 4711 not written", Logs, Budget{MaxPruneRatio: .7, MinKeepLines: 20}}
			d := c.read(b)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				d.CutToFit(c.budget, Limit{MaxChars: 20_000, LongLine: 10_000})
			}
		})
	}
}
