package meter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Savings are the accounts of what cutting tool results saved at the LLM door. All numbers are
// whole, so that the accounts add up to the total exactly. Tokens that are costs are tokens of fresh
// input that cost the same.
type Savings struct {
	Since  time.Time // the accounts live as long as the process
	Total  Account
	Models []Account     // by tenant, provider and model
	Tools  []ToolAccount // by tenant, provider, model and tool
}

// Account is what replies of one model cost a tenant.
type Account struct {
	Tenant, Provider, Model string

	Requests   int64 // replies that told their usage
	Recoveries int64 // those of them that are there only because something was read back
	Used       Tokens
	Cost       Cost
	Misses     Misses

	// Unpriced are the requests to providers whose prices are not known: they are not in the sums
	// of money.
	Unpriced    int64
	Spent       Money // input and output
	MoneySaved  Money
	MoneyRecall Money // what of Spent went into reading back
}

// Misses are counted by their causes; under Hit is the rest.
type Misses [causes]Miss

// Miss is how often, and of how many tokens, the cache did not have what it should have.
type Miss struct{ Requests, Tokens int64 }

// ToolAccount is what cutting the results of one tool saved. Results is how many were cut in the
// requests that were made, Tokens what they would have added to those; what is cut counts in each
// request it is missing from. Reading back is an account of its own, under the name of its tool.
type ToolAccount struct {
	Tenant, Provider, Model, Tool string

	Results    int64
	Tokens     int64
	Saved      int64
	MoneySaved Money
}

// Money is an amount in millionths of the operator's currency.
type Money int64

func (m Money) String() string {
	sign := ""
	if m < 0 {
		sign, m = "-", -m
	}
	return fmt.Sprintf("%s%d.%06d", sign, m/1e6, m%1e6)
}

// price is what tokens cost at a price for a million of them.
func price(tokens int64, perMillion float64) Money {
	return Money(whole(float64(tokens) * perMillion))
}

const (
	// mostAccounts bounds the accounts of each kind. Clients choose the names of models and tools;
	// what comes after is booked under the name other.
	mostAccounts = 1000
	other        = "other"
	recoverTool  = "recover_text"
)

type modelKey struct{ tenant, provider, model string }

type toolKey struct {
	modelKey
	tool string
}

// ledger keeps the accounts.
type ledger struct {
	cost   *prometheus.CounterVec
	misses *prometheus.CounterVec
	missed *prometheus.CounterVec

	mu     sync.Mutex
	since  time.Time
	models map[modelKey]*Account
	tools  map[toolKey]*ToolAccount
}

func newLedger(r prometheus.Registerer) *ledger {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	l := &ledger{
		since:  time.Now(),
		models: map[modelKey]*Account{}, tools: map[toolKey]*ToolAccount{},
		cost:   counter("ctxgate_llm_input_cost_tokens_total", "What input cost, as tokens of fresh input that cost the same, by the providers' usage and configured cache prices. billed: what was charged. unmasked: what would have been, had no tool result been cut. recovery: what of billed was charged for reading back. Saved is unmasked - billed; it may fall.", "provider", "kind"),
		misses: counter("ctxgate_llm_cache_misses_total", "Replies that read less from the provider's cache than it should have had: cold (a conversation's first request), expired (idle too long), client (it changed what it had sent), ours (more was cut), other (the provider forgot).", "provider", "cause"),
		missed: counter("ctxgate_llm_cache_missed_tokens_total", "Tokens that were not read from the provider's cache in these replies.", "provider", "cause"),
	}
	r.MustRegister(l.cost, l.misses, l.missed)
	return l
}

// provider makes the series of a provider exist from the start.
func (l *ledger) provider(name string) {
	l.count(name, Cost{})
	for _, cause := range Causes() {
		l.misses.WithLabelValues(name, cause.String())
		l.missed.WithLabelValues(name, cause.String())
	}
}

func (l *ledger) count(provider string, c Cost) {
	l.cost.WithLabelValues(provider, "billed").Add(float64(c.Billed))
	l.cost.WithLabelValues(provider, "unmasked").Add(float64(c.Unmasked))
	l.cost.WithLabelValues(provider, "recovery").Add(float64(c.Recovery))
}

