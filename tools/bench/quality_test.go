package main

import (
	"errors"
	"testing"

	"github.com/ctxgate/ctxgate/prune"
)

// qualityBars are the minimum scores of the local engine on the samples that it was tuned with: the share of
// needed lines kept when the best 30, 15 and 5 % stay, and the share of samples with all of them at 15 %.
// They are a little below the real scores, so that a miss is a loss and not noise.
var qualityBars = map[string]struct{ at70, at85, at95, all85 float64 }{
	"code": {.88, .79, .57, .66},
	"logs": {.99, .97, .88, .92},
	"docs": {.94, .87, .71, .82},
}

// barAchieved is the minimum share of lines cut when 70 % may be: some lines must always stay (P8).
const barAchieved = .6

// P+1: the local engine keeps the lines that the goal needs.
func TestQualityBars(t *testing.T) {
	samples, err := readCorpus("../..", tuningSamples)
	if errors.Is(err, errNoCorpus) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, bar := range qualityBars {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, _ := prune.ParseKind(name)
			var at70, at85, at95, real tally
			for i := range samples {
				s := &samples[i]
				if s.Type != name {
					continue
				}
				doc, err := prune.Score(t.Context(), s.Text, s.Goal, kind)
				if err != nil {
					t.Fatal(err)
				}
				at70.add(s.recall(keepBest(doc.Scores(), .7)), 0, 0)
				at85.add(s.recall(keepBest(doc.Scores(), .85)), 0, 0)
				at95.add(s.recall(keepBest(doc.Scores(), .95)), 0, 0)
				kept, cut := keptOf(doc)
				real.add(s.recall(kept), cut, 0)
			}
			for _, m := range []struct {
				what     string
				got, bar float64
			}{
				{"recall at 70 %", at70.mean(at70.recall), bar.at70},
				{"recall at 85 %", at85.mean(at85.recall), bar.at85},
				{"recall at 95 %", at95.mean(at95.recall), bar.at95},
				{"all needed lines at 85 %", at85.mean(at85.allGold), bar.all85},
				{"really left out at 70 %", real.mean(real.cut), barAchieved},
			} {
				t.Logf("%s: %.3f (at least %.2f)", m.what, m.got, m.bar)
				if m.got < m.bar {
					t.Errorf("%s: %.3f, want at least %.2f", m.what, m.got, m.bar)
				}
			}
			t.Logf("recall of the real cut: %.3f, all needed lines %.3f", real.mean(real.recall), real.mean(real.allGold))
		})
	}
}

// limitBars are the minimum shares of needed lines within 4,000 characters, a little below the real ones.
var limitBars = map[string]float64{"code": .74, "logs": .88, "docs": .86}

// reduce = "prune" keeps the needed lines within max_chars, many more than a head and a tail.
func TestLimitBars(t *testing.T) {
	samples, err := readCorpus("../..", tuningSamples)
	if errors.Is(err, errNoCorpus) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, bar := range limitBars {
		m, err := measureLimit(t.Context(), name, maxChars[0], samples)
		if err != nil {
			t.Fatal(err)
		}
		if got, masked := m.pruned.mean(m.pruned.recall), m.masked.mean(m.masked.recall); got < bar || got < masked+.3 {
			t.Errorf("%s: %.3f, want at least %.2f; head and tail %.3f", name, got, bar, masked)
		}
	}
}

// keptOf returns which lines a cut with the usual budget keeps, and the share of lines cut.
func keptOf(doc *prune.ScoredText) (kept []bool, cut float64) {
	kept = make([]bool, doc.LineCount())
	for i := range kept {
		kept[i] = true
	}
	n := 0
	for _, b := range doc.Cut(budget) {
		n += b.LineCount()
		clear(kept[b.First-1 : b.Last])
	}
	return kept, float64(n) / float64(doc.LineCount())
}

// keepBest keeps the earlier of equal lines and rounds down; recall counts the best copy of the needed lines.
func TestMeasure(t *testing.T) {
	kept := keepBest([]float32{1, 3, 1, 3, 0}, .6)
	if want := [5]bool{1: true, 3: true}; [5]bool(kept) != want {
		t.Errorf("kept %v, want %v", kept, want)
	}
	if n := keepBest(make([]float32, 10), .7); [10]bool(n) != [10]bool{true, true, true} {
		t.Errorf("kept %v of equal lines, want the first three", n)
	}
	s := sample{Gold: []int{1, 2, 4}, Alt: [][]int{{4, 5}, {2, 4}}}
	if got := s.recall(kept); got != 1 {
		t.Errorf("recall with alternatives is %v, want 1", got)
	}
	s.Alt = nil
	if got := s.recall(kept); got != 2./3 {
		t.Errorf("recall is %v, want 2/3", got)
	}
}
