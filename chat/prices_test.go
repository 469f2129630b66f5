package chat_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/llm/prices"
	"github.com/ctxgate/ctxgate/meter"
)

func withPriceTable(s *chat.Settings, _ *chat.Deps) { s.Chat.LLM.PriceTable = true }

// withShrinkRequest makes the proxy report what it knows about the price of the last request, and this result for it.
func withShrinkRequest(into *masking.Request, mu *sync.Mutex, done *masking.Result) option {
	return func(_ *chat.Settings, d *chat.Deps) {
		d.Shrink = func(_ context.Context, o masking.Request) masking.Result {
			mu.Lock()
			defer mu.Unlock()
			*into = o
			return *done
		}
	}
}

// What a model's cache costs comes from the provider's entry, from [[prices]] or from the table, in this order. The
// bare defaults know no discount.
func TestWherePricesComeFrom(t *testing.T) {
	var seen masking.Request
	var mu sync.Mutex
	own := []chat.ModelPrice{
		{Model: "claude-opus-5-5", Provider: "other", Input: 100},
		{Model: "Claude-Opus-5-5*", Input: 8, Output: 30, CacheRead: 2, CacheWrite: 10},
		{Model: "free-*", Input: 1},
		{Model: "big", Input: 1, CacheRead: .5, TTL: unitDuration(time.Hour), Context: 5000, Step: chat.StepPrice{AboveTokens: 1000, Input: 3}},
	}
	for name, tt := range map[string]struct {
		table  bool
		own    []chat.ModelPrice
		change func(*chat.Provider)
		model  string
		want   string // write, hourly write, read, life; step; context
	}{
		"bare":                           {false, nil, nil, "claude-opus-5-5", "1 1 1 5m 0 0"},
		"table":                          {true, nil, nil, "claude-opus-5-5", "1.25 2 0.05 5m 0 1000000"},
		"table, dearer reads":            {true, nil, nil, "claude-opus-4-8", "1.25 2 0.1 5m 0 1000000"},
		"table, step":                    {true, nil, nil, "claude-haiku-5-5", "1.25 2 0.1 5m 100000 1000000"},
		"entry wins over the table":      {true, nil, func(p *chat.Provider) { p.Cache.Read = .5 }, "claude-opus-5-5", "1 1.6 0.5 5m 0 0"},
		"entry wins over [[prices]]":     {true, own, func(p *chat.Provider) { p.Cache.Read = .5 }, "claude-opus-5-5", "1 1.6 0.5 5m 0 0"},
		"a price does not hide the rest": {true, nil, func(p *chat.Provider) { p.Price = chat.Price{Input: 3} }, "claude-opus-5-5", "1.25 2 0.05 5m 0 1000000"},
		"[[prices]] over the table":      {true, own, nil, "claude-opus-5-5-20260901", "1.25 2 0.25 5m 0 1000000"},
		"[[prices]] without the table":   {false, own, nil, "claude-opus-5-5", "1.25 2 0.25 1d 0 0"},
		"[[prices]] of another model":    {true, own, nil, "claude-opus-5", "1.25 2 0.1 5m 0 1000000"},
		"[[prices]] without a discount":  {true, own, nil, "free-1", "1 1 1 1d 0 0"},
		"[[prices]] with all":            {true, own, nil, "big", "1 1.6 0.5 1h 1000 5000"},
		"unknown, bare":                  {false, nil, nil, "m", "1 1 1 5m 0 0"},
		"unknown: a discount is assumed": {true, nil, nil, "m", "1 1.6 0.05 1d 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, respond(http.StatusOK, wires["messages"].reply))
			p := providerConfig("p", "anthropic", f.URL)
			if tt.change != nil {
				tt.change(&p)
			}
			g := newGateway(t, []chat.Provider{p, providerConfig("other", "anthropic", f.URL)}, withShrinkRequest(&seen, &mu, new(masking.Result)), func(s *chat.Settings, _ *chat.Deps) {
				s.Chat.LLM.PriceTable, s.Chat.Prices = tt.table, tt.own
			})
			g.post(t, "/v1/messages", `{"max_tokens":5,"model":"`+tt.model+`","messages":[{"role":"user","content":"x"}]}`, nil)
			mu.Lock()
			defer mu.Unlock()
			c, price := seen.CachePrices, seen.Price
			if got := fmt.Sprint(c.Write, c.HourlyWrite(), c.Read, " ", c.TTL, " ", price.Step.AboveTokens, price.Context); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A reply is charged at the prices of its model, with the step of its size, and in money without a configured price.
func TestTablePricesAreCharged(t *testing.T) {
	const reply = `{"id":"msg","type":"message","model":"%s","content":[],"usage":{"input_tokens":0,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":1000}}`
	for name, tt := range map[string]struct {
		asked, replied string
		created, read  int
		want           meter.Money // in millionths
	}{
		"below the step":      {"claude-haiku-5-5", "claude-haiku-5-5", 10_000, 80_000, 1250 + 800 + 500},
		"above the step":      {"claude-haiku-5-5", "claude-haiku-5-5", 10_000, 180_000, 6250 + 9000 + 2500},
		"the reply's model":   {"my-deployment", "claude-opus-5-5-20260901", 10_000, 80_000, 50_000 + 16_000 + 20_000},
		"the request's model": {"claude-opus-5-5", "something else", 10_000, 80_000, 50_000 + 16_000 + 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(reply, tt.replied, tt.created, tt.read)))
			g := newGateway(t, []chat.Provider{providerConfig("p", "anthropic", f.URL)}, withPriceTable)
			g.post(t, "/v1/messages", `{"max_tokens":5,"model":"`+tt.asked+`","messages":[{"role":"user","content":"x"}]}`, nil)
			waitForReplies(t, g, 1)
			if total := g.meter.Savings().Total; total.Spent != tt.want || total.Unpriced != 0 {
				t.Errorf("spent %v, want %v", total.Spent, tt.want)
			}
		})
	}
}

