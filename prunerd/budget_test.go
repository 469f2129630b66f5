package prunerd

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// The memory of a call is reserved from the budget: a text of nothing but line breaks takes a hundred
// times its size. A call that does not fit is rejected, and everything is released.
func TestCallsReserveMemory(t *testing.T) {
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
		scope := budget.Scope("client")
		_, err := s.Call(membudget.NewContext(t.Context(), scope), "t", tt.tool, tt.args)
		if (err == nil) != tt.fits || err != nil && fault.KindOf(err) != fault.Full {
			t.Errorf("%s: %v", name, err)
		}
		if scope.Release(); budget.Stats().Held != 0 {
			t.Errorf("%s: %+v", name, budget.Stats())
		}
	}
}
