package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/ctxgate/ctxgate/budget"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// newBudgets are budgets of every tenant, for a day.
func newBudgets(change func(*budget.Entry)) *budget.Tracker {
	var e budget.Entry
	e.SetDefaults()
	change(&e)
	return budget.New(budget.Config{Budgets: []budget.Entry{e}}, state.New(memory.New(), state.Default(), time.Now), time.Now)
}

func withBudgets(b *budget.Tracker) option {
	return func(_ *chat.Settings, d *chat.Deps) { d.Budgets = b }
}

// usedBudget waits until nothing is reserved, and returns what is used.
func usedBudget(t *testing.T, b *budget.Tracker) budget.Amount {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		all, err := b.Statuses(context.Background())
		if err == nil && len(all) == 1 && all[0].Held == (budget.Amount{}) {
			return all[0].Used
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", all, err)
		}
	}
}

// Each wire is charged what its replies say, in tokens and money; then it is refused in its own form, with the time at
// which the budget renews.
func TestBudgetStopsRequests(t *testing.T) {
	for name, wire := range wires {
		for _, stream := range []bool{false, true} {
			provider := newStubProvider(t, func(w http.ResponseWriter, r *http.Request) {
				if stream {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, strings.Join(wire.events, ""))
					return
				}
				respond(http.StatusOK, wire.reply)(w, r)
			})
			budgets := newBudgets(func(e *budget.Entry) { e.Requests, e.Tokens, e.Money = 2, 1_000_000, 100 })
			g := newGateway(t, []chat.Provider{providerConfig("p", wire.kind, provider.URL, withPrices)}, withBudgets(budgets))
			for i := range 2 {
				if resp, text := g.post(t, wire.path, wire.request(stream), nil); resp.StatusCode != http.StatusOK || resp.Header.Get("X-Ctxgate-Budget") != "" {
					t.Errorf("%s: request %d: %d %s %v", name, i, resp.StatusCode, text, resp.Header)
				}
				usedBudget(t, budgets)
			}
			u := wire.usage
			used := usedBudget(t, budgets)
			if want := 2 * (u.Fresh + u.Cached + u.Created + u.Output); used.Requests != 2 || used.Tokens != want || used.Money < 2*(70+80) || used.Money > 2*(70+120) {
				t.Errorf("%s: used %+v, want %d tokens", name, used, want)
			}
			resp, text := g.post(t, wire.path, wire.request(stream), nil)
			var form struct {
				Error struct {
					Type, Message, Status string
					Code                  json.RawMessage
					ResetsAt              int64 `json:"resets_at"`
					Details               []struct{ RetryDelay string }
				}
			}
			err := json.Unmarshal([]byte(text), &form)
			e := form.Error
			isOwn := map[string]bool{
				"openai":    e.Type == "usage_limit_reached" && string(e.Code) == `"insufficient_quota"` && e.ResetsAt > time.Now().Unix()-5,
				"anthropic": e.Type == "rate_limit_error",
				"gemini":    e.Status == "RESOURCE_EXHAUSTED" && len(e.Details) == 1 && strings.HasSuffix(e.Details[0].RetryDelay, "s"),
			}[wire.kind]
			if err != nil || resp.StatusCode != http.StatusTooManyRequests || !isOwn || !strings.Contains(e.Message, "renews at") {
				t.Errorf("%s: %d %s, %v", name, resp.StatusCode, text, err)
			}
			if resp.Header.Get("X-Should-Retry") != "false" || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %v", name, resp.Header)
			}
			if n := len(provider.requests()); n != 2 {
				t.Errorf("%s: the provider has %d requests", name, n)
			}
		}
	}
}

