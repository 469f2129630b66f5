package chat_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat"
)

// hangUp closes the connection without a response.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// breakOff sends the response header and then closes the connection.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// neverRespond blocks until the caller disconnects.
func neverRespond(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// respondRetryAfter answers with a header about retrying.
func respondRetryAfter(status int, name, value string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		respond(status, `{"error":{"message":"theirs"}}`)(w, r)
	}
}

// unreachableURL is a URL at which no server listens.
func unreachableURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// For every failure before the first byte: how often each provider is called, and what the client gets.
func TestFailuresBeforeTheFirstByte(t *testing.T) {
	const success, failure = `{"ok":1}`, `{"error":{"message":"theirs"}}`
	ok, down := respond(200, success), respond(503, failure)
	for name, tt := range map[string]struct {
		first, second             http.HandlerFunc // nil: no server listens; the second is the fallback
		fallback                  bool
		retries                   int
		firstCalls, fallbackCalls int
		status                    int
		body                      string // contained in the response
	}{
		"429, then ok":                  {first: respondInOrder(respond(429, failure), ok), retries: 2, firstCalls: 2, status: 200, body: success},
		"500, then ok":                  {first: respondInOrder(respond(500, failure), ok), retries: 2, firstCalls: 2, status: 200, body: success},
		"502 and 504, then ok":          {first: respondInOrder(respond(502, failure), respond(504, failure), ok), retries: 2, firstCalls: 3, status: 200, body: success},
		"529, then ok":                  {first: respondInOrder(respond(529, failure), ok), retries: 2, firstCalls: 2, status: 200, body: success},
		"hung up after the request":     {first: respondInOrder(hangUp, ok), retries: 2, firstCalls: 1, status: 502, body: "may have been executed"},
		"only a response header":        {first: respondInOrder(breakOff, ok), retries: 2, firstCalls: 1, status: 502, body: "may have been executed"},
		"hung up, fallback":             {first: hangUp, second: ok, fallback: true, retries: 2, firstCalls: 1, fallbackCalls: 1, status: 200, body: success},
		"short Retry-After":             {first: respondInOrder(respondRetryAfter(429, "Retry-After-Ms", "300"), ok), retries: 2, firstCalls: 2, status: 200, body: success},
		"long Retry-After":              {first: respondInOrder(respondRetryAfter(429, "Retry-After", "3600"), ok), retries: 2, firstCalls: 1, status: 429, body: failure},
		"X-Should-Retry: false":         {first: respondInOrder(respondRetryAfter(500, "X-Should-Retry", "false"), ok), retries: 2, firstCalls: 1, status: 500, body: failure},
		"no retries":                    {first: respondInOrder(down, ok), retries: 0, firstCalls: 1, status: 503, body: failure},
		"always down":                   {first: down, retries: 1, firstCalls: 2, status: 503, body: failure},
		"down, then hung up":            {first: respondInOrder(down, hangUp), retries: 1, firstCalls: 2, status: 503, body: failure},
		"unreachable":                   {retries: 1, status: 502, body: `"code":"unavailable"`},
		"timeout":                       {first: neverRespond, retries: 2, firstCalls: 1, status: 504, body: `"code":"timeout"`},
		"400 is passed on":              {first: respond(400, failure), second: ok, fallback: true, retries: 2, firstCalls: 1, status: 400, body: failure},
		"401 is passed on":              {first: respond(401, failure), second: ok, fallback: true, retries: 2, firstCalls: 1, status: 401, body: failure},
		"404 is passed on":              {first: respond(404, failure), second: ok, fallback: true, retries: 2, firstCalls: 1, status: 404, body: failure},
		"redirects are not followed":    {first: respond(307, failure), second: ok, fallback: true, retries: 2, firstCalls: 1, status: 307, body: failure},
		"503, fallback":                 {first: down, second: ok, fallback: true, retries: 1, firstCalls: 2, fallbackCalls: 1, status: 200, body: success},
		"unreachable, fallback":         {second: ok, fallback: true, retries: 0, fallbackCalls: 1, status: 200, body: success},
		"timeout, fallback":             {first: neverRespond, second: ok, fallback: true, retries: 2, firstCalls: 1, fallbackCalls: 1, status: 200, body: success},
		"long Retry-After, fallback":    {first: respondRetryAfter(429, "Retry-After", "3600"), second: ok, fallback: true, retries: 2, firstCalls: 1, fallbackCalls: 1, status: 200, body: success},
		"both down":                     {first: respond(503, "a"), second: respond(500, "b"), fallback: true, firstCalls: 1, fallbackCalls: 1, status: 500, body: "b"},
		"down, fallback unreachable":    {first: respond(503, "a"), fallback: true, firstCalls: 1, status: 503, body: "a"},
		"both unreachable":              {fallback: true, status: 502, body: `"code":"unavailable"`},
		"hung up, fallback times out":   {first: hangUp, second: neverRespond, fallback: true, firstCalls: 1, fallbackCalls: 1, status: 504, body: `"code":"timeout"`},
		"a large error is not buffered": {first: respond(503, strings.Repeat("x", 300<<10)), fallback: true, firstCalls: 1, status: 502, body: "unavailable"},
		"a large error is passed on":    {first: respond(503, strings.Repeat("x", 300<<10)), firstCalls: 1, status: 503, body: strings.Repeat("x", 300<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quick := func(p *chat.Provider) { p.Retries, p.FirstByteTimeout = tt.retries, unitDuration(300*time.Millisecond) }
			var one, two *stubProvider
			serveAt := func(serve http.HandlerFunc, at **stubProvider) string {
				if serve == nil {
					return unreachableURL(t)
				}
				*at = newStubProvider(t, serve)
				return (*at).URL
			}
			entries := []chat.Provider{providerConfig("one", "openai", serveAt(tt.first, &one), quick, withAPIKey("k"))}
			if tt.fallback {
				entries[0].Fallback = []string{"two"}
				entries = append(entries, providerConfig("two", "openai", serveAt(tt.second, &two), quick, func(p *chat.Provider) { p.Models = []string{"other"} }))
			}
			g := newGateway(t, entries)
			resp, body := g.post(t, "/v1/chat/completions", wires["completions"].request(false), http.Header{"Authorization": {"Bearer mine"}})
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.body) {
				t.Errorf("got %d %.200s, want %d %.200s", resp.StatusCode, body, tt.status, tt.body)
			}
			for _, c := range []struct {
				at   *stubProvider
				want int
			}{{one, tt.firstCalls}, {two, tt.fallbackCalls}} {
				if c.at == nil {
					continue
				}
				if got := len(c.at.requests()); got != c.want {
					t.Errorf("called %d times, want %d", got, c.want)
				}
				for _, call := range c.at.requests() {
					if string(call.body) != wires["completions"].request(false) {
						t.Errorf("an attempt with other bytes: %q", call.body)
					}
					if got := call.header.Get("Authorization"); got == "Bearer mine" {
						t.Errorf("the client's credentials were sent to a provider with a configured key, or to a fallback")
					}
				}
			}
		})
	}
}

