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
	Hub    HubSavings    // of the MCP endpoint alone
	Models []Account     // by tenant, provider and model
	Tools  []ToolAccount // by tenant, provider, model and tool
}

// HubSavings is what the MCP endpoint cut from tool results and gave back, whether or not a request of a model was
// seen that carries them.
type HubSavings struct {
	TextsCut, CharsCut       int64
	ReadBacks, CharsReadBack int64
}

// charsPerToken is about how many characters of tool results are a token, in tenths.
const charsPerToken = 34

// TokensCut estimates the tokens of CharsCut.
func (h HubSavings) TokensCut() int64 { return h.CharsCut * 10 / charsPerToken }

// TokensReadBack estimates the tokens of CharsReadBack.
func (h HubSavings) TokensReadBack() int64 { return h.CharsReadBack * 10 / charsPerToken }

// Account is what the replies of one model cost a tenant.
type Account struct {
	Tenant, Provider, Model string

	Requests    int64 // replies that reported their usage
	Recoveries  int64 // those of them that were needed only to read originals back
	Usage       Tokens
	Cost        Cost
	Parts       SavedParts // of Cost.Saved() + Cost.Recovery
	CacheMisses CacheMisses

	// Unpriced counts requests to providers without configured prices: the sums of money exclude them.
	Unpriced      int64
	Spent         Money // input and output
	MoneySaved    Money
	MoneyRecovery Money // the part of Spent for reading back
	MoneyParts    SavedMoney

	NotMasking string // why the LLM proxy masked nothing in the last request; "" if it did
}

// SavedMoney are the parts of MoneySaved + MoneyRecovery, as in [SavedParts]. Steps has the output's price too.
type SavedMoney struct{ AtHub, Shortened, Masked, Steps, Cache Money }

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
	Parts      SavedParts // of Saved
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
	saved        *prometheus.GaugeVec
	misses       *prometheus.CounterVec
	missedTokens *prometheus.CounterVec

	mu         sync.Mutex
	since      time.Time
	notMasking string // of the last request
	models     map[modelKey]*Account
	tools      map[toolKey]*ToolAccount
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
	l.saved = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ctxgate_llm_saved_tokens", Help: "The parts of what was saved since the start, in the tokens of ctxgate_llm_input_cost_tokens_total: hub (results that the MCP endpoint cut), shortened (new results that the LLM proxy shortened), masked (old ones that it masked), steps (requests below a price step), cache (negative: input that was written to the provider's cache again), recovery (negative: reading back). Their sum is unmasked - billed."}, []string{"provider", "part"})
	r.MustRegister(l.saved, l.cost, l.misses, l.missedTokens)
	return l
}

// addProvider creates the series of a provider with the value 0.
func (l *ledger) addProvider(name string) {
	l.countCost(name, Cost{}, SavedParts{})
	for _, cause := range MissCauses() {
		l.misses.WithLabelValues(name, cause.String())
		l.missedTokens.WithLabelValues(name, cause.String())
	}
}

func (l *ledger) countCost(provider string, c Cost, p SavedParts) {
	for part, n := range map[string]int64{"hub": p.AtHub, "shortened": p.Shortened, "masked": p.Masked, "steps": p.Steps, "cache": p.Cache, "recovery": -c.Recovery} {
		l.saved.WithLabelValues(provider, part).Add(float64(n))
	}
	l.cost.WithLabelValues(provider, "billed").Add(float64(c.Billed))
	l.cost.WithLabelValues(provider, "unmasked").Add(float64(c.Unmasked))
	l.cost.WithLabelValues(provider, "recovery").Add(float64(c.Recovery))
}

// Charge adds a reply to the accounts and returns what it cost.
func (m *Meter) Charge(e LedgerEntry) Cost {
	r := newCostModel(e)
	c, parts := r.cost()
	l := m.ledger
	l.countCost(e.Provider, c, parts)
	cause, tokens := r.missCause()
	if cause != CacheHit {
		l.misses.WithLabelValues(e.Provider, cause.String()).Inc()
		l.missedTokens.WithLabelValues(e.Provider, cause.String()).Add(float64(tokens))
	}
	reply := Account{Requests: 1, Usage: r.Usage, Cost: c, Parts: parts}
	reply.CacheMisses[cause] = CacheMiss{1, tokens}
	reply.addMoney(&r)
	if r.isRecovery() {
		reply.Recoveries = 1
	}
	m.day.count(func(d *Day) { d.addReply(reply) })
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(modelKey{e.Tenant, e.Provider, e.Model})
	a.merge(reply)
	if e.SentTokens > 0 || e.NotMasking != "" {
		a.NotMasking, l.notMasking = e.NotMasking, e.NotMasking
	}
	l.addToTools(&r, reply)
	return c
}