// SDKs do not repeat a request that is over its tenant's budget.
func TestSDKsStopAtTheBudget(t *testing.T) {
	budgets := newBudgets(func(e *budget.Entry) { e.Requests = 1 })
	provider := newStubProvider(t, respond(http.StatusOK, wires["completions"].reply))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", provider.URL), providerConfig("q", "anthropic", provider.URL)}, withBudgets(budgets))
	g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil)
	usedBudget(t, budgets)
	var requests atomic.Int64
	counted := &http.Client{Transport: countingTransport{g.Client().Transport, &requests}}
	ai := openai.NewClient(openaioption.WithBaseURL(g.URL+"/v1"), openaioption.WithAPIKey("k"), openaioption.WithHTTPClient(counted))
	_, err := ai.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "m-1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}})
	var failed *openai.Error
	if !errors.As(err, &failed) || failed.StatusCode != http.StatusTooManyRequests || failed.Code != "insufficient_quota" || requests.Load() != 1 {
		t.Errorf("openai: %d requests, %v", requests.Load(), err)
	}
	requests.Store(0)
	claude := anthropic.NewClient(anthropicoption.WithBaseURL(g.URL), anthropicoption.WithAPIKey("k"), anthropicoption.WithHTTPClient(counted))
	_, err = claude.Messages.New(t.Context(), anthropic.MessageNewParams{Model: "m-1", MaxTokens: 5, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}})
	var refused *anthropic.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusTooManyRequests || requests.Load() != 1 {
		t.Errorf("anthropic: %d requests, %v", requests.Load(), err)
	}
}

type countingTransport struct {
	http.RoundTripper
	count *atomic.Int64
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// A hundred requests at once, each of which costs as much as it may, exceed the budget by at most one.
func TestBudgetUnderConcurrency(t *testing.T) {
	reply := `{"id":"c1","model":"m-1","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":1000}}`
	provider := newStubProvider(t, respond(http.StatusOK, reply))
	budgets := newBudgets(func(e *budget.Entry) { e.Tokens = 10_000 })
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", provider.URL)}, withBudgets(budgets))
	body := `{"model":"m-1","max_tokens":1000,"messages":[{"role":"user","content":"` + strings.Repeat("hello ", 10) + `"}]}`
	var wg sync.WaitGroup
	var others atomic.Int64
	for range 100 {
		wg.Go(func() {
			resp, err := g.Client().Post(g.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
				others.Add(1)
			}
		})
	}
	wg.Wait()
	used := usedBudget(t, budgets)
	if used.Tokens > 11_030 || used.Tokens < 9000 || others.Load() != 0 || used.Requests != int64(len(provider.requests())) {
		t.Errorf("used %+v of 10000 tokens; %d other answers, %d requests at the provider", used, others.Load(), len(provider.requests()))
	}
}

// A reply that does not say what it cost is charged by the sizes of request and reply; so is a stream that breaks off.
// What the provider refused costs a request.
func TestBudgetCountsUnknownUsage(t *testing.T) {
	const body = `{"model":"m-1","max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`
	stream := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
	event := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 280) + "\"}}]}\n\n" // 322 bytes: ten tokens
	for name, tt := range map[string]struct {
		serve       http.HandlerFunc
		body        string
		most, least int64 // of output
	}{
		"document":         {respond(http.StatusOK, `{"choices":[{"message":{"content":"`+strings.Repeat("x", 363)+`"}}]}`), fmt.Sprintf(body, 500), 101, 99},
		"at most":          {respond(http.StatusOK, `{"choices":[{"message":{"content":"`+strings.Repeat("x", 363)+`"}}]}`), fmt.Sprintf(body, 50), 50, 50},
		"stream":           {func(w http.ResponseWriter, _ *http.Request) { stream(w, event+event+"data: [DONE]\n\n") }, fmt.Sprintf(body, 500), 21, 19},
		"refused":          {respond(http.StatusBadRequest, `{"error":{}}`), fmt.Sprintf(body, 500), 0, 0},
		"not understood":   {respond(http.StatusOK, `{}`), `{"model":"m-1","messages":17,"generationConfig":3}`, 1, 0},
		"gemini's keyword": {respond(http.StatusOK, `{"x":"`+strings.Repeat("x", 100)+`"}`), `{"model":"m-1","messages":[],"generationConfig":{"x":9,"maxOutputTokens":7}}`, 7, 7},
	} {
		provider := newStubProvider(t, tt.serve)
		budgets := newBudgets(func(e *budget.Entry) { e.Tokens = 1_000_000 })
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", provider.URL)}, withBudgets(budgets))
		g.post(t, "/v1/chat/completions", tt.body, nil)
		input := int64(len(tt.body) / 3)
		if name == "refused" {
			input = 0
		}
		if used := usedBudget(t, budgets); used.Requests != 1 || used.Tokens < input+tt.least || used.Tokens > input+tt.most {
			t.Errorf("%s: used %+v, want %d tokens and %d to %d", name, used, input, tt.least, tt.most)
		}
	}
}

