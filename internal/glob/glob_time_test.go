//go:build unix

package glob

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// Servers choose templates and clients choose URIs: many wildcards against a long text must take linear
// time, not the product of both lengths.
func TestMatchIsLinear(t *testing.T) { // not parallel: it measures the CPU time of the process
	long := strings.Repeat("a", 10<<20)
	for _, pattern := range []string{strings.Repeat("{a}", 170), strings.Repeat("{}a", 170), strings.Repeat("{a}a", 128) + "b", strings.Repeat("a{}", 170) + "b", strings.Repeat("{}aaaaaaaab", 40)} {
		var fastest time.Duration = 1 << 62
		for range 3 { // other work on the machine slows some runs down
			began := cpuTime(t)
			FromTemplate(pattern).Match(long)
			New(strings.NewReplacer("{a}", "*", "{}", "*").Replace(pattern)).Match(long)
			fastest = min(fastest, cpuTime(t)-began)
		}
		if fastest > 100*time.Millisecond {
			t.Errorf("%.40s: %v", pattern, fastest)
		}
	}
}

// S11: the worst patterns that a configuration may have decide about a name of 100 KB within 10 ms.
func TestS11WorstPatterns(t *testing.T) { // not parallel: it measures the CPU time of the process
	for _, text := range []string{strings.Repeat("a", 100<<10), strings.Repeat("ab", 50<<10), strings.Repeat("é", 50<<10)} {
		for _, pattern := range []string{
			strings.Repeat("*a", MaxLength/2), strings.Repeat("a*", MaxLength/2) + "b", strings.Repeat("*", MaxLength), strings.Repeat("*aaaaaaaab", MaxLength/10), strings.Repeat("*ab", MaxLength/3) + "c",
		} {
			p := New(pattern)
			var fastest time.Duration = 1 << 62
			for range 5 { // other work on the machine slows some runs down
				began := cpuTime(t)
				p.Match(text)
				fastest = min(fastest, cpuTime(t)-began)
			}
			if fastest > 10*time.Millisecond {
				t.Errorf("%.40s: %v", pattern, fastest)
			}
		}
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
