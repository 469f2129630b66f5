package history

import (
	"math"
	"slices"
)

// Plan is what to mask in one request.
type Plan struct {
	Cuts []Cut // in order

	// Pins are decisions of this request for the caller to store, in addition to the events it gave: cuts
	// that cannot be derived from the conversation once the client has moved its cache_control past them.
	// There are none without a cache_control: the provider has then cached nothing of what is masked.
	Pins []Event

	d          *Dialogue
	policy     Policy
	template   template
	isRolling  bool    // the boundary moves at every turn, as in the document
	masksShort bool    // results that do not get shorter are masked too (H2)
	replay     *replay // nil if nothing was decided
}

// Cut is a result to mask: store its text, then apply the edits of AppendEdits.
type Cut struct {
	Result int
	AtTurn int // the request that masks it first, by its tool turns
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	// Swept: at the request with Turn tool turns the provider's cache had expired, so that moving the
	// boundary as far as possible cost nothing.
	Swept EventKind = iota + 1
	// Pinned: the request with Turn tool turns masked the results First to End-1, except those that are
	// never masked.
	Pinned
	// Fitted: the request with Turn tool turns would have exceeded a price step or the context window, and
	// the boundary moved to keep it below. It is an event because only the provider knows how many tokens a
	// request has.
	Fitted
	// Unmarked: from the request with Turn tool turns on, the client leaves no mark for [Plan.CacheMark]. It is
	// an event because what was decided for a request must not depend on the marks of a later one.
	Unmarked
	// Counted: the provider counted End tokens in the request with Turn tool turns, which [Plan.Tokens] estimated at
	// First. It changes no plan: the caller decides with it whether a request must fit.
	Counted
)

// Event is a fact about a conversation that its bytes do not show, and without which later requests would
// be masked differently. The caller stores events under a name of the conversation, such as PrefixHash(1),
// and gives Plan those that OwnEvents returns.
type Event struct {
	Kind   EventKind
	Turn   int
	First  int  // of Pinned: the first result
	End    int  // of Pinned: the result after the last
	Prefix Hash // of the conversation up to Turn
}

// SweepEvent records that the provider's cache had expired at this request.
func (d *Dialogue) SweepEvent() Event {
	return Event{Kind: Swept, Turn: len(d.Turns), Prefix: d.PrefixHash(len(d.Turns))}
}

// FitEvent records that the boundary moves at this request to keep it below a price step or the context
// window. Only advance = "auto" heeds it, and only with a cache discount.
func (d *Dialogue) FitEvent() Event {
	return Event{Kind: Fitted, Turn: len(d.Turns), Prefix: d.PrefixHash(len(d.Turns))}
}

// CountEvent records the plan's estimate of this request, for the provider's count.
func (p *Plan) CountEvent() Event {
	return Event{Kind: Counted, Turn: len(p.d.Turns), First: p.Tokens(), Prefix: p.d.PrefixHash(len(p.d.Turns))}
}

// OwnEvents returns the events of this conversation, without those of others with the same beginning.
func (d *Dialogue) OwnEvents(events []Event) []Event {
	var out []Event
	for _, e := range events {
		if e.Turn >= 0 && e.Turn <= len(d.Turns) && e.Prefix == d.PrefixHash(e.Turn) {
			out = append(out, e)
		}
	}
	return out
}

