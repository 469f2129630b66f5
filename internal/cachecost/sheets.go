package main

import (
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// wire is how a kind of client speaks to its model.
type wire struct {
	kind  string // of the provider, in the config
	shape llmtest.Shape
	marks llmtest.Marks
}

var (
	completions = wire{"openai", llmtest.Chat, 0}
	responses   = wire{"openai", llmtest.Responses, 0}
	rolling     = wire{"anthropic", llmtest.Messages, llmtest.Rolling}
	still       = wire{"anthropic", llmtest.Messages, llmtest.Still}
)

// column is a policy, and what it may cost at most relative to masking nothing.
type column struct {
	name   string
	policy history.Policy
	most   float64 // 0: as much as it likes
	large  float64 // of conversations where there is much to win
}

// group is a conversation, or many.
type group struct {
	name  string
	talks []llmtest.Trajectory
	large bool
}

// line is a group at a provider's prices.
type line struct {
	at llmtest.Profile
	group
}

// sheet is one table.
type sheet struct {
	title   string
	wire    wire
	rest    time.Duration // how long the client rests in the middle of each conversation
	columns []column
	lines   []line
}

func policy(advance string, change ...func(*history.Policy)) history.Policy {
	p := history.DefaultPolicy()
	p.Advance = advance
	for _, f := range change {
		f(&p)
	}
	return p
}

func past(p *history.Policy) { p.PastBreakpoints = true }

// unmasked is what all others are compared with. It passes the gateway too.
func unmasked() history.Policy {
	return policy(history.Auto, func(p *history.Policy) { p.Enabled = false })
}

// columns are the policies under which conversations are played.
func columns(advances []string, change ...func(*history.Policy)) []column {
	var out []column
	for _, advance := range advances {
		c := column{name: "`" + advance + "`", policy: policy(advance, change...)}
		if advance == history.Auto {
			c.name, c.most, c.large = "**`auto`**", 1, .7
		}
		out = append(out, c)
	}
	return out
}

// sheets are the tables. Chat completions are shown in full; the others as far as they could differ.
// In short those of mixed sizes are left out, and most of what is not chat completions.
func sheets(short bool) []sheet {
	all, cached := llmtest.Profiles(), llmtest.Profiles()[:3]
	even, mixed := uniforms(), []group{{name: "of mixed sizes", talks: llmtest.Recorded()}}
	others, chats, marks, some := even, append(uniforms(), mixed...), lines(all[:1], mixed), all
	if short {
		others, chats, marks, some, cached = even[1:2], even, nil, all[:1], all[:1]
	}
	every := []string{history.EachTurn, history.Stride, history.Pressure, history.Auto}
	pair := []string{history.EachTurn, history.Auto}
	kept := column{"`auto`, `past_breakpoints = false`", policy(history.Auto), 1, 1}
	return []sheet{
		{"`/v1/chat/completions`", completions, 0, columns(every), lines(all, chats)},
		{"`/v1/responses`", responses, 0, columns(pair), lines(some, others)},
		{"`/v1/messages`, breakpoints that move, `past_breakpoints = true`", rolling, 0, columns(pair, past), append(lines(some, others), marks...)},
		{"`/v1/messages`, breakpoints that move, by default", rolling, 0, []column{kept}, lines(all[:1], others)},
		{"`/v1/messages`, a breakpoint at the system prompt only", still, 0, columns(pair), lines(all[:1], others)},
		{"`/v1/chat/completions`, a break of an hour in the middle", completions, time.Hour, columns(pair), lines(cached, others)},
		{"`/v1/messages`, breakpoints that move, a break of an hour in the middle", rolling, time.Hour, append(columns(pair[1:], past), kept), lines(cached, others)},
	}
}

func lines(profiles []llmtest.Profile, groups []group) []line {
	var out []line
	for _, p := range profiles {
		for _, g := range groups {
			out = append(out, line{p, g})
		}
	}
	return out
}

// uniforms are conversations whose turns are of one size.
func uniforms() []group {
	var out []group
	for _, t := range llmtest.Uniforms() {
		name := strings.Replace(t.Name, " x ", " × ", 1)
		out = append(out, group{name, []llmtest.Trajectory{t}, t.ResultTokens() > 100_000})
	}
	return out
}

// run is one conversation under one policy.
type run struct {
	wire   wire
	policy history.Policy
	price  history.Cache // what the gateway is told of prices; none when its policy does not look at them
	talk   string
	rest   time.Duration
}

// runOf is equal for what would be the same bytes: those are played once. Only auto looks at prices,
// and where there is no discount it is turn (a test holds it to that).
func (s sheet) runOf(p history.Policy, prices llmtest.Profile, talk llmtest.Trajectory) run {
	r := run{wire: s.wire, policy: p, talk: talk.Name, rest: s.rest}
	switch {
	case !p.Enabled || p.Advance != history.Auto:
	case prices.NoCache:
		r.policy.Advance = history.EachTurn
	default:
		r.price = history.Cache{Write: prices.Prices.Write, Read: prices.Prices.Read}
	}
	return r
}

// runs are all that a sheet needs, in its order.
func (s sheet) runs() (out []run, talks map[string]llmtest.Trajectory) {
	talks = map[string]llmtest.Trajectory{}
	for _, l := range s.lines {
		for _, t := range l.talks {
			talks[t.Name] = t
			out = append(out, s.runOf(unmasked(), l.at, t))
			for _, c := range s.columns {
				out = append(out, s.runOf(c.policy, l.at, t))
			}
		}
	}
	return out, talks
}
