package chat_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/meter"
)

// cell is a conversation that is played twice: through the door, and to the provider directly.
type cell struct {
	talk    llmtest.Trajectory
	shape   llmtest.Shape
	marks   llmtest.Marks
	profile llmtest.Profile
	advance string
	rest    time.Duration // in the middle
	asks    int           // the model reads back at each so many turns, behind its client's back
	births  bool          // long results are shortened when they come
}

func (c cell) String() string {
	s := fmt.Sprintf("%-22s %-9v %-20s %-8s", c.talk.Name, c.shape, c.profile.Name, c.advance)
	if c.shape == llmtest.Messages {
		s += [...]string{llmtest.Rolling: " marked", llmtest.Still: " marked in front", llmtest.Unmarked: " unmarked", llmtest.Hourly: " marked for an hour"}[c.marks]
	}
	if c.rest > 0 {
		s += " rests " + c.rest.String()
	}
	if c.asks > 0 {
		s += fmt.Sprintf(" reads back every %d turns", c.asks)
	}
	if c.births {
		s += " shortened at birth"
	}
	return s
}

// play plays the cell's conversation to a base URL, against the provider p.
func (c cell) play(t *testing.T, p *llmtest.Provider, url string) {
	t.Helper()
	player := llmtest.Player{URL: url, Shape: c.shape, Marks: c.marks, Before: func(turn int) {
		p.Advance(time.Second)
		if turn == len(c.talk.Turns)/2 {
			p.Advance(c.rest)
		}
	}}
	if _, err := player.Play(t.Context(), c.talk); err != nil {
		t.Fatal(err)
	}
}

func (c cell) provider(t *testing.T) *llmtest.Provider {
	t.Helper()
	p := llmtest.New(t, llmtest.Options{Forgetful: c.asks == 0, Prices: c.profile.Prices, NoCache: c.profile.NoCache})
	p.ScriptFunc(c.talk.Answer)
	return p
}

// masked plays the cell through a door: what it cost, and what the door's ledger says.
func (c cell) masked(t *testing.T) (float64, meter.Savings) {
	t.Helper()
	p := c.provider(t)
	kind := "openai"
	if c.shape == llmtest.Messages {
		kind = "anthropic"
	}
	far := provider("p", kind, p.URL, func(p *chat.Provider) {
		p.Cache.Write, p.Cache.Read = c.profile.Prices.Write, c.profile.Prices.Read
	})
	r := keeper(t, nil)
	g := open(t, []chat.Provider{far}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink, d.Recall = chat.Mask(r, p.Now), r
		policy := &s.Chat.Observation.Schema1
		policy.Advance, policy.PastBreakpoints, policy.WindowTurns, policy.Stride = c.advance, true, 4, 6
		if c.births {
			birth := &s.Chat.Observation.Birth
			birth.Reduce, birth.MaxChars, birth.HeadChars, birth.TailChars = "mask", 2000, 500, 500
		}
		if c.asks > 0 {
			policy.Template = "[masked: {prune_id}]"
			s.Chat.Observation.Recovery.Offer = true
		}
	})
	if c.asks > 0 {
		p.ScriptFunc(c.curious())
	}
	c.play(t, p, g.URL)
	settled(t, g, len(p.Bill()))
	return p.Cost(), g.meter.Savings()
}

// curious is the conversation's model, who reads a masked result back before it goes on.
func (c cell) curious() func(llmtest.Request) llmtest.Step {
	turn, asked := 0, 0
	return func(r llmtest.Request) llmtest.Step {
		if ids := maskedID.FindAllString(string(r.Body), -1); len(ids) > 0 && turn%c.asks == c.asks-1 && asked < turn {
			asked = turn
			return llmtest.Use(readBack(ids[len(ids)/2], ""))
		}
		turn++
		return c.talk.Answer(llmtest.Request{ToolTurns: turn - 1})
	}
}

// settled waits until so many replies are booked: a client has all of a reply before that.
func settled(t *testing.T, g *gate, replies int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); g.meter.Savings().Total.Requests < int64(replies); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d replies are booked, not %d", g.meter.Savings().Total.Requests, replies)
		}
	}
}

