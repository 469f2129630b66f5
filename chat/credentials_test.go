package chat_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/limit"
)

// A provider gets its configured key, or else the client's own credentials; never the gateway's token (A8).
func TestCredentials(t *testing.T) {
	const token, key, mine = "gateway-token", "sk-configured", "sk-mine"
	bearer := func(s string) http.Header { return http.Header{"Authorization": {"Bearer " + s}} }
	apiKey := func(s string) http.Header { return http.Header{"X-Api-Key": {s}} }
	both := func(a, b http.Header) http.Header {
		out := a.Clone()
		for k, v := range b {
			out[k] = v
		}
		return out
	}
	tokenHeader := http.Header{"X-Ctxgate-Token": {token}}
	none := http.Header{}
	for name, tt := range map[string]struct {
		kind, key string
		needToken bool
		send      http.Header
		status    int
		want      http.Header
	}{
		"openai: configured key, no client key":           {"openai", key, false, none, 200, bearer(key)},
		"openai: configured key replaces the client's":    {"openai", key, false, both(bearer(mine), apiKey(mine)), 200, bearer(key)},
		"openai: client's key":                            {"openai", "", false, bearer(mine), 200, bearer(mine)},
		"openai: client's key of Azure":                   {"openai", "", false, http.Header{"Api-Key": {mine}}, 200, http.Header{"Api-Key": {mine}}},
		"anthropic: configured key replaces the client's": {"anthropic", key, false, both(bearer(mine), apiKey(mine)), 200, apiKey(key)},
		"anthropic: client's key":                         {"anthropic", "", false, apiKey(mine), 200, apiKey(mine)},
		"anthropic: client's subscription":                {"anthropic", "", false, bearer(mine), 200, bearer(mine)},

		"A8: token as bearer, configured key":                 {"openai", key, true, bearer(token), 200, bearer(key)},
		"A8: token as x-api-key, configured key":              {"anthropic", key, true, apiKey(token), 200, apiKey(key)},
		"A8: token in its own header":                         {"openai", key, true, tokenHeader, 200, bearer(key)},
		"A8: token header and client's key":                   {"openai", "", true, both(tokenHeader, bearer(mine)), 200, bearer(mine)},
		"A8: token header and client's x-api-key":             {"anthropic", "", true, both(tokenHeader, apiKey(mine)), 200, apiKey(mine)},
		"A8: bearer token is not forwarded":                   {"openai", "", true, bearer(token), 200, none},
		"A8: token in x-api-key and bearer is not forwarded":  {"anthropic", "", true, both(apiKey(token), bearer(token)), 200, none},
		"A8: token header and bearer token are not forwarded": {"openai", "", true, both(tokenHeader, bearer(token)), 200, none},
		"A8: no token":                            {"openai", key, true, none, 401, nil},
		"A8: wrong bearer":                        {"openai", key, true, bearer(mine), 401, nil},
		"A8: wrong x-api-key":                     {"anthropic", key, true, apiKey(mine), 401, nil},
		"A8: client's key without a token":        {"openai", "", true, bearer(mine), 401, nil},
		"A8: wrong in its own header":             {"openai", key, true, both(http.Header{"X-Ctxgate-Token": {"x"}}, bearer(token)), 401, nil},
		"A8: empty in its own header":             {"openai", key, true, both(http.Header{"X-Ctxgate-Token": {""}}, bearer(token)), 401, nil},
		"A8: twice in its own header":             {"openai", key, true, http.Header{"X-Ctxgate-Token": {token, token}}, 401, nil},
		"A8: twice as bearer":                     {"openai", key, true, http.Header{"Authorization": {"Bearer " + token, "Bearer " + token}}, 401, nil},
		"A8: token as x-api-key, client's bearer": {"anthropic", "", true, both(apiKey(token), bearer(mine)), 200, bearer(mine)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, respond(200, "{}"))
			var options []option
			if tt.needToken {
				options = append(options, withToken(token))
			}
			g := newGateway(t, []chat.Provider{providerConfig("p", tt.kind, f.URL, withAPIKey(tt.key))}, options...)
			path := map[string]string{"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[tt.kind]
			resp, body := g.post(t, path, `{"model":"m"}`, tt.send)
			if resp.StatusCode != tt.status {
				t.Fatalf("got %d %s", resp.StatusCode, body)
			}
			if tt.want == nil {
				if len(f.requests()) > 0 {
					t.Error("the provider was called")
				}
				return
			}
			got := http.Header{}
			for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Ctxgate-Token"} {
				if v := f.requests()[0].header[name]; v != nil {
					got[name] = v
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConfiguredHeaders(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, withAPIKey("k"), func(p *chat.Provider) {
		p.Headers = map[string]secret.Text{"OpenAI-Organization": secret.Literal("org"), "User-Agent": secret.Literal("us")}
	})})
	g.post(t, "/v1/responses", "{}", http.Header{"Openai-Organization": {"theirs"}})
	got := f.requests()[0].header
	if got.Get("OpenAI-Organization") != "org" || got.Get("User-Agent") != "us" {
		t.Errorf("got %v", got)
	}
}

// No key, token, query or body is logged when a request fails.
func TestNothingSecretIsLogged(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(old)
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", "http://127.0.0.1:1", withAPIKey("canary-key"), func(p *chat.Provider) { p.Retries = 0 })}, withToken("canary-token"))
	resp, body := g.post(t, "/v1/chat/completions?key=canary-query", `{"model":"m","x":"canary-body"}`, http.Header{"Authorization": {"Bearer canary-token"}})
	if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "canary") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	g.post(t, "/v1/chat/completions", `{}`, http.Header{"Authorization": {"Bearer canary-other"}})
	g.Close()
	if text := log.String(); strings.Contains(text, "canary") || !strings.Contains(text, `"provider":"p"`) {
		t.Errorf("the log contains a secret or lacks the provider: %s", text)
	}
}

