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
// within two turns, or, once the messages exceed trigger_tokens, within a tenth of the turns so far: a
// conversation may be expected to last about as long again. It stakes at most a fifteenth of all that was
// spent, which bounds the loss whenever the conversation ends. Where reading from the cache costs half of
// writing or more, nothing is staked: a move without cost comes soon enough.
type autoLedger struct {
	spent   int // what the conversation would have cost without masking
	saved   int // what masking has saved of that; negative until a move has paid back
	carried int // what was paid since the last move for results that could have been cleared
}

const (
	quickPayback = 2  // turns: a first move that pays back so soon is always made
	paybackShare = 10 // in a large conversation, within a tenth of its turns
	stakeShare   = 15 // it may cost a fifteenth of what was spent
)

// shouldMove is called for every request in order, and keeps the accounts. large is trigger_tokens.
func (l *autoLedger) shouldMove(m boundaryChoice, p price, large int) bool {
	w, r := p.write, p.read
	l.spent += r*m.lastUnmaskedSize + w*(m.unmaskedSize-m.lastUnmaskedSize)
	if m.cacheDead {
		l.saved += w * (m.cleared + m.clearable) // all is written again, without what is cleared
		l.carried = 0
		return true
	}
	l.saved += r * m.cleared
	l.carried += r * m.clearable
	if m.clearable == 0 || l.carried < (w-r)*m.window {
		return false
	}
	cost := (w-r)*m.rewritten - w*m.clearable
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
