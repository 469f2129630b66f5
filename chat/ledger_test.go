package chat_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/meter"
)

func TestPriceIsChecked(t *testing.T) {
	for price, want := range map[chat.Price]string{
		{}:                              "[]",
		{Input: 3, Output: 15}:          "[]",
		{Input: 3}:                      "[]",
		{Output: 15}:                    "[providers[0].price.input: is needed beside output]",
		{Input: -1}:                     "[providers[0].price.input: must be a number that is not negative]",
		{Input: 1, Output: math.Inf(1)}: "[providers[0].price.output: must be a number that is not negative]",
	} {
		cfg := chat.Default()
		cfg.Providers = []chat.Provider{provider("p", "openai", "http://127.0.0.1:1", func(p *chat.Provider) { p.Price = price })}
		if got := fmt.Sprint(cfg.Validate()); got != want {
			t.Errorf("%+v: got %s, want %s", price, got, want)
		}
	}
}

const usage = `{"model":"m-1-0825","usage":{"prompt_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens":7}}`

// shrinking is a door whose requests are said to be shrunk so.
func shrinking(done chat.Shrunk) option {
	return func(_ *chat.Settings, d *chat.Deps) {
		d.Shrink = func(context.Context, chat.Outgoing) chat.Shrunk { return done }
	}
}

func priced(p *chat.Provider) {
	p.Retries, p.Cache.Write, p.Cache.Read = 0, 1, .1
	p.Price = chat.Price{Input: 2, Output: 10}
}

// A reply is booked for its tenant, provider, model and tools, at the provider's prices. Of a
// fallback's cache nothing is known, and at its own prices it is billed.
func TestRepliesAreBooked(t *testing.T) {
	good := newFar(t, says(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	bad := newFar(t, says(http.StatusServiceUnavailable, `{}`))
	for name, tt := range map[string]struct {
		providers []chat.Provider
		want      meter.Account
	}{
		"the provider": {
			[]chat.Provider{provider("p", "openai", good.URL, priced)},
			meter.Account{
				Tenant: "default", Provider: "p", Model: "m-1-0825", Requests: 1, Used: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 7},
				Cost: meter.Cost{Billed: 1900, Unmasked: 1900 + 500}, Spent: 3800 + 70, MoneySaved: 1000, Misses: meter.Misses{{Requests: 1}},
			},
		},
		"its fallback, without a discount": {
			[]chat.Provider{
				provider("p", "openai", bad.URL, priced, func(p *chat.Provider) { p.Fallback = []string{"q"} }),
				provider("q", "openai", good.URL),
			},
			meter.Account{
				Tenant: "default", Provider: "q", Model: "m-1-0825", Requests: 1, Unpriced: 1, Used: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 7},
				Cost: meter.Cost{Billed: 10000, Unmasked: 10000 + 5000}, Misses: meter.Misses{{Requests: 1}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			done := chat.Shrunk{
				Tokens: 15000, Read: 15000, Before: 14000, Standing: meter.Warm,
				Cleared: []chat.Cleared{{Tool: "read", Tokens: 4000}, {Tool: strings.Repeat("x", 1000), Tokens: 1000}},
			}
			g := open(t, tt.providers, shrinking(done))
			g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
			settled(t, g, 1)
			s := g.meter.Savings()
			if got := fmt.Sprint(s.Models); got != fmt.Sprint([]meter.Account{tt.want}) {
				t.Errorf("got  %+v\nwant %+v", s.Models, tt.want)
			}
			if len(s.Tools) != 2 || s.Tools[0].Tool != "read" || s.Tools[0].Saved != 4*s.Tools[1].Saved || len(s.Tools[1].Tool) > 200 {
				t.Errorf("tools: %+v", s.Tools)
			}
		})
	}
}

// Masked results of reading back save nothing, and what is left of them is a burden.
func TestReadingBackSavesNothing(t *testing.T) {
	f := newFar(t, says(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL, priced)}, shrinking(chat.Shrunk{
		Tokens: 15000, Read: 15000, Before: 14000, Standing: meter.Warm, Burden: meter.Burden{Old: 6000},
		Cleared: []chat.Cleared{{Tool: "hub_recover_text", Tokens: 5000}},
	}))
	g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
	settled(t, g, 1)
	if got, want := g.meter.Savings().Total.Cost, (meter.Cost{Billed: 1900, Unmasked: 1800, Recovery: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// capture gathers what is logged until the test ends.
func capture(t *testing.T) *lines {
	t.Helper()
	log, old := &lines{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return log
}

// The line of a request says what masking saved, where it masked something.
func TestSavingIsLogged(t *testing.T) {
	log := capture(t)
	f := newFar(t, says(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL, priced)}, shrinking(chat.Shrunk{
		Tokens: 15000, Read: 15000, Before: 14000, Standing: meter.Warm, Cleared: []chat.Cleared{{Tool: "read", Tokens: 5000}},
	}))
	g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
	g.has(t, `ctxgate_llm_requests_total{provider="p",result="ok"} 1`, `ctxgate_llm_input_cost_tokens_total{kind="unmasked",provider="p"} 2400`)
	g.Close() // the line is written after the reply
	if !strings.Contains(log.String(), "saved=500") {
		t.Errorf("got %s", log.String())
	}
}

// A provider that caches, and whose entry says nothing of prices, is named once in the log.
func TestUnpricedCachesAreSaid(t *testing.T) {
	log := capture(t)
	f := newFar(t, says(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := open(t, []chat.Provider{provider("priced", "openai", f.URL, priced, func(p *chat.Provider) { p.Models = []string{"other"} }), provider("bare", "openai", f.URL)})
	for _, model := range []string{"m", "m", "other"} {
		g.post(t, "/v1/chat/completions", `{"model":"`+model+`"}`, nil)
	}
	settled(t, g, 3)
	if got := log.String(); strings.Count(got, "no cache prices") != 1 || !strings.Contains(got, "provider=bare") {
		t.Errorf("said %s", got)
	}
}
