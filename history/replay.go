package history

import "slices"

// run is how far a replay got. A copy goes on by itself.
type run struct {
	turn    int // the last request that was replayed
	due     int // how many results are due
	moved   int // how many of those were at the last move
	clear   int // what a move would take out
	cleared int // what earlier moves took out
	cuts    int // how many results they masked
	upto    int // with strides, the turn before which the last one masked
	ledger  ledger
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

// replay lists what the moves of the boundary masked, in the order in which they did. At a sweep the
// provider's cache was dead, and moving cost nothing.
func (b *book) replay(sweeps []int) []Cut {
	known := func(t int) bool { return t <= b.sure.turn }
	if now := only(sweeps, known); !slices.Equal(now, b.swept) {
		b.sure, b.cuts, b.made = run{}, nil, made{}
	}
	r := b.sure
	last := len(b.size) - 1
	cuts := b.cuts[:r.cuts]
	for t := r.turn + 1; t <= last; t++ {
		if t == last { // what it does is not sure yet, nor for another plan
			b.sure, b.cuts = r, cuts
			b.swept = only(sweeps, known)
			cuts = slices.Clip(cuts)
		}
		cuts = b.step(&r, cuts, slices.Contains(sweeps, t))
	}
	return cuts
}

func only(list []int, want func(int) bool) (out []int) {
	for _, n := range list {
		if want(n) {
			out = append(out, n)
		}
	}
	return out
}

// step goes on by one request, and adds what it masks. A sweep moves the boundary whatever the
// policy says.
func (b *book) step(r *run, cuts []Cut, sweep bool) []Cut {
	r.turn++
	for ; r.due < b.listed() && b.due[b.nth(r.due)] <= r.turn; r.due++ {
		r.clear += b.gain[b.nth(r.due)]
	}
	m := moment{turn: r.turn, plain: b.size[r.turn], lastAll: b.size[r.turn-1], clear: r.clear, cleared: r.cleared, sweep: sweep}
	m.size, m.last = m.plain-r.cleared, m.lastAll-r.cleared
	if r.clear > 0 {
		m.rest = m.last - b.position(r, cuts)
		m.window = m.lastAll - b.from[r.turn-b.terms.policy.WindowTurns]
	}
	if moves := b.moves(r, m); r.clear == 0 || !moves && !sweep {
		return cuts
	}
	for ; r.moved < r.due; r.moved++ {
		if i := b.nth(r.moved); b.gain[i] > 0 {
			cuts = append(cuts, Cut{i, r.turn})
		}
	}
	r.cleared += r.clear
	r.clear, r.cuts = 0, len(cuts)
	return cuts
}

// listed is how many results there are, in the order in which they are due.
func (b *book) listed() int {
	if b.order != nil {
		return len(b.order)
	}
	return len(b.gain)
}

// nth is one of them.
func (b *book) nth(i int) int {
	if b.order != nil {
		return b.order[i]
	}
	return i
}

// position is what weighs before the first result that a move would mask, as the conversation
// stands masked.
func (b *book) position(r *run, cuts []Cut) int {
	for b.gain[b.nth(r.moved)] == 0 {
		r.moved++
	}
	if b.order == nil { // all that was masked stands before it
		return b.d.Results[r.moved].before - r.cleared
	}
	first := slices.Min(b.order[r.moved:r.due])
	at := b.d.Results[first].before
	for _, c := range cuts {
		if c.Result < first {
			at -= b.gain[c.Result]
		}
	}
	return at
}

// moves says whether the boundary moves by the policy.
func (b *book) moves(r *run, m moment) bool {
	p, price := &b.terms.policy, b.terms.price
	switch {
	case p.Advance == Pressure:
		return Tokens(b.d.base+m.size) > p.TriggerTokens && Tokens(m.clear) >= p.ClearAtLeast
	case p.Advance == Auto && price.discount():
		return r.ledger.pays(m, price, p.TriggerTokens)
	}
	stride := 1
	if p.Advance == Stride {
		stride = max(1, p.Stride)
	}
	ahead := m.turn - p.WindowTurns - r.upto
	if ahead < stride && (ahead <= 0 || !m.sweep) {
		return false
	}
	r.upto += ahead
	return true
}

// roll is replay for the document's window, which looks at the whole conversation: a call that is
// named again is as young as that. As long as none is, what is masked stays so.
func (b *book) roll(t template) (cuts []Cut) {
	d, p := b.d, b.terms.policy
	if b.free != nil {
		for _, i := range Mask(d, p) {
			cuts = b.appendOld(cuts, t, i)
		}
		return cuts
	}
	cuts = b.cuts
	sure := true // all results so far are out of the window for good
	for i := b.past; i < len(d.Results); i++ {
		in := d.inWindow(p, i)
		if sure && (in || b.due[i] > len(d.Turns)) {
			sure, cuts = false, slices.Clip(cuts)
		}
		if !in && d.isPlain(p, i) {
			cuts = b.appendOld(cuts, t, i)
		}
		if sure {
			b.past, b.cuts = i+1, cuts
		}
	}
	return cuts
}

// appendOld appends the cut of a result that the window has left behind. One that would not get
// shorter is left out where the policy says so.
func (b *book) appendOld(cuts []Cut, t template, i int) []Cut {
	if r := &b.d.Results[i]; b.terms.policy.masksShort(b.terms.price) || t.gain(r, r.label) > 0 {
		cuts = append(cuts, Cut{i, min(b.due[i], len(b.d.Turns))})
	}
	return cuts
}
