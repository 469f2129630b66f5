package budget

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/glob"
)

// Config is what tenants may spend.
type Config struct {
	// What tenants may use of models, per day or month. All entries that match a tenant apply. When one is used
	// up, requests to models are refused (HTTP 429, with the time at which it renews) until the next day or
	// month begins, in UTC. docs/limits.md says how it is counted. At most 100.
	Budgets []Entry `key:"budgets"`
}

// Entry is the budget of each tenant that matches it.
type Entry struct {
	// The tenants: a name, with * for any characters. Each of them has the whole budget. Default "*".
	Tenant string `key:"tenant"`

	// How long it is for: "day" or "month", in UTC. Default "day".
	Per string `key:"per" oneof:"day,month"`

	// The most requests. Default 0: any number.
	Requests int64 `key:"requests" min:"0"`

	// The most tokens, of input (cached or not) and output together. Default 0: any number.
	Tokens int64 `key:"tokens" min:"0"`

	// The most money, in the currency of the prices: US dollars with the built-in table (llm.price_table). A
	// request to a model without a known price costs no money, and counts only in requests and tokens. Default
	// 0: any amount.
	Money float64 `key:"money" min:"0" max:"1000000000"`

	// The part of the budget from which on a warning is logged, once, and replies have the header
	// X-Ctxgate-Budget. Default 0.8; 0 is no warning.
	WarnAt float64 `key:"warn_at" min:"0" max:"1"`
}

const (
	maxEntries = 100

	perDay   = "day"
	perMonth = "month"
)

// SetDefaults sets what an entry leaves out.
func (e *Entry) SetDefaults() { e.Tenant, e.Per, e.WarnAt = "*", perDay, 0.8 }

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if len(c.Budgets) > maxEntries {
		problems = append(problems, fmt.Errorf("budgets: there are more than %d", maxEntries))
	}
	for i, e := range c.Budgets {
		for _, err := range e.validateEntry() {
			problems = append(problems, fmt.Errorf("budgets[%d].%w", i, err))
		}
	}
	return problems
}

func (e Entry) validateEntry() []error {
	var problems []error
	if e.Tenant == "" || len(e.Tenant) > glob.MaxLength {
		problems = append(problems, fmt.Errorf("tenant: a name or pattern is needed, of at most %d bytes", glob.MaxLength))
	}
	if e.Requests == 0 && e.Tokens == 0 && e.Money == 0 {
		problems = append(problems, errors.New("money: set requests, tokens, money or several of them"))
	}
	return problems
}

// Warnings are what an operator should know about the budgets of a valid configuration.
func (c Config) Warnings() []string {
	var warnings []string
	if slices.ContainsFunc(c.Budgets, func(e Entry) bool { return e.Money > 0 && e.Tokens == 0 }) {
		warnings = append(warnings, "budgets: money counts only requests to models with a known price; set tokens too, or name the models with [[prices]]")
	}
	return warnings
}

// limit is what the entry allows.
func (e Entry) limit() Amount {
	return Amount{e.Requests, e.Tokens, int64(math.Round(e.Money * 1e6))}
}

// Amount is what requests use: their number, their tokens, and money in millionths of the currency.
type Amount struct {
	Requests int64 `json:"requests"`
	Tokens   int64 `json:"tokens"`
	Money    int64 `json:"money"`
}

func (a Amount) sum(b Amount) Amount {
	return Amount{addUp(a.Requests, b.Requests), addUp(a.Tokens, b.Tokens), addUp(a.Money, b.Money)}
}

// addUp is a sum that stays in range and is never negative.
func addUp(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return max(a+b, 0)
}

func (a Amount) negative() Amount { return Amount{-a.Requests, -a.Tokens, -a.Money} }

// parts are the three counts of used and limit, with how people write them.
func parts(used, limit Amount) []part {
	return []part{
		{used.Requests, limit.Requests, func(n int64) string { return strconv.FormatInt(n, 10) + " requests" }},
		{used.Tokens, limit.Tokens, func(n int64) string { return strconv.FormatInt(n, 10) + " tokens" }},
		{used.Money, limit.Money, func(n int64) string { return strconv.FormatFloat(float64(n)/1e6, 'f', 2, 64) }},
	}
}

type part struct {
	used, limit int64 // limit 0: any number
	text        func(int64) string
}

// share is how much of the budget is used, by the count of which most is used.
func share(used, limit Amount) float64 {
	most := 0.0
	for _, p := range parts(used, limit) {
		if p.limit > 0 {
			most = max(most, float64(p.used)/float64(p.limit))
		}
	}
	return most
}