// What the replies of an unknown model report decides what its cache is assumed to cost. It outlives the process.
func TestPricesAreLearned(t *testing.T) {
	warm := masking.Result{CacheState: meter.CacheWarm, PreviousTokens: 10_000, OriginalTokens: 10_000, ReadTokens: 10_000}
	const hit, miss, small = `{"prompt_tokens":10000,"prompt_tokens_details":{"cached_tokens":9000}}`, `{"prompt_tokens":10000}`, `{"prompt_tokens":10}`
	const write = `{"prompt_tokens":10000,"prompt_tokens_details":{"cache_write_tokens":9000}}`
	for name, tt := range map[string]struct {
		result  masking.Result
		replies []string
		want    string // write and read before each reply, and after the last
	}{
		"cached":             {warm, []string{hit, miss, miss, miss, miss}, "1 0.05, 1 0.05, 1 0.05, 1 0.05, 1 0.05, 1 0.05"},
		"cached, with a fee": {warm, []string{write, hit}, "1 0.05, 1.25 0.05, 1.25 0.05"},
		"not cached":         {warm, []string{miss, miss, miss, miss}, "1 0.05, 1 0.05, 1 0.05, 1 1, 1 1"},
		"cached in the end":  {warm, []string{miss, miss, miss, hit}, "1 0.05, 1 0.05, 1 0.05, 1 1, 1 0.05"},
		"a miss by chance":   {warm, []string{miss, miss, hit, miss, miss, miss}, "1 0.05, 1 0.05, 1 0.05, 1 0.05, 1 0.05, 1 0.05, 1 0.05"},
		"nothing was cached": {masking.Result{}, []string{small, small, miss, miss}, "1 0.05, 1 0.05, 1 0.05, 1 0.05, 1 0.05"},
	} {
		t.Run(name, func(t *testing.T) {
			var handlers []http.HandlerFunc
			for _, u := range tt.replies {
				handlers = append(handlers, respond(http.StatusOK, `{"model":"local-1","usage":`+u+`}`))
			}
			f := newStubProvider(t, respondInOrder(handlers...))
			var seen masking.Request
			var mu sync.Mutex
			store := newRecall(t, nil)
			var got []string
			start := func() *gateway {
				return newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, withPriceTable, withShrinkRequest(&seen, &mu, &tt.result), func(_ *chat.Settings, d *chat.Deps) { d.Recall = store })
			}
			ask := func(g *gateway) {
				g.post(t, "/v1/chat/completions", `{"model":"local","messages":[{"role":"user","content":"x"}]}`, nil)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprint(seen.CachePrices.Write, seen.CachePrices.Read))
			}
			g := start()
			for i := range tt.replies {
				ask(g)
				waitForReplies(t, g, i+1)
			}
			ask(start()) // another process with the same store
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// Clients choose the names of models: nothing is remembered about absurd ones.
func TestLongModelNamesAreNotLearned(t *testing.T) {
	f := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	store := newRecall(t, nil)
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, withPriceTable, func(_ *chat.Settings, d *chat.Deps) { d.Recall = store })
	long := strings.Repeat("m", 100_000)
	if resp, _ := g.post(t, "/v1/chat/completions", `{"model":"`+long+`"}`, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("got %d", resp.StatusCode)
	}
	waitForReplies(t, g, 1)
	if _, err := store.GetRecord(t.Context(), "", "price\x00p\x00127.0.0.1\x00"+long); err == nil {
		t.Error("it is stored")
	}
}

// With the table there is nothing to warn about.
func TestNoWarningWithTheTable(t *testing.T) {
	log := captureLog(t)
	f := newStubProvider(t, respond(http.StatusOK, fmt.Sprintf(usage, 10000, 9000)))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, withPriceTable)
	for range 3 {
		g.post(t, "/v1/chat/completions", `{"model":"m"}`, nil)
	}
	waitForReplies(t, g, 3)
	if got := log.String(); strings.Contains(got, "no cache prices") || strings.Count(got, "learned from its replies") != 1 {
		t.Errorf("logged %s", got)
	}
}