// A fallback without a key does not get the client's credentials: they belong to the first provider.
func TestFallbackGetsNoCredentials(t *testing.T) {
	one, two := newStubProvider(t, respond(503, "")), newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{
		providerConfig("one", "anthropic", one.URL, func(p *chat.Provider) { p.Retries, p.Fallback = 0, []string{"two"} }),
		providerConfig("two", "anthropic", two.URL),
	})
	g.post(t, "/v1/messages", "{}", http.Header{"X-Api-Key": {"mine"}})
	if one.requests()[0].header.Get("X-Api-Key") != "mine" || two.requests()[0].header["X-Api-Key"] != nil {
		t.Errorf("got %v and %v", one.requests()[0].header, two.requests()[0].header)
	}
	g.wantMetrics(t, `ctxgate_llm_fallbacks_total{provider="one"} 1`, `ctxgate_llm_requests_total{provider="two",result="ok"} 1`)
}

// A fallback gets only the listed headers of a client and no query: any other may hold a key, or an
// organization's name that another provider must not see.
func TestFallbackGetsOnlyListedHeadersAndNoQuery(t *testing.T) {
	one, two := newStubProvider(t, respond(503, "")), newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{
		providerConfig("one", "anthropic", one.URL, func(p *chat.Provider) { p.Retries, p.Fallback = 0, []string{"two"} }),
		providerConfig("two", "anthropic", two.URL, withAPIKey("sk-two")),
	})
	listed := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"agent/1"},
		"Anthropic-Version": {"2023-06-01"}, "Anthropic-Beta": {"a", "b"},
	}
	client := listed.Clone()
	for _, name := range []string{
		"X-Api-Key", "Authorization", "Api-Key", "X-Goog-Api-Key", "X-Portkey-Api-Key", "Helicone-Auth", "Cf-Aig-Authorization",
		"Openai-Organization", "Openai-Project", "X-Stainless-Os", "Traceparent", "X-Whatever",
	} {
		client.Set(name, "sk-mine")
	}
	g.post(t, "/v1/messages?key=sk-mine&beta=true", "{}", client)
	first, second := one.requests()[0], two.requests()[0]
	if first.uri != "/v1/messages?key=sk-mine&beta=true" || first.header.Get("X-Whatever") != "sk-mine" {
		t.Errorf("the client's own provider got %s %v", first.uri, first.header)
	}
	listed["X-Api-Key"] = []string{"sk-two"}
	listed["Content-Length"] = []string{"2"}
	second.header.Del("Accept-Encoding")
	if diff := cmp.Diff(listed, second.header); second.uri != "/v1/messages" || diff != "" {
		t.Errorf("the fallback got %s, %s", second.uri, diff)
	}
}

