package meter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ctxgate/ctxgate/internal/recovertool"
)

// Savings are the accounts of what cutting tool results saved at the LLM endpoint. All numbers are
// integers, so that the accounts add up to the total exactly. Costs in tokens are tokens of fresh input
// at the same price.
type Savings struct {
	Since  time.Time // the start of the process
	Total  Account
	Models []Account     // by tenant, provider and model
	Tools  []ToolAccount // by tenant, provider, model and tool
}

// Account is what the replies of one model cost a tenant.
type Account struct {
	Tenant, Provider, Model string

	Requests    int64 // replies that reported their usage
	Recoveries  int64 // those of them that were needed only to read originals back
	Usage       Tokens
	Cost        Cost
	CacheMisses CacheMisses

	// Unpriced counts requests to providers without configured prices: the sums of money exclude them.
	Unpriced      int64
	Spent         Money // input and output
	MoneySaved    Money
	MoneyRecovery Money // the part of Spent for reading back
}

// CacheMisses are counted by cause; under CacheHit are the replies without a miss.
type CacheMisses [causeCount]CacheMiss

// CacheMiss counts replies, and tokens that the cache should have had and had not.
type CacheMiss struct{ Requests, Tokens int64 }

// ToolAccount is what cutting the results of one tool saved. Results and Tokens count a cut in every request
// that lacks it. Reading back has an account of its own, under the name of its tool.
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

// price is what tokens cost at a price per million.
func price(tokens int64, perMillion float64) Money {
	return Money(roundAmount(float64(tokens) * perMillion))
}

const (
	// maxAccounts bounds the accounts of each kind, because clients choose the names of models and tools.
	// What comes after is counted under otherName.
	maxAccounts = 1000
	otherName   = "other"
	recoverTool = recovertool.Name
)

type modelKey struct{ tenant, provider, model string }

type toolKey struct {
	modelKey
	tool string
}

// ledger holds the accounts.
type ledger struct {
	cost         *prometheus.CounterVec
	misses       *prometheus.CounterVec
	missedTokens *prometheus.CounterVec

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
		cost:         counter("ctxgate_llm_input_cost_tokens_total", "What input cost, as tokens of fresh input that cost the same, by the providers' usage and configured cache prices. billed: what was charged. unmasked: what would have been, had no tool result been cut. recovery: what of billed was charged for reading back. Saved is unmasked - billed; it may fall.", "provider", "kind"),
		misses:       counter("ctxgate_llm_cache_misses_total", "Replies that read less from the provider's cache than it should have had: cold (a conversation's first request), expired (idle too long), client (it changed what it had sent), ours (more was cut), other (the provider forgot).", "provider", "cause"),
		missedTokens: counter("ctxgate_llm_cache_missed_tokens_total", "Tokens that were not read from the provider's cache in these replies.", "provider", "cause"),
	}
	r.MustRegister(l.cost, l.misses, l.missedTokens)
	return l
}

// addProvider creates the series of a provider with the value 0.
func (l *ledger) addProvider(name string) {
	l.countCost(name, Cost{})
	for _, cause := range MissCauses() {
		l.misses.WithLabelValues(name, cause.String())
		l.missedTokens.WithLabelValues(name, cause.String())
	}
}

func (l *ledger) countCost(provider string, c Cost) {
	l.cost.WithLabelValues(provider, "billed").Add(float64(c.Billed))
	l.cost.WithLabelValues(provider, "unmasked").Add(float64(c.Unmasked))
	l.cost.WithLabelValues(provider, "recovery").Add(float64(c.Recovery))
}