// Mistakes in [[prices]] are reported with their key.
func TestModelPriceValidation(t *testing.T) {
	for want, m := range map[string]chat.ModelPrice{
		"": {Model: "m*", Provider: "p", Input: 1, Output: 2, CacheRead: .1, CacheWrite: 1.25, Step: chat.StepPrice{AboveTokens: 10, Input: 2}},
		"prices[0].model: a pattern is needed, of at most 512 characters":      {Input: 1},
		"prices[0].provider: there is no provider \"q\"":                       {Model: "m", Provider: "q", Input: 1},
		"prices[0].input: must be positive":                                    {Model: "m"},
		"prices[0].output: must be a number that is not negative":              {Model: "m", Input: 1, Output: -1},
		"prices[0].cache_read: is higher than what is read for the first time": {Model: "m", Input: 1, CacheRead: 1.1},
		"prices[0].step: needs above_tokens and input":                         {Model: "m", Input: 1, Step: chat.StepPrice{AboveTokens: 10}},
	} {
		cfg := chat.Default()
		cfg.Providers = []chat.Provider{providerConfig("p", "openai", "http://127.0.0.1:1")}
		cfg.Prices = []chat.ModelPrice{m}
		var got []string
		for _, err := range cfg.Validate() {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%+v: got %s, want %s", m, text, want)
		}
	}
}

