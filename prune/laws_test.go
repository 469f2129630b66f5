package prune

import (
	"bytes"
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testID is as long as the ids of originals are.
const testID = "prn_0123456789abcdefghjkmnpqrs"

// markerForm is the regular expression that the contract gives for a marker (P4).
var markerForm = regexp.MustCompile(`^⟦PRUNÉ: prune_id=(?P<prune_id>[^\s]+) lignes (?P<start>\d+)-(?P<end>\d+) \((?P<count>\d+)\) raison=(?P<reason>.*)⟧$`)

// cutting is one text that is cut.
type cutting struct {
	text, goal string
	kind       Kind
	budget     Budget
}

func (c cutting) read(tb testing.TB) *ScoredText {
	tb.Helper()
	d, err := Score(context.Background(), c.text, c.goal, c.kind)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// keptOf returns for every line, counted from 0, whether it stays.
func keptOf(n int, cut []Block) []bool {
	kept := slices.Repeat([]bool{true}, n)
	for _, b := range cut {
		for i := b.First; i <= b.Last; i++ {
			kept[i-1] = false
		}
	}
	return kept
}

// checkLaws checks one cut against all laws.
func checkLaws(tb testing.TB, c cutting) {
	tb.Helper()
	d := c.read(tb)
	rows := strings.Split(c.text, "\n")
	if d.LineCount() != len(rows) || len(d.Scores()) != len(rows) {
		tb.Fatalf("%d lines, %d scores, of %d", d.LineCount(), len(d.Scores()), len(rows))
	}
	scoresAreFinite(tb, d)
	cut := d.Cut(c.budget)
	blocksTile(tb, cut, len(rows))
	budgetHolds(tb, cut, c.budget, len(rows))
	nothingIsLost(tb, d, cut, rows)
	markersAreSound(tb, d, cut, rows)
	protectedStays(tb, keptOf(len(rows), cut), rows)
	sameAgain(tb, c, d, cut)
}

// blocksTile: blocks are in order, within the text, and do not touch (P5).
func blocksTile(tb testing.TB, cut []Block, n int) {
	tb.Helper()
	end := -1
	for _, b := range cut {
		if b.First < 1 || b.Last > n || b.First > b.Last || b.First <= end+1 {
			tb.Fatalf("blocks %v of %d lines", cut, n)
		}
		end = b.Last
	}
}

// budgetHolds: no more lines go and no fewer stay than the budget allows (P3).
func budgetHolds(tb testing.TB, cut []Block, b Budget, n int) {
	tb.Helper()
	gone := 0
	for _, b := range cut {
		gone += b.LineCount()
	}
	if most := math.Floor(b.MaxPruneRatio * float64(n)); gone > 0 && !(float64(gone) <= most) {
		tb.Fatalf("%d of %d lines go, the ratio is %v", gone, n, b.MaxPruneRatio)
	}
	if n-gone < min(b.MinKeepLines, n) {
		tb.Fatalf("%d of %d lines stay, the fewest are %d", n-gone, n, b.MinKeepLines)
	}
}

// nothingIsLost: without markers the output is the kept lines, in order, byte for byte; together with
// the lines of the blocks it is the original (P3, P5).
func nothingIsLost(tb testing.TB, d *ScoredText, cut []Block, rows []string) {
	tb.Helper()
	kept := keptOf(len(rows), cut)
	rest := strings.Split(string(d.AppendPruned(nil, cut, Format{})), "\n")
	var back []string
	for i, k := range kept {
		if !k {
			back = append(back, d.Lines(i+1, i+1))
			continue
		}
		back = append(back, rest[0])
		rest = rest[1:]
	}
	if whole := len(rest) == 0 || len(rest) == 1 && rest[0] == "" && !slices.Contains(kept, true); !whole {
		tb.Fatalf("lines that are not of the text: %q", rest)
	}
	if !slices.Equal(back, rows) {
		tb.Fatalf("recovered\n%q\nof\n%q", back, rows)
	}
	at := 1
	for _, b := range append(cut, Block{d.LineCount() + 1, 0}) {
		if at < b.First && d.Lines(at, b.First-1) != strings.Join(rows[at-1:b.First-1], "\n") {
			tb.Fatalf("lines %d to %d are %q", at, b.First-1, d.Lines(at, b.First-1))
		}
		at = b.Last + 1
	}
}

// markersAreSound: every block has a marker in the contract's form; numbered lines have their number;
// cutting makes no text longer (P4, I5).
func markersAreSound(tb testing.TB, d *ScoredText, cut []Block, rows []string) {
	tb.Helper()
	if out := d.AppendPruned(nil, cut, Format{ID: testID, Markers: true}); len(out) > len(d.lines.Text) {
		tb.Fatalf("%d bytes became %d", len(d.lines.Text), len(out))
	}
	plain := strings.Split(string(d.AppendPruned(nil, cut, Format{ID: testID, Markers: true})), "\n")
	numbered := strings.Split(string(d.AppendPruned(nil, cut, Format{ID: testID, Markers: true, LineNumbers: true})), "\n")
	if len(plain) != len(numbered) {
		tb.Fatalf("%d lines, numbered %d", len(plain), len(numbered))
	}
	at, next := 0, 1
	for _, b := range append(cut, Block{d.LineCount() + 1, d.LineCount()}) {
		for ; next < b.First; next++ {
			if plain[at] != rows[next-1] || numbered[at] != strconv.Itoa(next)+"│ "+rows[next-1] {
				tb.Fatalf("line %d is %q and %q, was %q", next, plain[at], numbered[at], rows[next-1])
			}
			at++
		}
		if b.Last < b.First {
			break
		}
		if m := b.Marker(testID); plain[at] != m || numbered[at] != m {
			tb.Fatalf("for %v stands %q and %q", b, plain[at], numbered[at])
		}
		markerIsSound(tb, d, b)
		at, next = at+1, b.Last+1
	}
	if at != len(plain) {
		tb.Fatalf("%q is left over", plain[at:])
	}
}

// markerIsSound: a marker is one line of the contract's form, names its block, and is not longer than it.
func markerIsSound(tb testing.TB, d *ScoredText, b Block) {
	tb.Helper()
	m := b.Marker(testID)
	got := markerForm.FindStringSubmatch(m)
	want := []string{m, testID, strconv.Itoa(b.First), strconv.Itoa(b.Last), strconv.Itoa(b.LineCount()), Reason}
	if !slices.Equal(got, want) || strings.Contains(m, "\n") {
		tb.Fatalf("marker %q of %v", m, b)
	}
	if len(m) > len(d.Lines(b.First, b.Last)) {
		tb.Fatalf("marker %q of %q", m, d.Lines(b.First, b.Last))
	}
	if markerBytes(b) != len(m)+1 {
		tb.Fatalf("%q has %d bytes, not %d", m, len(m)+1, markerBytes(b))
	}
}

// protectedStays: text between the NO_PRUNE directives stays, and so do they (P8).
func protectedStays(tb testing.TB, kept []bool, rows []string) {
	tb.Helper()
	inside := false
	for i, row := range rows {
		inside = inside || strings.Contains(row, "⟦NO_PRUNE_BEGIN⟧")
		if inside && !kept[i] {
			tb.Fatalf("line %d, %q, is protected", i+1, row)
		}
		inside = inside && !strings.Contains(row, "⟦NO_PRUNE_END⟧")
	}
}

// sameAgain: scoring again gives the same scores, bit for bit, and the same cut (P+3). Cutting does not
// change a ScoredText.
func sameAgain(tb testing.TB, c cutting, d *ScoredText, cut []Block) {
	tb.Helper()
	again := c.read(tb)
	for i, s := range again.Scores() {
		if math.Float32bits(s) != math.Float32bits(d.Scores()[i]) {
			tb.Fatalf("line %d has %v, then %v", i+1, d.Scores()[i], s)
		}
	}
	if !slices.Equal(cut, again.Cut(c.budget)) || !slices.Equal(cut, d.Cut(c.budget)) {
		tb.Fatalf("not deterministic: %v", cut)
	}
}

// rapidTB lets the laws fail a rapid check.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (r rapidTB) Helper()                   {}
func (r rapidTB) Fatalf(f string, a ...any) { r.t.Fatalf(f, a...) }
func (r rapidTB) Fatal(a ...any)            { r.t.Fatal(a...) }

// P3–P5, P8, I5: the laws hold for any text, goal and budget.
func TestLawsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkLaws(rapidTB{t: t}, cutting{
			text:   anyText().Draw(t, "text").text,
			goal:   anyGoal().Draw(t, "goal"),
			kind:   Kind(rapid.IntRange(0, len(kindNames)-1).Draw(t, "kind")),
			budget: anyBudget().Draw(t, "budget"),
		})
	})
}

