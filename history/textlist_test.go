package history

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Qwen Code sends every result of a chat completion as a list of one text. H7 leaves lists alone; with profile =
// "agents" they are masked as texts are, and stay lists.
func TestListsOfTextsAreMaskedForAgents(t *testing.T) {
	var b strings.Builder
	for i := range 4 {
		fmt.Fprintf(&b, `,{"role":"assistant","tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}]}`, i)
		fmt.Fprintf(&b, `,{"role":"tool","tool_call_id":"c%d","content":[{"type":"text","text":"%s"}]}`, i, strings.Repeat("x", 500))
	}
	body := []byte(`{"messages":[{"role":"user","content":"go"}` + b.String() + `]}`)
	p := DefaultPolicy()
	p.WindowTurns, p.Advance = 2, AdvanceEachTurn
	if sent, plan := maskRequest(t, openAIChat, body, p, CachePrices{}, nil); len(plan.Cuts) != 0 || !bytes.Equal(sent, body) {
		t.Errorf("to the letter of H7 %d lists were masked", len(plan.Cuts))
	}
	p.Agents = true
	sent, plan := maskRequest(t, openAIChat, body, p, CachePrices{}, nil)
	if len(plan.Cuts) != 2 {
		t.Errorf("%d of 2 old results were masked", len(plan.Cuts))
	}
	checkStructureKept(t, body, sent)
	if n := strings.Count(string(sent), `"content":[{"type":"text","text":"`); n != 4 {
		t.Errorf("%d of 4 results are still lists: %s", n, sent)
	}
}
