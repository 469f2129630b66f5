package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func pick[T any](rnd *rand.Rand, list ...T) T { return list[rnd.IntN(len(list))] }

// anyPolicy is a policy small enough that short conversations meet it.
func anyPolicy(rnd *rand.Rand) (Policy, Cache) {
	p := DefaultPolicy()
	p.Advance = pick(rnd, EachTurn, Stride, Pressure, Auto, Auto)
	p.WindowTurns, p.Stride = 1+rnd.IntN(4), 1+rnd.IntN(5)
	p.TriggerTokens, p.ClearAtLeast = pick(rnd, 0, 500, 2000), pick(rnd, 0, 300)
	p.KeepLastK, p.KeepHandles = pick(rnd, 0, 0, 1, 2), pick(rnd, 0, 1, 4)
	p.KeepErrors = rnd.IntN(2) == 0
	if rnd.IntN(2) == 0 {
		p.Template = "{tool_name} {prune_id} {tool_call_id} {original_chars} {x} {"
	}
	return p, pick(rnd, Cache{}, Cache{1.25, .1}, Cache{1, .1}, Cache{1, .5}, Cache{1, .9})
}

// client sends a conversation request by request, and keeps events as a caller's store would.
type client struct {
	shape  Shape
	policy Policy
	cache  Cache
	sweep  int // the turn at which the provider's cache is dead
	events []Event

	before []byte         // the last request, masked
	texts  map[int]string // its placeholders by result
	turns  int            // how many it has
	moves  int
}

// send masks a request and holds it against the one before: R23, I4, I6, T27.
func (c *client) send(t *testing.T, full talk, l look, last bool) {
	t.Helper()
	body := full.render(c.shape, l)
	d := mustRead(t, c.shape, body)
	own := d.Own(c.events)
	if len(own) != len(c.events) {
		t.Fatalf("%d of %d events are no longer this conversation's", len(c.events)-len(own), len(c.events))
	}
	if len(d.Turns) == c.sweep {
		own = append(own, d.SweepNow())
	}
	after, plan := maskedBy(t, d, c.policy, c.cache, own)
	if last { // all that was masked is masked here
		if again, _ := masked(t, c.shape, bytes.Clone(body), c.policy, c.cache, own); !bytes.Equal(after, again) {
			t.Fatal("not deterministic")
		}
		laws(t, body, after)
	}
	c.events = append(slices.Clip(own), plan.Latch...)
	moved := slices.ContainsFunc(plan.Cuts, func(x Cut) bool { return x.At > c.turns })
	if len(l.marks) == 0 && c.before != nil && !moved && !bytes.HasPrefix(after, listOf(c.before)) {
		t.Fatalf("the prefix changed without a move at turn %d:\n%s\n%s", len(d.Turns), c.before, after)
	}
	c.compare(t, mustRead(t, c.shape, after), plan)
	c.before, c.turns = after, len(d.Turns)
	if moved {
		c.moves++
	}
}

// compare: what was masked is masked, by the same bytes; and nothing is newly masked at or before
// the last cache_control, but at a sweep.
func (c *client) compare(t *testing.T, after *Dialogue, plan *Plan) {
	t.Helper()
	texts := map[int]string{}
	for _, x := range plan.Cuts {
		texts[x.Result] = string(after.Text(x.Result))
		_, old := c.texts[x.Result]
		if d := plan.d; !old && !c.policy.PastBreakpoints && len(d.Turns) != c.sweep && d.Results[x.Result].Texts[0].Start < d.edge {
			t.Fatalf("turn %d: result %d is masked before a cache_control", len(d.Turns), x.Result)
		}
		if len(plan.d.Text(x.Result)) == 0 {
			t.Fatal("nothing to keep")
		}
	}
	for i, text := range c.texts {
		if texts[i] != text {
			t.Fatalf("turn %d: result %d changed from %q to %q", len(after.Turns), i, text, texts[i])
		}
	}
	c.texts = texts
}

// uniqueIDs says whether no two turns share a call id. Where they do, the document's window
// unmasks a result when its id comes again; the other policies do not.
func uniqueIDs(full talk) bool {
	seen := map[string]bool{}
	for _, e := range full {
		for _, c := range e.calls {
			if seen[c.id] {
				return false
			}
			seen[c.id] = true
		}
	}
	return true
}

// R23: 1,000 dialogues in each of the three shapes, sent turn by turn.
func TestR23GrowingConversations(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.String(), func(t *testing.T) {
			t.Parallel()
			moves := 0
			for seed := range uint64(1000) {
				moves += growOne(t, shape, seed, false)
			}
			if moves < 500 {
				t.Errorf("only %d moves: the test tests nothing", moves)
			}
		})
	}
}

// growOne sends one conversation, for clients that move their cache_control or do not.
func growOne(t *testing.T, shape Shape, seed uint64, marks bool) int {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 11))
	full := makeTalk(seed, 3+rnd.IntN(6))
	c := client{shape: shape, sweep: rnd.IntN(25)}
	c.policy, c.cache = anyPolicy(rnd)
	c.policy.PastBreakpoints = marks && seed%5 == 0
	flat := c.cache == Cache{} || shape == Messages // whose marks may all be in the system prompt
	if !uniqueIDs(full) && (c.policy.Advance == EachTurn || c.policy.Advance == Auto && flat) {
		c.policy.Advance = Stride
	}
	for i, n := range full.requests() {
		if i%2 == 1 && rnd.IntN(3) > 0 && n < len(full) {
			continue // another replica had it
		}
		var l look
		if marks {
			l = look{thinking: i%3 == 0, lists: i%2 == 0, marks: []int{min(pick(rnd, 0, 2, 5, 9), n-1)}}
		}
		c.send(t, full[:n], l, n == len(full))
	}
	return c.moves
}

