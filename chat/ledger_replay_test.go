package chat_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
	"github.com/ctxgate/ctxgate/meter"
)

// scenario is a conversation that is played twice: through the gateway, and directly to the provider.
type scenario struct {
	dialogue      trajectories.Trajectory
	shape         fakeprovider.Shape
	marks         trajectories.CacheMarks
	profile       fakeprovider.PriceList
	advance       string
	pause         time.Duration // between its two halves
	readBackEvery int           // the model calls the proxy's recover_text every so many turns; 0: never
	shortenNew    bool          // long results are shortened when they are first sent
}

func (c scenario) String() string {
	s := fmt.Sprintf("%-22s %-9v %-20s %-8s", c.dialogue.Name, c.shape, c.profile.Name, c.advance)
	if c.shape == fakeprovider.Messages {
		s += [...]string{trajectories.MarkRolling: " marked", trajectories.MarkSystemOnly: " system marked", trajectories.MarkNone: " unmarked", trajectories.MarkRolling1h: " marked for 1h"}[c.marks]
	}
	if c.pause > 0 {
		s += " pauses " + c.pause.String()
	}
	if c.readBackEvery > 0 {
		s += fmt.Sprintf(" reads back every %d turns", c.readBackEvery)
	}
	if c.shortenNew {
		s += " new results shortened"
	}
	return s
}

// play plays the scenario's conversation to a base URL; p is the provider behind it.
func (c scenario) play(t *testing.T, p *fakeprovider.Provider, url string) {
	t.Helper()
	player := trajectories.Replayer{URL: url, Shape: c.shape, CacheMarks: c.marks, CallIDs: c.readBackEvery > 0, BeforeTurn: func(turn int) {
		p.Advance(time.Second)
		if turn == len(c.dialogue.Turns)/2 {
			p.Advance(c.pause)
		}
	}}
	if _, err := player.Run(t.Context(), c.dialogue); err != nil {
		t.Fatal(err)
	}
}

func (c scenario) provider(t *testing.T) *fakeprovider.Provider {
	t.Helper()
	p := fakeprovider.New(t, fakeprovider.Options{DiscardBodies: c.readBackEvery == 0, Prices: c.profile.Prices, NoCache: c.profile.NoCache})
	p.ScriptFunc(c.dialogue.Answer)
	return p
}

// playMasked plays the scenario through a gateway, and returns what it cost and what the gateway's ledger says.
func (c scenario) playMasked(t *testing.T) (float64, meter.Savings) {
	t.Helper()
	p := c.provider(t)
	entry := providerConfig("p", kindOfShape(c.shape), p.URL, func(p *chat.Provider) {
		p.Cache.Write, p.Cache.Read = c.profile.Prices.Write, c.profile.Prices.Read
	})
	r := newRecall(t, nil)
	g := newGateway(t, []chat.Provider{entry}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink, d.Recall = masking.New(r, p.Now).Shrink, r
		policy := &s.Chat.ObservationMasking.Schema1
		policy.Advance, policy.PastBreakpoints, policy.WindowTurns, policy.Stride = c.advance, true, 4, 6
		if c.shortenNew {
			newResults := &s.Chat.ObservationMasking.NewResults
			newResults.Reduce, newResults.MaxChars, newResults.HeadChars, newResults.TailChars = "mask", 2000, 500, 500
		}
		if c.readBackEvery > 0 {
			policy.Template = "[masked: {prune_id}]"
			s.Chat.ObservationMasking.Recovery.Offer = true
		}
	})
	if c.readBackEvery > 0 {
		p.ScriptFunc(c.readingModel())
	}
	c.play(t, p, g.URL)
	waitForReplies(t, g, len(p.Bill()))
	return p.Cost(), g.meter.Savings()
}

// readingModel is a model that reads a masked result back every readBackEvery turns.
func (c scenario) readingModel() func(fakeprovider.Request) fakeprovider.Step {
	turn, lastRead := 0, 0
	return func(r fakeprovider.Request) fakeprovider.Step {
		if ids := maskedID.FindAllString(string(r.Body), -1); len(ids) > 0 && turn%c.readBackEvery == c.readBackEvery-1 && lastRead < turn {
			lastRead = turn
			return fakeprovider.CallTools(recoverCall(ids[len(ids)/2], ""))
		}
		turn++
		return c.dialogue.Answer(fakeprovider.Request{ToolTurns: turn - 1})
	}
}

// waitForReplies waits until the ledger has so many replies: a reply is recorded after its client has all of it.
func waitForReplies(t *testing.T, g *gateway, replies int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); g.meter.Savings().Total.Requests < int64(replies); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the ledger has %d replies, not %d", g.meter.Savings().Total.Requests, replies)
		}
	}
}