// Charge adds a reply to the accounts and returns what it cost.
func (m *Meter) Charge(e LedgerEntry) Cost {
	r := newCostModel(e)
	c := r.cost()
	l := m.ledger
	l.countCost(e.Provider, c)
	cause, tokens := r.missCause()
	if cause != CacheHit {
		l.misses.WithLabelValues(e.Provider, cause.String()).Inc()
		l.missedTokens.WithLabelValues(e.Provider, cause.String()).Add(float64(tokens))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(modelKey{e.Tenant, e.Provider, e.Model})
	a.addReply(&r, c)
	a.CacheMisses[cause].Requests++
	a.CacheMisses[cause].Tokens = plus(a.CacheMisses[cause].Tokens, tokens)
	l.addToTools(&r, c)
	return c
}

func (l *ledger) account(k modelKey) *Account {
	a := l.models[k]
	if a == nil && len(l.models) >= maxAccounts {
		k.tenant, k.model = otherName, otherName
		a = l.models[k]
	}
	if a == nil {
		a = &Account{Tenant: k.tenant, Provider: k.provider, Model: k.model}
		l.models[k] = a
	}
	return a
}

func (a *Account) addReply(r *costModel, c Cost) {
	a.Requests++
	if r.isRecovery() {
		a.Recoveries++
	}
	a.Usage = a.Usage.plus(r.Usage)
	a.Cost = a.Cost.plus(c)
	if r.Rates.Input == 0 {
		a.Unpriced++
		return
	}
	recalled := price(c.RecoveryOutput, r.prices.output*r.Rates.Output)
	a.Spent = plus(a.Spent, price(c.Billed, r.Rates.Input)+price(r.Usage.Output, r.prices.output*r.Rates.Output))
	a.MoneySaved = plus(a.MoneySaved, price(c.Saved(), r.Rates.Input)-recalled+price(r.Usage.Output, r.outputSaved()*r.Rates.Output))
	a.MoneyRecovery = plus(a.MoneyRecovery, price(c.Recovery, r.Rates.Input)+recalled)
}

// addToTools adds to each tool its part of what was saved or lost.
func (l *ledger) addToTools(r *costModel, c Cost) {
	lost := c.Recovery
	if !r.isRecovery() {
		l.shareAmongTools(r, c.Saved()+lost)
	}
	if lost > 0 {
		t := l.toolAccount(r, recoverTool)
		t.Saved = plus(t.Saved, -lost)
		t.MoneySaved = plus(t.MoneySaved, -price(lost, r.Rates.Input)-price(c.RecoveryOutput, r.prices.output*r.Rates.Output))
	}
}

// shareAmongTools divides what was saved among the tools by the worth of their cuts; a result whose
// placeholder is longer has a negative worth. When a request cuts more than the one before, the prefix
// changes for all tools: they share that cost by their tokens, or equally if no result became shorter.
func (l *ledger) shareAmongTools(r *costModel, saved int64) {
	worth := map[string]float64{}
	sum := 0.0
	shorter := slices.ContainsFunc(r.Cuts, func(c ToolCut) bool { return c.Tokens > 0 })
	for _, cut := range r.Cuts {
		w := r.cutWorth(cut)
		switch {
		case r.brokeCache() && shorter:
			w = float64(max(0, cut.Tokens))
		case r.brokeCache():
			w = 1
		}
		worth[cut.Tool] += w
		sum += w
		t := l.toolAccount(r, cut.Tool)
		t.Results += int64(max(1, cut.Results))
		t.Tokens = plus(t.Tokens, roundAmount(r.scale*float64(cut.Tokens)))
	}
	if sum == 0 {
		return
	}
	rest := saved
	names := slices.Sorted(maps.Keys(worth))
	for i, name := range names {
		part := roundAmount(float64(saved) * worth[name] / sum)
		if i == len(names)-1 {
			part = rest // the parts must add up
		}
		rest -= part
		t := l.toolAccount(r, name)
		t.Saved = plus(t.Saved, part)
		output := float64(r.Usage.Output) * r.outputSaved() * worth[name] / sum
		t.MoneySaved = plus(t.MoneySaved, price(part, r.Rates.Input)+Money(roundAmount(output*r.Rates.Output)))
	}
}

func (l *ledger) toolAccount(r *costModel, name string) *ToolAccount {
	k := toolKey{modelKey{r.Tenant, r.Provider, r.Model}, name}
	t := l.tools[k]
	if t == nil && len(l.tools) >= maxAccounts {
		k = toolKey{modelKey{otherName, r.Provider, otherName}, otherName}
		t = l.tools[k]
	}
	if t == nil {
		t = &ToolAccount{Tenant: k.tenant, Provider: k.provider, Model: k.model, Tool: k.tool}
		l.tools[k] = t
	}
	return t
}

// Savings returns the accounts.
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
	a.Usage = a.Usage.plus(b.Usage)
	a.Cost = a.Cost.plus(b.Cost)
	for i := range a.CacheMisses {
		a.CacheMisses[i].Requests += b.CacheMisses[i].Requests
		a.CacheMisses[i].Tokens = plus(a.CacheMisses[i].Tokens, b.CacheMisses[i].Tokens)
	}
	a.Unpriced += b.Unpriced
	a.Spent = plus(a.Spent, b.Spent)
	a.MoneySaved = plus(a.MoneySaved, b.MoneySaved)
	a.MoneyRecovery = plus(a.MoneyRecovery, b.MoneyRecovery)
}

func (t Tokens) plus(u Tokens) Tokens {
	return Tokens{plus(t.Fresh, u.Fresh), plus(t.Cached, u.Cached), plus(t.Created, u.Created), plus(t.Long, u.Long), plus(t.Output, u.Output)}
}

func (c Cost) plus(d Cost) Cost {
	return Cost{plus(c.Billed, d.Billed), plus(c.Unmasked, d.Unmasked), plus(c.Recovery, d.Recovery), plus(c.RecoveryOutput, d.RecoveryOutput)}
}
