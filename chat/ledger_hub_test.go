package chat_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
)

// hubRun is an agent whose tools are behind the MCP endpoint, which cuts long results, and whose model reads some
// of them back with the client's own recover_text.
type hubRun struct {
	dialogue trajectories.Trajectory // without ctxgate
	shape    fakeprovider.Shape
	marks    trajectories.CacheMarks
	prices   fakeprovider.PriceList
	advance  string // "": the LLM proxy masks nothing
	cutter   reduce.Name
	readBack int  // every so many turns that were cut are read back; 0: none
	mixed    bool // together with the next call, not in a turn of its own
	wrapped  bool // the client puts results into JSON of its own, as Codex does
	pause    time.Duration
}

func (c hubRun) String() string {
	s := fmt.Sprintf("%-16s %-9v %-20s %-6s %-5s", c.dialogue.Name, c.shape, c.prices.Name, c.advance, c.cutter)
	if c.readBack > 0 {
		s += fmt.Sprintf(" every %d read back", c.readBack)
	}
	for text, is := range map[string]bool{" with the next call": c.mixed, " wrapped": c.wrapped, " pause": c.pause > 0} {
		if is {
			s += text
		}
	}
	return s
}

// cutAtHub cuts a result as the MCP endpoint does.
func cutAtHub(t *testing.T, r *recall.Recall, reducer reduce.Name, goal, tool, text string) string {
	t.Helper()
	raw := jsonscan.AppendEscaped(nil, text)
	policy := recall.DefaultPolicy()
	policy.Mask = reduce.Mask{MaxChars: 2000, HeadChars: 600, TailChars: 600, Markers: reduce.PlainMarkers}
	policy.Choice = reduce.Choice{Reducer: reducer, Prune: reduce.DefaultPruneOptions()}
	policy.Goal = goal
	got := r.Shrink(t.Context(), recall.ShrinkRequest{
		Tenant: "default", Origin: recall.Origin{Server: "files", Tool: tool}, Body: raw,
		Strings: []jsonscan.Str{{Span: jsonscan.Span{End: len(raw)}, Chars: jsonscan.CountChars(raw)}},
	}, policy)
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	return string(jsonscan.AppendDecoded(nil, jsonscan.AppendSpliced(nil, raw, got.Edits)))
}

var prunedID = regexp.MustCompile(`prune_id=(prn_[0-9a-z]{26})`)

// withCuts is the conversation as the agent has it behind the MCP endpoint.
func (c hubRun) withCuts(t *testing.T, r *recall.Recall) trajectories.Trajectory {
	t.Helper()
	out := c.dialogue
	out.Turns = nil
	out.Tools = append(append([]trajectories.Tool(nil), out.Tools...), trajectories.Tool{
		Name: "mcp__ctxgate__recover_text", Description: "Reads back text that was left out of a tool result. " + strings.Repeat("Where a text says so, call this. ", 20),
		Schema: `{"type":"object","properties":{"prune_id":{"type":"string"}},"required":["prune_id"]}`,
	})
	cuts := 0
	var pending *trajectories.ToolUse
	for i, turn := range c.dialogue.Turns {
		uses := turn.ToolUses
		turn.ToolUses = nil
		var back *trajectories.ToolUse
		for _, u := range uses {
			shown := cutAtHub(t, r, c.cutter, "where is the "+u.Name+" handled", u.Name, u.Result)
			if m := prunedID.FindStringSubmatch(shown); m != nil && shown != u.Result {
				if cuts++; c.readBack > 0 && cuts%c.readBack == 0 {
					args := `{"prune_id":"` + m[1] + `"}`
					request, err := recall.ParseReadRequest([]byte(args))
					if err != nil {
						t.Fatal(err)
					}
					text, err := r.RecoverText(t.Context(), "default", request, func(recall.Origin) bool { return true }, 0)
					if err != nil {
						t.Fatal(err)
					}
					back = &trajectories.ToolUse{Call: fakeprovider.Call{ID: fmt.Sprintf("call_back%04d", i), Name: "mcp__ctxgate__recover_text", Args: args}, Result: string(text)}
				}
			}
			u.Result = shown
			if c.wrapped {
				u.Result = `[{"type":"text","text":` + string(jsonscan.AppendQuoted(nil, shown)) + `}]`
			}
			turn.ToolUses = append(turn.ToolUses, u)
		}
		if pending != nil {
			turn.ToolUses, pending = append(turn.ToolUses, *pending), nil
		}
		out.Turns = append(out.Turns, turn)
		switch {
		case back == nil:
		case c.mixed && i+1 < len(c.dialogue.Turns):
			pending = back
		default:
			out.Turns = append(out.Turns, trajectories.Turn{Thinking: turn.Thinking, ToolUses: []trajectories.ToolUse{*back}})
		}
	}
	return out
}

