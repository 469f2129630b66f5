//go:build unix

package access

import (
	"fmt"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
)

// The bars: 20 µs of CPU per call with 100 rules, 10 ms per list of 1,000 tools, and twice
// that for the first list of a caller. The best of several runs counts: a
// busy machine makes runs longer, never shorter.
func TestCostOf100Rules(t *testing.T) {
	r, tools := newRules(t, Allow, manyRules()...), benchmarkTools()
	target := call("fs", "write_7", `{"path":"/home/ann/notes.md","content":"hello"}`)
	best := func(run func(i int)) time.Duration {
		i := 0
		return cputime.Least(20, 0, func() { run(i); i++ })
	}
	perCall := best(func(int) {
		for range 100 {
			r.Decide(benchmarkCaller(7), target)
		}
	}) / 100
	list := func(who auth.Caller) {
		for _, target := range tools {
			r.MayList(who, target)
		}
	}
	again, first := best(func(int) { list(benchmarkCaller(7)) }), best(func(i int) { list(benchmarkCaller(100 + i)) })
	t.Logf("%v per call, %v per list, %v per first list of a caller", perCall, again, first)
	if perCall > slower*20*time.Microsecond || again > slower*10*time.Millisecond || first > slower*20*time.Millisecond {
		t.Errorf("%v per call, %v per list, %v per first list of a caller", perCall, again, first)
	}
}

// Rules that read arguments cost nothing in calls of tools that they are not for.
func TestRulesForOtherToolsAreDecidedWithoutArguments(t *testing.T) {
	var rules []Rule
	for i := range 100 {
		rules = append(rules, deny(fmt.Sprintf(`arguments.path.startsWith("/etc/") && server == "fs" && tool == "write_%d"`, i)))
	}
	r := newRules(t, Allow, rules...)
	if p := r.planFor(benchmarkCaller(7), view{Target: call("fs", "write_7", `{}`)}); len(p.open) != 1 || p.open[0].number != 8 {
		t.Errorf("%d rules wait for the arguments", len(p.open))
	}
	if p := r.planFor(benchmarkCaller(7), view{Target: call("fs", "read", `{}`)}); len(p.open) != 0 {
		t.Errorf("%d rules wait for the arguments of another tool", len(p.open))
	}
}
