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
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/limit"
)

// Whose credentials go where: the configured key in place of everything, else the client's own; the
// gateway's token never (A8).
func TestCredentials(t *testing.T) {
	const ours, key, mine = "gateway-token", "sk-configured", "sk-mine"
	bearer := func(s string) http.Header { return http.Header{"Authorization": {"Bearer " + s}} }
	apiKey := func(s string) http.Header { return http.Header{"X-Api-Key": {s}} }
	both := func(a, b http.Header) http.Header {
		out := a.Clone()
		for k, v := range b {
			out[k] = v
		}
		return out
	}
	own := http.Header{"X-Ctxgate-Token": {ours}}
	none := http.Header{}
	for name, tt := range map[string]struct {
		kind, key string
		asks      bool
		send      http.Header
		status    int
		want      http.Header
	}{
		"openai: key for nothing":              {"openai", key, false, none, 200, bearer(key)},
		"openai: key for the client's":         {"openai", key, false, both(bearer(mine), apiKey(mine)), 200, bearer(key)},
		"openai: the client's own":             {"openai", "", false, bearer(mine), 200, bearer(mine)},
		"openai: azure's client's own":         {"openai", "", false, http.Header{"Api-Key": {mine}}, 200, http.Header{"Api-Key": {mine}}},
		"anthropic: key for the client's":      {"anthropic", key, false, both(bearer(mine), apiKey(mine)), 200, apiKey(key)},
		"anthropic: the client's own":          {"anthropic", "", false, apiKey(mine), 200, apiKey(mine)},
		"anthropic: the client's subscription": {"anthropic", "", false, bearer(mine), 200, bearer(mine)},

		"A8: token as bearer, key goes":         {"openai", key, true, bearer(ours), 200, bearer(key)},
		"A8: token as x-api-key, key goes":      {"anthropic", key, true, apiKey(ours), 200, apiKey(key)},
		"A8: token in its own header":           {"openai", key, true, own, 200, bearer(key)},
		"A8: own header beside own key":         {"openai", "", true, both(own, bearer(mine)), 200, bearer(mine)},
		"A8: own header beside own x-api-key":   {"anthropic", "", true, both(own, apiKey(mine)), 200, apiKey(mine)},
		"A8: token is never forwarded":          {"openai", "", true, bearer(ours), 200, none},
		"A8: nor as x-api-key":                  {"anthropic", "", true, both(apiKey(ours), bearer(ours)), 200, none},
		"A8: nor in both places":                {"openai", "", true, both(own, bearer(ours)), 200, none},
		"A8: nothing":                           {"openai", key, true, none, 401, nil},
		"A8: wrong":                             {"openai", key, true, bearer(mine), 401, nil},
		"A8: wrong x-api-key":                   {"anthropic", key, true, apiKey(mine), 401, nil},
		"A8: own key alone":                     {"openai", "", true, bearer(mine), 401, nil},
		"A8: wrong in its own header":           {"openai", key, true, both(http.Header{"X-Ctxgate-Token": {"x"}}, bearer(ours)), 401, nil},
		"A8: empty in its own header":           {"openai", key, true, both(http.Header{"X-Ctxgate-Token": {""}}, bearer(ours)), 401, nil},
		"A8: twice in its own header":           {"openai", key, true, http.Header{"X-Ctxgate-Token": {ours, ours}}, 401, nil},
		"A8: twice as bearer":                   {"openai", key, true, http.Header{"Authorization": {"Bearer " + ours, "Bearer " + ours}}, 401, nil},
		"A8: another's bearer beside x-api-key": {"anthropic", "", true, both(apiKey(ours), bearer(mine)), 200, bearer(mine)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, says(200, "{}"))
			var options []option
			if tt.asks {
				options = append(options, token(ours))
			}
			g := open(t, []chat.Provider{provider("p", tt.kind, f.URL, keyed(tt.key))}, options...)
			path := map[string]string{"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[tt.kind]
			resp, body := g.post(t, path, `{"model":"m"}`, tt.send)
			if resp.StatusCode != tt.status {
				t.Fatalf("got %d %s", resp.StatusCode, body)
			}
			if tt.want == nil {
				if len(f.calls()) > 0 {
					t.Error("the provider was asked")
				}
				return
			}
			got := http.Header{}
			for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Ctxgate-Token"} {
				if v := f.calls()[0].head[name]; v != nil {
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
	f := newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL, keyed("k"), func(p *chat.Provider) {
		p.Headers = map[string]secret.Text{"OpenAI-Organization": secret.Literal("org"), "User-Agent": secret.Literal("us")}
	})})
	g.post(t, "/v1/responses", "{}", http.Header{"Openai-Organization": {"theirs"}})
	got := f.calls()[0].head
	if got.Get("OpenAI-Organization") != "org" || got.Get("User-Agent") != "us" {
		t.Errorf("got %v", got)
	}
}

