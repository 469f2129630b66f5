package history

import (
	"slices"
	"sort"
)

// step is a move of the boundary: at the request with so many tool turns, results of turns before
// upto were masked.
type step struct{ at, upto int }

// book is what the replay of a conversation knows of it. Requests are counted by their tool
// turns, from one; what is known of request t looks at nothing behind the results of its last
// turn.
type book struct {
	d     *Dialogue
	p     Policy
	price price

	size []int // what the messages of each request weigh, by its turns
	from []int // what weighs before each turn
	gain []int // what masking each result saves; 0 when it is not to be masked
	due  []int // the request from which on each result may be masked
	free []int // the request from which on it is not among the last of its tool
}

func newBook(d *Dialogue, p Policy, t template, c Cache) *book {
	n := len(d.Turns)
	b := &book{d: d, p: p, price: c.price(), size: make([]int, n+1), from: make([]int, n), gain: make([]int, len(d.Results)), due: make([]int, len(d.Results)), free: releases(d, p.KeepLastK)}
	total, message := 0, 0
	upto := func(end int) int {
		for ; message < end; message++ {
			total += d.Messages[message].Bytes
		}
		return total
	}
	for i, turn := range d.Turns {
		b.from[i] = upto(turn.Message)
		b.size[i+1] = upto(turn.End)
	}
	for i := range d.Results {
		r := &d.Results[i]
		b.due[i] = max(b.free[i], r.since+p.WindowTurns+1)
		if b.due[i] > n || r.Turn < 0 || !r.Maskable || p.KeepErrors && d.looksFailed(i) {
			continue
		}
		b.gain[i] = t.gain(r, r.Name)
	}
	return b
}

// steps replays the conversation: every move of the boundary, in order. At a sweep the provider's
// cache was dead, and moving cost nothing.
func (b *book) steps(sweeps map[int]bool) []step {
	switch {
	case b.p.Advance == Pressure:
		return b.saved(sweeps, b.pressed)
	case b.p.Advance == Auto && b.price.discount():
		l := ledger{price: b.price, large: b.p.TriggerTokens}
		return b.saved(sweeps, l.pays)
	}
	stride := 1
	if b.p.Advance == Stride {
		stride = max(1, b.p.Stride)
	}
	var out []step
	upto := 0
	for t := 1; t < len(b.size); t++ {
		if ahead := t - b.p.WindowTurns - upto; ahead >= stride || ahead > 0 && sweeps[t] {
			upto += ahead
			out = append(out, step{t, upto})
		}
	}
	return out
}

// moment is a request at which the boundary could move.
type moment struct {
	turn    int
	size    int // what the request would weigh without a move
	last    int // what the request before it weighed
	plain   int // as size, had nothing ever been masked
	lastAll int // as last, had nothing ever been masked
	clear   int // what a move would take out
	rest    int // what of the last request stands behind the first thing a move would change
	window  int // what of the last request stands in the window
	cleared int // what earlier moves took out
	sweep   bool
}

// saved replays a policy that looks at sizes. move is asked at every request; a sweep moves the
// boundary whatever it says.
func (b *book) saved(sweeps map[int]bool, move func(moment) bool) []step {
	var out []step
	waiting := b.byDue()
	cleared := make([]int, len(b.gain)+1) // what earlier moves took out before each result
	masked := make([]bool, len(b.gain))
	var pending []int
	first := never // of them
	m := moment{}
	for t := 1; t < len(b.size); t++ {
		for ; len(waiting) > 0 && b.due[waiting[0]] <= t; waiting = waiting[1:] {
			pending = append(pending, waiting[0])
			first = min(first, waiting[0])
			m.clear += b.gain[waiting[0]]
		}
		m.turn, m.sweep = t, sweeps[t]
		m.plain, m.lastAll = b.size[t], b.size[t-1]
		m.size, m.last = m.plain-m.cleared, m.lastAll-m.cleared
		m.rest, m.window = 0, 0
		if m.clear > 0 {
			m.rest = m.last - (b.d.Results[first].before - cleared[first])
			m.window = b.size[t-1] - b.from[t-b.p.WindowTurns]
		}
		if moves := move(m); m.clear == 0 || !moves && !m.sweep {
			continue
		}
		out = append(out, step{t, t - b.p.WindowTurns})
		for _, i := range pending {
			masked[i] = true
		}
		for i, gain := range b.gain {
			cleared[i+1] = cleared[i]
			if masked[i] {
				cleared[i+1] += gain
			}
		}
		m.cleared += m.clear
		m.clear, pending, first = 0, pending[:0], never
	}
	return out
}

// byDue are the results to mask in the order in which they may be.
func (b *book) byDue() []int {
	var out []int
	for i, gain := range b.gain {
		if gain > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(i, j int) int { return b.due[i] - b.due[j] })
	return out
}

// pressed says whether a request is too large, and a move clears enough.
func (b *book) pressed(m moment) bool {
	return Tokens(b.d.base+m.size) > b.p.TriggerTokens && Tokens(m.clear) >= b.p.ClearAtLeast
}

// masked says at which request each result is masked first; never when it is not.
func (b *book) masked(steps []step) []int {
	out := make([]int, len(b.gain))
	for i, gain := range b.gain {
		out[i] = never
		if gain == 0 {
			continue
		}
		since := b.d.Results[i].since
		if k := sort.Search(len(steps), func(k int) bool { return steps[k].upto > since && steps[k].at >= b.due[i] }); k < len(steps) {
			out[i] = steps[k].at
		}
	}
	return out
}