// Errors of the gateway have the form of the API that was called.
func TestErrorForms(t *testing.T) {
	unreachable := unreachableURL(t)
	g := newGateway(t, []chat.Provider{
		providerConfig("p", "openai", unreachable, func(p *chat.Provider) { p.Retries, p.Models = 0, []string{"m-*"} }),
		providerConfig("q", "anthropic", unreachable, func(p *chat.Provider) { p.Retries, p.Models = 0, []string{"m-*"} }),
	})
	const before, after = `{"error":{"message":"`, `","type":"`
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/chat/completions", `{"model":"m-1"}`, 502, before + "the provider is not available" + after + `server_error","param":null,"code":"unavailable"}}`},
		{"/v1/responses", `{"model":"x"}`, 404, before + `no provider of kind openai serves the model \"x\"` + after + `invalid_request_error","param":null,"code":"model_not_found"}}`},
		{"/v1/responses", `{}`, 400, before + `the request names no model, and no provider is there for every model` + after + `invalid_request_error","param":null,"code":"bad_params"}}`},
		{"/v1/chat/completions", `{"model":`, 400, before + `the request is not valid JSON: unexpected end at byte 9` + after + `invalid_request_error","param":null,"code":"syntax"}}`},
		{"/v1/chat/completions", `{"model":"a","model":"b"}`, 400, before + `the request is refused: duplicate key at byte 14` + after + `invalid_request_error","param":null,"code":"invalid"}}`},
		{"/v1/chat/completions", `{"Model":"a"}`, 400, before + `the request is refused: protocol key in the wrong case at byte 2` + after + `invalid_request_error","param":null,"code":"invalid"}}`},
		{"/v1/chat/completions", `{"model": 5}`, 400, before + `model: must be a string` + after + `invalid_request_error","param":null,"code":"bad_params"}}`},
		{"/v1/chat/completions", `[]`, 400, before + `the request is not valid JSON: unexpected byte at byte 0` + after + `invalid_request_error","param":null,"code":"syntax"}}`},
		{"/v1/messages", `{"model":"m-1"}`, 502, `{"type":"error","error":{"type":"api_error","message":"the provider is not available"}}`},
		{"/v1/messages", `{"model":"x"}`, 404, `{"type":"error","error":{"type":"not_found_error","message":"no provider of kind anthropic serves the model \"x\""}}`},
		{"/v1/messages", `nope`, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"the request is not valid JSON: unexpected byte at byte 0"}}`},
	} {
		resp, body := g.post(t, tt.path, tt.body, nil)
		if resp.StatusCode != tt.status || body != tt.want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: got %d %s, want %d %s", tt.path, tt.body, resp.StatusCode, body, tt.status, tt.want)
		}
	}
}

// Without any provider the error says so, rather than that the model is unknown.
func TestNoProviderIsConfigured(t *testing.T) {
	g := newGateway(t, nil)
	for _, body := range []string{`{}`, `{"model":"x"}`} {
		resp, text := g.post(t, "/v1/messages", body, nil)
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(text, "no provider is configured; see [[providers]]") {
			t.Errorf("%s: got %d %s", body, resp.StatusCode, text)
		}
	}
}

// The retry budget lets only a few of many failing requests be retried.
func TestRetryBudget(t *testing.T) {
	f := newStubProvider(t, respond(503, ""))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, func(p *chat.Provider) { p.Retries = 1 })})
	const n = 30
	done := make(chan struct{})
	for range n {
		go func() {
			defer func() { done <- struct{}{} }()
			g.post(t, "/v1/responses", "{}", nil)
		}()
	}
	for range n {
		<-done
	}
	if got := len(f.requests()); got > n+n/5 || got < n+3 {
		t.Errorf("%d calls for %d requests", got, n)
	}
}

// A client that disconnects ends the pause before a retry.
func TestDisconnectDuringRetryPause(t *testing.T) {
	f := newStubProvider(t, respondRetryAfter(503, "Retry-After", "5"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
	client := *g.Client()
	client.Timeout = 200 * time.Millisecond
	resp, err := client.Post(g.URL+"/v1/responses", "application/json", strings.NewReader("{}"))
	if err == nil {
		resp.Body.Close()
		t.Fatal("got a response")
	}
	g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`, "ctxgate_llm_requests_in_flight 0")
	if got := len(f.requests()); got != 1 {
		t.Errorf("called %d times", got)
	}
}

// readAll returns the body and the error that ended it, if any.
func readAll(r io.Reader) (string, error) {
	b, err := io.ReadAll(r)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(b), err
}