func (c cell) whole(t *testing.T) float64 {
	t.Helper()
	p := c.provider(t)
	c.play(t, p, p.URL)
	return p.Cost()
}

func cells() []cell {
	var out []cell
	profiles := llmtest.Profiles()
	recorded := map[string]llmtest.Trajectory{}
	for _, r := range llmtest.Recorded() {
		recorded[r.Name] = r
	}
	for _, profile := range []llmtest.Profile{profiles[0], profiles[2], profiles[3]} {
		for _, advance := range []string{history.EachTurn, history.Stride, history.Auto} {
			other := cell{talk: recorded["flaky test"], shape: llmtest.Responses, profile: profile, advance: advance}
			if len(out)%4 > 0 {
				other.talk, other.shape = recorded["nil dereference"], llmtest.Messages
			}
			out = append(out, cell{talk: llmtest.Uniform(30, 520), shape: llmtest.Chat, profile: profile, advance: advance}, other)
		}
	}
	for _, advance := range []string{history.EachTurn, history.Auto} {
		out = append(out,
			cell{talk: recorded["flaky test"], shape: llmtest.Chat, profile: profiles[1], advance: advance, rest: time.Hour},
			cell{talk: recorded["nil dereference"], shape: llmtest.Messages, profile: profiles[0], advance: advance, rest: time.Hour},
		)
	}
	for _, advance := range []string{history.EachTurn, history.Stride, history.Auto} {
		out = append(out, cell{talk: recorded["nil dereference"], shape: llmtest.Messages, profile: profiles[0], advance: advance, marks: llmtest.Hourly, rest: 20 * time.Minute})
	}
	return append(out,
		cell{talk: recorded["nil dereference"], shape: llmtest.Messages, profile: profiles[0], advance: history.Auto, marks: llmtest.Still},
		cell{talk: recorded["nil dereference"], shape: llmtest.Messages, profile: profiles[0], advance: history.Auto, marks: llmtest.Unmarked},
		cell{talk: llmtest.Uniform(30, 1500), shape: llmtest.Chat, profile: profiles[0], advance: history.Auto},
		cell{talk: llmtest.Uniform(30, 1500), shape: llmtest.Chat, profile: profiles[0], advance: history.Auto, births: true},
		cell{talk: recorded["nil dereference"], shape: llmtest.Messages, profile: profiles[2], advance: history.Stride, births: true},
		cell{talk: recorded["flaky test"], shape: llmtest.Responses, profile: profiles[3], advance: history.Auto, births: true},
	)
}

// forgetful is a conversation in which the model reads a result back at some turns, with a tool of the
// client's for it, and the same conversation without.
func forgetful(talk llmtest.Trajectory, every int) (with, without llmtest.Trajectory) {
	with, without = talk, talk
	with.Turns = nil
	for i, turn := range talk.Turns {
		with.Turns = append(with.Turns, turn)
		if i%every == every-1 {
			back := llmtest.Call{ID: fmt.Sprintf("call_back%04d", i), Name: "mcp__ctxgate__recover_text", Args: `{"prune_id":"prn_0"}`}
			with.Turns = append(with.Turns, llmtest.Turn{Uses: []llmtest.Exchange{{Call: back, Result: talk.Turns[i/2].Uses[0].Result}}})
		}
	}
	return with, without
}

// truth plays a cell twice and compares.
type truth struct {
	whole, saved, says float64
	s                  meter.Savings
}

func (v truth) off() float64 { return (v.says - v.saved) / v.whole }

func (v truth) String() string {
	return fmt.Sprintf("%10.0f %9.1f%% %9.1f%% %6.2f%%", v.whole, 100*v.saved/v.whole, 100*v.says/v.whole, 100*v.off())
}

