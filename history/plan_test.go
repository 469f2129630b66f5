package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/llm"
)

func pick[T any](rnd *rand.Rand, list ...T) T { return list[rnd.IntN(len(list))] }

// randomPolicy is a policy with limits that short conversations reach.
func randomPolicy(rnd *rand.Rand) (Policy, CachePrices) {
	p := DefaultPolicy()
	p.Advance = pick(rnd, AdvanceEachTurn, AdvanceStride, AdvancePressure, AdvanceAuto, AdvanceAuto)
	p.WindowTurns, p.Stride = 1+rnd.IntN(4), 1+rnd.IntN(5)
	p.TriggerTokens, p.ClearAtLeast = pick(rnd, 0, 500, 2000), pick(rnd, 0, 300)
	p.KeepLastK, p.KeepHandles = pick(rnd, 0, 0, 1, 2), pick(rnd, 0, 1, 4)
	p.KeepErrors = rnd.IntN(2) == 0
	if rnd.IntN(2) == 0 {
		p.Template = "{tool_name} {prune_id} {tool_call_id} {original_chars} {x} {"
	}
	return p, pick(rnd, CachePrices{}, CachePrices{Write: 1.25, Read: .1}, CachePrices{Write: 1, Read: .1}, CachePrices{Write: 1, Read: .5}, CachePrices{Write: 1, Read: .9})
}

// client sends a conversation request by request, and stores its events as a caller would.
type client struct {
	shape  llm.Codec
	policy Policy
	cache  CachePrices
	sweep  int // the turn at which the provider's cache has expired
	events []Event

	before []byte         // the last request, masked
	texts  map[int]string // its placeholders by result
	turns  int            // how many it has
	moves  int
}

// sendRequest masks a request and checks it against the one before: R23, I4, I6, T27.
func (c *client) sendRequest(t *testing.T, full transcript, l renderOptions, last bool) {
	t.Helper()
	body := full.render(c.shape, l)
	d := mustRead(t, c.shape, body)
	own := d.OwnEvents(c.events)
	if len(own) != len(c.events) {
		t.Fatalf("%d of %d events are no longer found in their conversation", len(c.events)-len(own), len(c.events))
	}
	if len(d.Turns) == c.sweep {
		own = append(own, d.SweepEvent())
	}
	after, plan := maskDialogue(t, d, c.policy, c.cache, own)
	if last { // it includes everything masked so far
		if again, _ := maskRequest(t, c.shape, bytes.Clone(body), c.policy, c.cache, own); !bytes.Equal(after, again) {
			t.Fatal("masking is not deterministic")
		}
		checkStructureKept(t, body, after)
	}
	c.events = append(slices.Clip(own), plan.Pins...)
	moved := slices.ContainsFunc(plan.Cuts, func(x Cut) bool { return x.AtTurn > c.turns })
	if len(l.marks) == 0 && c.before != nil && !moved && !bytes.HasPrefix(after, throughLastMessage(c.before)) {
		t.Fatalf("the prefix changed without a move at turn %d:\n%s\n%s", len(d.Turns), c.before, after)
	}
	c.checkPlaceholders(t, mustRead(t, c.shape, after), plan)
	c.before, c.turns = after, len(d.Turns)
	if moved {
		c.moves++
	}
}

// checkPlaceholders checks that masked results keep their placeholders byte for byte, and that nothing new is
// masked at or before the last cache_control except at a sweep.
func (c *client) checkPlaceholders(t *testing.T, after *Dialogue, plan *Plan) {
	t.Helper()
	texts := map[int]string{}
	for _, x := range plan.Cuts {
		texts[x.Result] = string(after.Text(x.Result))
		_, old := c.texts[x.Result]
		if d := plan.d; !old && !c.policy.PastBreakpoints && len(d.Turns) != c.sweep && d.Results[x.Result].Texts[0].Start < d.breakpointEnd {
			t.Fatalf("turn %d: result %d is masked before a cache_control", len(d.Turns), x.Result)
		}
		if len(plan.d.Text(x.Result)) == 0 {
			t.Fatal("a masked result has no original")
		}
	}
	for i, text := range c.texts {
		if texts[i] != text {
			t.Fatalf("turn %d: result %d changed from %q to %q", len(after.Turns), i, text, texts[i])
		}
	}
	c.texts = texts
}