func (c scenario) playUnmasked(t *testing.T) float64 {
	t.Helper()
	p := c.provider(t)
	c.play(t, p, p.URL)
	return p.Cost()
}

func scenarios() []scenario {
	var out []scenario
	profiles := fakeprovider.PriceLists()
	recorded := map[string]trajectories.Trajectory{}
	for _, r := range trajectories.Synthetic() {
		recorded[r.Name] = r
	}
	for _, profile := range []fakeprovider.PriceList{profiles[0], profiles[2], profiles[3]} {
		for _, advance := range []string{history.AdvanceEachTurn, history.AdvanceStride, history.AdvanceAuto} {
			other := scenario{dialogue: recorded["flaky test"], shape: fakeprovider.Responses, profile: profile, advance: advance}
			if len(out)%4 > 0 {
				other.dialogue, other.shape = recorded["nil dereference"], fakeprovider.Messages
			}
			out = append(out, scenario{dialogue: trajectories.Uniform(30, 520), shape: fakeprovider.Chat, profile: profile, advance: advance}, other)
		}
	}
	for _, advance := range []string{history.AdvanceEachTurn, history.AdvanceAuto} {
		out = append(out,
			scenario{dialogue: recorded["flaky test"], shape: fakeprovider.Chat, profile: profiles[1], advance: advance, pause: time.Hour},
			scenario{dialogue: recorded["nil dereference"], shape: fakeprovider.Messages, profile: profiles[0], advance: advance, pause: time.Hour},
		)
	}
	for _, advance := range []string{history.AdvanceEachTurn, history.AdvanceStride, history.AdvanceAuto} {
		out = append(out, scenario{dialogue: recorded["nil dereference"], shape: fakeprovider.Messages, profile: profiles[0], advance: advance, marks: trajectories.MarkRolling1h, pause: 20 * time.Minute})
	}
	for i, advance := range []string{history.AdvanceEachTurn, history.AdvanceStride, history.AdvanceAuto} {
		out = append(out,
			scenario{dialogue: recorded["flaky test"], shape: fakeprovider.Gemini, profile: profiles[1+i], advance: advance},
			scenario{dialogue: trajectories.Uniform(30, 1500), shape: fakeprovider.Gemini, profile: profiles[1], advance: advance, shortenNew: i == 2},
		)
	}
	return append(out,
		scenario{dialogue: recorded["nil dereference"], shape: fakeprovider.Messages, profile: profiles[0], advance: history.AdvanceAuto, marks: trajectories.MarkSystemOnly},
		scenario{dialogue: recorded["nil dereference"], shape: fakeprovider.Messages, profile: profiles[0], advance: history.AdvanceAuto, marks: trajectories.MarkNone},
		scenario{dialogue: trajectories.Uniform(30, 1500), shape: fakeprovider.Chat, profile: profiles[0], advance: history.AdvanceAuto},
		scenario{dialogue: trajectories.Uniform(30, 1500), shape: fakeprovider.Chat, profile: profiles[0], advance: history.AdvanceAuto, shortenNew: true},
		scenario{dialogue: recorded["nil dereference"], shape: fakeprovider.Messages, profile: profiles[2], advance: history.AdvanceStride, shortenNew: true},
		scenario{dialogue: recorded["flaky test"], shape: fakeprovider.Responses, profile: profiles[3], advance: history.AdvanceAuto, shortenNew: true},
	)
}

// withReadBackTurns returns a conversation in which the model reads a result back every so many turns, with the
// client's own recover_text, and the same conversation without these turns.
func withReadBackTurns(dialogue trajectories.Trajectory, every int) (with, without trajectories.Trajectory) {
	with, without = dialogue, dialogue
	with.Turns = nil
	for i, turn := range dialogue.Turns {
		with.Turns = append(with.Turns, turn)
		if i%every == every-1 {
			back := fakeprovider.Call{ID: fmt.Sprintf("call_back%04d", i), Name: "mcp__ctxgate__recover_text", Args: `{"prune_id":"prn_0"}`}
			with.Turns = append(with.Turns, trajectories.Turn{ToolUses: []trajectories.ToolUse{{Call: back, Result: dialogue.Turns[i/2].ToolUses[0].Result}}})
		}
	}
	return with, without
}

// comparison is what masking saved by the bills, and what the ledger says it saved.
type comparison struct {
	unmaskedCost, saved, ledgerSaved float64
	savings                          meter.Savings
}

func (v comparison) errorShare() float64 { return (v.ledgerSaved - v.saved) / v.unmaskedCost }

