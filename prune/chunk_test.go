package prune

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chunksAreSound: chunks are in order, disjoint, within the text and of the promised sizes; at most as
// many as asked for, and they cover the text if that is enough (P11).
func chunksAreSound(tb testing.TB, d *ScoredText) {
	tb.Helper()
	for _, n := range []int{-1, 0, 1, 3, 64, math.MaxInt} {
		chunks := d.Chunks(n)
		if len(chunks) > max(n, 0) {
			tb.Fatalf("%d chunks, not %d", len(chunks), n)
		}
		end := 0
		for _, c := range chunks {
			size := c.Last - c.First + 1
			if c.First <= end || c.Last > d.LineCount() || size < 1 || size > maxChunk {
				tb.Fatalf("chunk %v after line %d of %d", c, end, d.LineCount())
			}
			if size < minChunk && c.Last != d.LineCount() {
				tb.Fatalf("chunk %v is short, and not the last", c)
			}
			if n == math.MaxInt && c.First != end+1 {
				tb.Fatalf("nothing asks about lines %d to %d", end+1, c.First-1)
			}
			end = c.Last
		}
		if n == math.MaxInt && end != d.LineCount() {
			tb.Fatalf("chunks end with line %d of %d", end, d.LineCount())
		}
	}
}

func TestChunksAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cutting{text: anyText().Draw(t, "text").text, goal: anyGoal().Draw(t, "goal"), kind: Kind(rapid.IntRange(0, 2).Draw(t, "kind"))}
		chunksAreSound(rapidTB{t: t}, c.read(rapidTB{t: t}))
	})
}

// Chunks end at blank lines where possible, and a short rest joins the chunk before it.
func TestChunksFollowTheText(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
		want []Chunk
	}{
		{"empty", "", []Chunk{{1, 1}}},
		{"short", rows(7), []Chunk{{1, 7}}},
		{"one", rows(20), []Chunk{{1, 20}}},
		{"blank", rows(10) + "\n\n" + rows(15), []Chunk{{1, 11}, {12, 26}}},
		{"the last blank", rows(9) + "\n\n" + rows(3) + "\n\n" + rows(20), []Chunk{{1, 14}, {15, 34}}},
		{"early blank", "a\n\n" + rows(25), []Chunk{{1, 20}, {21, 27}}},
		{"rest", rows(12) + "\n\n" + rows(4), []Chunk{{1, 17}}},
	} {
		if got := (cutting{text: c.text, kind: Docs}).read(t).Chunks(99); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// rows are n lines of text, without a last line break.
func rows(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = "a line of text, number " + strconv.Itoa(i)
	}
	return strings.Join(out, "\n")
}

// If there are more chunks than asked for, the one with the best line is among those returned.
func TestChunksKeepTheBest(t *testing.T) {
	d := cutting{text: rows(50) + "\nhere is the needle\n" + rows(50), goal: "needle", kind: Docs}.read(t)
	if got := d.Chunks(1); len(got) != 1 || got[0].First > 51 || got[0].Last < 51 {
		t.Error(got)
	}
}

// P11: a reranker's scores lift the chunks it prefers, whatever its scale, and change nothing if equal.
func TestBlend(t *testing.T) {
	read := func() *ScoredText { return cutting{text: rows(60), goal: "nothing of this", kind: Docs}.read(t) }
	plain := read()
	same := read()
	chunks := same.Chunks(3)
	same.AddChunkScores(chunks, []float64{.3, .3, .3})
	same.AddChunkScores(nil, nil)
	if !slices.Equal(plain.Scores(), same.Scores()) {
		t.Error("equal scores changed something")
	}
	var cuts [2][]Block
	for i, scores := range [][]float64{{.1, .9, .2}, {-8, 8, -6}} {
		d := read()
		d.AddChunkScores(chunks, scores)
		cuts[i] = d.Cut(Budget{MaxPruneRatio: .6})
		for line, k := range keptOf(60, cuts[i]) {
			if in := line+1 >= chunks[1].First && line+1 <= chunks[1].Last; in && !k {
				t.Errorf("%v: line %d of the best chunk is gone", scores, line+1)
			}
		}
		budgetHolds(t, cuts[i], Budget{MaxPruneRatio: .6}, 60)
	}
	if !slices.Equal(cuts[0], cuts[1]) {
		t.Errorf("another scale, another cut: %v", cuts)
	}
}
