package chat_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/recall"
)

// What a model reads back is charged to the memory budget at its JSON-escaped size, which can be six
// times the text's, and stays charged in all later rounds.
func TestRoundsAreChargedByTheirSize(t *testing.T) {
	r := newRecall(t, nil)
	id, err := r.StoreText(t.Context(), auth.DefaultTenant, strings.Repeat("\x01", 20_000), recall.Origin{Server: masking.ProviderOrigin("p")})
	if err != nil {
		t.Fatal(err)
	}
	budget := membudget.New(64 << 20)
	d := dialects[fakeprovider.Chat]
	p := fakeprovider.New(t, fakeprovider.Options{MinCacheTokens: 64})
	p.ScriptFunc(func(req fakeprovider.Request) fakeprovider.Step {
		round := len(req.Results) - 1
		if held := budget.Stats().Held; held < int64(len(req.Body)) {
			t.Errorf("round %d: %d bytes are charged for a request of %d", round, held, len(req.Body))
		}
		if round == 3 {
			if len(req.Body) < 3*6*20_000 {
				t.Errorf("nothing was read back: %d bytes", len(req.Body))
			}
			return fakeprovider.ReplyText("It is 7.")
		}
		return fakeprovider.Step{Calls: []fakeprovider.Call{recoverCall(id, "")}}
	})
	g := gatewayTo(t, d, p, withRecovery(r, withoutMasking), withLimits(func(l *chat.Limits) { l.RecentBytes = 0 }),
		func(_ *chat.Settings, d *chat.Deps) { d.Budget = budget })
	if _, err := d.send(t.Context(), t, g.URL, d.request(false, d.conversation(1)...), false); err != nil {
		t.Fatal(err)
	}
	requireAccepted(t, p, 4)
}
