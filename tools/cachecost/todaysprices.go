package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
	"github.com/ctxgate/ctxgate/llm/prices"
)

// cacheRules are how a provider's cache works, beside its prices.
type cacheRules struct {
	marksLast       bool
	unit, minTokens int
	ttl             time.Duration
}

// modelRow is a model of the built-in price table, or several that charge the same.
type modelRow struct {
	label string
	model string
	wire  clientWire
}

// modelTable is what profile = "agents" makes of the bill with today's models: prices, steps and rules of the cache are
// those of the built-in table, for the provider and for the gateway.
type modelTable struct {
	rows   []modelRow
	groups []conversationGroup
}

// claudeCodeWire marks as Claude Code does.
var claudeCodeWire = clientWire{"anthropic", fakeprovider.Messages, trajectories.MarkLast}

// maxWorst is the most that a conversation may have cost at any moment. maxWorstThinking is for conversations of eight
// whole turns with much thinking, which the policy does not weigh: clients may drop it at any time.
const (
	maxWorst         = 1.06
	maxWorstThinking = 1.09
)

func newModelTable(short bool) modelTable {
	t := modelTable{
		rows: []modelRow{
			{"Claude Opus 5.5, Sonnet 5.5", "claude-sonnet-5-5", claudeCodeWire},
			{"Claude Opus 5, Sonnet 5, 4.x", "claude-opus-5", claudeCodeWire},
			{"Claude Haiku 5.5", "claude-haiku-5-5", claudeCodeWire},
			{"Claude Fable 5.1", "claude-fable-5-1", claudeCodeWire},
			{"GPT-6.1 Sol, Terra", "gpt-6.1-sol", responsesWire},
			{"GPT-5.6, GPT-6", "gpt-5.6-sol", responsesWire},
			{"GPT-5.5, 5.4", "gpt-5.5", chatWire},
			{"GPT-4.1", "gpt-4.1", chatWire},
			{"Gemini 3.1 Pro", "gemini-3.1-pro", chatWire},
			{"Gemini 3.8 Flash", "gemini-3.8-flash", chatWire},
			{"Grok 4.7", "grok-4.7", chatWire},
			{"DeepSeek flash", "deepseek-flash", chatWire},
			{"Kimi K3.1 Pro", "kimi-k3.1-pro", chatWire},
			{"GLM-5.3", "glm-5.3", chatWire},
			{"Qwen3.8-max", "qwen3.8-max", chatWire},
		},
		groups: append(uniformGroups(), conversationGroup{name: "mixed", trajectories: someMixed()}),
	}
	if short {
		t.rows = []modelRow{t.rows[0], t.rows[2], t.rows[4], t.rows[11]}
		t.groups = t.groups[1:2]
	}
	for _, reads := range []int{30, 60} {
		talk := trajectories.FileReads(reads)
		t.groups = append(t.groups, conversationGroup{name: talk.Name, trajectories: []trajectories.Trajectory{talk}})
	}
	return t
}

// someMixed is every fourth conversation of mixed sizes.
func someMixed() (out []trajectories.Trajectory) {
	for i, t := range trajectories.Synthetic() {
		if i%4 == 2 {
			out = append(out, t)
		}
	}
	return out
}

// price is the row of the table.
func (r modelRow) price() prices.Price {
	p, ok := prices.BuiltIn().Lookup(r.wire.kind, "", r.model)
	if !ok {
		panic("the price table has no " + r.model)
	}
	return p
}

// bill is the price of the provider's bill, relative to input.
func (r modelRow) bill() fakeprovider.Prices {
	p := r.price()
	out := fakeprovider.Prices{Write: p.CacheWrite / p.Input, Read: p.CacheRead / p.Input}
	if p.Step.AboveTokens > 0 {
		out.StepAbove, out.StepFactor = p.Step.AboveTokens, p.Step.Input/p.Input
	}
	return out
}

