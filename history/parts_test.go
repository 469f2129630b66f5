package history

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// manyParts are requests of many small parts: messages, calls and results.
func manyParts(n int) map[string]struct {
	shape Shape
	body  string
} {
	type request = struct {
		shape Shape
		body  string
	}
	return map[string]request{
		"messages": {Chat, `{"messages":[{"role":"user"}` + strings.Repeat(`,{"role":"tool"}`, n) + `]}`},
		"calls":    {Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}` + strings.Repeat(`,{"id":"a"}`, n) + `]}]}`},
		"results": {Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}` +
			strings.Repeat(`,{"type":"tool_result","tool_use_id":"a"}`, n) + `]}]}`},
		"items": {Responses, `{"input":[{"type":"message"}` + strings.Repeat(`,{"type":"function_call_output","call_id":"a"}`, n) + `]}`},
	}
}

// I9: a request of very many small parts is not taken apart: it would take many times its bytes.
func TestPartsAreBounded(t *testing.T) {
	for name, c := range manyParts(500_000) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(c.shape, []byte(c.body), 64)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errTooMany) {
			t.Errorf("%s: %v", name, err)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 4*maxParts*partBytes {
			t.Errorf("%s: %d bytes took %d", name, len(c.body), taken)
		}
	}
}

// What is found in a request is charged while it is found, and refused where there is no memory.
func TestPartsAreCharged(t *testing.T) {
	for name, c := range manyParts(20_000) {
		for total, want := range map[int64]fault.Kind{1 << 30: 0, 16 << 20: fault.Full} {
			budget := membudget.New(total)
			scope := budget.Scope("a")
			_, err := NewRecent(0, 64).Read("o", c.shape, []byte(c.body), scope)
			if want == 0 && (err != nil || budget.Stats().Held < 19_000*partBytes) || want != 0 && fault.KindOf(err) != want {
				t.Errorf("%s with %d bytes: %v, holding %d", name, total, err, budget.Stats().Held)
			}
		}
	}
}
