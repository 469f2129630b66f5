//go:build unix

package glob

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
)

// Servers choose templates and clients choose URIs: many wildcards against a long text must take linear
// time, not the product of both lengths.
func TestMatchIsLinear(t *testing.T) { // not parallel: it measures the CPU time of the process
	long := strings.Repeat("a", 10<<20)
	for _, pattern := range []string{strings.Repeat("{a}", 170), strings.Repeat("{}a", 170), strings.Repeat("{a}a", 128) + "b", strings.Repeat("a{}", 170) + "b", strings.Repeat("{}aaaaaaaab", 40)} {
		fastest := cputime.Least(20, 90*time.Millisecond, func() {
			FromTemplate(pattern).Match(long)
			New(strings.NewReplacer("{a}", "*", "{}", "*").Replace(pattern)).Match(long)
		})
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
			fastest := cputime.Least(20, 9*time.Millisecond, func() { p.Match(text) })
			if fastest > 10*time.Millisecond {
				t.Errorf("%.40s: %v", pattern, fastest)
			}
		}
	}
}
