package chat

import (
	"context"
	"log/slog"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/meter"
)

// weigh notes what the ledger must know of a request besides what was masked in it.
func (s *Shrunk) weigh(talk *history.Dialogue) {
	s.Unmarked = talk.Shape == history.Messages && talk.Breakpoint < 0
	s.Read = talk.Tokens() - history.Tokens(syntaxOf(talk))
	if !talk.HasRead() {
		return
	}
	newest := len(talk.Turns) - 1
	back, rest := 0, 0 // of the newest results
	for i := range talk.Results {
		r := &talk.Results[i]
		mine, now := history.ReadsBack(r.Name), r.Turn == newest
		switch {
		case mine && now:
			back += weight(r)
		case mine:
			s.Burden.Old += weight(r)
			s.Burden.Late += weight(r)
		case now:
			rest++
		default:
			s.Burden.Late = 0
		}
	}
	s.Burden.Extra = back > 0 && rest == 0
	if s.Burden.New = back; newest < s.turns { // the last request again
		s.Burden.New, s.Burden.Old = 0, s.Burden.Old+back
	}
}

// What of a request is no more than the syntax of its JSON, in bytes, less the few tokens that
// providers put in its place: of each message, and of each call with its result.
const (
	messageSyntax = 10
	callSyntax    = 70
)

// syntaxOf is what the model does not read of what a conversation weighs, less what it reads though
// it weighs nothing: thinking.
func syntaxOf(talk *history.Dialogue) int {
	return messageSyntax*len(talk.Messages) + callSyntax*len(talk.Results) - talk.Weightless()
}

func weight(r *history.Result) int {
	n := 0
	for _, span := range r.Texts {
		n += span.Len()
	}
	return history.Tokens(n)
}

// charge books what a reply cost, and says whether masking made any difference to that. Of several
// rounds of one request each is told by itself, in order.
func (d *Door) charge(ctx context.Context, c *call, from *provider, model string, u Usage) (meter.Cost, bool) {
	e := meter.Entry{
		Tenant: c.who.Tenant(), Provider: from.Name, Model: model, Used: meter.Tokens(u),
		Rates: meter.Rates{Write: from.Cache.Write, Read: from.Cache.Read, Long: from.Cache.long(), Input: from.Price.Input, Output: from.Price.Output},
		Round: c.round, Asked: c.output,
	}
	c.output = u.Output
	d.mindPrices(ctx, from, u)
	c.done.enter(&e)
	if from != c.routed {
		e.Standing, e.Before = meter.Unseen, 0 // of a fallback's cache nothing is known
	}
	if c.reads != nil && e.Sent > 0 {
		e.Burden.Old += c.reads.tool
	}
	if c.reads == nil || c.reads.cached || c.shape != Messages {
		e.Burden.Late = 0 // it is in the cache: the client marked it, or we did, or nobody has to
	}
	cost := d.deps.Meter.Charge(e)
	return cost, len(e.Cuts) > 0 || cost.Recovery > 0
}

// mindPrices says, once for each provider, that it caches and its entry has no prices for that: then
// the window moves at every turn, which costs more than it saves.
func (d *Door) mindPrices(ctx context.Context, from *provider, u Usage) {
	if u.Cached == 0 || from.Cache.Read < from.Cache.Write {
		return
	}
	if _, told := d.unpriced.LoadOrStore(from.Name, true); !told {
		slog.WarnContext(ctx, "this provider caches prompts, but its entry has no cache prices: masking at every turn breaks its cache; set cache", "provider", from.Name)
	}
}

// enter writes what was done to a request into its entry. Masked results of reading back save
// nothing: unmasked, they would not be there at all.
func (s *Shrunk) enter(e *meter.Entry) {
	e.Sent, e.Came, e.Before = s.Read, s.Tokens, s.Before
	e.Moved, e.Standing = s.Moved, s.Standing
	e.Unmarked, e.Burden = s.Unmarked, s.Burden
	for _, c := range s.Cleared {
		e.Sent -= c.Tokens
		if history.ReadsBack(c.Tool) {
			e.Came, e.Before = e.Came-c.Tokens, max(0, e.Before-c.Tokens)
			e.Burden.Old = max(0, e.Burden.Old-c.Tokens)
			e.Burden.Late = min(e.Burden.Late, e.Burden.Old)
			continue
		}
		e.Cuts = append(e.Cuts, meter.Cut{Tool: clip(c.Tool), Results: c.Results, Tokens: c.Tokens, Born: c.Born, New: c.New})
	}
}
