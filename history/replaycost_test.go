package history

import "slices"

// Bill is the cost of a conversation's requests in estimated tokens of fresh input, cumulated by turn.
type Bill struct {
	Plain  []float64 // with nothing masked
	Masked []float64
}

// Ratio is the cost of the conversation relative to not masking.
func (b Bill) Ratio() float64 {
	if len(b.Plain) == 0 {
		return 1
	}
	return b.Masked[len(b.Masked)-1] / b.Plain[len(b.Plain)-1]
}

// Bill replays the conversation under a policy, one request per tool turn, against a provider that caches the
// longest common prefix of a request and the one before it, or, without a longest prefix, what was marked: by the
// client (and by Plan.CacheMark), or by the provider at the ends of requests.
func (d *Dialogue) Bill(p Policy, c CachePrices) Bill {
	b := newTestReplay(d, p, c)
	at := b.firstMaskedAt(nil)
	if !p.isOff() {
		at = b.firstMaskedAt(b.runPolicy(pastEvents{}))
	}
	moves := map[int][]int{}
	for i, t := range at {
		if t < never {
			moves[t] = append(moves[t], i)
		}
	}
	masked := make([]bool, len(at))
	cleared, plainCost, maskedCost, first := 0, 0, 0, never
	var out Bill
	for t := 1; t < len(b.requestSizes); t++ {
		cached := b.requestSizes[t-1] - cleared
		if now := moves[t]; len(now) > 0 {
			first = min(first, slices.Min(now))
			cached = b.readable(t, first, min(cached, b.sizeBefore(now, masked)))
			for _, i := range now {
				masked[i] = true
				cleared += b.gains[i]
			}
		}
		plainCost += b.cost(t, b.requestSizes[t-1], b.requestSizes[t], c.MinTokens)
		maskedCost += b.cost(t, cached, b.requestSizes[t]-cleared, c.MinTokens)
		out.Plain = append(out.Plain, float64(plainCost)/3400)
		out.Masked = append(out.Masked, float64(maskedCost)/3400)
	}
	return out
}

// newTestReplay returns a replay of a conversation from its start.
func newTestReplay(d *Dialogue, p Policy, c CachePrices) *replay {
	return newReplay(d, p, c.priceOn(d.wire()), parseTemplate(p.Template))
}

// readable is how much of the unchanged prefix the cache can be read up to after a move; first is the first masked
// result.
func (b *replay) readable(t, first, unchanged int) int {
	switch r := &b.d.Results[first]; b.price.marks {
	case clientMarks:
		return min(unchanged, r.before)
	case providerMarks:
		if t-r.since > b.price.lookback {
			return -b.d.base
		}
		return min(unchanged, b.turnStarts[r.Turn])
	}
	return unchanged
}

// cost is the cost of turn t's request of which cached bytes are in the provider's cache. Tools and system
// prompt are cached from the second request on.
func (b *replay) cost(t, cached, size, minTokens int) int {
	cached, size = cached+b.d.base, size+b.d.base
	switch {
	case Tokens(size) < minTokens:
		return uncached * size
	case t == 1 || Tokens(cached) < minTokens:
		return b.price.write * size
	}
	return b.price.read*cached + b.price.write*(size-cached)
}

// sizeBefore is the size of the masked conversation before the first pending result.
func (b *replay) sizeBefore(pending []int, masked []bool) int {
	first := slices.Min(pending)
	at := b.d.Results[first].before
	for i, gain := range b.gains[:first] {
		if masked[i] {
			at -= gain
		}
	}
	return at
}