// uniqueIDs says whether all call ids differ. When an id comes again, the document's window unmasks its older
// result; the other policies do not.
func uniqueIDs(full transcript) bool {
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

// R23: 1,000 conversations in each of the shapes, sent turn by turn, keep their prefix between moves.
func TestR23GrowingConversations(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	for _, shape := range shapes {
		t.Run(shape.Wire().Name, func(t *testing.T) {
			t.Parallel()
			moves := 0
			for seed := range uint64(1000) {
				moves += growConversation(t, shape, seed, false)
			}
			if moves < 500 {
				t.Errorf("only %d moves: too few for the test to mean anything", moves)
			}
		})
	}
}

// growConversation sends one conversation and returns how often the boundary moved; marks says that the client
// moves its cache_control.
func growConversation(t *testing.T, shape llm.Codec, seed uint64, marks bool) int {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 11))
	full := randomTranscript(seed, 3+rnd.IntN(6))
	c := client{shape: shape, sweep: rnd.IntN(25)}
	c.policy, c.cache = randomPolicy(rnd)
	c.policy.PastBreakpoints = marks && seed%5 == 0
	flat := c.cache == CachePrices{} || shape == anthropicMessages // its marks may all be in the system prompt
	if !uniqueIDs(full) && (c.policy.Advance == AdvanceEachTurn || c.policy.Advance == AdvanceAuto && flat) {
		c.policy.Advance = AdvanceStride
	}
	for i, n := range full.requests() {
		if i%2 == 1 && rnd.IntN(3) > 0 && n < len(full) {
			continue // another replica served it
		}
		var l renderOptions
		if marks {
			l = renderOptions{thinking: i%3 == 0, lists: i%2 == 0, marks: []int{min(pick(rnd, 0, 2, 5, 9), n-1)}}
		}
		c.sendRequest(t, full[:n], l, n == len(full))
	}
	return c.moves
}

// H+1: when a client moves its cache_control, drops thinking and writes strings as lists, nothing new is masked
// at or before the last cache_control, and masked results stay masked.
func TestHPlus1BreakpointsMove(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	t.Parallel()
	moves := 0
	for seed := range uint64(300) {
		moves += growConversation(t, anthropicMessages, seed, true)
	}
	if moves < 100 {
		t.Errorf("only %d moves: too few for the test to mean anything", moves)
	}
}

// H+1: auto masks at every turn when the provider caches only marked messages and none is marked.
func TestHPlus1AutoRollsWhereNothingIsCached(t *testing.T) {
	cheap := CachePrices{Write: 1.25, Read: 0.1}
	full := randomTranscript(3, 40)
	p := DefaultPolicy()
	for name, c := range map[string]struct {
		shape   llm.Codec
		options renderOptions
		rolls   bool
	}{
		"no mark":               {anthropicMessages, renderOptions{}, true},
		"a mark":                {anthropicMessages, renderOptions{marks: []int{0}}, false},
		"cached without a mark": {openAIChat, renderOptions{}, false},
	} {
		d := mustRead(t, c.shape, full.render(c.shape, c.options))
		if plan := d.Plan(p, cheap, nil); plan.isRolling != c.rolls {
			t.Errorf("%s: isRolling is %t", name, plan.isRolling)
		}
	}
}

