// Package cputime measures processor time for tests that hold code to a limit. A busy machine makes processor time
// longer too, because threads share caches and cores; Least corrects for that with a fixed piece of work.
package cputime

import (
	"regexp"
	"strings"
	"time"
)

// Least runs f up to tries times, until a run took at most enough, and returns the shortest processor time.
// Each run is divided by the slowness of the machine at that moment: how much longer a fixed piece of work takes than
// on two idle cores.
func Least(tries int, enough time.Duration, f func()) time.Duration {
	least := time.Duration(1 << 62)
	for range tries {
		before := Slowness()
		began := Used()
		f()
		took := Used() - began
		least = min(least, time.Duration(float64(took)/min(before, Slowness())))
		if least <= enough {
			break
		}
	}
	return least
}

var (
	referencePattern = regexp.MustCompile(`(a|b)*c|(?:ab)+d`)
	referenceText    = strings.Repeat("ab", 8<<10)
)

// referenceTime is what the reference took on two idle cores.
const referenceTime = 1200 * time.Microsecond

// Slowness is how much longer the reference takes now than on an idle machine, at least 1 and at most 8.
func Slowness() float64 {
	best := time.Duration(1 << 62)
	for range 3 {
		began := Used()
		referencePattern.MatchString(referenceText)
		best = min(best, Used()-began)
	}
	return max(1, min(8, float64(best)/float64(referenceTime)))
}
