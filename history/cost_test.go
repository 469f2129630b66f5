package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// prices are typical providers' cache prices relative to fresh input.
var prices = []struct {
	name string
	CachePrices
}{
	{"write 1.25 read 0.1", CachePrices{Write: 1.25, Read: .1}},
	{"write 1.00 read 0.1", CachePrices{Write: 1, Read: .1}},
	{"write 1.00 read 0.5", CachePrices{Write: 1, Read: .5}},
	{"no cache", CachePrices{}},
}

// uniformTranscript has turns of one size: the tokens of a call and of its result.
func uniformTranscript(turns, call, result int) transcript {
	t := transcript{{user: "go on"}}
	for i := range turns {
		t = append(t, event{calls: []toolCall{sizedCall(i, "bash", call, result)}})
	}
	return t
}

func sizedCall(i int, name string, call, result int) toolCall {
	text := func(tokens int) string { return strings.Repeat("line of text\n", max(1, int(float64(tokens)*3.4/14))) }
	return toolCall{id: fmt.Sprintf("call_%06d", i), name: name, args: text(call), results: []string{text(result)}}
}

// agentTranscript resembles a recorded session: one of four kinds of agent, a typical length, widely varying
// sizes of calls and results, some errors and messages between the turns.
func agentTranscript(seed uint64) transcript {
	rnd := rand.New(rand.NewPCG(seed, 42))
	size := func(mean, spread float64) int { return int(math.Exp(mean + spread*rnd.NormFloat64())) }
	turns := min(220, max(6, size(3.6, .7)))
	kind := seed % 4
	t := transcript{{user: strings.Repeat("please ", 50)}}
	for i := range turns {
		result := size(6.3, 1.4) // mixed
		switch {
		case kind == 0 && rnd.IntN(5) < 3: // code
			result = size(7, 1)
		case kind == 1: // shell
			result = size(5.5, 1.2)
		case kind == 2 && rnd.IntN(2) == 0: // web
			result = size(8, .8)
		}
		c := sizedCall(i, tools[rnd.IntN(len(tools))], size(5.1, .6), min(result, 25000))
		if rnd.IntN(12) == 0 {
			c.results[0] = "Error: exit status 1\n" + c.results[0]
		}
		t = append(t, event{calls: []toolCall{c}})
		if rnd.IntN(15) == 0 {
			t = append(t, event{model: "I am done."}, event{user: "Not quite, go on."})
		}
	}
	return t
}

func policyWithAdvance(how string) Policy {
	p := DefaultPolicy()
	p.Advance = how
	return p
}

var advances = []string{AdvanceAuto, AdvanceEachTurn, AdvanceStride, AdvancePressure}

// relativeCosts is the cost of some conversations relative to not masking, by advance policy.
func relativeCosts(t *testing.T, dialogues []*Dialogue, c CachePrices) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, how := range advances {
		plain, masked := 0.0, 0.0
		for _, d := range dialogues {
			b := d.Bill(policyWithAdvance(how), c)
			plain += b.Plain[len(b.Plain)-1]
			masked += b.Masked[len(b.Masked)-1]
		}
		out[how] = masked / plain
	}
	return out
}

// H+1: auto never costs more than not masking, and much less for long conversations, with calls of 100 to 400
// tokens.
func TestHPlus1AutoPays(t *testing.T) {
	for _, price := range prices {
		for _, shape := range []struct {
			turns, result int
			bar           float64
		}{{58, 520, 1}, {120, 1500, .7}, {80, 4000, .7}} {
			for _, call := range []int{100, 180, 400} {
				d := mustRead(t, openAIChat, uniformTranscript(shape.turns, call, shape.result).render(openAIChat, renderOptions{}))
				got := relativeCosts(t, []*Dialogue{d}, price.CachePrices)
				t.Logf("%s, %3d × %4d (calls %3d): auto %.2f turn %.2f stride %.2f pressure %.2f",
					price.name, shape.turns, shape.result, call, got[AdvanceAuto], got[AdvanceEachTurn], got[AdvanceStride], got[AdvancePressure])
				bar := shape.bar
				if call == 400 && bar < 1 {
					bar = .75 // a first move must write so many calls again that it waits longer for its stake
				}
				if got[AdvanceAuto] > bar {
					t.Errorf("%s, %d × %d, calls %d: auto costs %.3f, the bar is %.2f", price.name, shape.turns, shape.result, call, got[AdvanceAuto], bar)
				}
			}
		}
	}
}