// whole is the conversation without ctxgate.
func (c hubRun) whole() trajectories.Trajectory {
	out := c.dialogue
	out.Turns = nil
	for _, turn := range c.dialogue.Turns {
		uses := turn.ToolUses
		turn.ToolUses = nil
		for _, u := range uses {
			if c.wrapped {
				u.Result = `[{"type":"text","text":` + string(jsonscan.AppendQuoted(nil, u.Result)) + `}]`
			}
			turn.ToolUses = append(turn.ToolUses, u)
		}
		out.Turns = append(out.Turns, turn)
	}
	return out
}

// play plays a conversation to a provider, directly or through a gateway.
func (c hubRun) play(t *testing.T, dialogue trajectories.Trajectory, p *fakeprovider.Provider, url string) {
	t.Helper()
	p.ScriptFunc(dialogue.Answer)
	player := trajectories.Replayer{URL: url, Shape: c.shape, CacheMarks: c.marks, BeforeTurn: func(turn int) {
		p.Advance(time.Second)
		if turn == len(dialogue.Turns)/2 {
			p.Advance(c.pause)
		}
	}}
	if _, err := player.Run(t.Context(), dialogue); err != nil {
		t.Fatal(err)
	}
}

// kindOfShape is the kind of a provider with this wire shape.
func kindOfShape(s fakeprovider.Shape) string {
	switch s {
	case fakeprovider.Messages:
		return "anthropic"
	case fakeprovider.Gemini:
		return "gemini"
	}
	return "openai"
}

func (c hubRun) newProvider(t *testing.T) *fakeprovider.Provider {
	t.Helper()
	return fakeprovider.New(t, fakeprovider.Options{DiscardBodies: true, Prices: c.prices.Prices, NoCache: c.prices.NoCache})
}

// run returns what the conversation cost without and with ctxgate, and the ledger. Output has a price too.
func (c hubRun) run(t *testing.T) (without, with fakeprovider.Bill, s meter.Savings) {
	t.Helper()
	direct := c.newProvider(t)
	c.play(t, c.whole(), direct, direct.URL)

	p := c.newProvider(t)
	entry := providerConfig("p", kindOfShape(c.shape), p.URL, func(e *chat.Provider) {
		e.Cache.Write, e.Cache.Read = c.prices.Prices.Write, c.prices.Prices.Read
		e.Price = chat.Price{Input: 3, Output: 15}
	})
	r := newRecall(t, nil)
	g := newGateway(t, []chat.Provider{entry}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink, d.Recall = masking.New(r, p.Now).Shrink, r
		policy := &s.Chat.ObservationMasking.Schema1
		policy.Enabled, policy.Advance, policy.PastBreakpoints, policy.WindowTurns, policy.Stride = c.advance != "", c.advance, true, 4, 6
		if c.advance == "" {
			policy.Advance = history.AdvanceAuto
		}
		policy.Template = history.PlainTemplate
	})
	c.play(t, c.withCuts(t, r), p, g.URL)
	waitForReplies(t, g, len(p.Bill()))
	return direct.Bill(), p.Bill(), g.meter.Savings()
}