// A client that leaves in the middle of a stream pays for what it got: the usage at the start of Anthropic's streams
// says nothing of the output.
func TestBudgetCountsBrokenStreams(t *testing.T) {
	start := wires["messages"].events[0]
	delta := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"" + strings.Repeat("x", 3100) + "\"}}\n\n" // about a hundred tokens
	gone := make(chan struct{})
	provider := newStubProvider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, start+delta)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	budgets := newBudgets(func(e *budget.Entry) { e.Tokens = 1_000_000 })
	g := newGateway(t, []chat.Provider{providerConfig("p", "anthropic", provider.URL)}, withBudgets(budgets))
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/v1/messages", strings.NewReader(`{"model":"m-1","max_tokens":5000,"stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, len(start)+len(delta))); err != nil {
		t.Fatal(err)
	}
	leave()
	resp.Body.Close()
	<-gone
	if used := usedBudget(t, budgets); used.Tokens < 105+95 || used.Tokens > 105+115 {
		t.Errorf("used %+v, want the input of 105 tokens and about a hundred of output", used)
	}
}

// Requests that are forwarded unread count: their number, and the size of JSON. Those that no provider was asked for do not.
func TestBudgetOfForwardedRequests(t *testing.T) {
	provider := newStubProvider(t, respond(http.StatusOK, `{}`))
	budgets := newBudgets(func(e *budget.Entry) { e.Requests = 2 })
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", provider.URL, func(p *chat.Provider) { p.Models = []string{"*"} })}, withBudgets(budgets))
	for _, tt := range []struct {
		method, path, kind string
		want               budget.Amount
		status             int
	}{
		{"GET", "/v1/files", "", budget.Amount{}, 200},
		{"POST", "/v1/files", "text/plain", budget.Amount{Requests: 1}, 200},
		{"POST", "/v1/embeddings", "application/json", budget.Amount{Requests: 2, Tokens: 10}, 200},
		{"POST", "/v1/embeddings", "application/json", budget.Amount{Requests: 2, Tokens: 10}, 429},
		{"GET", "/v1/files", "", budget.Amount{Requests: 2, Tokens: 10}, 200},
	} {
		body := ""
		if tt.method == "POST" {
			body = `{"input":"` + strings.Repeat("x", 19) + `"}`
		}
		resp, text := readReply(t, g.do(t, tt.method, tt.path, body, http.Header{"Content-Type": {tt.kind}}))
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, resp.StatusCode, text)
		}
		if tt.want == (budget.Amount{}) {
			continue
		}
		if used := usedBudget(t, budgets); used != tt.want {
			t.Errorf("%s %s: used %+v, want %+v", tt.method, tt.path, used, tt.want)
		}
	}
}

// Beyond warn_at, replies say so.
func TestBudgetWarning(t *testing.T) {
	provider := newStubProvider(t, respond(http.StatusOK, wires["completions"].reply))
	budgets := newBudgets(func(e *budget.Entry) { e.Requests = 10 })
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", provider.URL)}, withBudgets(budgets))
	for i := range 10 {
		want := ""
		if i >= 8 {
			want = fmt.Sprintf("%d%% of this day", 10*i)
		}
		if resp, _ := g.post(t, "/v1/chat/completions", wires["completions"].request(false), nil); resp.Header.Get("X-Ctxgate-Budget") != want {
			t.Errorf("request %d: %q, want %q", i, resp.Header.Get("X-Ctxgate-Budget"), want)
		}
		usedBudget(t, budgets)
	}
}