// H+1: auto does not cost more over 24 mixed sessions, and no session exceeds the cost of not masking by more
// than 1/stakeShare at any turn.
func TestHPlus1AutoPaysOnMixedTrajectories(t *testing.T) {
	var dialogues []*Dialogue
	for seed := range uint64(24) {
		dialogues = append(dialogues, mustRead(t, openAIChat, agentTranscript(seed).render(openAIChat, renderOptions{system: strings.Repeat("s", 9000)})))
	}
	for _, price := range prices {
		got := relativeCosts(t, dialogues, price.CachePrices)
		var each []string
		worst, over := 0.0, 0
		for _, d := range dialogues {
			b := d.Bill(policyWithAdvance(AdvanceAuto), price.CachePrices)
			each = append(each, fmt.Sprintf("%d:%.2f", len(d.Turns), b.Ratio()))
			if b.Ratio() > 1 {
				over++
			}
			for i := range b.Plain {
				worst = max(worst, b.Masked[i]/b.Plain[i])
			}
		}
		t.Logf("%s, mixed: auto %.2f turn %.2f stride %.2f pressure %.2f; auto over 1.00 in %d of %d, worst at any turn %.3f",
			price.name, got[AdvanceAuto], got[AdvanceEachTurn], got[AdvanceStride], got[AdvancePressure], over, len(dialogues), worst)
		t.Logf("turns:auto %s", strings.Join(each, " "))
		if got[AdvanceAuto] > 1 || worst > 1+1./stakeShare {
			t.Errorf("%s: auto costs %.3f, at worst %.3f", price.name, got[AdvanceAuto], worst)
		}
	}
}

// For turns of one size, the stride of auto is the optimum of the formula.
func TestHPlus1AutoFindsTheStride(t *testing.T) {
	for _, c := range []CachePrices{{Write: 1.25, Read: .1}, {Write: 1, Read: .1}, {Write: 1, Read: .25}, {Write: 1, Read: .5}} {
		d := mustRead(t, openAIChat, uniformTranscript(150, 150, 1500).render(openAIChat, renderOptions{}))
		p := policyWithAdvance(AdvanceAuto)
		b := newTestReplay(d, p, c)
		moves := turnsOf(b.runPolicy(pastEvents{}))
		per, gain := float64(b.requestSizes[100]-b.requestSizes[50])/50, float64(b.gains[50])
		want := math.Sqrt(2 * (c.Write - c.Read) / c.Read * float64(p.WindowTurns) * per / gain)
		last := moves[len(moves)-1] - moves[len(moves)-2]
		if math.Abs(float64(last)-want) > 1.5 {
			t.Errorf("%v: a stride of %d, the optimum is %.1f", c, last, want)
		}
	}
}

// turnsOf returns the turns at which something was masked.
func turnsOf(cuts []Cut) (out []int) {
	for _, c := range cuts {
		out = append(out, c.AtTurn)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Bill agrees with a byte-level cache: every request is rendered, masked and compared with the one before.
func TestBillAgreesWithBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	for _, how := range advances {
		full := agentTranscript(6)
		full = slices.DeleteFunc(full, func(e event) bool { return e.model != "" }) // one request a turn
		p, c := policyWithAdvance(how), CachePrices{Write: 1.25, Read: .1}
		p.KeepHandles, p.TriggerTokens = 0, 20_000
		bill := mustRead(t, openAIChat, full.render(openAIChat, renderOptions{})).Bill(p, c)
		plain, masked := 0.0, 0.0
		var lastPlain, lastMasked []byte
		for _, n := range full.requests()[1:] {
			body := full[:n].render(openAIChat, renderOptions{})
			d := mustRead(t, openAIChat, body)
			if len(d.Turns) == 0 || full[n-1].user != "" {
				continue
			}
			plan := d.Plan(p, c, nil)
			var edits []jsonscan.Edit
			for i := range plan.Cuts {
				edits = append(edits, plan.Edits(i, someID)...)
			}
			after := jsonscan.AppendSpliced(nil, body, edits)
			plain += requestCost(lastPlain, body, c)
			masked += requestCost(lastMasked, after, c)
			lastPlain, lastMasked = body, after
		}
		if got, want := bill.Ratio(), masked/plain; math.Abs(got-want) > .02 {
			t.Errorf("%s: Bill gives %.3f, the byte-level cache %.3f", how, got, want)
		}
	}
}

// requestCost is the cost of a request whose common prefix with the last one is cached.
func requestCost(last, now []byte, c CachePrices) float64 {
	cached := 0
	if last != nil {
		cached = commonPrefixLen(throughLastMessage(last), now)
	}
	return c.Read*float64(cached) + c.Write*float64(len(now)-cached)
}
