package prunerd

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// What a call holds while it is served is taken from the budget: a text of nothing but line breaks
// takes a hundred times its size. What does not fit is refused, and everything is given back.
func TestCallsTakeFromTheBudget(t *testing.T) {
	s, _ := open(t, nil)
	breaks := strings.Repeat("\n", 1_000_000)
	id := s.mustPrune(t, "a\nb", "g", "docs", usual).PruneID
	for name, tt := range map[string]struct {
		tool  string
		args  []byte
		total int64
		fits  bool
	}{
		"a small text":     {toolPrune, pruneArgs("a\nb", "g", "code", usual), 64 << 20, true},
		"many lines":       {toolPrune, pruneArgs(breaks, "g", "code", options{.5, 1, 60_000, true, true}), 64 << 20, false},
		"many lines, room": {toolPrune, pruneArgs(breaks, "g", "code", options{.5, 1, 60_000, true, true}), 1 << 30, true},
		"a small reading":  {toolRecover, recoverArgs(id, true, 1, 2), 64 << 20, true},
	} {
		budget := membudget.New(tt.total)
		scope := budget.Scope("somebody")
		_, err := s.Call(membudget.With(t.Context(), scope), "t", tt.tool, tt.args)
		if (err == nil) != tt.fits || err != nil && fault.KindOf(err) != fault.Full {
			t.Errorf("%s: %v", name, err)
		}
		if scope.Release(); budget.Stats().Held != 0 {
			t.Errorf("%s: %+v", name, budget.Stats())
		}
	}
}