// H+1: a cache_control on the whole request marks its last block.
func TestHPlus1TheWholeRequestIsMarked(t *testing.T) {
	body := bytes.Replace(randomTranscript(3, 40).render(anthropicMessages, renderOptions{}), []byte(`"messages":`), []byte(`"cache_control":{"type":"ephemeral","ttl":"1h"},"messages":`), 1)
	d := mustRead(t, anthropicMessages, body)
	if d.Breakpoint != len(d.Messages)-1 || d.CacheTTL != time.Hour {
		t.Errorf("breakpoint %d of %d, lasts %s", d.Breakpoint, len(d.Messages), d.CacheTTL)
	}
	p := DefaultPolicy()
	p.Advance = AdvanceStride
	if plan := d.Plan(p, CachePrices{}, nil); len(plan.Cuts) != 0 {
		t.Errorf("masked %d results", len(plan.Cuts))
	}
	p.PastBreakpoints = true
	if plan := d.Plan(p, CachePrices{}, nil); len(plan.Cuts) == 0 || len(plan.Pins) != 0 {
		t.Errorf("masked %d results, %d pins", len(plan.Cuts), len(plan.Pins))
	}
}

func TestHPlus1NothingBeforeABreakpoint(t *testing.T) {
	full := randomTranscript(3, 40)
	p := DefaultPolicy()
	p.Advance, p.KeepHandles = AdvanceStride, 0
	last := full.render(anthropicMessages, renderOptions{marks: []int{0}})
	if after, plan := maskRequest(t, anthropicMessages, last, p, CachePrices{}, nil); len(plan.Cuts) != 0 || !bytes.Equal(after, last) {
		t.Errorf("masked %d results before the last breakpoint", len(plan.Cuts))
	}
	// A sweep masks there all the same, and later requests keep it.
	d := mustRead(t, anthropicMessages, last)
	sweep := d.SweepEvent()
	swept, plan := maskRequest(t, anthropicMessages, last, p, CachePrices{}, []Event{sweep})
	if len(plan.Cuts) == 0 {
		t.Fatal("a sweep masked nothing")
	}
	longer := append(slices.Clip(full), randomTranscript(4, 1)[1:]...)
	for i := range longer[len(full):] {
		for j := range longer[len(full)+i].calls {
			longer[len(full)+i].calls[j].id = fmt.Sprintf("later_%d_%d", i, j)
		}
	}
	body := longer.render(anthropicMessages, renderOptions{marks: []int{0}})
	after, next := maskRequest(t, anthropicMessages, body, p, CachePrices{}, mustRead(t, anthropicMessages, body).OwnEvents([]Event{sweep}))
	if len(next.Cuts) != len(plan.Cuts) || commonPrefixLen(swept, after) < commonPrefixLen(last, body)-(len(last)-len(swept))-60 {
		t.Errorf("masked %d results, %d before", len(next.Cuts), len(plan.Cuts))
	}
	// The event belongs to no other conversation.
	if other := mustRead(t, anthropicMessages, randomTranscript(5, 45).render(anthropicMessages, renderOptions{})); len(other.OwnEvents([]Event{sweep})) != 0 {
		t.Error("another conversation took over the sweep")
	}
}

// H10: a policy that is off, or that finds nothing to mask, changes nothing.
func TestH10NothingToDo(t *testing.T) {
	for _, shape := range shapes {
		body := randomTranscript(9, 30).render(shape, renderOptions{})
		for name, change := range map[string]func(*Policy){
			"off":       func(p *Policy) { p.Enabled = false },
			"no window": func(p *Policy) { p.WindowTurns = 0 },
			"wide":      func(p *Policy) { p.WindowTurns = 30 },
		} {
			p := DefaultPolicy()
			p.Advance = AdvanceEachTurn
			change(&p)
			if after, plan := maskRequest(t, shape, body, p, CachePrices{}, nil); len(plan.Cuts) > 0 || !bytes.Equal(after, body) {
				t.Errorf("%s, %s: the request changed", shape, name)
			}
		}
	}
}

// H+1: the boundary moves once per stride, and at a sweep.
func TestHPlus1StrideBoundary(t *testing.T) {
	d := mustRead(t, openAIChat, randomTranscript(1, 60).render(openAIChat, renderOptions{}))
	p := DefaultPolicy()
	p.Advance, p.Stride = AdvanceStride, 16
	got := fmt.Sprint(turnsOf(newTestReplay(d, p, CachePrices{}).runPolicy(pastEvents{sweeps: []int{30}})))
	if want := "[24 30 46]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