// Charge books a reply, and says what it cost.
func (m *Meter) Charge(e Entry) Cost {
	r := reckon(e)
	c := r.cost()
	l := m.ledger
	l.count(e.Provider, c)
	cause, tokens := r.miss()
	if cause != Hit {
		l.misses.WithLabelValues(e.Provider, cause.String()).Inc()
		l.missed.WithLabelValues(e.Provider, cause.String()).Add(float64(tokens))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(modelKey{e.Tenant, e.Provider, e.Model})
	a.add(&r, c)
	a.Misses[cause].Requests++
	a.Misses[cause].Tokens = plus(a.Misses[cause].Tokens, tokens)
	l.book(&r, c)
	return c
}

func (l *ledger) account(k modelKey) *Account {
	a := l.models[k]
	if a == nil && len(l.models) >= mostAccounts {
		k.tenant, k.model = other, other
		a = l.models[k]
	}
	if a == nil {
		a = &Account{Tenant: k.tenant, Provider: k.provider, Model: k.model}
		l.models[k] = a
	}
	return a
}

func (a *Account) add(r *reckoning, c Cost) {
	a.Requests++
	if r.forRecovery() {
		a.Recoveries++
	}
	a.Used = a.Used.plus(r.Used)
	a.Cost = a.Cost.plus(c)
	if r.Rates.Input == 0 {
		a.Unpriced++
		return
	}
	recalled := price(c.Recalled, r.Rates.Output)
	a.Spent = plus(a.Spent, price(c.Billed, r.Rates.Input)+price(r.Used.Output, r.Rates.Output))
	a.MoneySaved = plus(a.MoneySaved, price(c.Saved(), r.Rates.Input)-recalled)
	a.MoneyRecall = plus(a.MoneyRecall, price(c.Recovery, r.Rates.Input)+recalled)
}

// book gives each tool its part of what was saved, or cost.
func (l *ledger) book(r *reckoning, c Cost) {
	lost := c.Recovery
	if !r.forRecovery() {
		l.share(r, c.Saved()+lost)
	}
	if lost > 0 {
		t := l.tool(r, recoverTool)
		t.Saved = plus(t.Saved, -lost)
		t.MoneySaved = plus(t.MoneySaved, -price(lost, r.Rates.Input)-price(c.Recalled, r.Rates.Output))
	}
}

// share divides what was saved among the tools by what their cuts are worth; a short result whose
// placeholder is longer is worth less than nothing. When more was cut the prefix changed for all of
// them, and they bear that by their tokens, or alike where no result became shorter.
func (l *ledger) share(r *reckoning, saved int64) {
	worth := map[string]float64{}
	sum := 0.0
	shorter := slices.ContainsFunc(r.Cuts, func(c Cut) bool { return c.Tokens > 0 })
	for _, cut := range r.Cuts {
		w := r.worth(cut)
		switch {
		case r.rewrote() && shorter:
			w = float64(max(0, cut.Tokens))
		case r.rewrote():
			w = 1
		}
		worth[cut.Tool] += w
		sum += w
		t := l.tool(r, cut.Tool)
		t.Results += int64(max(1, cut.Results))
		t.Tokens = plus(t.Tokens, whole(r.scale*float64(cut.Tokens)))
	}
	if sum == 0 {
		return
	}
	rest := saved
	names := slices.Sorted(maps.Keys(worth))
	for i, name := range names {
		part := whole(float64(saved) * worth[name] / sum)
		if i == len(names)-1 {
			part = rest // so that the parts add up
		}
		rest -= part
		t := l.tool(r, name)
		t.Saved = plus(t.Saved, part)
		t.MoneySaved = plus(t.MoneySaved, price(part, r.Rates.Input))
	}
}

func (l *ledger) tool(r *reckoning, name string) *ToolAccount {
	k := toolKey{modelKey{r.Tenant, r.Provider, r.Model}, name}
	t := l.tools[k]
	if t == nil && len(l.tools) >= mostAccounts {
		k = toolKey{modelKey{other, r.Provider, other}, other}
		t = l.tools[k]
	}
	if t == nil {
		t = &ToolAccount{Tenant: k.tenant, Provider: k.provider, Model: k.model, Tool: k.tool}
		l.tools[k] = t
	}
	return t
}

// Savings are the accounts as they stand.
func (m *Meter) Savings() Savings {
	l := m.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Savings{Since: l.since}
	for _, a := range l.models {
		s.Models = append(s.Models, *a)
		s.Total.merge(*a)
	}
	for _, t := range l.tools {
		s.Tools = append(s.Tools, *t)
	}
	slices.SortFunc(s.Models, func(a, b Account) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	slices.SortFunc(s.Tools, func(a, b ToolAccount) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Tool, b.Tool))
	})
	return s
}

func (a *Account) merge(b Account) {
	a.Requests += b.Requests
	a.Recoveries += b.Recoveries
	a.Used = a.Used.plus(b.Used)
	a.Cost = a.Cost.plus(b.Cost)
	for i := range a.Misses {
		a.Misses[i].Requests += b.Misses[i].Requests
		a.Misses[i].Tokens = plus(a.Misses[i].Tokens, b.Misses[i].Tokens)
	}
	a.Unpriced += b.Unpriced
	a.Spent = plus(a.Spent, b.Spent)
	a.MoneySaved = plus(a.MoneySaved, b.MoneySaved)
	a.MoneyRecall = plus(a.MoneyRecall, b.MoneyRecall)
}

func (t Tokens) plus(u Tokens) Tokens {
	return Tokens{plus(t.Fresh, u.Fresh), plus(t.Cached, u.Cached), plus(t.Created, u.Created), plus(t.Long, u.Long), plus(t.Output, u.Output)}
}

func (c Cost) plus(d Cost) Cost {
	return Cost{plus(c.Billed, d.Billed), plus(c.Unmasked, d.Unmasked), plus(c.Recovery, d.Recovery), plus(c.Recalled, d.Recalled)}
}
