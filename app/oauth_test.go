package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// guarded is an MCP server that requires a token, and the authorization server that issues it.
type guarded struct {
	*httptest.Server
	asked atomic.Int32
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "greet", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil
	})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	g := &guarded{}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer SECRET-token" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	say := func(path, format string, status int, n int) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			args := []any{g.URL, g.URL, g.URL, g.URL}
			fmt.Fprintf(w, format, args[:n]...)
		})
	}
	say("/.well-known/oauth-protected-resource/mcp", `{"resource":"%s/mcp","authorization_servers":["%s"]}`, 200, 2)
	say("/.well-known/oauth-authorization-server", `{"issuer":"%s","authorization_endpoint":"%s/authorize","token_endpoint":"%s/token","registration_endpoint":"%s/register","code_challenge_methods_supported":["S256"]}`, 200, 4)
	say("/register", `{"client_id":"c","token_endpoint_auth_method":"none"}`, 201, 0)
	say("/token", `{"access_token":"SECRET-token","token_type":"Bearer"}`, 200, 0)
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		g.asked.Add(1)
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=SECRET-code&state="+q.Get("state"), http.StatusFound)
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

// reader reads the log and passes on the addresses to open.
type reader chan string

func (r reader) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "SECRET") {
		r <- "the log holds a secret: " + string(line)
	}
	if _, after, ok := strings.Cut(string(line), `open this address to let ctxgate use a server" server=far address="`); ok {
		address, _, _ := strings.Cut(after, `"`)
		r <- address
	}
	return len(line), nil
}

func greet(t *testing.T, url string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return "", err
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{}})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

// A server that requires OAuth, configured only by its url: the log shows the address to open, the browser
// comes back to the gateway, and the server works, also after a restart.
func TestServerThatRequiresOAuth(t *testing.T) {
	far := newGuarded(t)
	shown := make(reader, 16)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(shown, nil)))
	defer slog.SetDefault(before)
	dir := filepath.Join(t.TempDir(), "data")
	text := "[[servers]]\nid = 'far'\nurl = '" + far.URL + "/mcp'\nprefix = 'never'\n"
	r := start(t, load(t, dir, text))
	address := <-shown
	if _, page := r.do(t, http.MethodGet, address, "", ""); page != "ctxgate may use server \"far\" now. You can close this window.\n" {
		t.Errorf("the browser was shown %q", page)
	}
	if got, err := greet(t, r.main+"/mcp"); err != nil || got != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	r.end(t)
	r = start(t, load(t, dir, text))
	if got, err := greet(t, r.main+"/mcp"); err != nil || got != "hello" {
		t.Errorf("after a restart: got %q, %v", got, err)
	}
	r.end(t)
	if far.asked.Load() != 1 || len(shown) != 0 {
		t.Errorf("asked %d times; shown %d more", far.asked.Load(), len(shown))
	}
}

// The callback is open to browsers without credentials; not to a page that points its own name here, and
// no path behind it is.
func TestCallbackRoute(t *testing.T) {
	r := start(t, load(t, t.TempDir(), "auth_token = 'a token of some length'\n"))
	defer r.end(t)
	for _, tt := range []struct {
		method, path, host string
		status             int
	}{
		{http.MethodGet, "/oauth/callback?state=x&code=y", "", 400},
		{http.MethodGet, "/oauth/callback?state=x&code=y", "evil.example", 403},
		{http.MethodPost, "/oauth/callback?state=x", "", 401},
		{http.MethodGet, "/oauth/callback/x?state=x", "", 401},
		{http.MethodGet, "/mcp", "", 401},
	} {
		req, err := http.NewRequest(tt.method, r.main+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.host != "" {
			req.Host = tt.host
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s %s: %d, want %d", tt.method, tt.path, tt.host, resp.StatusCode, tt.status)
		}
	}
}
