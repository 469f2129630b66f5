package history

import "slices"

// replay decides again, request by request, what a conversation's requests masked. Requests are numbered
// by their tool turns, from one. The decision at request t uses nothing after the results of its last turn.
// All sizes are bytes.
type replay struct {
	d      *Dialogue
	policy Policy
	price  price

	requestSizes []int          // size of the messages of each request, by its turns
	turnStarts   []int          // size of the messages before each turn
	dueAt        []int          // the first request at which each result may be masked
	gains        []int          // bytes that masking each result saves; 0 if it is not due or must stay
	last         boundaryChoice // of the last request that was replayed

	// With keep_last_k_per_tool results are not due in the order in which they came.
	releasedAt []int // the request from which on each result is no longer among the last k of its tool; nil without k
	dueOrder   []int // results to mask in the order in which they are due; nil: as they came
}

func newReplay(d *Dialogue, p Policy, c price, t template) *replay {
	b := &replay{
		d: d, policy: p, price: c,
		requestSizes: make([]int, 1, len(d.Turns)+1), turnStarts: make([]int, 0, len(d.Turns)),
		dueAt: make([]int, len(d.Results)), gains: make([]int, len(d.Results)),
	}
	total, message := 0, 0
	upTo := func(end int) int {
		for ; message < end; message++ {
			total += d.Messages[message].Bytes
		}
		return total
	}
	for _, turn := range d.Turns {
		b.turnStarts = append(b.turnStarts, upTo(turn.Message))
		b.requestSizes = append(b.requestSizes, upTo(turn.End))
	}
	if p.KeepLastK > 0 {
		b.releasedAt = releaseTurns(d, p.KeepLastK)
	}
	for i := range d.Results {
		r := &d.Results[i]
		b.dueAt[i] = r.since + p.WindowTurns + 1
		if b.releasedAt != nil {
			b.dueAt[i] = max(b.dueAt[i], b.releasedAt[i])
		}
		if b.dueAt[i] > len(d.Turns) || r.Turn < 0 || !p.readsAsText(r) || p.KeepErrors && d.looksFailed(p, i) {
			continue
		}
		b.gains[i] = t.savedBytes(r, r.Name)
		if p.masksShort(c) {
			b.gains[i] = max(1, b.gains[i]) // masked even if it gets longer; a rolling window adds no gains up
		}
	}
	if b.releasedAt == nil {
		return b
	}
	b.dueOrder = []int{}
	for i, gain := range b.gains {
		if gain > 0 {
			b.dueOrder = append(b.dueOrder, i)
		}
	}
	slices.SortStableFunc(b.dueOrder, func(i, j int) int { return b.dueAt[i] - b.dueAt[j] })
	return b
}

// replayProgress is the state of a replay after some requests.
type replayProgress struct {
	turns      int // the last request that was replayed
	dueCount   int // results that are due, masked or not
	movedCount int // those of them that were due at the last move
	clearable  int // bytes that a move would take out
	cleared    int // bytes that earlier moves took out
	strideEnd  int // with advance = "stride": the turn before which the last move masked
	ledger     autoLedger
}

// boundaryChoice is a request at which the boundary may move.
type boundaryChoice struct {
	turn             int
	size             int // of the request if the boundary does not move
	lastSize         int // of the request before it
	unmaskedSize     int // size if nothing had ever been masked
	lastUnmaskedSize int // lastSize if nothing had ever been masked
	clearable        int // what a move would take out
	rewritten        int // the part of the last request behind the first byte that a move would change
	window           int // the part of the last request that is in the window
	cleared          int // what earlier moves took out
	base             int // of tools and system prompt, in front of all other sizes
	cacheDead        bool
	mustFit          bool // the request would exceed a price step or the context window
}

// runPolicy returns what the moves of the boundary masked, in the order in which they did. Past events say at
// which requests the provider's cache had expired, so that moving cost nothing, and which would have been too
// large.
func (b *replay) runPolicy(past pastEvents) []Cut {
	var r replayProgress
	var cuts []Cut
	for t := 1; t < len(b.requestSizes); t++ {
		cuts = b.advanceTurn(&r, cuts, past)
	}
	return cuts
}