// I9: a request over the size limit is refused with an error of its API.
func TestLimits(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL), providerConfig("q", "anthropic", f.URL)}, withLimits(func(l *chat.Limits) { l.MaxRequestBytes = 20 }))
	if resp, _ := g.post(t, "/v1/responses", `{"input":"12345678"}`, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("at the limit: %d", resp.StatusCode)
	}
	if resp, body := g.post(t, "/v1/responses", `{"input":"123456789"}`, nil); resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(body, `"code":"too_large"`) {
		t.Errorf("over the limit: %d %s", resp.StatusCode, body)
	}
	if resp, body := g.post(t, "/v1/messages", `{"messages":"12345678"}`, nil); resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(body, `"type":"request_too_large"`) {
		t.Errorf("over the limit: %d %s", resp.StatusCode, body)
	}
}

func TestMaxConcurrent(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	f := newStubProvider(t, func(http.ResponseWriter, *http.Request) { called <- struct{}{}; <-release })
	g := newGateway(t, []chat.Provider{providerConfig("p", "anthropic", f.URL)}, withLimits(func(l *chat.Limits) { l.MaxConcurrent = 1 }))
	done := make(chan int)
	go func() {
		resp, _ := g.post(t, "/v1/messages", "{}", nil)
		done <- resp.StatusCode
	}()
	<-called
	resp, body := g.post(t, "/v1/messages", "{}", nil)
	if want := `{"type":"error","error":{"type":"overloaded_error","message":"too many requests are in flight"}}`; resp.StatusCode != http.StatusServiceUnavailable || body != want {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the first request: %d", status)
	}
}

func TestRateLimit(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, func(s *chat.Settings, _ *chat.Deps) {
		s.Gate = gate.New(gate.Deps{Limiter: limit.New(limit.Config{PerMinute: 1}, time.Now)})
	})
	for i, want := range []int{200, 429} {
		resp, body := g.post(t, "/v1/responses", "{}", nil)
		if resp.StatusCode != want || want == 429 && (resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "rate_limit_exceeded")) {
			t.Errorf("request %d: got %d %v %s", i, resp.StatusCode, resp.Header, body)
		}
	}
}

// Each path is forwarded to its provider path; paths of no API, unclean ones, websockets and foreign origins are refused.
func TestPaths(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL+"/v1/"), providerConfig("q", "anthropic", f.URL)})
	for path, want := range map[string]string{
		"/chat/completions": "/v1/chat/completions", "/v1/chat/completions": "/v1/chat/completions",
		"/v1/responses": "/v1/responses", "/v1/messages": "/v1/messages", "/v1/messages/count_tokens": "/v1/messages/count_tokens",
	} {
		if resp, _ := g.post(t, path, "{}", nil); resp.StatusCode != http.StatusOK || f.requests()[len(f.requests())-1].uri != want || !chat.ServesPath(path) {
			t.Errorf("%s: %d, the provider was asked for %s", path, resp.StatusCode, f.requests()[len(f.requests())-1].uri)
		}
		websocket := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		if resp, body := g.get(t, path, websocket); resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Upgrade") == "" || !strings.Contains(body, "POST") {
			t.Errorf("GET %s with a websocket: %d %s", path, resp.StatusCode, body)
		}
	}
	forwarded := len(f.requests())
	for path, want := range map[string]string{"/embeddings": `"code":"not_found"`, "/v1/messages/x/../y": `"type":"not_found_error"`, "/v1/messages/%2e%2e/y": `"type":"not_found_error"`, "/v1//models": `"code":"not_found"`} {
		if resp, body := g.post(t, path, "{}", nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, body := g.post(t, "/v1/messages", "{}", http.Header{"Origin": {"https://evil.example"}}); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "permission_error") {
		t.Errorf("foreign origin: %d %s", resp.StatusCode, body)
	}
	if resp, _ := g.get(t, "/chat/completions", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("GET /chat/completions: %d", resp.StatusCode)
	}
	if n := len(f.requests()); n != forwarded {
		t.Errorf("%d refused requests were forwarded", n-forwarded)
	}
}

// A panic is answered with an error of the API, and the request is no longer counted as in flight.
func TestPanicIsAnswered(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, func(_ *chat.Settings, d *chat.Deps) {
		d.Transport = panickingTransport{}
	})
	resp, body := g.post(t, "/v1/responses", "{}", nil)
	if want := `{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`; resp.StatusCode != http.StatusInternalServerError || body != want {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="internal"} 1`, "ctxgate_llm_requests_in_flight 0")
}

type panickingTransport struct{}

func (panickingTransport) RoundTrip(*http.Request) (*http.Response, error) { panic("boom") }

func TestServesPath(t *testing.T) {
	for path, want := range map[string]bool{"/v1/x": true, "/chat/completions": true, "/mcp": false, "/": false, "/v1": false, "/healthz": false} {
		if chat.ServesPath(path) != want {
			t.Error(path)
		}
	}
	w := httptest.NewRecorder()
	chat.Refuse(w, httptest.NewRequest(http.MethodGet, "/x", nil), fmt.Errorf("canary"))
	if w.Code != 500 || strings.Contains(w.Body.String(), "canary") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
