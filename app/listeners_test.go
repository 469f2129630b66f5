package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/limit"
)

// beyond is a configuration whose main listener is not on loopback.
func beyond(t *testing.T, text string) config.Config {
	t.Helper()
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n")
	cfg.Front.Listen = "0.0.0.0:0"
	if text == "anonymous" {
		cfg.Front.Anonymous = true
	}
	return cfg
}

// A main listener beyond loopback that requires no credential is not opened unless anonymous allows it.
func TestExposedMainListenerRefusesToStart(t *testing.T) {
	if a, err := New(t.Context(), beyond(t, ""), Options{}); err == nil || !strings.Contains(err.Error(), "anonymous = true") {
		if a != nil {
			_ = a.release()
		}
		t.Fatalf("started: %v", err)
	}
	a, err := New(t.Context(), beyond(t, "anonymous"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = a.release()
	cfg := beyond(t, "")
	cfg.Auth = load(t, t.TempDir(), "auth_token = 'hush'\n").Auth
	if a, err = New(t.Context(), cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	_ = a.release()
}

// The pruner alone warns and continues.
func TestExposedPrunerAloneOnlyWarns(t *testing.T) {
	cfg := beyond(t, "")
	cfg.Pruner.Listen = "0.0.0.0:0"
	log := captureLog(t)
	a, err := NewPruner(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.release() }()
	if !strings.Contains(log.String(), "open to everybody") {
		t.Errorf("no warning: %s", log)
	}
}

// A reload that would expose the main listener, now or at the next start, changes nothing.
func TestReloadThatWouldExposeIsRefused(t *testing.T) {
	cfg := beyond(t, "")
	cfg.Auth = load(t, t.TempDir(), "auth_token = 'hush'\n").Auth
	a, err := New(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.release() }()
	anonymously := func() int {
		return serve(&a.mainHandler, newRequest(t, "POST", "http://localhost/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)).status
	}
	open := cfg
	open.Auth.Token = config.Default().Auth.Token
	if r := a.Reload(open); r.Failed != "listen" || !strings.Contains(r.Error, "anonymous = true") || anonymously() != http.StatusUnauthorized {
		t.Errorf("%+v, and without a token: %d", r, anonymously())
	}
	open.Front.Listen = "127.0.0.1:0" // which would be in force at the next start only
	if r := a.Reload(open); r.Failed != "listen" || anonymously() != http.StatusUnauthorized {
		t.Errorf("%+v, and without a token: %d", r, anonymously())
	}
	open.Front.Listen, open.Front.Anonymous = cfg.Front.Listen, true
	if r := a.Reload(open); r.Failed != "" || anonymously() == http.StatusUnauthorized {
		t.Errorf("%+v, and without a token: %d", r, anonymously())
	}
}

// Every endpoint of every listener rejects simple requests from pages of other origins, and unknown hosts
// where the hosts are known; requests of curl pass.
func TestEveryEndpointHasTheGuard(t *testing.T) {
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n[http]\nallowed_hosts = ['gate.example']\n")
	cfg.Pruner.Listen = "127.0.0.1:0"
	cfg.Front.Listen, cfg.Front.Anonymous = "0.0.0.0:0", true
	cfg.Admin.Listen, cfg.Pruner.Listen = "0.0.0.0:0", "0.0.0.0:0"
	a, err := New(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- a.Run(ctx) }()
	defer func() { stop(); <-done }()
	at := func(i int) string {
		address := a.listeners[i].Addr().String()
		return "http://127.0.0.1" + address[strings.LastIndexByte(address, ':'):]
	}
	main, operator, pruner := at(0), at(1), at(2)
	for _, endpoint := range []struct{ method, url string }{
		{"POST", main + "/mcp"}, {"POST", main + "/mcp/pruner"}, {"POST", main + "/api/mcp-gateway/pruner/rpc"}, {"GET", main + "/mcp"},
		{"POST", main + "/v1/chat/completions"}, {"POST", main + "/chat/completions"}, {"POST", main + "/v1/messages"}, {"GET", main + "/v1/models"},
		{"GET", main + "/healthz"}, {"GET", main + "/readyz"}, {"GET", operator + "/metrics"}, {"GET", operator + "/savings"},
		{"POST", pruner + "/rpc"}, {"GET", pruner + "/health"},
	} {
		for name, tt := range map[string]struct {
			host, origin, kind string
			refused            bool
		}{
			"page of elsewhere":      {"", "https://evil.example", "text/plain", true},
			"foreign, but JSON":      {"", "https://evil.example", "application/json", false},
			"curl":                   {"", "", "application/x-www-form-urlencoded", false},
			"another host":           {"evil.example", "", "application/json", true},
			"the allowed host":       {"gate.example", "", "application/json", false},
			"rebound, as its origin": {"evil.example", "http://evil.example", "application/json", true},
		} {
			r := newRequest(t, endpoint.method, endpoint.url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			r.Header.Set("Content-Type", tt.kind)
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			if tt.host != "" {
				r.Host = tt.host
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.StatusCode == http.StatusForbidden; got != tt.refused {
				t.Errorf("%s at %s %s: %d", name, endpoint.method, endpoint.url, resp.StatusCode)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A9: a caller has one rate limit over all endpoints, MCP, LLM and pruner; a reload that does not change
// it does not reset it.
func TestOneLimitOverAllEndpointsA9(t *testing.T) {
	provider := upstreamOf(t, `{}`)
	cfg := load(t, t.TempDir(), `rate_limit_per_minute = 5
[state]
driver = 'memory'
[[providers]]
name = 'p'
kind = 'openai'
base_url = '`+provider+`'
`)
	cfg.Pruner.Listen = "127.0.0.1:0"
	a, err := New(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.release() }()
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	endpoints := map[string]func() answered{
		"rpc": func() answered {
			return serve(&a.mainHandler, newRequest(t, "POST", "http://localhost/api/mcp-gateway/pruner/rpc", ping))
		},
		"chat": func() answered {
			return serve(&a.mainHandler, newRequest(t, "POST", "http://localhost/v1/chat/completions", `{"model":"m"}`))
		},
		"models": func() answered { return serve(&a.mainHandler, newRequest(t, "GET", "http://localhost/v1/models", "")) },
		"pruner": func() answered { return serve(&a.prunerHandler, newRequest(t, "POST", "http://localhost/rpc", ping)) },
		"note": func() answered {
			return serve(&a.prunerHandler, newRequest(t, "POST", "http://localhost/rpc", `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		},
	}
	for name, call := range endpoints {
		if got := call(); got.status == http.StatusTooManyRequests {
			t.Errorf("%s: refused within the limit: %s", name, got.body)
		}
	}
	for round := range 2 {
		for name, call := range endpoints {
			if got := call(); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "Rate limit exceeded") {
				t.Errorf("%s: over the limit: %d %v %s", name, got.status, got.header, got.body)
			}
		}
		if round == 0 {
			a.Reload(cfg)
		}
	}
	cfg.Limit = limit.Config{PerMinute: 6}
	a.Reload(cfg)
	if got := endpoints["pruner"](); got.status != http.StatusOK {
		t.Errorf("with another limit: %d %s", got.status, got.body)
	}
}

// answered is a handler's reply.
type answered struct {
	status int
	header http.Header
	body   string
}

func captureLog(t *testing.T) *process.Buffer {
	t.Helper()
	log, before := &process.Buffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func serve(h http.Handler, r *http.Request) answered {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answered{w.Code, w.Header(), w.Body.String()}
}
