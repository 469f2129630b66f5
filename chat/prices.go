package chat

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/llm/prices"
	"github.com/ctxgate/ctxgate/meter"
)

// ModelPrice is the price of one or more models, in the operator's currency per million tokens. It replaces the
// prices of the built-in table; what it does not say about the cache is as in the table.
type ModelPrice struct {
	// The models, with * for any characters; letter case does not matter. The first entry that matches counts.
	Model string `key:"model"`
	// The name of the provider that charges this price. Default: every provider.
	Provider string `key:"provider"`
	// Input. Must be positive.
	Input float64 `key:"input" min:"0"`
	// Output. Default 0: unknown.
	Output float64 `key:"output" min:"0"`
	// Input that is read from the cache. Default 0: no discount.
	CacheRead float64 `key:"cache_read" min:"0"`
	// Input that is written to the cache. Default 0: as input.
	CacheWrite float64 `key:"cache_write" min:"0"`
	// Input that is written to the cache for an hour, if a request asks for that. Default 0: 1.6 times
	// cache_write.
	WriteHour float64 `key:"write_1h" min:"0"`
	// How long a cache entry lives since its last use; a duration. Default: as in the table, else 24h.
	TTL unit.Duration `key:"ttl" min:"0s"`
	// The shortest prefix that the provider caches, in tokens. Default 0: as in the table, if it is there.
	MinTokens int `key:"min_tokens" min:"0"`
	// The largest input that the model takes, in tokens. Default 0: as in the table, if it is there.
	Context int `key:"context" min:"0"`
	// The price of a whole request that is larger than a size. Default: no such step.
	Step StepPrice `key:"step"`
}

// StepPrice is the price of a whole request with more than AboveTokens of input, per million tokens.
type StepPrice struct {
	// The input above which these prices count, in tokens. Default 0: no step.
	AboveTokens int `key:"above_tokens" min:"0"`
	// Input. Cached input costs more in the same proportion.
	Input float64 `key:"input" min:"0"`
	// Output. Default 0: in the same proportion as input.
	Output float64 `key:"output" min:"0"`
}

func (m ModelPrice) problems(providers map[string]APIKind) []error {
	var problems []error
	if m.Model == "" || len(m.Model) > glob.MaxLength {
		problems = append(problems, errors.New("model: a pattern is needed, of at most 512 characters"))
	}
	if _, ok := providers[m.Provider]; m.Provider != "" && !ok {
		problems = append(problems, fmt.Errorf("provider: there is no provider %q", m.Provider))
	}
	for key, n := range map[string]float64{"input": m.Input, "output": m.Output, "cache_read": m.CacheRead, "cache_write": m.CacheWrite, "write_1h": m.WriteHour, "step.input": m.Step.Input, "step.output": m.Step.Output} {
		if n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
			problems = append(problems, errors.New(key+": must be a number that is not negative"))
		}
	}
	switch write := max(m.CacheWrite, m.Input); {
	case m.Input <= 0:
		problems = append(problems, errors.New("input: must be positive"))
	case m.CacheRead > write:
		problems = append(problems, errors.New("cache_read: is higher than what is read for the first time"))
	case (m.Step.AboveTokens > 0) != (m.Step.Input > 0):
		problems = append(problems, errors.New("step: needs above_tokens and input"))
	}
	return problems
}

// price is the price of a model, of which the table knows this or nothing.
func (m ModelPrice) price(known prices.Price) prices.Price {
	p := known
	p.Rates = prices.Rates{Input: m.Input, Output: m.Output, CacheRead: m.Input, CacheWrite: m.Input, WriteHour: m.WriteHour}
	p.HasCachePrice = true
	if m.CacheWrite > 0 {
		p.CacheWrite = m.CacheWrite
	}
	if m.CacheRead > 0 {
		p.CacheRead = m.CacheRead
	} else {
		p.CacheRead = p.CacheWrite
	}
	p.Step = prices.Step{}
	if m.Step.AboveTokens > 0 {
		factor := m.Step.Input / m.Input
		p.Step = prices.Step{AboveTokens: m.Step.AboveTokens, Rates: prices.Rates{Input: m.Step.Input, Output: m.Step.Output, CacheRead: factor * p.CacheRead, CacheWrite: factor * p.CacheWrite, WriteHour: factor * p.WriteHour}}
		if m.Step.Output == 0 {
			p.Step.Output = factor * m.Output
		}
	}
	if m.TTL > 0 {
		p.TTL = m.TTL.D()
	} else if p.TTL == 0 {
		p.TTL = assumedTTL
	}
	if m.MinTokens > 0 {
		p.MinTokens = m.MinTokens
	}
	if m.Context > 0 {
		p.Context = m.Context
	}
	p.Provider, p.Model, p.Source, p.Date, p.Note, p.Confidence = m.Provider, m.Model, pricesKey, "", "", ""
	return p
}

