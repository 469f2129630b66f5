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

// hangsUp ends the connection without a word.
func hangsUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// begins sends a head, and then hangs up.
func begins(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// waits answers when the caller has left.
func waits(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// asking is an answer that says when to come back.
func asking(status int, name, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, after)
		says(status, `{"error":{"message":"theirs"}}`)(w, r)
	}
}

// nowhere is an address at which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// Every row of the table of failures before the first byte: who is asked how often, and what the
// client gets.
func TestFailuresBeforeTheFirstByte(t *testing.T) {
	const fine, theirs = `{"ok":1}`, `{"error":{"message":"theirs"}}`
	ok, down := says(200, fine), says(503, theirs)
	for name, tt := range map[string]struct {
		first, second http.HandlerFunc // nil: nobody is there; the second is the fallback
		spare         bool
		retries       int
		asked, more   int // calls of the first and the second
		status        int
		body          string // that the answer holds
	}{
		"429, then fine":              {first: first(says(429, theirs), ok), retries: 2, asked: 2, status: 200, body: fine},
		"500, then fine":              {first: first(says(500, theirs), ok), retries: 2, asked: 2, status: 200, body: fine},
		"502 and 504, then fine":      {first: first(says(502, theirs), says(504, theirs), ok), retries: 2, asked: 3, status: 200, body: fine},
		"529, then fine":              {first: first(says(529, theirs), ok), retries: 2, asked: 2, status: 200, body: fine},
		"hung up, having it all":      {first: first(hangsUp, ok), retries: 2, asked: 1, status: 502, body: "may have been executed"},
		"a head and no more":          {first: first(begins, ok), retries: 2, asked: 1, status: 502, body: "may have been executed"},
		"hung up, fallback":           {first: hangsUp, second: ok, spare: true, retries: 2, asked: 1, more: 1, status: 200, body: fine},
		"short Retry-After":           {first: first(asking(429, "Retry-After-Ms", "300"), ok), retries: 2, asked: 2, status: 200, body: fine},
		"long Retry-After":            {first: first(asking(429, "Retry-After", "3600"), ok), retries: 2, asked: 1, status: 429, body: theirs},
		"told not to retry":           {first: first(asking(500, "X-Should-Retry", "false"), ok), retries: 2, asked: 1, status: 500, body: theirs},
		"no retries":                  {first: first(down, ok), retries: 0, asked: 1, status: 503, body: theirs},
		"never up":                    {first: down, retries: 1, asked: 2, status: 503, body: theirs},
		"down, then gone":             {first: first(down, hangsUp), retries: 1, asked: 2, status: 503, body: theirs},
		"nobody there":                {retries: 1, status: 502, body: `"code":"unavailable"`},
		"too slow":                    {first: waits, retries: 2, asked: 1, status: 504, body: `"code":"timeout"`},
		"400 is the client's":         {first: says(400, theirs), second: ok, spare: true, retries: 2, asked: 1, status: 400, body: theirs},
		"401 is the client's":         {first: says(401, theirs), second: ok, spare: true, retries: 2, asked: 1, status: 401, body: theirs},
		"404 is the client's":         {first: says(404, theirs), second: ok, spare: true, retries: 2, asked: 1, status: 404, body: theirs},
		"redirects are not followed":  {first: says(307, theirs), second: ok, spare: true, retries: 2, asked: 1, status: 307, body: theirs},
		"503, fallback":               {first: down, second: ok, spare: true, retries: 1, asked: 2, more: 1, status: 200, body: fine},
		"nobody there, fallback":      {second: ok, spare: true, retries: 0, more: 1, status: 200, body: fine},
		"too slow, fallback":          {first: waits, second: ok, spare: true, retries: 2, asked: 1, more: 1, status: 200, body: fine},
		"long Retry-After, fallback":  {first: asking(429, "Retry-After", "3600"), second: ok, spare: true, retries: 2, asked: 1, more: 1, status: 200, body: fine},
		"both down":                   {first: says(503, "a"), second: says(500, "b"), spare: true, asked: 1, more: 1, status: 500, body: "b"},
		"down, and nobody there":      {first: says(503, "a"), spare: true, asked: 1, status: 503, body: "a"},
		"nobody there, nor there":     {spare: true, status: 502, body: `"code":"unavailable"`},
		"hung up, and the other slow": {first: hangsUp, second: waits, spare: true, asked: 1, more: 1, status: 504, body: `"code":"timeout"`},
		"a large answer is kept out":  {first: says(503, strings.Repeat("x", 300<<10)), spare: true, asked: 1, status: 502, body: "unavailable"},
		"a large answer is passed on": {first: says(503, strings.Repeat("x", 300<<10)), asked: 1, status: 503, body: strings.Repeat("x", 300<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quick := func(p *chat.Provider) { p.Retries, p.FirstByte = tt.retries, seconds(300*time.Millisecond) }
			var one, two *far
			place := func(serve http.HandlerFunc, at **far) string {
				if serve == nil {
					return nowhere(t)
				}
				*at = newFar(t, serve)
				return (*at).URL
			}
			entries := []chat.Provider{provider("one", "openai", place(tt.first, &one), quick, keyed("k"))}
			if tt.spare {
				entries[0].Fallback = []string{"two"}
				entries = append(entries, provider("two", "openai", place(tt.second, &two), quick, func(p *chat.Provider) { p.Models = []string{"other"} }))
			}
			g := open(t, entries)
			resp, body := g.post(t, "/v1/chat/completions", wires["completions"].request(false), http.Header{"Authorization": {"Bearer mine"}})
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.body) {
				t.Errorf("got %d %.200s, want %d %.200s", resp.StatusCode, body, tt.status, tt.body)
			}
			for _, c := range []struct {
				at   *far
				want int
			}{{one, tt.asked}, {two, tt.more}} {
				if c.at == nil {
					continue
				}
				if got := len(c.at.calls()); got != c.want {
					t.Errorf("asked %d times, want %d", got, c.want)
				}
				for _, call := range c.at.calls() {
					if string(call.body) != wires["completions"].request(false) {
						t.Errorf("a try with other bytes: %q", call.body)
					}
					if got := call.head.Get("Authorization"); got == "Bearer mine" {
						t.Errorf("the client's credentials went where a key is configured, or to a fallback")
					}
				}
			}
		})
	}
}

