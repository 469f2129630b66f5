package chat

import (
	"context"
	"log/slog"

	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/meter"
)

// recordCost adds a reply to the ledger, and says whether masking changed its cost. Each round of a request
// is recorded by itself, in order.
func (px *Proxy) recordCost(ctx context.Context, c *call, from *provider, model string, u llm.Usage) (meter.Cost, bool) {
	e := meter.LedgerEntry{
		Tenant: c.caller.Tenant(), Provider: from.Name, Model: model, Usage: meter.Tokens(u),
		Rates: px.ratesOf(ctx, c, from, model), Round: c.round, PreviousOutput: c.previousOutput,
	}
	px.setPreviousOutput(&e, c, u.Output)
	if from == c.routed && px.deps.CountInput != nil {
		px.deps.CountInput(c.shrunk, u.Fresh+u.Cached+u.Created)
	}
	px.warnMissingPrices(ctx, from, u)
	fillEntry(&e, c.shrunk)
	if from != c.routed {
		e.CacheState, e.PreviousTokens = meter.CacheUnknown, 0 // nothing is known about the cache of a fallback
	}
	px.learned.observe(ctx, from, c.model, e)
	if c.readback == nil || c.readback.marks != nil || !c.codec.Wire().MarkedCacheOnly {
		e.Overhead.Uncached = 0 // it is in the cache: marked by the client or by us, or the provider needs no marks
	}
	cost := px.deps.Meter.Charge(e)
	if c.spending != nil {
		c.spending.addUsage(u, e.Spent())
	}
	return cost, len(e.Cuts) > 0 || cost.Recovery > 0
}

// setPreviousOutput sets the output that asked for a request which only reads back: of the round before, or, where
// the client answers recover_text itself, of its request before.
func (px *Proxy) setPreviousOutput(e *meter.LedgerEntry, c *call, output int64) {
	c.previousOutput = output
	key := func(place history.Hash) string {
		return c.caller.Tenant() + "\x00" + c.routed.Name + "\x00" + string(place[:])
	}
	if s := c.shrunk; c.round == 0 && s.Overhead.OnlyReadBack && s.PlaceBefore != (history.Hash{}) {
		e.PreviousOutput, _ = px.outputs.Get(key(s.PlaceBefore))
	}
	if c.shrunk.Place != (history.Hash{}) {
		px.outputs.Put(key(c.shrunk.Place), output, 1)
	}
}

// ratesOf is what a provider charges for a reply. Where the name that the client asked for has no price, such as the
// name of a deployment, the name in the reply counts.
func (px *Proxy) ratesOf(ctx context.Context, c *call, from *provider, replied string) meter.Rates {
	price := px.pricesFor(ctx, from, c.model)
	if price.assumed && replied != c.model {
		if other := from.prices.priceOf(replied); !other.assumed {
			price = other
		}
	}
	return price.rates
}

// pricesFor is what a provider charges for a model.
func (px *Proxy) pricesFor(ctx context.Context, p *provider, model string) modelPrice {
	m := p.prices.priceOf(model)
	px.learned.complete(ctx, p, model, &m)
	return m
}

// warnMissingPrices warns once per provider that it caches, but nothing says what cached input costs: the window then
// moves at every turn, which costs more than it saves. With llm.price_table there is always a price.
func (px *Proxy) warnMissingPrices(ctx context.Context, from *provider, u llm.Usage) {
	if u.Cached == 0 || from.prices.table != nil || len(from.prices.own) > 0 || from.Cache.Read < from.Cache.Write {
		return
	}
	if _, told := px.unpriced.LoadOrStore(from.Name, true); !told {
		slog.WarnContext(ctx, "this provider caches prompts, but its entry has no cache prices: masking at every turn breaks its cache; set cache, or llm.price_table", "provider", from.Name)
	}
}

// fillEntry copies what was done to a request into its ledger entry. Masking results of recover_text saves
// nothing: without masking they would not exist.
func fillEntry(e *meter.LedgerEntry, s masking.Result) {
	e.SentTokens, e.OriginalTokens, e.PreviousTokens = s.ReadTokens, s.OriginalTokens, s.PreviousTokens
	e.BoundaryMoved, e.CacheState = s.BoundaryMoved, s.CacheState
	e.NothingMarked, e.Overhead, e.NotMasking = s.NothingMarked, s.Overhead, s.NotMasking
	for _, c := range s.Cuts {
		e.SentTokens -= c.Tokens
		if recovertool.IsName(c.Tool) {
			e.OriginalTokens, e.PreviousTokens = e.OriginalTokens-c.Tokens, max(0, e.PreviousTokens-c.Tokens)
			e.Overhead.Old = max(0, e.Overhead.Old-c.Tokens)
			e.Overhead.Uncached = min(e.Overhead.Uncached, e.Overhead.Old)
			continue
		}
		e.Cuts = append(e.Cuts, meter.ToolCut{Tool: fault.Clip(c.Tool), Results: c.Results, Tokens: c.Tokens, NeverSent: c.NeverSent, IsNew: c.IsNew, AtHub: c.AtHub})
	}
}