// The report says where each provider's prices come from.
func TestPriceReport(t *testing.T) {
	cfg := chat.Default()
	cfg.LLM.PriceTable = true
	cfg.Prices = []chat.ModelPrice{{Model: "m", Provider: "proxy", Input: 1, Output: 2}}
	cfg.Providers = []chat.Provider{
		providerConfig("claude", "anthropic", "https://api.anthropic.com", func(p *chat.Provider) { p.Models = []string{"claude-haiku-5-5", "claude-*", "new"} }),
		providerConfig("proxy", "openai", "http://127.0.0.1:1", func(p *chat.Provider) { p.Models = []string{"m", "gpt-5-pro"} }),
		providerConfig("own", "openai", "http://127.0.0.1:1", withPrices),
	}
	rows := slices.DeleteFunc(prices.BuiltIn().Rows(), func(p prices.Price) bool { return p.Provider != "anthropic" })
	want := []string{
		fmt.Sprintf("claude: the built-in table, anthropic (%d models, 2026-01 to 2026-10-10)", len(rows)),
		"  claude-haiku-5-5: input 0.1, output 0.5, cache read 0.1, write 1.25 of input, 5 times above 100000 tokens (platform.claude.com/docs/zh-CN/models/haiku-5-5/overview 2026-10-08)",
		"  new: not known; learned from replies",
		"proxy: 1 of [[prices]]; the built-in table, by the names of models",
		"  m: input 1, output 2, cache read 1, write 1 of input ([[prices]])",
		"  gpt-5-pro: input 15, output 120, cached input not known (litellm model_prices_and_context_window.json 2026-08-05)",
		"own: its own cache prices",
	}
	if got := strings.Join(cfg.PriceReport(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	cfg.LLM.PriceTable, cfg.Prices = false, nil
	if got := cfg.PriceReport()[0]; got != "claude: no cache prices, so no discount; llm.price_table is false" {
		t.Errorf("got %s", got)
	}
}

// In whole conversations: where an unknown model's provider has a cache, its requests are those of a provider with the
// assumed prices, from the first on; where it has none, the window moves at every turn once the replies have shown that.
func TestLearnedPricesDecideWhatIsMasked(t *testing.T) {
	const turns, window = 12, 2
	body := func(turns int) string {
		var b strings.Builder
		b.WriteString(`{"model":"local","tools":[{"type":"function","function":{"name":"read"}}],"messages":[{"role":"user","content":"go"}`)
		for i := range turns {
			fmt.Fprintf(&b, `,{"role":"assistant","tool_calls":[{"id":"c%d","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":"%s"}`, i, i, strings.Repeat(fmt.Sprintf("line %d ", i), 3000))
		}
		return b.String() + "]}"
	}
	policy := func(p *history.Policy) {
		twoTurnWindow(p)
		p.Advance = history.AdvanceAuto
	}
	send := func(usage string, change func(*chat.Provider), options ...option) (sent []string) {
		f := newStubProvider(t, respond(http.StatusOK, `{"model":"local","usage":`+usage+`}`))
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, change)}, append(options, withMasking(newRecall(t, nil), policy))...)
		for n := range turns {
			g.post(t, "/v1/chat/completions", body(n+1), nil)
			waitForReplies(t, g, n+1)
		}
		for _, r := range f.requests() {
			sent = append(sent, string(r.body))
		}
		return sent
	}
	unchanged := func(*chat.Provider) {}
	const hits, misses = `{"prompt_tokens":50000,"prompt_tokens_details":{"cached_tokens":40000}}`, `{"prompt_tokens":50000}`
	configured := send(hits, func(p *chat.Provider) { p.Cache.Read, p.Cache.TTL = .05, unitDuration(24*time.Hour) })
	if learned := send(hits, unchanged, withPriceTable); !slices.Equal(learned, configured) {
		t.Error("with a cache, the requests are not those of the assumed prices")
	}
	last := send(misses, unchanged, withPriceTable)[turns-1]
	if got := len(placeholder.FindAllString(last, -1)); got != turns-window {
		t.Errorf("without a cache, %d results are masked, want %d", got, turns-window)
	}
	if got := len(placeholder.FindAllString(configured[turns-1], -1)); got == turns-window {
		t.Error("with a cache, the window moves at every turn")
	}
}