// pricesKey is the key of the configuration that holds prices.
const pricesKey = "[[prices]]"

// modelPrice is what a provider charges for a model: masking decides by it, and the ledger adds it up.
type modelPrice struct {
	cache masking.CachePrices
	rates meter.Rates
	price prices.Price // zero: the model has no price of its own

	// assumed says that nobody states the price of cached input: what the provider's replies report decides.
	assumed bool
}

// priceList finds the prices of a provider's models, in this order: the provider's own cache and price, [[prices]],
// the built-in table.
type priceList struct {
	entry    Provider
	host     string
	own      []ownPrice
	table    *prices.Table // nil: not used
	hostSeen bool          // the table has this host

	found *gencache.Cache[string, modelPrice] // by model
}

// maxFound is how many models have their price at hand, in each generation; a name longer than foundWeight counts as
// several.
const (
	maxFound    = 1 << 9
	foundWeight = 128
)

type ownPrice struct {
	ModelPrice
	pattern glob.Pattern
}

// newPriceList returns the prices of a provider at an address.
func (c Config) newPriceList(entry Provider, address string) priceList {
	l := priceList{entry: entry, found: gencache.New[string, modelPrice](maxFound)}
	if u, err := url.Parse(address); err == nil {
		l.host = u.Hostname()
	}
	if c.LLM.PriceTable {
		l.table = prices.BuiltIn()
		l.hostSeen = l.table.ProviderAt(l.host) != ""
	}
	for _, m := range c.Prices {
		if m.Provider == "" || m.Provider == entry.Name {
			l.own = append(l.own, ownPrice{m, glob.New(strings.ToLower(m.Model))})
		}
	}
	return l
}

// priceOf returns the price of a model.
func (l *priceList) priceOf(model string) modelPrice {
	if m, ok := l.found.Get(model); ok {
		return m
	}
	m := l.lookUp(model)
	l.found.Put(model, m, 1+len(model)/foundWeight)
	return m
}

func (l *priceList) lookUp(model string) modelPrice {
	if l.entry.setsCache() {
		return l.withEntryPrice(modelPrice{cache: l.entry.Cache})
	}
	var known prices.Price
	ok := false
	if l.table != nil {
		known, ok = l.table.Lookup(string(l.entry.Kind), l.host, model)
	}
	name := strings.ToLower(model)
	if i := slices.IndexFunc(l.own, func(o ownPrice) bool { return o.pattern.Match(name) }); i >= 0 {
		known, ok = l.own[i].price(known), true
	}
	if !ok {
		return l.withEntryPrice(modelPrice{cache: l.entry.Cache, assumed: l.table != nil})
	}
	return l.withEntryPrice(newModelPrice(known))
}

// setsCache says whether the entry has cache prices of its own.
func (p Provider) setsCache() bool {
	var unset Provider
	unset.SetDefaults()
	return p.Cache != unset.Cache
}

func newModelPrice(p prices.Price) modelPrice {
	relative := func(price float64) float64 { return math.Round(price/p.Input*1e6) / 1e6 }
	m := modelPrice{price: p, assumed: !p.HasCachePrice, cache: masking.CachePrices{
		Write: relative(p.CacheWrite), WriteHour: relative(p.WriteHour), Read: relative(p.CacheRead), TTL: unit.Duration(p.TTL),
	}}
	m.rates = meter.Rates{Input: p.Input, Output: p.Output}
	if s := p.Step; s.AboveTokens > 0 {
		m.rates.Step = meter.PriceStep{
			AboveTokens: int64(s.AboveTokens), Input: relative(s.Input), Write: relative(s.CacheWrite), Read: relative(s.CacheRead), Long: relative(s.WriteHour), Output: 1,
		}
		if p.Output > 0 {
			m.rates.Step.Output = s.Output / p.Output
		}
	}
	return m
}

