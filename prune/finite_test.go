package prune

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scoresAreFinite: no line scores NaN or infinity, and no part of a score is either.
func scoresAreFinite(tb testing.TB, d *ScoredText) {
	tb.Helper()
	for i, s := range d.Scores() {
		if !finite(float64(s)) {
			tb.Fatalf("line %d of %d scores %v: %q", i+1, d.LineCount(), s, d.Lines(i+1, i+1))
		}
	}
	for i, why := range d.Explain() {
		for _, p := range why.Parts {
			if !finite(float64(p.Points)) {
				tb.Fatalf("line %d of %d has %v for %s", i+1, d.LineCount(), p.Points, p.Name)
			}
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Long texts, in which decaying scores underflow, with goals whose words are in all lines, in one line
// and in none.
func TestScoresOfLongTextsAreFinite(t *testing.T) {
	lines := []string{
		"", "\tx = 1", "\tquorum = helper(2)", "\thelper(3)", "func helper(a int) {", "def quorum(self):", "}", "# quorum", "- quorum",
		"error: quorum failed at x.go:12", "exit code 1", "\x1b[31mFAIL\x1b[0m", "```", "é漢 ünï", "\xff\xfe", "class A:", "import quorum", "    return helper(quorum)",
	}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(1, 6).Draw(t, "runs") {
			line := rapid.SampledFrom(lines).Draw(t, "line") + "\n"
			b.WriteString(strings.Repeat(line, rapid.SampledFrom([]int{1, 1, 2, 30, 320, 700, 2000}).Draw(t, "times")))
		}
		goal := rapid.SampledFrom([]string{"", "quorum", "helper quorum", "why does the quorum fail --flag x.go:12", "zzz"}).Draw(t, "goal")
		for k := range kindNames {
			scoresAreFinite(rapidTB{t: t}, cutting{text: b.String(), goal: goal, kind: Kind(k)}.read(rapidTB{t: t}))
		}
	})
}

// Scores stay finite for any scores of a reranker.
func TestScoresAreFiniteWithChunkScores(t *testing.T) {
	extremes := []float64{0, 1, -1, .5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, -5e-324, 1e-310}
	text := strings.Repeat("func quorum() {\n\tx = 1\n}\n\n", 10)
	for _, a := range extremes {
		for _, b := range extremes {
			d := cutting{text: text, goal: "quorum", kind: Code}.read(t)
			d.AddChunkScores([]Chunk{{1, 20}, {21, 40}}, []float64{a, b})
			scoresAreFinite(t, d)
		}
	}
}
