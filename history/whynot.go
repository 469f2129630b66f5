package history

import (
	"fmt"
	"strconv"
)

// WhyNot says in plain words why the request masks nothing, "" if it masks something. It is for people: nothing
// depends on it.
func (p *Plan) WhyNot() string {
	b := p.replay
	switch {
	case len(p.Cuts) > 0:
		return ""
	case p.policy.isOff():
		return "masking is off"
	case len(p.d.Results) == 0:
		return "the conversation has no tool results yet"
	case b == nil:
		return "no result has a call"
	}
	turns, old, maskable := len(p.d.Turns), 0, 0
	for i := range p.d.Results {
		if b.dueAt[i] <= turns {
			old++
			if b.gains[i] > 0 {
				maskable++
			}
		}
	}
	switch {
	case old == 0:
		return fmt.Sprintf("%s so far, and the results of the last %d stay whole", plural(turns, "tool turn"), p.policy.WindowTurns)
	case maskable == 0:
		return plural(old, "old result") + " would not get shorter, or must stay: errors, images, results without a call"
	case p.d.breakpointEnd > 0 && !p.policy.PastBreakpoints:
		return "the client marks its messages for the provider's cache, and past_breakpoints is off"
	}
	results := plural(maskable, "old result")
	switch m := b.last; {
	case p.isRolling:
		return results + " must stay"
	case p.policy.Advance == AdvancePressure:
		return fmt.Sprintf("the request has about %s tokens; masking starts above %s, if it clears at least %s", groupDigits(Tokens(b.d.base+m.size)), groupDigits(p.policy.TriggerTokens), groupDigits(p.policy.ClearAtLeast))
	case p.policy.Advance == AdvanceStride:
		return fmt.Sprintf("the window moves every %s", plural(p.policy.Stride, "turn"))
	default:
		cost := Tokens(m.cost(b.price) / 1000)
		each := groupDigits(Tokens(b.price.read * m.clearable / 1000))
		if cost <= 0 {
			return fmt.Sprintf("masking %s would save about %s tokens a turn, not enough yet for what moving the window often would cost", results, each)
		}
		return fmt.Sprintf("the provider's cache is warm: masking %s now would cost about %s tokens and save %s a turn", results, groupDigits(cost), each)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return groupDigits(n) + " " + noun + "s"
}

// groupDigits writes a number that is not negative with commas between thousands.
func groupDigits(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