// withEntryPrice completes the rates. The entry's own price replaces that of the table.
func (l *priceList) withEntryPrice(m modelPrice) modelPrice {
	m.rates.Write, m.rates.Read, m.rates.Long = m.cache.Write, m.cache.Read, m.cache.HourlyWrite()
	if l.entry.Price != (Price{}) {
		m.rates.Input, m.rates.Output = l.entry.Price.Input, l.entry.Price.Output
	}
	return m
}

// What is assumed of a model whose replies report cached input, but whose prices nobody states. The cheaper reads
// are, the later a move of the window pays: so reads are assumed to be cheap. Of the prices in the table, the
// median read is 0.1 of the input, and only DeepSeek's and two models of Anthropic are below 0.05; dearer reads
// make the gateway move the window later than it could, and never make it lose. Writing costs more only where replies
// report writes: 1.25, what Anthropic and OpenAI charge. An entry is taken for expired after a day: until then
// nothing is masked for its sake.
const (
	assumedRead  = 0.05
	assumedWrite = 1.25
	assumedTTL   = 24 * time.Hour
)

// assumeCache gives the model the assumed cache prices.
func (m *modelPrice) assumeCache(writes bool) {
	m.cache = masking.CachePrices{Write: 1, Read: assumedRead, TTL: unit.Duration(assumedTTL)}
	if writes {
		m.cache.Write = assumedWrite
	}
	m.rates.Write, m.rates.Read, m.rates.Long = m.cache.Write, m.cache.Read, m.cache.HourlyWrite()
	if s := &m.rates.Step; s.AboveTokens > 0 {
		s.Write, s.Read, s.Long = s.Input*m.rates.Write, s.Input*m.rates.Read, s.Input*m.rates.Long
	}
}

// PriceReport says, in a line for each, what prices the providers' models have and where they come from.
func (c Config) PriceReport() []string {
	var lines []string
	for _, entry := range c.Providers {
		l := c.newPriceList(entry, entry.BaseURL.Sample())
		lines = append(lines, entry.Name+": "+l.sourceText())
		for _, model := range entry.Models {
			if !strings.Contains(model, "*") {
				lines = append(lines, "  "+model+": "+l.priceOf(model).summary())
			}
		}
	}
	return lines
}

// sourceText says where the prices come from.
func (l *priceList) sourceText() string {
	switch {
	case l.entry.setsCache():
		return "its own cache prices"
	case l.table == nil && len(l.own) == 0:
		return "no cache prices, so no discount; llm.price_table is false"
	}
	var from []string
	if len(l.own) > 0 {
		from = append(from, fmt.Sprintf("%d of [[prices]]", len(l.own)))
	}
	if l.table != nil {
		text := "the built-in table, by the names of models"
		if name := l.table.ProviderAt(l.host); name != "" {
			text = "the built-in table, " + name + l.datesOf(name)
		}
		from = append(from, text)
	}
	return strings.Join(from, "; ")
}

// datesOf says how many rows of a provider the table has, and how old they are.
func (l *priceList) datesOf(provider string) string {
	var dates []string
	for _, p := range l.table.Rows() {
		if p.Provider == provider {
			dates = append(dates, p.Date)
		}
	}
	if len(dates) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d models, %s to %s)", len(dates), slices.Min(dates), slices.Max(dates))
}

// summary is the price in a few words, with its source.
func (m modelPrice) summary() string {
	p := m.price
	if p.Input == 0 {
		if m.assumed {
			return "not known; learned from replies"
		}
		return fmt.Sprintf("read %.3g, write %.3g of input", m.cache.Read, m.cache.Write)
	}
	text := fmt.Sprintf("input %.4g, output %.4g", m.rates.Input, m.rates.Output)
	if m.assumed {
		text += ", cached input not known"
	} else {
		text += fmt.Sprintf(", cache read %.3g, write %.3g of input", m.cache.Read, m.cache.Write)
	}
	if p.Step.AboveTokens > 0 {
		text += fmt.Sprintf(", %.3g times above %d tokens", m.rates.Step.Input, p.Step.AboveTokens)
	}
	return text + " (" + strings.TrimSpace(p.Source+" "+p.Date) + ")"
}
