package code

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// farCall is code whose only call of helper is so many lines away from the only line with the goal's
// word "quorum": the call gets .75^distance of that line's score.
func farCall(distance int) string {
	var b strings.Builder
	b.WriteString("func helper(a int) int {\n\tb := a\n\treturn b\n}\n\nfunc other() {\n\tquorum = 1\n")
	for i := range distance {
		fmt.Fprintf(&b, "\tx%d = %d\n", i, i)
	}
	b.WriteString("}\n\nfunc last() {\n\tc = helper(1)\n}\n")
	return b.String()
}

// A signal whose peak is a denormal number must not make scores NaN: the weight divided by it is
// infinite, and 0 times infinity is not a number.
func TestScoresAreFiniteWhenThePeakOfASignalIsDenormal(t *testing.T) {
	denormal := 0
	for distance := 250; distance < 400; distance++ {
		c, g := Parse(relevance.Split(farCall(distance))), relevance.NewGoal("quorum")
		x := relevance.NewIndex(c.Lines, g)
		called := make([]float32, c.Count())
		newScorer(c, g, x).calledSignal(called)
		if top := relevance.Peak(called); top < 0x1p-126 {
			denormal++
		}
		for i, s := range Score(c, g, x) {
			if !finite(float64(s)) {
				t.Fatalf("line %d scores %v", i+1, s)
			}
		}
		EachPart(c, g, x, func(line int, name string, points float32) {
			if !finite(float64(points)) {
				t.Fatalf("line %d has %v for %s", line+1, points, name)
			}
		})
	}
	if denormal < 10 {
		t.Fatalf("only %d texts have a peak that is denormal: the test proves nothing", denormal)
	}
}