func (v comparison) String() string {
	return fmt.Sprintf("%10.0f %9.1f%% %9.1f%% %6.2f%%", v.unmaskedCost, 100*v.saved/v.unmaskedCost, 100*v.ledgerSaved/v.unmaskedCost, 100*v.errorShare())
}

// check compares what the ledger says with the bill of the same conversation without masking.
func (c scenario) check(t *testing.T, without float64) comparison {
	t.Helper()
	cost, s := c.playMasked(t)
	v := comparison{unmaskedCost: without, saved: without - cost, ledgerSaved: float64(s.Total.Cost.Saved()), savings: s}
	t.Logf("%-86s %v", strings.TrimSpace(c.String()), v)
	if math.Abs(v.errorShare()) > .03 || math.Abs(v.saved) > .03*v.unmaskedCost && v.saved*v.ledgerSaved < 0 {
		t.Errorf("%v: saved %.0f of %.0f, the ledger says %.0f", c, v.saved, v.unmaskedCost, v.ledgerSaved)
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

// The saving that the ledger computes from the provider's usage figures is within 3 % of the bill from
// the true one, and has the same sign, in every scenario. The true saving is what the same
// conversation costs more without the gateway.
func TestLedgerSavingsMatchBills(t *testing.T) {
	bills := map[string]float64{}
	worst := 0.0
	t.Logf("%-86s %10s %10s %10s %7s", "", "unmasked", "saved", "ledger", "off by")
	all := scenarios()
	if testing.Short() {
		all = everyNth(all, 9)
	}
	for _, c := range all {
		key := fmt.Sprint(c.dialogue.Name, c.shape, c.marks, c.profile.Name, c.pause)
		if bills[key] == 0 {
			bills[key] = c.playUnmasked(t)
		}
		v := c.check(t, bills[key])
		worst = max(worst, math.Abs(v.errorShare()))
		checkCacheMisses(t, c, v.savings.Total.CacheMisses)
	}
	t.Logf("at most %.2f %% off", 100*worst)
}

func everyNth[T any](all []T, n int) (some []T) {
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// checkCacheMisses checks what holds in every scenario: the provider never evicts early, the client
// changes no prefix, and there is one first request.
func checkCacheMisses(t *testing.T, c scenario, m meter.CacheMisses) {
	t.Helper()
	cached := !c.profile.NoCache && c.marks == trajectories.MarkRolling
	count := func(cause meter.MissCause, want bool, most int64) {
		if n := m[cause].Requests; n > most || want && n == 0 {
			t.Errorf("%v: %d misses with cause %v", c, n, cause)
		}
	}
	count(meter.MissByProvider, false, 0)
	count(meter.MissByClient, false, 0)
	count(meter.MissCold, cached, 1)
	count(meter.MissExpired, cached && c.pause > 0, 1)
	count(meter.MissByMasking, cached && c.advance == history.AdvanceEachTurn, 1000)
}

// The ledger charges what a client reads back with its own recover_text: the extra requests, and what
// they add to later ones. It is compared with the same conversation without masking and reading back.
func TestLedgerChargesReadingBack(t *testing.T) {
	with, without := withReadBackTurns(trajectories.Uniform(24, 800), 6)
	for _, shape := range []fakeprovider.Shape{fakeprovider.Chat, fakeprovider.Messages, fakeprovider.Gemini} {
		c := scenario{dialogue: with, shape: shape, profile: fakeprovider.PriceLists()[2], advance: history.AdvanceAuto}
		plain := c
		plain.dialogue = without
		v := c.check(t, plain.playUnmasked(t))
		if n := v.savings.Total.Recoveries; n != 4 || v.savings.Total.Cost.Recovery == 0 {
			t.Errorf("%v: %d requests for reading back cost %d", c, n, v.savings.Total.Cost.Recovery)
		}
	}
}

// The ledger charges what a model reads back through the proxy: the tool in every request, the rounds,
// and what they add to later requests.
func TestLedgerChargesRounds(t *testing.T) {
	for _, shape := range []fakeprovider.Shape{fakeprovider.Chat, fakeprovider.Responses, fakeprovider.Messages, fakeprovider.Gemini} {
		c := scenario{dialogue: trajectories.Uniform(24, 800), shape: shape, profile: fakeprovider.PriceLists()[1], advance: history.AdvanceStride, readBackEvery: 6}
		v := c.check(t, c.playUnmasked(t))
		if n := v.savings.Total.Recoveries; n < 2 || v.savings.Total.Cost.Recovery == 0 || v.savings.Total.Cost.RecoveryOutput == 0 {
			t.Errorf("%v: %d rounds cost %+v", c, n, v.savings.Total.Cost)
		}
	}
}