// H+1: a client that moves its cache_control, drops thinking and writes strings as lists: nothing
// at or before the last cache_control is newly masked, and what was masked stays so.
func TestHPlus1BreakpointsMove(t *testing.T) {
	t.Parallel()
	moves := 0
	for seed := range uint64(300) {
		moves += growOne(t, Messages, seed, true)
	}
	if moves < 100 {
		t.Errorf("only %d moves", moves)
	}
}

// H+1: a provider that caches what is marked, and no message is: there is no discount to spare.
func TestHPlus1AutoRollsWhereNothingIsCached(t *testing.T) {
	cheap := Cache{Write: 1.25, Read: 0.1}
	full := makeTalk(3, 40)
	p := DefaultPolicy()
	for name, c := range map[string]struct {
		shape Shape
		look  look
		rolls bool
	}{
		"no mark":               {Messages, look{}, true},
		"a mark":                {Messages, look{marks: []int{0}}, false},
		"cached without a mark": {Chat, look{}, false},
	} {
		d := mustRead(t, c.shape, full.render(c.shape, c.look))
		if plan := d.Plan(p, cheap, nil); plan.rolls != c.rolls {
			t.Errorf("%s: rolls is %t", name, plan.rolls)
		}
	}
}

// H+1: a cache_control on the request as a whole is one on its last block.
func TestHPlus1TheWholeRequestIsMarked(t *testing.T) {
	body := bytes.Replace(makeTalk(3, 40).render(Messages, look{}), []byte(`"messages":`), []byte(`"cache_control":{"type":"ephemeral","ttl":"1h"},"messages":`), 1)
	d := mustRead(t, Messages, body)
	if d.Breakpoint != len(d.Messages)-1 || d.Lasts != time.Hour {
		t.Errorf("breakpoint %d of %d, lasts %s", d.Breakpoint, len(d.Messages), d.Lasts)
	}
	p := DefaultPolicy()
	p.Advance = Stride
	if plan := d.Plan(p, Cache{}, nil); len(plan.Cuts) != 0 {
		t.Errorf("masked %d results", len(plan.Cuts))
	}
	p.PastBreakpoints = true
	if plan := d.Plan(p, Cache{}, nil); len(plan.Cuts) == 0 || len(plan.Latch) != 0 {
		t.Errorf("masked %d results, %d latches", len(plan.Cuts), len(plan.Latch))
	}
}

func TestHPlus1NothingBeforeABreakpoint(t *testing.T) {
	full := makeTalk(3, 40)
	p := DefaultPolicy()
	p.Advance, p.KeepHandles = Stride, 0
	last := full.render(Messages, look{marks: []int{0}})
	if after, plan := masked(t, Messages, last, p, Cache{}, nil); len(plan.Cuts) != 0 || !bytes.Equal(after, last) {
		t.Errorf("masked %d results before the last breakpoint", len(plan.Cuts))
	}
	// A sweep masks there all the same, and stays.
	d := mustRead(t, Messages, last)
	sweep := d.SweepNow()
	swept, plan := masked(t, Messages, last, p, Cache{}, []Event{sweep})
	if len(plan.Cuts) == 0 {
		t.Fatal("a sweep masked nothing")
	}
	longer := append(slices.Clip(full), makeTalk(4, 1)[1:]...)
	for i := range longer[len(full):] {
		for j := range longer[len(full)+i].calls {
			longer[len(full)+i].calls[j].id = fmt.Sprintf("later_%d_%d", i, j)
		}
	}
	body := longer.render(Messages, look{marks: []int{0}})
	after, next := masked(t, Messages, body, p, Cache{}, mustRead(t, Messages, body).Own([]Event{sweep}))
	if len(next.Cuts) != len(plan.Cuts) || common(swept, after) < common(last, body)-(len(last)-len(swept))-60 {
		t.Errorf("masked %d after %d", len(next.Cuts), len(plan.Cuts))
	}
	// In another conversation it did not happen.
	if other := mustRead(t, Messages, makeTalk(5, 45).render(Messages, look{})); len(other.Own([]Event{sweep})) != 0 {
		t.Error("an event of another conversation")
	}
}

// H10: off, or nothing to mask, gives no edits.
func TestH10NothingToDo(t *testing.T) {
	for _, shape := range shapes {
		body := makeTalk(9, 30).render(shape, look{})
		for name, change := range map[string]func(*Policy){
			"off":       func(p *Policy) { p.Enabled = false },
			"no window": func(p *Policy) { p.WindowTurns = 0 },
			"wide":      func(p *Policy) { p.WindowTurns = 30 },
		} {
			p := DefaultPolicy()
			p.Advance = EachTurn
			change(&p)
			if after, plan := masked(t, shape, body, p, Cache{}, nil); len(plan.Cuts) > 0 || !bytes.Equal(after, body) {
				t.Errorf("%s, %s: something changed", shape, name)
			}
		}
	}
}

// H+1: strides move the boundary every so many turns and not between.
func TestHPlus1StrideMovesInStrides(t *testing.T) {
	d := mustRead(t, Chat, makeTalk(1, 60).render(Chat, look{}))
	p := DefaultPolicy()
	p.Advance, p.Stride = Stride, 16
	got := fmt.Sprint(movesOf(freshBook(d, p, Cache{}).replay([]int{30})))
	if want := "[24 30 46]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