// No key, token or body is in the log, whatever goes wrong.
func TestNothingSecretIsLogged(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(old)
	g := open(t, []chat.Provider{provider("p", "openai", "http://127.0.0.1:1", keyed("canary-key"), func(p *chat.Provider) { p.Retries = 0 })}, token("canary-token"))
	resp, body := g.post(t, "/v1/chat/completions?key=canary-query", `{"model":"m","x":"canary-body"}`, http.Header{"Authorization": {"Bearer canary-token"}})
	if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "canary") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	g.post(t, "/v1/chat/completions", `{}`, http.Header{"Authorization": {"Bearer canary-other"}})
	g.Close()
	if text := log.String(); strings.Contains(text, "canary") || !strings.Contains(text, `"provider":"p"`) {
		t.Errorf("the log: %s", text)
	}
}

// I9: what does not fit is refused, in the form of the API.
func TestLimits(t *testing.T) {
	f := newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL), provider("q", "anthropic", f.URL)}, llm(func(l *chat.Limits) { l.MaxRequestBytes = 20 }))
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

func TestTooManyAtOnce(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	f := newFar(t, func(http.ResponseWriter, *http.Request) { held <- struct{}{}; <-release })
	g := open(t, []chat.Provider{provider("p", "anthropic", f.URL)}, llm(func(l *chat.Limits) { l.MaxConcurrent = 1 }))
	done := make(chan int)
	go func() {
		resp, _ := g.post(t, "/v1/messages", "{}", nil)
		done <- resp.StatusCode
	}()
	<-held
	resp, body := g.post(t, "/v1/messages", "{}", nil)
	if want := `{"type":"error","error":{"type":"overloaded_error","message":"too many requests are under way"}}`; resp.StatusCode != http.StatusServiceUnavailable || body != want {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the first: %d", status)
	}
}

func TestRateLimit(t *testing.T) {
	f := newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL)}, func(_ *chat.Settings, d *chat.Deps) { d.Limiter = limit.New(limit.Config{PerMinute: 1}, time.Now) })
	for i, want := range []int{200, 429} {
		resp, body := g.post(t, "/v1/responses", "{}", nil)
		if resp.StatusCode != want || want == 429 && (resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "rate_limit_exceeded")) {
			t.Errorf("request %d: got %d %v %s", i, resp.StatusCode, resp.Header, body)
		}
	}
}

// The paths of the door, and what is said at them to who has the wrong method or address.
func TestPaths(t *testing.T) {
	f := newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL+"/v1/"), provider("q", "anthropic", f.URL)})
	for path, want := range map[string]string{
		"/chat/completions": "/v1/chat/completions", "/v1/chat/completions": "/v1/chat/completions",
		"/v1/responses": "/v1/responses", "/v1/messages": "/v1/messages", "/v1/messages/count_tokens": "/v1/messages/count_tokens",
	} {
		if resp, _ := g.post(t, path, "{}", nil); resp.StatusCode != http.StatusOK || f.calls()[len(f.calls())-1].uri != want || !chat.Serves(path) {
			t.Errorf("%s: %d, asked for %s", path, resp.StatusCode, f.calls()[len(f.calls())-1].uri)
		}
		if resp, _ := g.get(t, path, nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
			t.Errorf("GET %s: %d", path, resp.StatusCode)
		}
	}
	for path, want := range map[string]string{"/v1/embeddings": `"code":"not_found"`, "/v1/messages/x": `"type":"not_found_error"`, "/v1//models": `"code":"not_found"`} {
		if resp, body := g.post(t, path, "{}", nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, body := g.post(t, "/v1/messages", "{}", http.Header{"Origin": {"https://evil.example"}}); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "permission_error") {
		t.Errorf("a page from elsewhere: %d %s", resp.StatusCode, body)
	}
	if resp, _ := g.post(t, "/v1/models", "{}", nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST /v1/models: %d", resp.StatusCode)
	}
}

// A panic is answered in the form of the API, and ends nothing else.
func TestPanicIsAnswered(t *testing.T) {
	f := newFar(t, says(200, "{}"))
	g := open(t, []chat.Provider{provider("p", "openai", f.URL)}, func(_ *chat.Settings, d *chat.Deps) {
		d.Transport = panics{}
	})
	resp, body := g.post(t, "/v1/responses", "{}", nil)
	if want := `{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`; resp.StatusCode != http.StatusInternalServerError || body != want {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	g.has(t, `ctxgate_llm_requests_total{provider="p",result="internal"} 1`, "ctxgate_llm_requests_in_flight 0")
}

type panics struct{}

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("boom") }

func TestServes(t *testing.T) {
	for path, want := range map[string]bool{"/v1/x": true, "/chat/completions": true, "/mcp": false, "/": false, "/v1": false, "/healthz": false} {
		if chat.Serves(path) != want {
			t.Error(path)
		}
	}
	w := httptest.NewRecorder()
	chat.Refuse(w, httptest.NewRequest(http.MethodGet, "/x", nil), fmt.Errorf("canary"))
	if w.Code != 500 || strings.Contains(w.Body.String(), "canary") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
