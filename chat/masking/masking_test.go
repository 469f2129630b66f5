package masking

import (
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/llm/prices"
)

// The plan gets everything that the table knows about a model: steps, context window, and how its cache works.
func TestPlanGetsThePriceOfTheTable(t *testing.T) {
	find := func(kind, host, model string) Request {
		p, ok := prices.BuiltIn().Lookup(kind, host, model)
		if !ok {
			t.Fatal("no price of ", model)
		}
		return Request{Price: p, CachePrices: CachePrices{Write: 1.25, WriteHour: 2, Read: .1}}
	}
	haiku := find("anthropic", "api.anthropic.com", "claude-haiku-5-5")
	grok := find("openai", "api.x.ai", "grok-4.7")
	for name, tt := range map[string]struct {
		o    Request
		ttl  time.Duration
		want history.CachePrices
	}{
		"marked":             {haiku, 0, history.CachePrices{Write: 1.25, Read: .1, Step: history.PriceStep{AboveTokens: 100_000, Factor: 5}, ContextTokens: 1_000_000, MinTokens: 512, Lookback: 20}},
		"marked for an hour": {haiku, time.Hour, history.CachePrices{Write: 2, Read: .1, Step: history.PriceStep{AboveTokens: 100_000, Factor: 5}, ContextTokens: 1_000_000, MinTokens: 512, Lookback: 20}},
		"longest prefix":     {grok, 0, history.CachePrices{Write: 1.25, Read: .1, Step: history.PriceStep{AboveTokens: 200_000, Factor: 2}, ContextTokens: 500_000, LongestPrefix: true}},
		"not known":          {Request{CachePrices: CachePrices{Write: 1, Read: .5}}, 0, history.CachePrices{Write: 1, Read: .5}},
	} {
		if got := tt.o.forPlan(&history.Dialogue{BreakpointTTL: tt.ttl}); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}
