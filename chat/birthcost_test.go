package chat_test

import (
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// billed is what a provider charges for a conversation through a gateway.
func billed(t *testing.T, talk llmtest.Trajectory, shape llmtest.Shape, birth chat.Birth, masks bool) llmtest.Ledger {
	t.Helper()
	far := llmtest.New(t, llmtest.Options{Forgetful: true})
	far.ScriptFunc(talk.Answer)
	kind := "openai"
	if shape == llmtest.Messages {
		kind = "anthropic"
	}
	p := provider("p", kind, far.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1.25, .1 })
	g := open(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink = chat.Midwife(keeper(t, nil), time.Now)(birth)
		s.Chat.Observation.Schema1.Enabled = masks
	})
	if _, err := (llmtest.Player{URL: g.URL, Shape: shape}).Play(t.Context(), talk); err != nil {
		t.Fatal(err)
	}
	return far.Bill()
}

// What shortening new results saves on conversations with long ones, beside what masking old ones
// does. At /v1/messages the client marks its last messages, as coding agents do, so that nothing
// old is masked; what is shortened from the start saves there too. The gateway is told the prices of
// write 1.25 and read 0.1, and so it is charged.
func TestBirthCost(t *testing.T) {
	prices := llmtest.Prices{Write: 1.25, Read: .1}
	chosen := map[string]bool{"big files, few turns": true}
	for _, shape := range []llmtest.Shape{llmtest.Chat, llmtest.Messages} {
		for _, talk := range llmtest.Recorded() {
			if !chosen[talk.Name] {
				continue
			}
			cost := func(birth chat.Birth, masks bool) float64 {
				return billed(t, talk, shape, birth, masks).Cost(prices)
			}
			off, mask, cut := chat.DefaultBirth(), chat.DefaultBirth(), chat.DefaultBirth()
			mask.Reduce, cut.Reduce = "mask", "prune"
			plain := cost(off, false)
			auto, masked, pruned, both := cost(off, true)/plain, cost(mask, false)/plain, cost(cut, false)/plain, cost(cut, true)/plain
			t.Logf("%-9s %-20s auto %.2f | mask %.2f, prune %.2f | auto and prune %.2f", shape, talk.Name, auto, masked, pruned, both)
			if masked > 1 || pruned > 1 || both > auto {
				t.Errorf("%s, %s: shortening new results costs", shape, talk.Name)
			}
		}
	}
}