// advanceTurn replays one request and appends what it masks. A sweep moves the boundary whatever the policy
// says.
func (b *replay) advanceTurn(r *replayProgress, cuts []Cut, past pastEvents) []Cut {
	r.turns++
	sweep, fit := slices.Contains(past.sweeps, r.turns), slices.Contains(past.fits, r.turns)
	for ; r.dueCount < b.resultCount() && b.dueAt[b.resultAt(r.dueCount)] <= r.turns; r.dueCount++ {
		r.clearable += b.gains[b.resultAt(r.dueCount)]
	}
	m := boundaryChoice{turn: r.turns, unmaskedSize: b.requestSizes[r.turns], lastUnmaskedSize: b.requestSizes[r.turns-1], clearable: r.clearable, cleared: r.cleared, base: b.d.base, cacheDead: sweep, mustFit: fit}
	m.size, m.lastSize = m.unmaskedSize-r.cleared, m.lastUnmaskedSize-r.cleared
	if r.clearable > 0 {
		m.rewritten = m.lastSize - b.sizeBeforeMove(r, cuts)
		m.window = m.lastUnmaskedSize - b.turnStarts[r.turns-b.policy.WindowTurns]
		m.window += b.addUnread(&m, past, b.firstMasked(r, cuts))
	}
	b.last = m
	// The policy is asked at every request: it keeps its own accounts.
	if moves := b.movesBoundary(r, m); r.clearable == 0 || !moves && !sweep {
		return cuts
	}
	for ; r.movedCount < r.dueCount; r.movedCount++ {
		if i := b.resultAt(r.movedCount); b.gains[i] > 0 {
			cuts = append(cuts, Cut{i, r.turns})
		}
	}
	r.cleared += r.clearable
	r.clearable = 0
	return cuts
}

// addUnread adds to what a move makes the provider write again what it cannot read though it has not changed, and
// returns how much that is: a cache without the longest prefix reads only up to a mark. No move leaves one behind
// the first masked result.
func (b *replay) addUnread(m *boundaryChoice, past pastEvents, r *Result) int {
	changed := m.rewritten
	switch {
	case b.price.marks == noMarks:
	case b.price.marks == clientMarks && past.unmarked(m.turn): // up to the system prompt
		m.rewritten = m.lastSize
	case b.price.marks == clientMarks: // up to the mark of CacheMark
		m.rewritten = max(m.rewritten, m.lastSize-r.before)
	case m.turn-r.since > b.price.lookback:
		m.rewritten = m.base + m.lastSize
	default: // up to the end of the request that asked for it
		m.rewritten = max(m.rewritten, m.lastSize-b.turnStarts[r.Turn])
	}
	return m.rewritten - changed
}

// firstMasked is the first result that was masked, or that a first move would mask.
func (b *replay) firstMasked(r *replayProgress, cuts []Cut) *Result {
	if len(cuts) > 0 {
		return &b.d.Results[cuts[0].Result]
	}
	return &b.d.Results[b.resultAt(r.movedCount)]
}

// resultCount is the number of results that resultAt counts.
func (b *replay) resultCount() int {
	if b.dueOrder != nil {
		return len(b.dueOrder)
	}
	return len(b.gains)
}

// resultAt is the i-th result in the order in which they are due.
func (b *replay) resultAt(i int) int {
	if b.dueOrder != nil {
		return b.dueOrder[i]
	}
	return i
}

// sizeBeforeMove is the size of the masked conversation before the first result that a move would mask.
func (b *replay) sizeBeforeMove(r *replayProgress, cuts []Cut) int {
	for b.gains[b.resultAt(r.movedCount)] == 0 {
		r.movedCount++
	}
	if b.dueOrder == nil { // all earlier cuts are before it
		return b.d.Results[r.movedCount].before - r.cleared
	}
	first := slices.Min(b.dueOrder[r.movedCount:r.dueCount])
	at := b.d.Results[first].before
	for _, c := range cuts {
		if c.Result < first {
			at -= b.gains[c.Result]
		}
	}
	return at
}

// movesBoundary applies the advance policy to one request.
func (b *replay) movesBoundary(r *replayProgress, m boundaryChoice) bool {
	p, price := &b.policy, b.price
	switch {
	case p.Advance == AdvancePressure:
		return Tokens(b.d.base+m.size) > p.TriggerTokens && Tokens(m.clearable) >= p.ClearAtLeast
	case p.Advance == AdvanceAuto && price.hasDiscount():
		return r.ledger.shouldMove(m, price, p.TriggerTokens)
	}
	stride := 1
	if p.Advance == AdvanceStride {
		stride = max(1, p.Stride)
	}
	ahead := m.turn - p.WindowTurns - r.strideEnd
	if ahead < stride && (ahead <= 0 || !m.cacheDead) {
		return false
	}
	r.strideEnd += ahead
	return true
}

// runRollingWindow is runPolicy for the document's window, which looks at the whole conversation: a call
// whose id is used again is as young as its last use.
func (b *replay) runRollingWindow(t template) (cuts []Cut) {
	for _, i := range RollingWindow(b.d, b.policy) {
		if r := &b.d.Results[i]; b.policy.masksShort(b.price) || t.savedBytes(r, r.label) > 0 {
			cuts = append(cuts, Cut{i, min(b.dueAt[i], len(b.d.Turns))})
		}
	}
	return cuts
}

// firstMaskedAt is, for each result, the first request that masks it; never if none does.
func (b *replay) firstMaskedAt(cuts []Cut) []int {
	out := slices.Repeat([]int{never}, len(b.d.Results))
	for _, c := range cuts {
		out[c.Result] = c.AtTurn
	}
	return out
}
