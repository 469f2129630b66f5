package upstream_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// unauthorizedTransport fails until it is authorized.
type unauthorizedTransport struct {
	next http.RoundTripper
	open chan struct{}
}

func (l unauthorizedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-l.open:
		return l.next.RoundTrip(req)
	default:
		return nil, fault.Wrap(fault.Unavailable, "waits to be authorized", &oauth.NotAuthorizedError{Retry: l.open, Cause: errors.New("not authorized yet")})
	}
}

func newServer(t *testing.T, entry upstream.ServerConfig, transport http.RoundTripper) *upstream.Server {
	t.Helper()
	entry.ID, entry.Transport = "a", "http"
	entry.StartupTimeout = unit.Duration(10 * time.Second)
	cfg := upstream.Default()
	cfg.HealthcheckInterval = 0
	server := upstream.NewServer(entry, cfg, upstream.Deps{Transport: transport, Events: &eventLog{}, ParseLimits: func() (int, int) { return 64, 4000 }})
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// A call to a server that is not authorized says so, and the connection is opened as soon as it is authorized.
func TestReconnectAfterAuthorization(t *testing.T) {
	f := newModernServer(t)
	transport := upstream.NewTransport()
	defer transport.CloseIdleConnections()
	l := unauthorizedTransport{transport, make(chan struct{})}
	server := newServer(t, upstream.ServerConfig{URL: secret.URL(f.URL)}, l)
	_, err := server.SharedConn().Call(t.Context(), newCall(t, mcp.ToolsList, `{}`))
	if fault.KindOf(err) != fault.Unavailable || fault.PublicOf(err) != "waits to be authorized" {
		t.Errorf("got %v", err)
	}
	time.Sleep(2 * time.Second) // by now the pause is of seconds
	close(l.open)
	start := time.Now()
	f.awaitRequest(t, mcp.ServerDiscover, 1)
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Errorf("the connection came back after %s", took)
	}
}

// No authorization is requested for a server with configured credentials, or with OAuth turned off.
func TestServersWithoutOAuth(t *testing.T) {
	for name, entry := range map[string]upstream.ServerConfig{
		"header":         {Headers: map[string]secret.Text{"authorization": secret.Literal("Bearer mine")}},
		"off":            {OAuth: oauth.Config{Disabled: true}},
		"no credentials": {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeHTTP(t, nil)
			var once sync.Once
			discovered := make(chan struct{})
			f.other = func(w http.ResponseWriter, h httpRequest) {
				if h.verb == http.MethodGet {
					once.Do(func() { close(discovered) })
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(http.StatusUnauthorized)
			}
			transport := upstream.NewTransport()
			store := state.New(memory.New(), state.Default(), time.Now)
			authTransport, err := oauth.New(oauth.Deps{Base: transport, Store: store, Secret: []byte(strings.Repeat("s", 32))})
			if err != nil {
				t.Fatal(err)
			}
			entry.URL = secret.URL(f.URL + "/mcp")
			server := newServer(t, entry, authTransport)
			t.Cleanup(func() {
				server.Close()
				authTransport.Close()
				_ = store.Close()
				transport.CloseIdleConnections()
			})
			f.awaitRequest(t, mcp.ServerDiscover, 1)
			select {
			case <-discovered:
				if name != "no credentials" {
					t.Error("the server was asked for its OAuth metadata")
				}
			case <-time.After(200 * time.Millisecond):
				if name == "no credentials" {
					t.Error("the server was not asked for its OAuth metadata")
				}
			}
		})
	}
}

// Impossible settings are refused, and another OAuth client makes another server.
func TestOAuthConfig(t *testing.T) {
	cfg := upstream.Default()
	cfg.Servers = []upstream.ServerConfig{{ID: "a", RPC: "http://h", OAuth: oauth.Config{ClientSecret: secret.Literal("s")}}}
	if got, want := joinErrors(cfg.Validate()), "servers[0].oauth: only a server with a url can be authorized\nservers[0].oauth.client_secret: needs client_id beside it"; got != want {
		t.Errorf("got %s", got)
	}
	of := func(s string) upstream.ServerConfig {
		return upstream.ServerConfig{ID: "a", URL: "http://h", OAuth: oauth.Config{ClientID: "c", ClientSecret: secret.Literal(s)}}
	}
	server := upstream.NewServer(of("1"), cfg, upstream.Deps{})
	if !server.IsSameConfig(of("1"), cfg) || server.IsSameConfig(of("2"), cfg) {
		t.Error("a new client secret makes a new server, and the same does not")
	}
}
