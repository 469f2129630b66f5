//go:build unix

package hub

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patterns of many wildcards against long texts, as a server's templates and a client's address can
// be: linear, not the product of the two.
func TestGlobIsLinear(t *testing.T) { // not parallel: it measures the process
	long := strings.Repeat("a", 10<<20)
	for _, pattern := range []string{strings.Repeat("{a}", 170), strings.Repeat("{}a", 170), strings.Repeat("{a}a", 128) + "b", strings.Repeat("a{}", 170) + "b", strings.Repeat("{}aaaaaaaab", 40)} {
		var took time.Duration = 1 << 62
		for range 3 { // what else the machine does slows down some
			began := processorTime(t)
			templateGlob(pattern).match(long)
			newGlob(strings.NewReplacer("{a}", "*", "{}", "*").Replace(pattern)).match(long)
			took = min(took, processorTime(t)-began)
		}
		if took > 100*time.Millisecond {
			t.Errorf("%.40s: %v", pattern, took)
		}
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
