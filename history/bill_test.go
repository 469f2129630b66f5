package history

import "slices"

// Bill is what the requests of a conversation cost, as the estimated tokens of fresh input that
// would cost the same; each sum is of the requests up to and with that of its turn.
type Bill struct {
	Plain  []float64 // with nothing masked
	Masked []float64
}

// Ratio is what the conversation costs relative to doing nothing.
func (b Bill) Ratio() float64 {
	if len(b.Plain) == 0 {
		return 1
	}
	return b.Masked[len(b.Masked)-1] / b.Plain[len(b.Plain)-1]
}

// Bill replays the conversation under a policy, one request a tool turn, against a provider that
// keeps the longest common prefix of a request and the one before it.
func (d *Dialogue) Bill(p Policy, c Cache) Bill {
	b := freshBook(d, p, c)
	at := b.masked(nil)
	if !p.off() {
		at = b.masked(b.replay(nil))
	}
	moves := map[int][]int{}
	for i, t := range at {
		if t < never {
			moves[t] = append(moves[t], i)
		}
	}
	masked := make([]bool, len(at))
	cleared, plain, less := 0, 0, 0
	var out Bill
	for t := 1; t < len(b.size); t++ {
		kept := b.size[t-1] - cleared
		if now := moves[t]; len(now) > 0 {
			kept = min(kept, b.stands(now, masked))
			for _, i := range now {
				masked[i] = true
				cleared += b.gain[i]
			}
		}
		plain += b.cost(t, b.size[t-1], b.size[t])
		less += b.cost(t, kept, b.size[t]-cleared)
		out.Plain = append(out.Plain, float64(plain)/3400)
		out.Masked = append(out.Masked, float64(less)/3400)
	}
	return out
}

// freshBook is a conversation's book, with nothing of it known.
func freshBook(d *Dialogue, p Policy, c Cache) *book {
	d.booked, d.template = nil, parseTemplate(p.Template)
	return d.book(p, c)
}

// cost is what the request of turn t costs of which so much is in the cache. Tools and system
// prompt are there from the second request on.
func (b *book) cost(t, kept, size int) int {
	if t == 1 {
		return b.terms.price.write * (size + b.d.base)
	}
	return b.terms.price.read*(kept+b.d.base) + b.terms.price.write*(size-kept)
}

// stands is what weighs before the first of some results, as the conversation stands masked.
func (b *book) stands(pending []int, masked []bool) int {
	first := slices.Min(pending)
	at := b.d.Results[first].before
	for i, gain := range b.gain[:first] {
		if masked[i] {
			at -= gain
		}
	}
	return at
}
