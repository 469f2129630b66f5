package cputime

import (
	"testing"
	"time"
)

func TestReferenceTime(t *testing.T) {
	best := time.Duration(1 << 62)
	for range 200 {
		began := Used()
		referencePattern.MatchString(referenceText)
		best = min(best, Used()-began)
	}
	t.Logf("%v, expected %v on an idle machine", best, referenceTime)
}

func TestLeast(t *testing.T) {
	runs := 0
	if Least(5, time.Hour, func() { runs++ }); runs != 1 {
		t.Errorf("%d runs, though the first was quick enough", runs)
	}
	runs = 0
	if Least(5, -1, func() { runs++ }); runs != 5 {
		t.Errorf("%d runs, though none was quick enough", runs)
	}
}
