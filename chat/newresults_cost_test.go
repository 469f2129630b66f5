package chat_test

import (
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// billFor is what a provider charges for a conversation that goes through a gateway.
func billFor(t *testing.T, dialogue trajectories.Trajectory, shape fakeprovider.Shape, newResults masking.NewResults, maskOld bool) fakeprovider.Bill {
	t.Helper()
	llmProvider := fakeprovider.New(t, fakeprovider.Options{DiscardBodies: true})
	llmProvider.ScriptFunc(dialogue.Answer)
	kind := "openai"
	if shape == fakeprovider.Messages {
		kind = "anthropic"
	}
	p := providerConfig("p", kind, llmProvider.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1.25, .1 })
	g := newGateway(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink = chat.NewResultsMasker(newRecall(t, nil), time.Now)(newResults)
		s.Chat.ObservationMasking.Schema1.Enabled = maskOld
	})
	if _, err := (trajectories.Replayer{URL: g.URL, Shape: shape}).Run(t.Context(), dialogue); err != nil {
		t.Fatal(err)
	}
	return llmProvider.Bill()
}

// Shortening long new results never costs more than not shortening them, alone or with masking. At
// /v1/messages the client marks its last messages, as coding agents do, so nothing old is masked. The
// gateway is configured with the prices that the provider charges: write 1.25, read 0.1.
func TestNewResultsCost(t *testing.T) {
	prices := fakeprovider.Prices{Write: 1.25, Read: .1}
	chosen := map[string]bool{"big files, few turns": true}
	for _, shape := range []fakeprovider.Shape{fakeprovider.Chat, fakeprovider.Messages} {
		for _, dialogue := range trajectories.Synthetic() {
			if !chosen[dialogue.Name] {
				continue
			}
			cost := func(newResults masking.NewResults, maskOld bool) float64 {
				return billFor(t, dialogue, shape, newResults, maskOld).Cost(prices)
			}
			off, mask, cut := masking.DefaultNewResults(), masking.DefaultNewResults(), masking.DefaultNewResults()
			mask.Reduce, cut.Reduce = "mask", "prune"
			plain := cost(off, false)
			auto, masked, pruned, both := cost(off, true)/plain, cost(mask, false)/plain, cost(cut, false)/plain, cost(cut, true)/plain
			t.Logf("%-9s %-20s auto %.2f | mask %.2f, prune %.2f | auto and prune %.2f", shape, dialogue.Name, auto, masked, pruned, both)
			if masked > 1 || pruned > 1 || both > auto {
				t.Errorf("%s, %s: shortening new results costs more than it saves", shape, dialogue.Name)
			}
		}
	}
}