func (r modelRow) rules() cacheRules {
	p := r.price()
	rules := cacheRules{marksLast: p.Cache == prices.AutomaticMark, minTokens: p.MinTokens, ttl: p.TTL}
	if p.Cache == prices.Units {
		rules.unit = 64
	}
	return rules
}

// unmasked is the run without masking, which models with the same rules share.
func (r modelRow) unmasked(talk trajectories.Trajectory) replayRun {
	return replayRun{wire: r.wire, policy: unmaskedPolicy(), trajectory: talk.Name, rules: r.rules()}
}

// masked is the run with profile = "agents".
func (r modelRow) masked(talk trajectories.Trajectory) replayRun {
	return replayRun{wire: r.wire, policy: policy(history.AdvanceAuto), trajectory: talk.Name, rules: r.rules(), model: r.model}
}

func (t modelTable) runs() (out []replayRun, talks map[string]trajectories.Trajectory) {
	talks = map[string]trajectories.Trajectory{}
	for _, r := range t.rows {
		for _, g := range t.groups {
			for _, talk := range g.trajectories {
				talks[talk.Name] = talk
				out = append(out, r.unmasked(talk), r.masked(talk))
			}
		}
	}
	return out, talks
}

// write writes the table and returns its missed bars.
func (t modelTable) write(b *strings.Builder, paid runBills) (missed []string) {
	b.WriteString("### Today's models, `profile = \"agents\"`\n\n| model | write, read | step |")
	for _, g := range t.groups {
		fmt.Fprintf(b, " %s |", g.label())
	}
	fmt.Fprintf(b, " worst end | worst moment | above the step |\n|---|---|---|%s--:|--:|--:|\n", strings.Repeat("--:|", len(t.groups)))
	for _, r := range t.rows {
		missed = append(missed, r.write(b, t.groups, paid)...)
	}
	return missed
}

func (g conversationGroup) label() string {
	if n := len(g.trajectories); n > 1 {
		return fmt.Sprintf("%d of mixed sizes", n)
	}
	return g.name
}

func (r modelRow) write(b *strings.Builder, groups []conversationGroup, paid runBills) (missed []string) {
	bill, step := r.bill(), "–"
	if bill.StepFactor > 0 {
		step = fmt.Sprintf("× %.0f above %dk", bill.StepFactor, bill.StepAbove/1000)
	}
	fmt.Fprintf(b, "| %s | %.2f, %s | %s |", r.label, bill.Write, strings.TrimRight(fmt.Sprintf("%.3f", bill.Read), "0"), step)
	end, moment, above, aboveUnmasked := 0.0, 0.0, 0, 0
	for _, g := range groups {
		plain, masked := 0.0, 0.0
		for _, talk := range g.trajectories {
			without, with := paid[r.unmasked(talk)], paid[r.masked(talk)]
			plain, masked = plain+without.Cost(bill), masked+with.Cost(bill)
			over, turn := worstRatio(without, with, bill)
			if end = max(end, with.Cost(bill)/without.Cost(bill)); over > maxWorst {
				missed = append(missed, fmt.Sprintf("%s, %s: after %d turns it had cost %.4f, the bar is %.2f", r.label, talk.Name, turn, over, maxWorst))
			}
			moment = max(moment, over)
			above, aboveUnmasked = above+requestsAbove(with, bill), aboveUnmasked+requestsAbove(without, bill)
		}
		if ratio := masked / plain; ratio > 1+1e-9 {
			missed = append(missed, fmt.Sprintf("%s, %s: it costs %.4f, the bar is 1.00", r.label, g.name, ratio))
		}
		fmt.Fprintf(b, " %.2f |", masked/plain)
	}
	if above > 0 {
		missed = append(missed, fmt.Sprintf("%s: %d requests exceed the price step", r.label, above))
	}
	fmt.Fprintf(b, " %.2f | %.2f | %d of %d |\n", end, moment, above, aboveUnmasked)
	return missed
}

func requestsAbove(l fakeprovider.Bill, p fakeprovider.Prices) (n int) {
	for _, e := range l {
		if e.IsAboveStep(p) {
			n++
		}
	}
	return n
}
