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
// longest common prefix of a request and the one before it.
func (d *Dialogue) Bill(p Policy, c CachePrices) Bill {
	b := newTestReplay(d, p, c)
	at := b.firstMaskedAt(nil)
	if !p.isOff() {
		at = b.firstMaskedAt(b.runPolicy(nil))
	}
	moves := map[int][]int{}
	for i, t := range at {
		if t < never {
			moves[t] = append(moves[t], i)
		}
	}
	masked := make([]bool, len(at))
	cleared, plainCost, maskedCost := 0, 0, 0
	var out Bill
	for t := 1; t < len(b.requestSizes); t++ {
		cached := b.requestSizes[t-1] - cleared
		if now := moves[t]; len(now) > 0 {
			cached = min(cached, b.sizeBefore(now, masked))
			for _, i := range now {
				masked[i] = true
				cleared += b.gains[i]
			}
		}
		plainCost += b.cost(t, b.requestSizes[t-1], b.requestSizes[t])
		maskedCost += b.cost(t, cached, b.requestSizes[t]-cleared)
		out.Plain = append(out.Plain, float64(plainCost)/3400)
		out.Masked = append(out.Masked, float64(maskedCost)/3400)
	}
	return out
}

// newTestReplay returns a replay of a conversation from its start.
func newTestReplay(d *Dialogue, p Policy, c CachePrices) *replay {
	return newReplay(d, p, c.price(), parseTemplate(p.Template))
}

// cost is the cost of turn t's request of which cached bytes are in the provider's cache. Tools and system
// prompt are cached from the second request on.
func (b *replay) cost(t, cached, size int) int {
	if t == 1 {
		return b.price.write * (size + b.d.base)
	}
	return b.price.read*(cached+b.d.base) + b.price.write*(size-cached)
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
