package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
)

func providerOf(t *testing.T, reply string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, reply) }))
	t.Cleanup(srv.Close)
	return "[[providers]]\nname = 'p'\nkind = 'openai'\nbase_url = '" + srv.URL + "'\n"
}

// The LLM endpoint is on the main listener, beside the MCP endpoints; a reload changes its providers.
func TestLLMEndpoint(t *testing.T) {
	dir := t.TempDir()
	cfg := load(t, dir, "auth_token = 'hush'\n"+providerOf(t, `{"from":1}`)+"[state]\ndriver = 'memory'\n")
	a, err := New(context.Background(), cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{main: "http://" + a.listeners[0].Addr().String(), stop: stop, done: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	go func() { r.done <- a.Run(ctx) }()
	ask := func(token, path string, status int, want string) {
		t.Helper()
		if got, body := r.do(t, http.MethodPost, r.main+path, token, `{"model":"m"}`); got != status || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %s, want %d %s", path, got, body, status, want)
		}
	}
	ask("hush", "/v1/chat/completions", http.StatusOK, `{"from":1}`)
	ask("hush", "/chat/completions", http.StatusOK, `{"from":1}`)
	ask("wrong", "/v1/responses", http.StatusUnauthorized, `"code":"invalid_api_key"`)
	ask("hush", "/v1/embeddings", http.StatusOK, `{"from":1}`)
	ask("hush", "/openai/x", http.StatusNotFound, `"jsonrpc"`)
	ask("hush", "/nothing", http.StatusNotFound, `"jsonrpc"`)
	reload := func(text string) {
		t.Helper()
		next := load(t, dir, text+"[state]\ndriver = 'memory'\n")
		a.Reload(next)
	}
	reload(providerOf(t, `{"from":2}`))
	ask("", "/v1/responses", http.StatusOK, `{"from":2}`)
	// Paths of the configuration come and go with it, and none takes a path of the gateway's own.
	reload(providerOf(t, `{"from":3}`) + "paths = ['/openai/*', '/mcp*', '/api/*', '/healthz']\n")
	ask("", "/openai/x", http.StatusOK, `{"from":3}`)
	ask("", "/api/x", http.StatusOK, `{"from":3}`)
	ask("", "/mcp", http.StatusBadRequest, `"jsonrpc"`)
	ask("", "/api/mcp-gateway/none/rpc", http.StatusBadRequest, `"jsonrpc"`)
	if status, body := r.do(t, http.MethodGet, r.main+"/healthz", "", ""); status != http.StatusOK || strings.Contains(body, "from") {
		t.Errorf("/healthz: %d %s", status, body)
	}
	reload("")
	ask("", "/v1/responses", http.StatusNotFound, "model_not_found")
	r.end(t)
}

// A listener that others can reach without a token gives a warning.
func TestOpenListenerIsWarnedOf(t *testing.T) {
	a, err := New(context.Background(), load(t, t.TempDir(), "[state]\ndriver = 'memory'\n"), Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.release() }()
	for _, c := range []struct {
		listen, token string
		warns         bool
	}{{"0.0.0.0:8000", "", true}, {"0.0.0.0:8000", "hush", false}, {"127.0.0.1:8000", "", false}} {
		cfg := a.cfg
		cfg.Front.Listen, cfg.Auth.Token = c.listen, secret.Literal(c.token)
		var log strings.Builder
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		a.newMainHandler(cfg)
		slog.SetDefault(before)
		if warned := strings.Contains(log.String(), "open to everybody"); warned != c.warns {
			t.Errorf("%+v: warned is %t: %s", c, warned, log.String())
		}
	}
}