// Plan decides what to mask in this request, given what was decided before.
//
// Nothing at or before the last cache_control is newly masked, unless the policy says so: the client asked
// the provider to cache it. What a sweep or an earlier request masked there stays masked. Without a
// cache_control on the messages, a provider that caches only what is marked gives no discount on them. What
// the policy cannot know is in the events: see [Dialogue.SweepEvent], [Dialogue.FitEvent], [Dialogue.UnmarkedEvent].
func (d *Dialogue) Plan(p Policy, c CachePrices, events []Event) *Plan {
	if d.wire().MarkedCacheOnly && d.Breakpoint < 0 && !c.LongestPrefix {
		c = CachePrices{}
	}
	plan := &Plan{d: d, policy: p, template: parseTemplate(p.Template)}
	plan.isRolling, plan.masksShort = p.isRolling(c.price()), p.masksShort(c.price())
	if p.isOff() || len(d.Turns) == 0 {
		return plan
	}
	b := newReplay(d, p, c.priceOn(d.wire()), plan.template)
	plan.replay = b
	old := groupEvents(events)
	var cuts []Cut
	if plan.isRolling {
		cuts = b.runRollingWindow(plan.template)
	} else {
		cuts = b.runPolicy(old)
	}
	if b.releasedAt == nil && len(old.pinned) == 0 && (!plan.isRolling || len(old.sweeps) == 0) && (d.breakpointEnd == 0 || p.PastBreakpoints) {
		plan.Cuts = cuts // no event and no mark changes them
		return plan
	}
	at := b.firstMaskedAt(cuts)
	plan.Cuts = make([]Cut, 0, len(d.Results))
	for i := range d.Results {
		masked, pinned := old.firstCover(b, i)
		free := p.PastBreakpoints || d.Results[i].Texts != nil && d.Results[i].Texts[0].Start >= d.breakpointEnd
		switch {
		case masked < never:
			plan.Cuts = append(plan.Cuts, Cut{i, min(masked, at[i])})
		case at[i] < never && free:
			plan.Cuts = append(plan.Cuts, Cut{i, at[i]})
		default:
			continue
		}
		if !pinned && d.Breakpoint >= 0 && !p.PastBreakpoints {
			plan.pinCut(i)
		}
	}
	plan.signPins()
	return plan
}

// Tokens estimates the request with the plan's cuts.
func (p *Plan) Tokens() int {
	n := p.d.Tokens()
	if p.replay == nil {
		return n
	}
	cut := 0
	for _, c := range p.Cuts {
		cut += p.replay.gains[c.Result]
	}
	return max(0, n-Tokens(cut))
}

// PaysToFit says whether the move of a [Dialogue.FitEvent] at this request costs less than a price step of
// this factor would add.
func (p *Plan) PaysToFit(factor float64) bool {
	return p.replay != nil && p.replay.last.paysToFit(p.replay.price, int(math.Round(factor*1000)))
}

// toolName is the tool's name in the placeholder.
func (p *Plan) toolName(r *Result) string {
	if p.isRolling {
		return r.label
	}
	return r.Name
}

// pinCut adds the last cut to the pins.
func (p *Plan) pinCut(result int) {
	at := p.Cuts[len(p.Cuts)-1].AtTurn
	for i := range p.Pins {
		if e := &p.Pins[i]; e.Turn == at {
			e.End = result + 1
			return
		}
	}
	p.Pins = append(p.Pins, Event{Kind: Pinned, Turn: at, First: result, End: result + 1})
}

// signPins binds the pins to this conversation.
func (p *Plan) signPins() {
	for i := range p.Pins {
		p.Pins[i].Prefix = p.d.PrefixHash(p.Pins[i].Turn)
	}
}

// pastEvents are events by their kind.
type pastEvents struct {
	sweeps []int
	fits   []int
	none   []int // requests without a free mark
	pinned []Event
}

func groupEvents(events []Event) (p pastEvents) {
	for _, e := range events {
		switch e.Kind {
		case Swept:
			p.sweeps = append(p.sweeps, e.Turn)
		case Unmarked:
			p.none = append(p.none, e.Turn)
		case Fitted:
			p.fits = append(p.fits, e.Turn)
		case Pinned:
			p.pinned = append(p.pinned, e)
		}
	}
	return p
}

// unmarked says whether the client left no mark free at a request or before.
func (p pastEvents) unmarked(turn int) bool {
	return slices.ContainsFunc(p.none, func(t int) bool { return t <= turn })
}

// firstCover is the first request at which an event masked a result, never if none did; pinned says
// whether one of these events is a pin.
func (p pastEvents) firstCover(b *replay, i int) (at int, pinned bool) {
	at = never
	if b.gains[i] == 0 {
		return at, false
	}
	for _, t := range p.sweeps {
		if b.dueAt[i] <= t {
			at = min(at, t)
		}
	}
	for _, e := range p.pinned {
		if i >= e.First && i < e.End && (b.releasedAt == nil || e.Turn >= b.releasedAt[i]) {
			at, pinned = min(at, e.Turn), true
		}
	}
	return at, pinned
}
