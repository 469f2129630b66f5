package history

// autoLedger decides the advance policy "auto" for a provider whose cache gives a discount. Moving the
// boundary makes the provider write everything behind it to its cache again; not moving it makes the
// provider read, at every request, what could have been cleared. Two rules:
//
// A move is due when what was paid for the clearable results since the last move reaches what rewriting the
// window costs. For turns of equal size that is after K turns, which has the least cost:
//
//	K = sqrt(2 · (write−read)/read · window · (call+result) / (result−placeholder))
//
// A due move is made only if it cannot make the conversation more expensive than without masking, even if it
// ends right there: when earlier moves have saved more than this one costs. The first move has no savings to
// spend: it bets that the conversation lasts until the move has paid back. It takes the bet if that is
// within two turns, or, once the messages exceed trigger_tokens, within a twelfth of the turns so far: a
// conversation may be expected to last about as long again. It stakes at most a seventeenth of all that was
// spent, which bounds the loss whenever the conversation ends: with what bytes tell of tokens it stays below
// 1.06. Where reading from the cache costs half of writing or more, nothing is staked: a move without cost
// comes soon enough.
//
// A move never makes a request so short that the provider does not cache it: reading more costs less than sending
// little in full.
//
// Neither rule sees price steps and the context window: sizes in tokens are only known to the caller, who
// learns from each reply how many tokens the bytes were. It asks for a move with [Dialogue.FitEvent], which
// is charged to nobody here: it costs less than what the step would have added.
type autoLedger struct {
	spent   int // what the conversation would have cost without masking
	saved   int // what masking has saved of that; negative until a move has paid back
	carried int // what was paid since the last move for results that could have been cleared
}

const (
	quickPayback = 2  // turns: a first move that pays back so soon is always made
	paybackShare = 12 // in a large conversation, within a twelfth of its turns
	stakeShare   = 17 // it may cost a seventeenth of what was spent
)

// shouldMove is called for every request in order, and keeps the accounts. large is trigger_tokens.
func (l *autoLedger) shouldMove(m boundaryChoice, p price, large int) bool {
	w, r := p.write, p.read
	// Tools and system prompt may be in the cache from an earlier conversation: at least reading them is paid.
	l.spent += r*(m.base+m.lastUnmaskedSize) + w*(m.unmaskedSize-m.lastUnmaskedSize)
	if m.cacheDead {
		l.saved += w * (m.cleared + m.clearable) // all is written again, without what is cleared
		l.carried = 0
		return true
	}
	l.saved += r * m.cleared
	l.carried += r * m.clearable
	if m.mustFit && m.clearable > 0 {
		l.carried = 0
		return true
	}
	if m.clearable == 0 || l.carried < (w-r)*m.window || m.base+m.size-m.clearable < p.minBytes {
		return false
	}
	cost := m.cost(p)
	if cost > l.saved && (m.cleared > 0 || !l.worthFirstMove(m, p, large, cost)) {
		return false
	}
	l.saved -= cost
	l.carried = 0
	return true
}

// worthFirstMove says whether to make a first move at this cost.
func (l *autoLedger) worthFirstMove(m boundaryChoice, p price, large, cost int) bool {
	if 2*p.read >= p.write {
		return false
	}
	each := p.read * m.clearable // what it saves at every later turn
	pays := cost <= quickPayback*each || Tokens(m.size) > large && cost*paybackShare <= m.turn*each
	return pays && cost*stakeShare <= l.spent
}

// cost is what moving the boundary costs at this request, compared with not moving it.
func (m boundaryChoice) cost(p price) int {
	rewritten := m.rewritten
	if m.base+m.lastSize-rewritten < p.minBytes { // what is left of the prefix may not be cached by itself
		rewritten = m.base + m.lastSize
	}
	return (p.write-p.read)*rewritten - p.write*m.clearable
}

// paysToFit says whether moving the boundary costs less than a price step of this factor, in thousandths,
// would add to this request and to those that will stay below it because of the move.
func (m boundaryChoice) paysToFit(p price, factor int) bool {
	grown := max(1, m.size-m.lastSize)
	extra := p.read*(m.base+m.lastSize) + p.write*grown
	return m.clearable > 0 && m.cost(p)/1000 <= extra/1000*(factor-1000)/1000*max(1, m.clearable/grown)
}
