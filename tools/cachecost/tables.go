package main

import (
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// clientWire is a kind of client: its provider, wire shape and cache breakpoints.
type clientWire struct {
	kind       string // of the provider in the configuration
	shape      fakeprovider.Shape
	cacheMarks trajectories.CacheMarks
}

var (
	chatWire       = clientWire{"openai", fakeprovider.Chat, 0}
	responsesWire  = clientWire{"openai", fakeprovider.Responses, 0}
	rollingWire    = clientWire{"anthropic", fakeprovider.Messages, trajectories.MarkRolling}
	systemOnlyWire = clientWire{"anthropic", fakeprovider.Messages, trajectories.MarkSystemOnly}
)

// policyColumn is a policy and its maximum cost relative to masking nothing.
type policyColumn struct {
	name          string
	policy        history.Policy
	maxRatio      float64 // 0: no bar
	maxLargeRatio float64 // for large conversations
}

// conversationGroup is one or more conversations.
type conversationGroup struct {
	name         string
	trajectories []trajectories.Trajectory
	isLarge      bool
}

// tableLine is a group at the prices of a provider.
type tableLine struct {
	prices fakeprovider.PriceList
	conversationGroup
}

// costTable is one table of the report.
type costTable struct {
	title   string
	wire    clientWire
	pause   time.Duration // in the middle of each conversation
	columns []policyColumn
	lines   []tableLine
}

func policy(advance string, change ...func(*history.Policy)) history.Policy {
	p := history.DefaultPolicy()
	p.Advance = advance
	for _, f := range change {
		f(&p)
	}
	return p
}

func pastBreakpoints(p *history.Policy) { p.PastBreakpoints = true }

// unmaskedPolicy is the baseline. Its requests go through the gateway too.
func unmaskedPolicy() history.Policy {
	return policy(history.AdvanceAuto, func(p *history.Policy) { p.Enabled = false })
}

// policyColumns returns a column per advance policy.
func policyColumns(advances []string, change ...func(*history.Policy)) []policyColumn {
	var out []policyColumn
	for _, advance := range advances {
		c := policyColumn{name: "`" + advance + "`", policy: policy(advance, change...)}
		if advance == history.AdvanceAuto {
			c.name, c.maxRatio, c.maxLargeRatio = "**`auto`**", 1, .7
		}
		out = append(out, c)
	}
	return out
}

// costTables returns the tables: chat completions in full, the others where they could differ. The short form
// leaves out the mixed sizes and most other shapes.
func costTables(short bool) []costTable {
	all, cached := fakeprovider.PriceLists(), fakeprovider.PriceLists()[:3]
	even, mixed := uniformGroups(), []conversationGroup{{name: "of mixed sizes", trajectories: trajectories.Synthetic()}}
	others, chats, marks, some := even, append(uniformGroups(), mixed...), tableLines(all[:1], mixed), all
	if short {
		others, chats, marks, some, cached = even[1:2], even, nil, all[:1], all[:1]
	}
	every := []string{history.AdvanceEachTurn, history.AdvanceStride, history.AdvancePressure, history.AdvanceAuto}
	pair := []string{history.AdvanceEachTurn, history.AdvanceAuto}
	kept := policyColumn{"`auto`, `past_breakpoints = false`", policy(history.AdvanceAuto), 1, 1}
	return []costTable{
		{"`/v1/chat/completions`", chatWire, 0, policyColumns(every), tableLines(all, chats)},
		{"`/v1/responses`", responsesWire, 0, policyColumns(pair), tableLines(some, others)},
		{"`/v1/messages`, breakpoints that move, `past_breakpoints = true`", rollingWire, 0, policyColumns(pair, pastBreakpoints), append(tableLines(some, others), marks...)},
		{"`/v1/messages`, breakpoints that move, by default", rollingWire, 0, []policyColumn{kept}, tableLines(all[:1], others)},
		{"`/v1/messages`, a breakpoint at the system prompt only", systemOnlyWire, 0, policyColumns(pair), tableLines(all[:1], others)},
		{"`/v1/chat/completions`, a break of an hour in the middle", chatWire, time.Hour, policyColumns(pair), tableLines(cached, others)},
		{"`/v1/messages`, breakpoints that move, a break of an hour in the middle", rollingWire, time.Hour, append(policyColumns(pair[1:], pastBreakpoints), kept), tableLines(cached, others)},
	}
}

func tableLines(profiles []fakeprovider.PriceList, groups []conversationGroup) []tableLine {
	var out []tableLine
	for _, p := range profiles {
		for _, g := range groups {
			out = append(out, tableLine{p, g})
		}
	}
	return out
}

// uniformGroups are conversations with turns of one size.
func uniformGroups() []conversationGroup {
	var out []conversationGroup
	for _, t := range trajectories.UniformSet() {
		name := strings.Replace(t.Name, " x ", " × ", 1)
		out = append(out, conversationGroup{name, []trajectories.Trajectory{t}, t.ResultTokens() > 100_000})
	}
	return out
}

// replayRun identifies the replay of a conversation under a policy.
type replayRun struct {
	wire       clientWire
	policy     history.Policy
	price      history.CachePrices // in the gateway's configuration; zero if the policy ignores prices
	trajectory string
	pause      time.Duration
	rules      cacheRules
	model      string // with it the gateway has profile = "agents", and finds the prices itself
}

// runFor returns equal runs for replays with equal requests, which are replayed once: only auto depends on
// prices, and without a cache discount it equals turn (see TestHPlus1AutoWithoutDiscountIsTurn).
func (s costTable) runFor(p history.Policy, prices fakeprovider.PriceList, talk trajectories.Trajectory) replayRun {
	r := replayRun{wire: s.wire, policy: p, trajectory: talk.Name, pause: s.pause}
	switch {
	case !p.Enabled || p.Advance != history.AdvanceAuto:
	case prices.NoCache:
		r.policy.Advance = history.AdvanceEachTurn
	default:
		r.price = history.CachePrices{Write: prices.Prices.Write, Read: prices.Prices.Read}
	}
	return r
}

// runs returns the runs that the table needs.
func (s costTable) runs() (out []replayRun, talks map[string]trajectories.Trajectory) {
	talks = map[string]trajectories.Trajectory{}
	for _, l := range s.lines {
		for _, t := range l.trajectories {
			talks[t.Name] = t
			out = append(out, s.runFor(unmaskedPolicy(), l.prices, t))
			for _, c := range s.columns {
				out = append(out, s.runFor(c.policy, l.prices, t))
			}
		}
	}
	return out, talks
}
