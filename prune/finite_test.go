package prune

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scoresAreFinite: no line scores NaN or infinity, and no part of a score is either.
func scoresAreFinite(tb testing.TB, d *Doc) {
	tb.Helper()
	for i, s := range d.Scores() {
		if !finite(float64(s)) {
			tb.Fatalf("line %d of %d scores %v: %q", i+1, d.Len(), s, d.Text(i+1, i+1))
		}
	}
	for i, why := range d.Explain() {
		for _, p := range why.Parts {
			if !finite(float64(p.Points)) {
				tb.Fatalf("line %d of %d has %v for %s", i+1, d.Len(), p.Points, p.Name)
			}
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// farCall is code whose only call of one of its functions stands so many lines away from the only
// word of the goal "quorum". What reaches that line of the word's score is .75^distance of it.
func farCall(distance int) string {
	var b strings.Builder
	b.WriteString("func helper(a int) int {\n\tb := a\n\treturn b\n}\n\nfunc other() {\n\tquorum = 1\n")
	for i := range distance {
		fmt.Fprintf(&b, "\tx%d = %d\n", i, i)
	}
	b.WriteString("}\n\nfunc last() {\n\tc = helper(1)\n}\n")
	return b.String()
}

// A signal whose peak is a denormal number once made scores NaN: the weight divided by it is
// infinite, and 0 times infinity is not a number.
func TestScoresAreFiniteWhenThePeakOfASignalIsDenormal(t *testing.T) {
	denormal := 0
	for distance := 250; distance < 400; distance++ {
		d := cutting{text: farCall(distance), goal: "quorum", kind: Code}.read(t)
		called := make([]float32, d.Len())
		newCodeGoal(d.shape.code, d.goal, d.index).called(called)
		if top := peak(called); top < 0x1p-126 {
			denormal++
		}
		scoresAreFinite(t, d)
	}
	if denormal < 10 {
		t.Fatalf("only %d texts have a peak that is denormal: the test proves nothing", denormal)
	}
}

// Rescaled values keep their order and end at the weight, whatever the peak; where the quotient is
// finite they are bit for bit what multiplication by it gives.
func TestRescaledValuesAreFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SliceOfN(rapid.Uint32Range(0, math.Float32bits(math.MaxFloat32)), 1, 20).Draw(t, "bits")
		weight := rapid.Float32Range(.01, 5).Draw(t, "weight")
		v := make([]float32, len(bits))
		for i, b := range bits {
			if rapid.Bool().Draw(t, "small") {
				b %= 1 << 24 // denormal, or close
			}
			v[i] = math.Float32frombits(b)
		}
		top := peak(v)
		was := append([]float32(nil), v...)
		rescale(v, weight)
		for i := range v {
			if !finite(float64(v[i])) || v[i] < 0 || float64(v[i]) > float64(weight)*1.001 {
				t.Fatalf("%v of %v becomes %v", was[i], top, v[i])
			}
			if scale := weight / top; finite(float64(scale)) && v[i] != was[i]*scale {
				t.Fatalf("%v of %v becomes %v, not %v", was[i], top, v[i], was[i]*scale)
			}
		}
	})
}

// Texts that are long, so that what fades underflows; with goals whose words are in all lines, in
// one line and in none.
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

// Whatever a reranker says, and whatever is said in its name.
func TestScoresAreFiniteAfterBlend(t *testing.T) {
	odd := []float64{0, 1, -1, .5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, -5e-324, 1e-310}
	text := strings.Repeat("func quorum() {\n\tx = 1\n}\n\n", 10)
	for _, a := range odd {
		for _, b := range odd {
			d := cutting{text: text, goal: "quorum", kind: Code}.read(t)
			d.Blend([]Chunk{{1, 20}, {21, 40}}, []float64{a, b})
			scoresAreFinite(t, d)
		}
	}
}
