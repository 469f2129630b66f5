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
	"github.com/ctxgate/ctxgate/chat/masking"
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
		cfg.Providers = []chat.Provider{providerConfig("p", "openai", "http://127.0.0.1:1", func(p *chat.Provider) { p.Price = price })}
		if got := fmt.Sprint(cfg.Validate()); got != want {
			t.Errorf("%+v: got %s, want %s", price, got, want)
		}
	}
}

const usage = `{"model":"m-1-0825","usage":{"prompt_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens":7}}`

// withShrinkResult makes the proxy report this result for every request.
func withShrinkResult(done masking.Result) option {
	return func(_ *chat.Settings, d *chat.Deps) {
		d.Shrink = func(context.Context, masking.Request) masking.Result { return done }
	}
}

func withPrices(p *chat.Provider) {
	p.Retries, p.Cache.Write, p.Cache.Read = 0, 1, .1
	p.Price = chat.Price{Input: 2, Output: 10}
}

// A reply is recorded for its tenant, provider, model and tools, at the provider's prices. A reply of
// a fallback is billed at the fallback's prices, and its cache state is unknown.
func TestRepliesAreRecorded(t *testing.T) {
	good := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	bad := newStubProvider(t, respond(http.StatusServiceUnavailable, `{}`))
	for name, tt := range map[string]struct {
		providers []chat.Provider
		want      meter.Account
	}{
		"first provider": {
			[]chat.Provider{providerConfig("p", "openai", good.URL, withPrices)},
			meter.Account{
				Tenant: "default", Provider: "p", Model: "m-1-0825", Requests: 1, Usage: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 7},
				Cost: meter.Cost{Billed: 1900, Unmasked: 1900 + 500}, Parts: meter.SavedParts{Masked: 500}, MoneyParts: meter.SavedMoney{Masked: 1000}, Spent: 3800 + 70, MoneySaved: 1000, CacheMisses: meter.CacheMisses{{Requests: 1}},
			},
		},
		"fallback without a cache discount": {
			[]chat.Provider{
				providerConfig("p", "openai", bad.URL, withPrices, func(p *chat.Provider) { p.Fallback = []string{"q"} }),
				providerConfig("q", "openai", good.URL),
			},
			meter.Account{
				Tenant: "default", Provider: "q", Model: "m-1-0825", Requests: 1, Unpriced: 1, Usage: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 7},
				Cost: meter.Cost{Billed: 10000, Unmasked: 10000 + 5000}, Parts: meter.SavedParts{Masked: 5000}, CacheMisses: meter.CacheMisses{{Requests: 1}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			done := masking.Result{
				OriginalTokens: 15000, ReadTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm,
				Cuts: []masking.ToolCut{{Tool: "read", Tokens: 4000}, {Tool: strings.Repeat("x", 1000), Tokens: 1000}},
			}
			g := newGateway(t, tt.providers, withShrinkResult(done))
			g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
			waitForReplies(t, g, 1)
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

// Masking results of recover_text counts as no saving, and what stays of them counts as overhead.
func TestMaskedReadBackResultsSaveNothing(t *testing.T) {
	f := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, withPrices)}, withShrinkResult(masking.Result{
		OriginalTokens: 15000, ReadTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Overhead: meter.RecoveryOverhead{Old: 6000},
		Cuts: []masking.ToolCut{{Tool: "hub_recover_text", Tokens: 5000}},
	}))
	g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
	waitForReplies(t, g, 1)
	if got, want := g.meter.Savings().Total.Cost, (meter.Cost{Billed: 1900, Unmasked: 1800, Recovery: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// logBuffer collects log output.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// captureLog redirects the default logger until the test ends.
func captureLog(t *testing.T) *logBuffer {
	t.Helper()
	log, old := &logBuffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return log
}

// The log line of a masked request says how much masking saved.
func TestSavingIsLogged(t *testing.T) {
	log := captureLog(t)
	f := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, withPrices)}, withShrinkResult(masking.Result{
		OriginalTokens: 15000, ReadTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: []masking.ToolCut{{Tool: "read", Tokens: 5000}},
	}))
	g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
	g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="ok"} 1`, `ctxgate_llm_input_cost_tokens_total{kind="unmasked",provider="p"} 2400`)
	g.Close() // the line is written after the reply
	if !strings.Contains(log.String(), "saved=500") {
		t.Errorf("got %s", log.String())
	}
}

// A provider that caches but has no cache prices configured is warned about once.
func TestMissingPricesAreLoggedOnce(t *testing.T) {
	log := captureLog(t)
	f := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := newGateway(t, []chat.Provider{providerConfig("priced", "openai", f.URL, withPrices, func(p *chat.Provider) { p.Models = []string{"other"} }), providerConfig("bare", "openai", f.URL)})
	for _, model := range []string{"m", "m", "other"} {
		g.post(t, "/v1/chat/completions", `{"model":"`+model+`"}`, nil)
	}
	waitForReplies(t, g, 3)
	if got := log.String(); strings.Count(got, "no cache prices") != 1 || !strings.Contains(got, "provider=bare") {
		t.Errorf("logged %s", got)
	}
}
