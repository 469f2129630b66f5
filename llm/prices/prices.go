// Package prices knows what LLM providers charge for their models, and how their prompt caches work.
//
// prices.go has the price of a model and finds it, for a provider's host and a model's name; table.go reads and
// checks the table. The table itself is table.toml, part of the program. It is a list of facts with source and
// date: a model that is not in it has no price, and callers decide what to assume.
package prices

import (
	"math"
	"strings"
	"time"
)

// Price is what a provider charges for a model, in US dollars per million tokens, and what its cache does.
type Price struct {
	Rates

	TTL       time.Duration // how long the cache keeps an entry at most, since its last use
	MinTokens int           // the shortest prefix that is cached; 0: not known
	Context   int           // the largest input that the model takes; 0: not known
	Cache     CacheKind
	Lookback  int  // how far before a mark an earlier one is found; 0: no limit is known
	Step      Step // AboveTokens 0: no step

	HasCachePrice bool // false: no price of cached input is known

	Provider, Model    string // of the row; Model has * for any characters
	Source, Date, Note string
	Confidence         string // "" for a price that the sources agree on, else "conflict" or "low"
}

// Rates are prices of a million tokens.
type Rates struct {
	Input, Output         float64
	CacheRead, CacheWrite float64 // both are Input if there is no price for cached input
	WriteHour             float64 // for entries that live an hour; 0: there is no such price
}

// Step is the price of a whole request whose input exceeds AboveTokens.
type Step struct {
	AboveTokens int
	Rates
}

// CacheKind is how a provider's cache finds the beginning of a request.
type CacheKind string

// The kinds of caches.
const (
	Marked        CacheKind = "marked"         // only what the client marked is written, and found again
	AutomaticMark CacheKind = "automatic_mark" // the provider marks the last message; only what was marked is found
	LongestPrefix CacheKind = "longest_prefix" // the longest prefix that was ever sent is found
	Units         CacheKind = "units"          // whole units of the prompt are found, as far as they are unchanged
)

// FindsPrefixes says whether the cache finds a prefix that nobody marked.
func (k CacheKind) FindsPrefixes() bool { return k == LongestPrefix || k == Units }

// times returns the rates multiplied by a factor.
func (r Rates) times(factor float64) Rates {
	if factor == 0 || factor == 1 {
		return r
	}
	scale := func(x float64) float64 { return math.Round(x*factor*1e9) / 1e9 }
	return Rates{Input: scale(r.Input), Output: scale(r.Output), CacheRead: scale(r.CacheRead), CacheWrite: scale(r.CacheWrite), WriteHour: scale(r.WriteHour)}
}

// unknownTTL is assumed where the life of an entry is not published. The gateway masks freely once an entry has
// certainly expired, so a life that is too long costs nothing; none that is known is longer than a day.
const unknownTTL = 24 * time.Hour

// markedWire is the kind of API whose clients mark what to cache.
const markedWire = "anthropic"

// Lookup finds the price of a model at an API of a kind ("openai", "anthropic", ...) on a host. On a host that is
// not in the table, such as a proxy, the model's name decides, if it is of exactly one provider that sells its own
// models.
func (t *Table) Lookup(kind, host, model string) (Price, bool) {
	host, _, _ = strings.Cut(strings.ToLower(host), ":")
	if p := t.providerAt(host); p != nil {
		return t.findModel(p, kind, model)
	}
	return t.findByName(kind, model)
}

// ProviderAt returns the name of the table's provider on a host; "" if there is none.
func (t *Table) ProviderAt(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ":")
	if p := t.providerAt(host); p != nil {
		return p.Name
	}
	return ""
}

func (t *Table) providerAt(host string) *providerRow {
	for _, p := range t.providers {
		for _, pattern := range p.hosts {
			if pattern.Match(host) {
				return p
			}
		}
	}
	return nil
}

// findByName finds a model by its name alone, or by a name like vendor/model.
func (t *Table) findByName(kind, model string) (Price, bool) {
	if vendor, name, ok := strings.Cut(model, "/"); ok {
		p := t.vendor(strings.ToLower(vendor))
		if p == nil {
			return Price{}, false
		}
		return t.findModel(p, kind, name)
	}
	var found Price
	matches := 0
	for _, p := range t.providers {
		if !p.OwnModels {
			continue
		}
		if price, ok := t.findModel(p, kind, model); ok {
			found, matches = price, matches+1
		}
	}
	return found, matches == 1
}

func (t *Table) vendor(name string) *providerRow {
	for _, p := range t.providers {
		for _, v := range p.Vendors {
			if v == name {
				return p
			}
		}
	}
	return nil
}

// findModel finds a model of a provider.
func (t *Table) findModel(p *providerRow, kind, model string) (Price, bool) {
	name := plainName(model)
	for _, r := range p.rows {
		switch {
		case !r.pattern.Match(name):
		case r.SameAs == "":
			return r.price(kind), true
		default:
			return t.findSame(r, kind, name)
		}
	}
	return Price{}, false
}

// plainName is a name as it is compared. Hosts that sell the models of others write 4.5 where the vendor writes
// 4-5, and small letters where it writes large ones.
func plainName(model string) string { return strings.ReplaceAll(strings.ToLower(model), ".", "-") }

// freeModel is how OpenRouter names a model that it serves for nothing.
const freeModel = ":free"

// findSame finds the price of a model that a row takes from another provider.
func (t *Table) findSame(r *row, kind, model string) (Price, bool) {
	if r.SameAs == vendorRows {
		if strings.HasSuffix(model, freeModel) || !strings.Contains(model, "/") {
			return Price{}, false
		}
		return t.findByName(kind, model)
	}
	// The vendor's own name begins at the last text of the pattern: "*claude-*" is anthropic.claude-opus-5.
	name := model
	if i := strings.Index(model, r.lastLiteral()); i > 0 {
		name = model[i:]
	}
	price, ok := t.findModel(t.named(r.SameAs), kind, name)
	if !ok {
		return Price{}, false
	}
	price.Rates, price.Step.Rates = price.times(r.Factor), price.Step.times(r.Factor)
	if r.TTL > 0 || r.MaxTTL > 0 {
		price.TTL = r.ttl()
	}
	if r.MinTokens > 0 {
		price.MinTokens = r.MinTokens
	}
	return price, true
}