// A fallback without a key is not sent the client's own credentials: they are for the first.
func TestFallbackGetsNoCredentials(t *testing.T) {
	one, two := newFar(t, says(503, "")), newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{
		provider("one", "anthropic", one.URL, func(p *chat.Provider) { p.Retries, p.Fallback = 0, []string{"two"} }),
		provider("two", "anthropic", two.URL),
	})
	g.post(t, "/v1/messages", "{}", http.Header{"X-Api-Key": {"mine"}})
	if one.calls()[0].head.Get("X-Api-Key") != "mine" || two.calls()[0].head["X-Api-Key"] != nil {
		t.Errorf("got %v and %v", one.calls()[0].head, two.calls()[0].head)
	}
	g.has(t, `ctxgate_llm_fallbacks_total{provider="one"} 1`, `ctxgate_llm_requests_total{provider="two",result="ok"} 1`)
}

// Of a client's headers and query a fallback gets what is on the list: a key may be in any other, and an
// organization's or project's name is nothing to another provider.
func TestFallbackGetsOnlyListedHeadersAndNoQuery(t *testing.T) {
	one, two := newFar(t, says(503, "")), newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{
		provider("one", "anthropic", one.URL, func(p *chat.Provider) { p.Retries, p.Fallback = 0, []string{"two"} }),
		provider("two", "anthropic", two.URL, keyed("sk-two")),
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
	first, second := one.calls()[0], two.calls()[0]
	if first.uri != "/v1/messages?key=sk-mine&beta=true" || first.head.Get("X-Whatever") != "sk-mine" {
		t.Errorf("the client's own provider got %s %v", first.uri, first.head)
	}
	listed["X-Api-Key"] = []string{"sk-two"}
	listed["Content-Length"] = []string{"2"}
	second.head.Del("Accept-Encoding")
	if diff := cmp.Diff(listed, second.head); second.uri != "/v1/messages" || diff != "" {
		t.Errorf("the fallback got %s, %s", second.uri, diff)
	}
}

// The errors of the gateway are in the form of the API that was called.
func TestErrorForms(t *testing.T) {
	gone := nowhere(t)
	g := open(t, []chat.Provider{
		provider("p", "openai", gone, func(p *chat.Provider) { p.Retries, p.Models = 0, []string{"m-*"} }),
		provider("q", "anthropic", gone, func(p *chat.Provider) { p.Retries, p.Models = 0, []string{"m-*"} }),
	})
	const open, closed = `{"error":{"message":"`, `","type":"`
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/chat/completions", `{"model":"m-1"}`, 502, open + "the provider is not available" + closed + `server_error","param":null,"code":"unavailable"}}`},
		{"/v1/responses", `{"model":"x"}`, 404, open + `no provider of kind openai serves the model \"x\"` + closed + `invalid_request_error","param":null,"code":"model_not_found"}}`},
		{"/v1/responses", `{}`, 400, open + `the request names no model, and no provider is there for every model` + closed + `invalid_request_error","param":null,"code":"bad_params"}}`},
		{"/v1/chat/completions", `{"model":`, 400, open + `the request is not valid JSON: unexpected end at byte 9` + closed + `invalid_request_error","param":null,"code":"syntax"}}`},
		{"/v1/chat/completions", `{"model":"a","model":"b"}`, 400, open + `the request is refused: duplicate key at byte 14` + closed + `invalid_request_error","param":null,"code":"invalid"}}`},
		{"/v1/chat/completions", `{"Model":"a"}`, 400, open + `the request is refused: protocol key in the wrong case at byte 2` + closed + `invalid_request_error","param":null,"code":"invalid"}}`},
		{"/v1/chat/completions", `{"model": 5}`, 400, open + `model: must be a string` + closed + `invalid_request_error","param":null,"code":"bad_params"}}`},
		{"/v1/chat/completions", `[]`, 400, open + `the request is not valid JSON: unexpected byte at byte 0` + closed + `invalid_request_error","param":null,"code":"syntax"}}`},
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

