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

// prices are the providers' that there are, relative to fresh input.
var prices = []struct {
	name string
	Cache
}{
	{"write 1.25 read 0.1", Cache{1.25, .1}},
	{"write 1.00 read 0.1", Cache{1, .1}},
	{"write 1.00 read 0.5", Cache{1, .5}},
	{"no cache", Cache{}},
}

// even is a conversation of turns of one size: tokens of a call and of its result.
func even(turns, call, result int) talk {
	t := talk{{user: "go on"}}
	for i := range turns {
		t = append(t, event{calls: []toolCall{sized(i, "bash", call, result)}})
	}
	return t
}

func sized(i int, name string, call, result int) toolCall {
	text := func(tokens int) string { return strings.Repeat("line of text\n", max(1, int(float64(tokens)*3.4/14))) }
	return toolCall{id: fmt.Sprintf("call_%06d", i), name: name, args: text(call), results: []string{text(result)}}
}

// trajectory looks like a recorded one: an agent of some kind, a length as sessions have them,
// sizes of calls and results far apart, errors and talk between.
func trajectory(seed uint64) talk {
	rnd := rand.New(rand.NewPCG(seed, 42))
	size := func(mean, spread float64) int { return int(math.Exp(mean + spread*rnd.NormFloat64())) }
	turns := min(220, max(6, size(3.6, .7)))
	kind := seed % 4
	t := talk{{user: strings.Repeat("please ", 50)}}
	for i := range turns {
		result := size(6.3, 1.4) // a bit of everything
		switch {
		case kind == 0 && rnd.IntN(5) < 3: // code
			result = size(7, 1)
		case kind == 1: // shell
			result = size(5.5, 1.2)
		case kind == 2 && rnd.IntN(2) == 0: // web
			result = size(8, .8)
		}
		c := sized(i, tools[rnd.IntN(len(tools))], size(5.1, .6), min(result, 25000))
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

func advancing(how string) Policy {
	p := DefaultPolicy()
	p.Advance = how
	return p
}

var advances = []string{Auto, EachTurn, Stride, Pressure}

// cell is the cost of some conversations relative to not masking, for each advance.
func cell(t *testing.T, talks []*Dialogue, c Cache) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, how := range advances {
		plain, less := 0.0, 0.0
		for _, d := range talks {
			b := d.Bill(advancing(how), c)
			plain += b.Plain[len(b.Plain)-1]
			less += b.Masked[len(b.Masked)-1]
		}
		out[how] = less / plain
	}
	return out
}

// H+1: auto never costs more than not masking, and much less for long conversations. Calls of 100
// to 400 tokens, as agents make them, all pass the same bars.
func TestHPlus1AutoPays(t *testing.T) {
	for _, price := range prices {
		for _, shape := range []struct {
			turns, result int
			bar           float64
		}{{58, 520, 1}, {120, 1500, .7}, {80, 4000, .7}} {
			for _, call := range []int{100, 180, 400} {
				d := mustRead(t, Chat, even(shape.turns, call, shape.result).render(Chat, look{}))
				got := cell(t, []*Dialogue{d}, price.Cache)
				t.Logf("%s, %3d × %4d (calls %3d): auto %.2f turn %.2f stride %.2f pressure %.2f",
					price.name, shape.turns, shape.result, call, got[Auto], got[EachTurn], got[Stride], got[Pressure])
				if got[Auto] > shape.bar {
					t.Errorf("%s, %d × %d, calls %d: auto costs %.3f, the bar is %.2f", price.name, shape.turns, shape.result, call, got[Auto], shape.bar)
				}
			}
		}
	}
}

// H+1: the same for 24 trajectories of mixed sizes; and no conversation, wherever it ends, costs
// more than a fifteenth over not masking.
func TestHPlus1AutoPaysOnMixedTrajectories(t *testing.T) {
	var talks []*Dialogue
	for seed := range uint64(24) {
		talks = append(talks, mustRead(t, Chat, trajectory(seed).render(Chat, look{system: strings.Repeat("s", 9000)})))
	}
	for _, price := range prices {
		got := cell(t, talks, price.Cache)
		var each []string
		worst, over := 0.0, 0
		for _, d := range talks {
			b := d.Bill(advancing(Auto), price.Cache)
			each = append(each, fmt.Sprintf("%d:%.2f", len(d.Turns), b.Ratio()))
			if b.Ratio() > 1 {
				over++
			}
			for i := range b.Plain {
				worst = max(worst, b.Masked[i]/b.Plain[i])
			}
		}
		t.Logf("%s, mixed: auto %.2f turn %.2f stride %.2f pressure %.2f; auto over 1.00 in %d of %d, worst at any turn %.3f",
			price.name, got[Auto], got[EachTurn], got[Stride], got[Pressure], over, len(talks), worst)
		t.Logf("turns:auto %s", strings.Join(each, " "))
		if got[Auto] > 1 || worst > 1+1./stake {
			t.Errorf("%s: auto costs %.3f, at worst %.3f", price.name, got[Auto], worst)
		}
	}
}

// The stride of auto is the optimum of the formula for turns of one size.
func TestHPlus1AutoFindsTheStride(t *testing.T) {
	for _, c := range []Cache{{1.25, .1}, {1, .1}, {1, .25}, {1, .5}} {
		d := mustRead(t, Chat, even(150, 150, 1500).render(Chat, look{}))
		p := advancing(Auto)
		b := freshBook(d, p, c)
		moves := movesOf(b.replay(nil))
		per, gain := float64(b.size[100]-b.size[50])/50, float64(b.gain[50])
		want := math.Sqrt(2 * (c.Write - c.Read) / c.Read * float64(p.WindowTurns) * per / gain)
		last := moves[len(moves)-1] - moves[len(moves)-2]
		if math.Abs(float64(last)-want) > 1.5 {
			t.Errorf("%v: a stride of %d, the optimum is %.1f", c, last, want)
		}
	}
}

// movesOf are the requests at which something was masked.
func movesOf(cuts []Cut) (out []int) {
	for _, c := range cuts {
		out = append(out, c.At)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Bill is what a cache of real bytes would charge: every request rendered, masked, and compared
// byte by byte with the one before.
func TestBillAgreesWithBytes(t *testing.T) {
	for _, how := range advances {
		full := trajectory(6)
		full = slices.DeleteFunc(full, func(e event) bool { return e.model != "" }) // one request a turn
		p, c := advancing(how), Cache{1.25, .1}
		p.KeepHandles, p.TriggerTokens = 0, 20_000
		bill := mustRead(t, Chat, full.render(Chat, look{})).Bill(p, c)
		plain, less := 0.0, 0.0
		var lastPlain, lastMasked []byte
		for _, n := range full.requests()[1:] {
			body := full[:n].render(Chat, look{})
			d := mustRead(t, Chat, body)
			if len(d.Turns) == 0 || full[n-1].user != "" {
				continue
			}
			plan := d.Plan(p, c, nil)
			var edits []jsonscan.Edit
			for i := range plan.Cuts {
				edits = append(edits, plan.Edits(i, someID)...)
			}
			after := jsonscan.AppendSpliced(nil, body, edits)
			plain += charge(lastPlain, body, c)
			less += charge(lastMasked, after, c)
			lastPlain, lastMasked = body, after
		}
		if got, want := bill.Ratio(), less/plain; math.Abs(got-want) > .02 {
			t.Errorf("%s: Bill says %.3f, bytes say %.3f", how, got, want)
		}
	}
}

func charge(last, now []byte, c Cache) float64 {
	kept := 0
	if last != nil {
		kept = common(listOf(last), now)
	}
	return c.Read*float64(kept) + c.Write*float64(len(now)-kept)
}