// P8: atoms stay whole or go: hunks of diffs in every kind of text, fenced blocks in documents. What must
// stay does: headings in documents, errors in logs.
func TestWholesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		kind := Kind(rapid.IntRange(0, len(kindNames)-1).Draw(t, "kind"))
		c := cutting{text.text, anyGoal().Draw(t, "goal"), kind, anyBudget().Draw(t, "budget")}
		d := c.read(rapidTB{t: t})
		kept := keptOf(d.LineCount(), d.Cut(c.budget))
		for _, p := range text.parts {
			of := kept[p.first : p.first+p.lines]
			if p.whole(kind) && slices.Contains(of, true) && slices.Contains(of, false) {
				t.Fatalf("of lines %d to %d stays %v", p.first+1, p.first+p.lines, of)
			}
			if p.stays(kind) && slices.Contains(of, false) {
				t.Fatalf("of lines %d to %d, which stay, stays %v", p.first+1, p.first+p.lines, of)
			}
		}
	})
}

// A smaller budget keeps no line that a larger one leaves out.
func TestBudgetsNest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cutting{text: anyText().Draw(t, "text").text, goal: anyGoal().Draw(t, "goal"), kind: Kind(rapid.IntRange(0, len(kindNames)-1).Draw(t, "kind"))}
		d := c.read(rapidTB{t: t})
		a, b := rapid.Float64Range(0, 1).Draw(t, "a"), rapid.Float64Range(0, 1).Draw(t, "b")
		more := keptOf(d.LineCount(), d.Cut(Budget{MaxPruneRatio: min(a, b)}))
		less := keptOf(d.LineCount(), d.Cut(Budget{MaxPruneRatio: max(a, b)}))
		for i := range less {
			if less[i] && !more[i] {
				t.Fatalf("line %d stays at %v and is gone at %v", i+1, max(a, b), min(a, b))
			}
		}
	})
}

// AppendPruned leaves what it appends to unchanged.
func TestAppendKeepsWhatWasThere(t *testing.T) {
	for _, text := range []string{"", "a", "a\nb", strings.Repeat("a long line of text\n", 20)} {
		d := cutting{text: text, kind: Docs}.read(t)
		for _, cut := range [][]Block{nil, {{1, d.LineCount()}}} {
			for _, s := range []Format{{}, {ID: testID, Markers: true}, {LineNumbers: true}} {
				out := d.AppendPruned([]byte("before"), cut, s)
				if want := append([]byte("before"), d.AppendPruned(nil, cut, s)...); !bytes.Equal(out, want) {
					t.Errorf("%q without %v, %+v: %q, want %q", text, cut, s, out, want)
				}
			}
		}
	}
}