// Where there is no provider at all, the error says so, not that the model is wrong.
func TestNoProviderIsConfigured(t *testing.T) {
	g := open(t, nil)
	for _, body := range []string{`{}`, `{"model":"x"}`} {
		resp, text := g.post(t, "/v1/messages", body, nil)
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(text, "no provider is configured; see [[providers]]") {
			t.Errorf("%s: got %d %s", body, resp.StatusCode, text)
		}
	}
}

// A provider in trouble is not kept in it: of many requests only a few are made again.
func TestRetryBudget(t *testing.T) {
	f := newFar(t, says(503, ""))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL, func(p *chat.Provider) { p.Retries = 1 })})
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
	if got := len(f.calls()); got > n+n/5 || got < n+3 {
		t.Errorf("%d calls for %d requests", got, n)
	}
}

// A client that leaves while a retry waits ends the waiting.
func TestLeavingDuringAPause(t *testing.T) {
	f := newFar(t, asking(503, "Retry-After", "5"))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL)})
	client := *g.Client()
	client.Timeout = 200 * time.Millisecond
	resp, err := client.Post(g.URL+"/v1/responses", "application/json", strings.NewReader("{}"))
	if err == nil {
		resp.Body.Close()
		t.Fatal("answered")
	}
	g.has(t, `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`, "ctxgate_llm_requests_in_flight 0")
	if got := len(f.calls()); got != 1 {
		t.Errorf("asked %d times", got)
	}
}

// readAll is the body so far, and how it ended.
func readAll(r io.Reader) (string, error) {
	b, err := io.ReadAll(r)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(b), err
}
