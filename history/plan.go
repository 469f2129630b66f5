package history

// Plan is what to mask in one request.
type Plan struct {
	Cuts []Cut // in order

	// Latch is what the caller should keep of this request's decisions, beside the events it
	// gave: moves of the boundary that cannot be told from the conversation once a client has
	// moved its cache_control past them. None where there is no cache_control: of what such a
	// request masks, a provider that caches only what is marked has cached nothing.
	Latch []Event

	// Stay is how many of the first cuts are of results that are as they are wherever Made is
	// remembered; that they are masked then is for the plan to say.
	Stay int

	d        *Dialogue
	book     *book // whose cuts they are; nil where more than the replay decided
	policy   Policy
	template template
	rolls    bool // the boundary moves at every turn, as in the document
	short    bool // results that do not get shorter are masked too (H2)
	used     uses
}

// Cut is a result to mask: keep its text, and splice the plan's AppendEdits.
type Cut struct {
	Result int
	At     int // the request at which it was first masked, by its tool turns
}

// Kind is what an event says.
type Kind uint8

// The kinds of events.
const (
	// Sweep: at the request with Turn tool turns the provider's cache was dead, so that moving
	// the boundary as far as it goes cost nothing.
	Sweep Kind = iota + 1
	// Latched: at the request with Turn tool turns the results from First to before End were
	// masked, if they were to be masked at all.
	Latched
)

// Event is something in the life of a conversation that cannot be read from it, and without which
// later requests would not give the same bytes. The caller keeps them under a name of the
// conversation, such as Prefix(1), and gives those that are Own.
type Event struct {
	Kind   Kind
	Turn   int
	First  int // of Latched: result
	End    int // of Latched: the result after the last
	Prefix Sum // of the conversation up to Turn
}

// SweepNow is the event of a dead cache at this request.
func (d *Dialogue) SweepNow() Event {
	return Event{Kind: Sweep, Turn: len(d.Turns), Prefix: d.Prefix(len(d.Turns))}
}

// Own are the events that happened in this conversation, not in one that began alike.
func (d *Dialogue) Own(events []Event) []Event {
	var out []Event
	for _, e := range events {
		if e.Turn >= 0 && e.Turn <= len(d.Turns) && e.Prefix == d.Prefix(e.Turn) {
			out = append(out, e)
		}
	}
	return out
}

// Plan decides what to mask in this request, given what was decided before.
//
// Nothing at or before the last cache_control is newly masked, unless the policy says so: the
// client asked the provider to keep it. What a sweep or an earlier request masked there stays so.
// Where nothing of the messages is marked, a provider that caches only what is marked gives no
// discount on them.
func (d *Dialogue) Plan(p Policy, c Cache, events []Event) *Plan {
	if d.Shape == Messages && d.Breakpoint < 0 {
		c = Cache{}
	}
	if d.template.text != p.Template {
		d.template = parseTemplate(p.Template)
	}
	plan := &Plan{d: d, policy: p, template: d.template}
	plan.rolls, plan.short = p.rolls(c.price()), p.masksShort(c.price())
	if p.off() || len(d.Turns) == 0 {
		return plan
	}
	b := d.book(p, c)
	old := newPast(events)
	var cuts []Cut
	if plan.rolls {
		cuts = b.roll(plan.template)
	} else {
		cuts = b.replay(old.sweeps)
	}
	if b.free == nil && len(old.latched) == 0 && (!plan.rolls || len(old.sweeps) == 0) && (d.edge == 0 || p.PastBreakpoints) {
		plan.Cuts, plan.Stay, plan.book = cuts, len(cuts), b
		if plan.rolls { // a result that came late may be out of the window, and yet be taken back
			plan.Stay = len(b.cuts)
		}
		return plan
	}
	at := b.masked(cuts)
	plan.Cuts = make([]Cut, 0, len(d.Results))
	for i := range d.Results {
		kept, latched := old.covers(b, i)
		free := p.PastBreakpoints || d.Results[i].Texts != nil && d.Results[i].Texts[0].Start >= d.edge
		switch {
		case kept < never:
			plan.Cuts = append(plan.Cuts, Cut{i, min(kept, at[i])})
		case at[i] < never && free:
			plan.Cuts = append(plan.Cuts, Cut{i, at[i]})
		default:
			continue
		}
		if !latched && d.Breakpoint >= 0 && !p.PastBreakpoints {
			plan.latch(i)
		}
	}
	plan.sign()
	return plan
}

// Made is what the caller said with Remember at an earlier request of the conversation, under the same
// policy; nil when it said nothing, or that is forgotten.
func (p *Plan) Made() any {
	if p.book == nil || p.d.endOf(p.book.made.turns) != p.book.made.end {
		return nil // a turn went on: what was masked at it may be so in other words
	}
	return p.book.made.what
}

// Remember is for the caller to remember what it made of the cuts before Stay.
func (p *Plan) Remember(what any) {
	if n := len(p.d.Turns); p.book != nil {
		p.book.made = made{what, n, p.d.endOf(n)}
	}
}

// name is a tool's name as the placeholder has it.
func (p *Plan) name(r *Result) string {
	if p.rolls {
		return r.label
	}
	return r.Name
}

// latch notes the last mask for the caller to keep.
func (p *Plan) latch(result int) {
	at := p.Cuts[len(p.Cuts)-1].At
	for i := range p.Latch {
		if e := &p.Latch[i]; e.Turn == at {
			e.End = result + 1
			return
		}
	}
	p.Latch = append(p.Latch, Event{Kind: Latched, Turn: at, First: result, End: result + 1})
}

// sign says of the events to keep to which conversation they belong.
func (p *Plan) sign() {
	for i := range p.Latch {
		p.Latch[i].Prefix = p.d.Prefix(p.Latch[i].Turn)
	}
}

// past is what events say.
type past struct {
	sweeps  []int
	latched []Event
}

func newPast(events []Event) (p past) {
	for _, e := range events {
		switch e.Kind {
		case Sweep:
			p.sweeps = append(p.sweeps, e.Turn)
		case Latched:
			p.latched = append(p.latched, e)
		}
	}
	return p
}

// covers says at which request an event first had a result masked, never when none did, and
// whether one of them is a latch.
func (p past) covers(b *book, i int) (at int, latched bool) {
	at = never
	if !b.gains(i) {
		return at, false
	}
	for _, t := range p.sweeps {
		if b.due[i] <= t {
			at = min(at, t)
		}
	}
	for _, e := range p.latched {
		if i >= e.First && i < e.End && (b.free == nil || e.Turn >= b.free[i]) {
			at, latched = min(at, e.Turn), true
		}
	}
	return at, latched
}