// check compares the ledger with the two bills, and its sum with itself.
func (c hubRun) check(t *testing.T) (offBy float64) {
	t.Helper()
	without, with, s := c.run(t)
	prices := c.prices.Prices
	paid, whole := with.Cost(prices), without.Cost(prices)
	a := s.Total
	offBy = (float64(a.Cost.Saved()) - (whole - paid)) / max(whole, paid)
	prices.Output = 5
	moneyWhole, moneyPaid := 3*without.Cost(prices), 3*with.Cost(prices)
	moneyOff := (float64(a.MoneySaved) - (moneyWhole - moneyPaid)) / max(moneyWhole, moneyPaid)
	t.Logf("%-88s %8.0f %6.1f%% %6.1f%% %6.2f%% %6.2f%% | hub %d, masked %d, cache %d, recovery %d", c, whole, 100*(whole-paid)/whole, 100*float64(a.Cost.Saved())/whole, 100*offBy, 100*moneyOff,
		a.Parts.AtHub, a.Parts.Masked, a.Parts.Cache, a.Cost.Recovery)
	if math.Abs(offBy) > .03 || math.Abs(moneyOff) > .03 {
		t.Errorf("%v: saved %.0f of %.0f, the ledger says %d", c, whole-paid, whole, a.Cost.Saved())
	}
	if a.Parts.AtHub == 0 || (c.readBack > 0) != (a.Cost.Recovery > 3*int64(len(with))) && c.readBack > 0 {
		t.Errorf("%v: %+v, recovery %d", c, a.Parts, a.Cost.Recovery)
	}
	if a.Cost.Unmasked-a.Parts.Sum()+a.Cost.Recovery != a.Cost.Billed {
		t.Errorf("%v: the sum does not add up: %+v %+v", c, a.Cost, a.Parts)
	}
	return math.Max(math.Abs(offBy), math.Abs(moneyOff))
}

// What the ledger says that the MCP endpoint and the LLM proxy saved together is within 3 % of the larger bill from
// the truth: the same agent's bill without ctxgate less its bill with it, reading back included.
func TestLedgerWithTheHubMatchesBills(t *testing.T) {
	profiles := fakeprovider.PriceLists()
	recorded := map[string]trajectories.Trajectory{}
	for _, r := range trajectories.Synthetic() {
		recorded[r.Name] = r
	}
	uniform := trajectories.Uniform(24, 1500)
	var runs []hubRun
	all := profiles
	for _, shape := range append(fakeprovider.AllShapes(), fakeprovider.Gemini) {
		profiles := all
		if shape == fakeprovider.Gemini { // it charges nothing for writing to its cache
			profiles = []fakeprovider.PriceList{all[1], all[1], all[2], all[3]}
		}
		for i, prices := range profiles {
			for _, advance := range []string{"", history.AdvanceAuto} {
				runs = append(runs, hubRun{dialogue: uniform, shape: shape, prices: prices, advance: advance, cutter: reduce.ByMask, readBack: 4 * (i % 2)})
			}
		}
		runs = append(runs,
			hubRun{dialogue: recorded["flaky test"], shape: shape, prices: profiles[0], advance: history.AdvanceAuto, cutter: reduce.ByMask, readBack: 2},
			hubRun{dialogue: recorded["flaky test"], shape: shape, prices: profiles[1], advance: history.AdvanceStride, cutter: "prune", readBack: 3},
			hubRun{dialogue: recorded["nil dereference"], shape: shape, prices: profiles[0], advance: history.AdvanceEachTurn, cutter: reduce.ByMask, readBack: 1},
			hubRun{dialogue: recorded["new endpoint"], shape: shape, prices: profiles[0], advance: history.AdvanceAuto, cutter: reduce.ByMask, readBack: 3, mixed: true},
			hubRun{dialogue: recorded["nil dereference"], shape: shape, prices: profiles[1], cutter: reduce.ByMask, readBack: 3, wrapped: true},
			hubRun{dialogue: recorded["slow query"], shape: shape, prices: profiles[0], advance: history.AdvanceAuto, cutter: reduce.ByMask, readBack: 5, pause: time.Hour},
		)
	}
	runs = append(runs, hubRun{dialogue: recorded["nil dereference"], shape: fakeprovider.Messages, marks: trajectories.MarkRolling1h, prices: profiles[0], advance: history.AdvanceAuto, cutter: reduce.ByMask, readBack: 2})
	if testing.Short() { // every ninth is of another shape and another kind
		runs = everyNth(runs, 9)
	}
	worst := 0.0
	t.Logf("%-88s %8s %7s %7s %7s %7s", "", "whole", "saved", "ledger", "off by", "money")
	for _, c := range runs {
		worst = max(worst, c.check(t))
	}
	t.Logf("%d conversations, at most %.2f %% off", len(runs), 100*worst)
}
