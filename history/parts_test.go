package history

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/llm"
)

// manyParts are requests of many small parts: messages, calls and results.
func manyParts(n int) map[string]struct {
	shape llm.Codec
	body  string
} {
	type request = struct {
		shape llm.Codec
		body  string
	}
	return map[string]request{
		"messages": {openAIChat, `{"messages":[{"role":"user"}` + strings.Repeat(`,{"role":"tool"}`, n) + `]}`},
		"calls":    {openAIChat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}` + strings.Repeat(`,{"id":"a"}`, n) + `]}]}`},
		"results": {anthropicMessages, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}` +
			strings.Repeat(`,{"type":"tool_result","tool_use_id":"a"}`, n) + `]}]}`},
		"items": {openAIResponses, `{"input":[{"type":"message"}` + strings.Repeat(`,{"type":"function_call_output","call_id":"a"}`, n) + `]}`},
	}
}

// I9: a request of very many small parts is refused: reading it would take many times its bytes.
func TestPartsAreBounded(t *testing.T) {
	for name, c := range manyParts(500_000) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(c.shape, []byte(c.body), 64)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errTooMany) {
			t.Errorf("%s: got error %v, want %v", name, err, errTooMany)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4*maxParts*partBytes {
			t.Errorf("%s: reading %d bytes allocated %d", name, len(c.body), allocated)
		}
	}
}

// The parts of a request are charged to the memory budget while they are read; without memory it is refused.
func TestPartsAreCharged(t *testing.T) {
	for name, c := range manyParts(20_000) {
		for total, want := range map[int64]fault.Kind{1 << 30: 0, 16 << 20: fault.Full} {
			budget := membudget.New(total)
			scope := budget.Scope("a")
			_, err := NewConversationCache(0, 64).Read("o", c.shape, []byte(c.body), scope)
			if want == 0 && (err != nil || budget.Stats().Held < 19_000*partBytes) || want != 0 && fault.KindOf(err) != want {
				t.Errorf("%s with a budget of %d bytes: error %v, %d bytes charged", name, total, err, budget.Stats().Held)
			}
		}
	}
}
