package upstream_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/grant"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// locked fails like a desk whose user has not come yet, until it is opened.
type locked struct {
	next http.RoundTripper
	open chan struct{}
}

func (l locked) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-l.open:
		return l.next.RoundTrip(req)
	default:
		return nil, fault.Wrap(fault.Unavailable, "waits to be authorized", &grant.Missing{Until: l.open, Why: errors.New("nobody came")})
	}
}

func remote(t *testing.T, entry upstream.Server, transport http.RoundTripper) *upstream.Remote {
	t.Helper()
	entry.ID, entry.Transport = "a", "http"
	entry.StartupTimeout = unit.Duration(10 * time.Second)
	cfg := upstream.Default()
	cfg.HealthcheckInterval = 0
	r := upstream.NewRemote(entry, cfg, upstream.Deps{Transport: transport, Listener: &ears{}, Limits: func() (int, int) { return 64, 4000 }})
	r.Start()
	t.Cleanup(r.Close)
	return r
}

// A call to a server that waits to be authorized is told so, and the lane does not wait for its
// next attempt when it was.
func TestLaneWaitsForPermission(t *testing.T) {
	f := modern(t)
	transport := upstream.NewTransport()
	defer transport.CloseIdleConnections()
	l := locked{transport, make(chan struct{})}
	r := remote(t, upstream.Server{URL: secret.URL(f.URL)}, l)
	_, err := r.Shared().Call(t.Context(), newCall(t, mcp.ToolsList, `{}`))
	if fault.KindOf(err) != fault.Unavailable || fault.PublicOf(err) != "waits to be authorized" {
		t.Errorf("got %v", err)
	}
	time.Sleep(2 * time.Second) // by now the pause is of seconds
	close(l.open)
	start := time.Now()
	f.await(t, mcp.Discover, 1)
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Errorf("the lane came back after %s", took)
	}
}

// Nobody is asked about a server that has its credentials, or for which it was turned off.
func TestWhoIsNotAsked(t *testing.T) {
	for name, entry := range map[string]upstream.Server{
		"header": {Headers: map[string]secret.Text{"authorization": secret.Literal("Bearer mine")}},
		"off":    {OAuth: grant.Config{Off: true}},
		"asked":  {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, nil)
			var once sync.Once
			discovered := make(chan struct{})
			f.other = func(w http.ResponseWriter, h heard) {
				if h.verb == http.MethodGet {
					once.Do(func() { close(discovered) })
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(http.StatusUnauthorized)
			}
			transport := upstream.NewTransport()
			store := state.New(memory.New(), state.Default(), time.Now)
			desk, err := grant.New(grant.Deps{Next: transport, Store: store, Secret: []byte(strings.Repeat("s", 32))})
			if err != nil {
				t.Fatal(err)
			}
			entry.URL = secret.URL(f.URL + "/mcp")
			r := remote(t, entry, desk)
			t.Cleanup(func() {
				r.Close()
				desk.Close()
				_ = store.Close()
				transport.CloseIdleConnections()
			})
			f.await(t, mcp.Discover, 1)
			select {
			case <-discovered:
				if name != "asked" {
					t.Error("the server was asked who may authorize the gateway")
				}
			case <-time.After(200 * time.Millisecond):
				if name == "asked" {
					t.Error("the server was not asked who may authorize the gateway")
				}
			}
		})
	}
}

// What cannot be is said before it is tried, and another client is another server.
func TestOAuthInTheTable(t *testing.T) {
	cfg := upstream.Default()
	cfg.Servers = []upstream.Server{{ID: "a", RPC: "http://h", OAuth: grant.Config{ClientSecret: secret.Literal("s")}}}
	if got, want := joined(cfg.Validate()), "servers[0].oauth: only a server with a url can be authorized\nservers[0].oauth.client_secret: wants a client_id"; got != want {
		t.Errorf("got %s", got)
	}
	of := func(s string) upstream.Server {
		return upstream.Server{ID: "a", URL: "http://h", OAuth: grant.Config{ClientID: "c", ClientSecret: secret.Literal(s)}}
	}
	r := upstream.NewRemote(of("1"), cfg, upstream.Deps{})
	if !r.Same(of("1"), cfg) || r.Same(of("2"), cfg) {
		t.Error("a new client secret makes a new server, and the same does not")
	}
}