// check holds a cell against the bill of playing without, to the provider directly.
func (c cell) check(t *testing.T, without float64) truth {
	t.Helper()
	cost, s := c.masked(t)
	v := truth{whole: without, saved: without - cost, says: float64(s.Total.Cost.Saved()), s: s}
	t.Logf("%-86s %v", strings.TrimSpace(c.String()), v)
	if math.Abs(v.off()) > .03 || math.Abs(v.saved) > .03*v.whole && v.saved*v.says < 0 {
		t.Errorf("%v: saved %.0f of %.0f, the ledger says %.0f", c, v.saved, v.whole, v.says)
	}
	if math.Abs(float64(s.Total.Cost.Billed)-cost) > float64(s.Total.Requests) {
		t.Errorf("%v: billed %.0f, the ledger says %d", c, cost, s.Total.Cost.Billed)
	}
	sum := int64(0)
	for _, tool := range s.Tools {
		sum += tool.Saved
	}
	if sum != s.Total.Cost.Saved() {
		t.Errorf("%v: the tools saved %d, all saved %d", c, sum, s.Total.Cost.Saved())
	}
	return v
}

// The ledger knows only what the provider says of the requests that were made. What it says was
// saved is what the same conversation costs more when it is played without the door: within 3 % of
// that bill, and of the same sign, in every cell.
func TestLedgerTellsTheTruth(t *testing.T) {
	bills := map[string]float64{}
	worst := 0.0
	t.Logf("%-86s %10s %10s %10s %7s", "", "unmasked", "saved", "ledger", "off by")
	for _, c := range cells() {
		key := fmt.Sprint(c.talk.Name, c.shape, c.marks, c.profile.Name, c.rest)
		if bills[key] == 0 {
			bills[key] = c.whole(t)
		}
		v := c.check(t, bills[key])
		worst = max(worst, math.Abs(v.off()))
		missesMakeSense(t, c, v.s.Total.Misses)
	}
	t.Logf("at most %.2f %% off", 100*worst)
}

// missesMakeSense checks what is known of every cell: the provider never forgets by itself, the
// client changes nothing, and there is one first request.
func missesMakeSense(t *testing.T, c cell, m meter.Misses) {
	t.Helper()
	cached := !c.profile.NoCache && c.marks == llmtest.Rolling
	count := func(cause meter.Cause, want bool, most int64) {
		if n := m[cause].Requests; n > most || want && n == 0 {
			t.Errorf("%v: %d misses are %v", c, n, cause)
		}
	}
	count(meter.ByOther, false, 0)
	count(meter.ByClient, false, 0)
	count(meter.Cold, cached, 1)
	count(meter.Lapsed, cached && c.rest > 0, 1)
	count(meter.ByUs, cached && c.advance == history.EachTurn, 1000)
}

// What a client reads back through the hub's tool is charged: the requests that are there only for
// it, and what it adds to later ones. The truth is the same conversation without masking, in which
// nobody needs to read anything back.
func TestLedgerChargesReadingBack(t *testing.T) {
	with, without := forgetful(llmtest.Uniform(24, 800), 6)
	for _, shape := range []llmtest.Shape{llmtest.Chat, llmtest.Messages} {
		c := cell{talk: with, shape: shape, profile: llmtest.Profiles()[2], advance: history.Auto}
		plain := c
		plain.talk = without
		v := c.check(t, plain.whole(t))
		if n := v.s.Total.Recoveries; n != 4 || v.s.Total.Cost.Recovery == 0 {
			t.Errorf("%v: %d requests for reading back cost %d", c, n, v.s.Total.Cost.Recovery)
		}
	}
}

// What a model reads back behind its client's back is charged: the tool in every request, the rounds,
// and what they put into later requests.
func TestLedgerChargesRounds(t *testing.T) {
	for _, shape := range []llmtest.Shape{llmtest.Chat, llmtest.Responses, llmtest.Messages} {
		c := cell{talk: llmtest.Uniform(24, 800), shape: shape, profile: llmtest.Profiles()[1], advance: history.Stride, asks: 6}
		v := c.check(t, c.whole(t))
		if n := v.s.Total.Recoveries; n < 2 || v.s.Total.Cost.Recovery == 0 || v.s.Total.Cost.Recalled == 0 {
			t.Errorf("%v: %d rounds cost %+v", c, n, v.s.Total.Cost)
		}
	}
}
