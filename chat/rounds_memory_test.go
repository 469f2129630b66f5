package chat_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/recall"
)

// What a model reads back is charged as it stands in the next request, where escapes can make it six times
// as long, and stays charged for as many rounds as there are.
func TestRoundsAreChargedByTheirSize(t *testing.T) {
	keep := keeper(t, nil)
	id, err := keep.Keep(t.Context(), auth.DefaultTenant, strings.Repeat("\x01", 20_000), recall.Origin{Server: chat.OriginOf("p")})
	if err != nil {
		t.Fatal(err)
	}
	budget := membudget.New(64 << 20)
	d := dialects[llmtest.Chat]
	p := llmtest.New(t, llmtest.Options{MinCache: 64})
	p.ScriptFunc(func(r llmtest.Request) llmtest.Step {
		round := len(r.Results) - 1
		if held := budget.Stats().Held; held < int64(len(r.Body)) {
			t.Errorf("round %d: %d bytes are charged for a request of %d", round, held, len(r.Body))
		}
		if round == 3 {
			if len(r.Body) < 3*6*20_000 {
				t.Errorf("nothing was read back: %d bytes", len(r.Body))
			}
			return llmtest.Say("It is 7.")
		}
		return llmtest.Step{Calls: []llmtest.Call{readBack(id, "")}}
	})
	g := doorTo(t, d, p, recovering(keep, unmasked), llm(func(l *chat.Limits) { l.RecentBytes = 0 }),
		func(_ *chat.Settings, d *chat.Deps) { d.Budget = budget })
	if _, err := d.ask(t.Context(), t, g.URL, d.request(false, d.conversation(1)...), false); err != nil {
		t.Fatal(err)
	}
	accepted(t, p, 4)
}
