package chat

import (
	"context"
	"log/slog"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
)

// learnedPrices is what replies told about the caches of models that have no row in the price table. Until something
// is told, a discount is assumed: a window that moves at every turn costs more than none where a provider caches,
// and waiting costs little where it does not. What is learned changes at most three times for a model, usually within
// its first requests, before the window has anything to mask; then the conversations that run are masked by the new
// prices, which may change their prefix once. It is stored, so that a restart does not learn again.
type learnedPrices struct {
	recall *recall.Recall // nil: only this process knows
	local  *gencache.Cache[string, learnedPrice]
}

// learnedPrice is what replies told about a model.
type learnedPrice struct {
	cached bool  // cached input was reported
	writes bool  // writes to the cache were reported
	misses uint8 // replies in a row that should have reported cached input and did not; at most enoughMisses
}

const (
	maxLearned = 1 << 10 // models in each generation
	// enoughMisses is how many replies in a row must report no cached input before a model counts as not cached.
	enoughMisses = 3
	// missedTokens is how much of the last request a reply must have been able to read from the cache; all
	// providers cache less.
	missedTokens = 8192
	// maxLearnedName is the longest name of a model about which something is remembered: clients choose names.
	maxLearnedName = 256
)

func newLearnedPrices(r *recall.Recall) *learnedPrices {
	return &learnedPrices{recall: r, local: gencache.New[string, learnedPrice](maxLearned)}
}

// isUncached says that the model's provider gives no discount.
func (l learnedPrice) isUncached() bool { return !l.cached && !l.writes && l.misses >= enoughMisses }

// complete fills in what is not known about the price of a model.
func (lp *learnedPrices) complete(ctx context.Context, p *provider, model string, m *modelPrice) {
	if !m.assumed {
		return
	}
	if l := lp.get(ctx, p, model); !l.isUncached() {
		// A provider of the table whose model is new charges for writes, if any of its models does.
		m.assumeCache(l.writes || p.prices.hostSeen && !l.cached)
	}
}

func (lp *learnedPrices) recordName(p *provider, model string) string {
	return "price\x00" + p.Name + "\x00" + p.prices.host + "\x00" + model
}

// get returns what is known about a model. The store is asked once in a while: what it has for sure is also in local.
func (lp *learnedPrices) get(ctx context.Context, p *provider, model string) learnedPrice {
	if len(model) > maxLearnedName {
		return learnedPrice{}
	}
	key := lp.recordName(p, model)
	if l, ok := lp.local.Get(key); ok {
		return l
	}
	var l learnedPrice
	if lp.recall != nil && lp.recall.Enabled() {
		raw, err := lp.recall.GetRecord(ctx, "", key)
		switch {
		case err == nil && len(raw) == 1:
			l = decodeLearned(raw[0])
		case err != nil && fault.KindOf(err) != fault.UnknownHandle:
			return l // the store may answer the next time
		}
	}
	lp.local.Put(key, l, 1)
	return l
}

// observe learns from a reply.
func (lp *learnedPrices) observe(ctx context.Context, p *provider, model string, e meter.LedgerEntry) {
	if len(model) > maxLearnedName || !p.prices.priceOf(model).assumed {
		return
	}
	before := lp.get(ctx, p, model)
	l := before
	l.cached, l.writes = l.cached || e.Usage.Cached > 0, l.writes || e.Usage.Created > 0
	switch {
	case l.cached || l.writes:
		l.misses = 0
	case e.CacheState == meter.CacheWarm && !e.BoundaryMoved && !e.NothingMarked && e.PreviousTokens >= missedTokens:
		l.misses = min(l.misses+1, enoughMisses)
	}
	if l == before {
		return
	}
	key := lp.recordName(p, model)
	lp.local.Put(key, l, 1)
	if l.storedBits() == before.storedBits() {
		return
	}
	slog.InfoContext(ctx, "the price of this model is not known; learned from its replies", "provider", p.Name, "model", fault.Clip(model), "cached", l.cached, "writes", l.writes)
	if lp.recall == nil || !lp.recall.Enabled() {
		return
	}
	if err := lp.recall.PutRecords(ctx, "", recall.Record{Name: key, Value: []byte{l.storedBits()}}); err != nil {
		slog.WarnContext(ctx, "what was learned about a model's price cannot be stored", "error", err)
	}
}

// The bits of a stored record.
const (
	learnedCached byte = 1 << iota
	learnedWrites
	learnedUncached
)

func (l learnedPrice) storedBits() (b byte) {
	if l.cached {
		b |= learnedCached
	}
	if l.writes {
		b |= learnedWrites
	}
	if l.isUncached() {
		b |= learnedUncached
	}
	return b
}

func decodeLearned(b byte) learnedPrice {
	l := learnedPrice{cached: b&learnedCached != 0, writes: b&learnedWrites != 0}
	if b&learnedUncached != 0 {
		l.misses = enoughMisses
	}
	return l
}
