package history

import "slices"

// book is what the replay of a conversation knows of it, and how far it got. Requests are counted
// by their tool turns, from one; what is known of request t looks at nothing behind the results of
// its last turn. So the book of a conversation can be gone on with at its next request.
type book struct {
	d     *Dialogue // the request that it is about now
	turns int       // of it
	terms terms

	size []int // what the messages of each request weigh, by its turns
	from []int // what weighs before each turn
	due  []int // the request from which on each result may be masked
	gain []int // what masking each result saves, of those that are due; 0 when it is not to be masked

	// Where some of each tool are kept, results are not due as they come.
	free  []int // the request from which on each is not among the last of its tool; nil: at once
	order []int // those to mask in the order in which they are due; nil: as they came

	sure  run   // the replay up to the last turn, which may go on
	past  int   // results that the document's window has left behind for good
	cuts  []Cut // what is masked, as far as that is sure
	swept []int // the sweeps that it knew of
	made  made  // of the cuts of the last request
}

// made is what a caller made of the cuts of a request with so many turns, the last of which ended
// there.
type made struct {
	what       any
	turns, end int
}

// terms are what a replay depends on, beside the conversation.
type terms struct {
	policy Policy
	price  price
	base   int // of the request, where its size as a whole counts
}

// book is the conversation's, under some terms: the one of its last request, if it was for them.
func (d *Dialogue) book(p Policy, c Cache) *book {
	terms := terms{policy: p, price: c.price()}
	if p.Advance == Pressure {
		terms.base = d.base
	}
	b := d.booked
	if b == nil || b.terms != terms || len(d.Turns) < b.turns || b.free != nil || d.reduced || d.renamed {
		b = &book{terms: terms}
		d.booked = b
	}
	b.d, b.turns = d, len(d.Turns)
	b.weigh()
	b.judge(d.template)
	return b
}

// rewind is the book of a conversation of which so many turns are as they were, and the next perhaps;
// nil where more is known of it than that.
func (b *book) rewind(turns, results int) *book {
	if b == nil || b.sure.turn > turns || b.past > results || b.free != nil {
		return nil
	}
	b.from = b.from[:min(len(b.from), turns+1)]
	b.due, b.gain = b.due[:min(len(b.due), results)], b.gain[:min(len(b.gain), results)]
	return b
}

// weigh goes on with what requests weigh, from the last turn that was there before.
func (b *book) weigh() {
	turns := b.d.Turns
	if b.size == nil {
		b.size, b.from = make([]int, 1, len(turns)+1), make([]int, 0, len(turns))
	}
	known := max(0, len(b.from)-1)
	b.size, b.from = b.size[:known+1], b.from[:known]
	total, message := b.size[known], b.d.endOf(known)
	upto := func(end int) int {
		for ; message < end; message++ {
			total += b.d.Messages[message].Bytes
		}
		return total
	}
	for _, turn := range turns[known:] {
		b.from = append(b.from, upto(turn.Message))
		b.size = append(b.size, upto(turn.End))
	}
}

// judge goes on with which results may be masked when, and what for.
func (b *book) judge(t template) {
	p, results := b.terms.policy, b.d.Results
	if p.KeepLastK > 0 {
		b.free, b.due, b.gain = releases(b.d, p.KeepLastK), nil, nil
	}
	b.due = slices.Grow(b.due, len(results)-len(b.due))
	for i := len(b.due); i < len(results); i++ {
		due := results[i].since + p.WindowTurns + 1
		if b.free != nil {
			due = max(due, b.free[i])
		}
		b.due = append(b.due, due)
	}
	b.gain = slices.Grow(b.gain, len(results)-len(b.gain))
	for i := len(b.gain); i < len(results) && (b.due[i] <= len(b.d.Turns) || b.free != nil); i++ {
		r := &results[i]
		if b.due[i] > len(b.d.Turns) || r.Turn < 0 || !r.Maskable || p.KeepErrors && b.d.looksFailed(p, i) {
			b.gain = append(b.gain, 0)
			continue
		}
		gain := t.gain(r, r.Name)
		if p.masksShort(b.terms.price) {
			gain = max(1, gain) // masked whether it gets shorter or not; a window that rolls adds nothing up
		}
		b.gain = append(b.gain, gain)
	}
	if b.free != nil {
		b.order = b.byDue()
	}
}

// byDue are the results to mask in the order in which they may be.
func (b *book) byDue() []int {
	out := make([]int, 0, len(b.gain))
	for i, gain := range b.gain {
		if gain > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(i, j int) int { return b.due[i] - b.due[j] })
	return out
}

// gains says whether a result is to be masked at all.
func (b *book) gains(result int) bool { return result < len(b.gain) && b.gain[result] > 0 }

// masked says at which request each result is masked first; never when it is not.
func (b *book) masked(cuts []Cut) []int {
	out := slices.Repeat([]int{never}, len(b.d.Results))
	for _, c := range cuts {
		out[c.Result] = c.At
	}
	return out
}