// Spent is what a reply cost in money; 0 if its price is not known.
func (e LedgerEntry) Spent() Money {
	r := newCostModel(e)
	a := Account{Usage: r.Usage}
	a.Cost, a.Parts = r.cost()
	a.addMoney(&r)
	return a.Spent
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

// addMoney sets what one reply cost and saved in money.
func (a *Account) addMoney(r *costModel) {
	if r.Rates.Input == 0 {
		a.Unpriced = 1
		return
	}
	c, p := a.Cost, a.Parts
	recalled := price(c.RecoveryOutput, r.prices.output*r.Rates.Output)
	a.Spent = price(c.Billed, r.Rates.Input) + price(r.Usage.Output, r.prices.output*r.Rates.Output)
	a.MoneyRecovery = price(c.Recovery, r.Rates.Input) + recalled
	steps := price(r.Usage.Output, r.outputSaved()*r.Rates.Output)
	a.MoneySaved = price(c.Saved(), r.Rates.Input) - recalled + steps
	each := func(tokens int64) Money { return price(tokens, r.Rates.Input) }
	a.MoneyParts = SavedMoney{each(p.AtHub), each(p.Shortened), each(p.Masked), each(p.Steps) + steps, each(p.Cache)}
	// The parts are rounded one by one: the largest takes the rest, so that they add up.
	rest, largest := a.MoneySaved+a.MoneyRecovery, &a.MoneyParts.Masked
	for _, m := range a.MoneyParts.list() {
		rest -= *m
		if max(*m, -*m) > max(*largest, -*largest) {
			largest = m
		}
	}
	*largest += rest
}

func (m *SavedMoney) list() []*Money {
	return []*Money{&m.AtHub, &m.Shortened, &m.Masked, &m.Steps, &m.Cache}
}

// addToTools adds to each tool its part of what a reply saved or lost. Reading back has an account of its own.
func (l *ledger) addToTools(r *costModel, reply Account) {
	c := reply.Cost
	if !r.isRecovery() || reply.Parts != (SavedParts{}) {
		l.shareAmongTools(r, reply)
	}
	if c.Recovery > 0 {
		t := l.toolAccount(r, recoverTool)
		t.Saved = plus(t.Saved, -c.Recovery)
		t.MoneySaved = plus(t.MoneySaved, -reply.MoneyRecovery)
	}
}

// shareAmongTools divides what was saved among the tools: to each what its own cuts were worth; a result whose
// placeholder is longer has a negative worth. When a request masks more than the one before, the prefix
// changes for all tools: those that are masked share that cost by their tokens. All share by their tokens what
// a price step saves.
func (l *ledger) shareAmongTools(r *costModel, reply Account) {
	if reply.Parts == (SavedParts{}) && len(r.Cuts) == 0 {
		return
	}
	type share struct {
		parts         SavedParts
		masked, whole float64 // weights
	}
	shares := map[string]*share{}
	for _, cut := range r.Cuts {
		s := shares[cut.Tool]
		if s == nil {
			s = &share{}
			shares[cut.Tool] = s
		}
		*s.parts.of(cut) += r.cutSaving(cut)
		s.whole += float64(max(0, cut.Tokens))
		if !cut.NeverSent {
			s.masked += float64(max(0, cut.Tokens))
		}
		t := l.toolAccount(r, cut.Tool)
		t.Results += int64(max(1, cut.Results))
		t.Tokens = plus(t.Tokens, roundAmount(r.scale*float64(cut.Tokens)))
	}
	if len(shares) == 0 {
		shares[recoverTool] = &share{} // only results of reading back were masked
	}
	names := slices.Sorted(maps.Keys(shares))
	masked, whole := make([]float64, len(names)), make([]float64, len(names))
	for i, name := range names {
		masked[i], whole[i] = shares[name].masked, shares[name].whole
	}
	cache, steps := shareOut(reply.Parts.Cache, masked), shareOut(reply.Parts.Steps, whole)
	saved := make([]float64, len(names))
	for i, name := range names {
		s := shares[name]
		s.parts.Cache, s.parts.Steps = cache[i], steps[i]
		saved[i] = float64(s.parts.Sum())
		t := l.toolAccount(r, name)
		t.Saved, t.Parts = plus(t.Saved, s.parts.Sum()), t.Parts.plus(s.parts)
	}
	rest := reply.MoneySaved + reply.MoneyRecovery
	for i, name := range names {
		part := price(int64(saved[i]), r.Rates.Input)
		if total := reply.Parts.Steps; total != 0 {
			part += Money(roundAmount(float64(price(r.Usage.Output, r.outputSaved()*r.Rates.Output)) * float64(steps[i]) / float64(total)))
		}
		if i == len(names)-1 {
			part = rest // the parts must add up
		}
		rest -= part
		t := l.toolAccount(r, name)
		t.MoneySaved = plus(t.MoneySaved, part)
	}
}

// shareOut divides a total by weights, equally if all are 0. The parts add up to it.
func shareOut(total int64, weights []float64) []int64 {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	parts, rest := make([]int64, len(weights)), total
	for i, w := range weights {
		share := 1 / float64(len(weights))
		if sum > 0 {
			share = w / sum
		}
		if parts[i] = roundAmount(float64(total) * share); i == len(weights)-1 {
			parts[i] = rest
		}
		rest -= parts[i]
	}
	return parts
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

// ForgetTenant adds the accounts of a tenant to those of nobody in particular: the totals stay, and what the tenant
// used is not known any more.
func (m *Meter) ForgetTenant(tenant string) {
	l := m.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, a := range l.models {
		if k.tenant != tenant {
			continue
		}
		delete(l.models, k)
		other := modelKey{otherName, k.provider, otherName}
		if l.models[other] == nil {
			l.models[other] = &Account{Tenant: otherName, Provider: k.provider, Model: otherName}
		}
		l.models[other].merge(*a)
	}
	for k, t := range l.tools {
		if k.tenant != tenant {
			continue
		}
		delete(l.tools, k)
		other := toolKey{modelKey{otherName, k.provider, otherName}, otherName}
		if l.tools[other] == nil {
			l.tools[other] = &ToolAccount{Tenant: otherName, Provider: k.provider, Model: otherName, Tool: otherName}
		}
		sum := l.tools[other]
		sum.Results += t.Results
		sum.Tokens = plus(sum.Tokens, t.Tokens)
		sum.Saved = plus(sum.Saved, t.Saved)
		sum.Parts = sum.Parts.plus(t.Parts)
		sum.MoneySaved = plus(sum.MoneySaved, t.MoneySaved)
	}
}

// Savings returns the accounts.
func (m *Meter) Savings() Savings {
	m.day.mu.Lock()
	d := m.day.process
	m.day.mu.Unlock()
	l := m.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Savings{Since: l.since, Hub: HubSavings{d.TextsCut, d.CharsCut, d.ReadBacks, d.CharsReadBack}, Total: Account{NotMasking: l.notMasking}}
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

// NotMasking is why the LLM proxy masked nothing in the last request; "" if it did, or there was none.
func (m *Meter) NotMasking() string {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	return m.ledger.notMasking
}

func (a *Account) merge(b Account) {
	a.Requests += b.Requests
	a.Recoveries += b.Recoveries
	a.Usage = a.Usage.plus(b.Usage)
	a.Cost = a.Cost.plus(b.Cost)
	a.Parts = a.Parts.plus(b.Parts)
	for i, m := range a.MoneyParts.list() {
		*m = plus(*m, *b.MoneyParts.list()[i])
	}
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

func (p SavedParts) plus(q SavedParts) SavedParts {
	return SavedParts{plus(p.AtHub, q.AtHub), plus(p.Shortened, q.Shortened), plus(p.Masked, q.Masked), plus(p.Steps, q.Steps), plus(p.Cache, q.Cache)}
}
