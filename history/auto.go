package history

// ledger is the policy "auto" where the provider's cache gives a discount. Moving the boundary
// makes the provider read everything behind it anew, at the price of writing; not moving it makes
// it read, at every request, what could have been cleared.
//
// Two rules. A move is due when what was paid for carrying, since the last one, has reached what
// the window costs to rewrite. For turns of one size that is after K turns, where
//
//	K = sqrt(2 · (write−read)/read · window · (call+result) / (result−placeholder))
//
// the least cost there is; for turns of mixed sizes it needs no means. And a move that is due is
// made only when it cannot make the conversation dearer than it would be unmasked, should it end
// there: when earlier moves have saved more than this one costs. The first one has nothing to
// draw on: it is a bet that the conversation goes on until it is paid back. The bet is taken when
// that is within two turns; and, once the messages exceed trigger_tokens, so that there is much
// to win, within a tenth of the turns so far, for a conversation may be expected to go on about
// as long as it has lasted. It never stakes more than a fifteenth of all that was spent, which is
// therefore the most that can be lost, whenever the conversation ends. Where reading from the cache
// costs half of writing or more, nothing is staked at all: there a move that costs nothing comes
// soon enough.
type ledger struct {
	spent int // what the conversation would have cost unmasked
	saved int // what masking saved of that so far; less than nothing before a move has paid back
	carry int // what was paid since the last move for what it could have cleared
}

const (
	soon    = 2  // turns within which the first move may pay back in any conversation
	caution = 10 // the part of the turns within which it may in a large one
	stake   = 15 // the part of the money that it may cost
)

// pays is asked at every request in turn, and keeps the books. large is trigger_tokens.
func (l *ledger) pays(m moment, p price, large int) bool {
	w, r := p.write, p.read
	l.spent += r*m.lastAll + w*(m.plain-m.lastAll)
	if m.sweep {
		l.saved += w * (m.cleared + m.clear) // all is written anew, and that much is not there
		l.carry = 0
		return true
	}
	l.saved += r * m.cleared
	l.carry += r * m.clear
	if m.clear == 0 || l.carry < (w-r)*m.window {
		return false
	}
	cost := (w-r)*m.rest - w*m.clear
	if cost > l.saved && (m.cleared > 0 || !l.bet(m, p, large, cost)) {
		return false
	}
	l.saved -= cost
	l.carry = 0
	return true
}

// bet says whether a first move that costs so much is worth it.
func (l *ledger) bet(m moment, p price, large, cost int) bool {
	if 2*p.read >= p.write {
		return false
	}
	each := p.read * m.clear // what it saves at every turn to come
	pays := cost <= soon*each || Tokens(m.size) > large && cost*caution <= m.turn*each
	return pays && cost*stake <= l.spent
}
