package hub_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// This binary is the test, the shim that child processes run under, and the child process of the tests.
func TestMain(m *testing.M) {
	child.RunIfShim()
	if len(os.Args) == 3 && os.Args[1] == "run:join" {
		runChild(os.Args[2])
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(delayedExit{m})
}

// delayedExit gives goroutines that end by themselves the time to: a server's lists are not read twice within half
// a second, and the reader waits.
type delayedExit struct{ *testing.M }

func (l delayedExit) Run() int {
	defer time.Sleep(time.Second)
	return l.M.Run()
}

// setup is what a test may change before the gateway starts.
type setup struct {
	self      string // the gateway's own base URL
	hub       hub.Config
	http      front.HTTP
	auth      auth.Config
	token     string // that the process was started with
	access    access.Config
	limit     limit.Config
	upstream  upstream.Config
	recall    recall.Config
	state     state.Config
	driver    state.Driver
	builtins  []hub.Builtin
	transport http.RoundTripper
	pins      *pins.Guard
	budget    int64 // of memory
	mount     func(*http.ServeMux)
	leases    state.Leases              // that replicas share; nil for a gateway that is the only one
	announce  func(server, hash string) // tells other replicas of changed lists
}

// gate returns the gate of the configuration.
func (s *setup) gate(limiter *limit.Limiter) *gate.Gate {
	rules, err := access.New(s.access)
	if err != nil {
		panic(err)
	}
	return gate.New(gate.Deps{Authenticator: auth.New(s.auth), Rules: rules, Limiter: limiter})
}

// addRPCServer adds a plain JSON-RPC server to the configuration.
func (s *setup) addRPCServer(id, base string) {
	s.upstream.Servers = append(s.upstream.Servers, upstream.ServerConfig{ID: id, RPC: secret.URL(base)})
}

// gateway is the hub behind the middleware chain, on a real listener.
type gateway struct {
	*httptest.Server
	recall *recall.Recall
	meter  *meter.Meter
}

// startRPCGateway starts a gateway with one server "a" at base and whatever configure changes.
func startRPCGateway(t testing.TB, base string, configure func(*setup)) *gateway {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	transport := upstream.NewTransport()
	s := setup{
		self: "http://" + srv.Listener.Addr().String(), hub: hub.Default(), http: front.Default().HTTP,
		upstream: upstream.Default(), recall: recall.Default(), state: state.Default(), driver: memory.New(), transport: transport,
	}
	if base != "" {
		s.addRPCServer("a", base)
	}
	if configure != nil {
		configure(&s)
	}
	store := state.New(s.driver, s.state, time.Now)
	r, err := recall.New(store, bytes.Repeat([]byte("k"), recall.MinSecretBytes), s.recall)
	if err != nil {
		t.Fatal(err)
	}
	m := meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
	g := s.gate(limit.New(s.limit, time.Now))
	endpoint, err := hub.New(hub.Settings{Hub: s.hub, HTTP: s.http, Gate: g, Upstream: s.upstream},
		hub.Deps{Transport: s.transport, Recall: r, Meter: m, Secret: bytes.Repeat([]byte("k"), recall.MinSecretBytes), Builtins: s.builtins, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	endpoint.Routes(mux)
	if s.mount != nil {
		s.mount(mux)
	}
	guard := front.NewGuard(srv.Listener.Addr().String(), front.HTTP{})
	srv.Config.Handler = front.Wrap(mux, front.Chain(g, guard, s.http, nil, hub.WriteError, hub.ReadsTokenFromBody)...)
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		endpoint.Close()
		transport.CloseIdleConnections()
		_ = store.Close()
	})
	return &gateway{Server: srv, recall: r, meter: m}
}

func rpcPath(server string) string { return "/api/mcp-gateway/" + server + "/rpc" }

// relayReply is the HTTP response of the gateway.
type relayReply struct {
	status int
	header http.Header
	body   string
}

// post sends a message to a server through the gateway.
func (g *gateway) post(t testing.TB, server, body string) relayReply {
	t.Helper()
	return g.do(t, http.MethodPost, rpcPath(server), strings.NewReader(body), nil)
}

func (g *gateway) do(t testing.TB, method, path string, body io.Reader, header http.Header) relayReply {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return relayReply{resp.StatusCode, resp.Header, string(got)}
}

// metrics returns what a scrape shows.
func (g *gateway) metrics() string {
	w := httptest.NewRecorder()
	g.meter.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// rpcServer is an upstream server that gives the same reply to everything and records what it got.
type rpcServer struct {
	*httptest.Server
	mu  sync.Mutex
	got []received
}

type received struct {
	method, path string
	header       http.Header
	body         string
}

func (p *rpcServer) requests() []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

func rpcServerWith(t testing.TB, status int, contentType, reply string) *rpcServer {
	t.Helper()
	p := &rpcServer{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.got = append(p.got, received{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body)})
		p.mu.Unlock()
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(p.Close)
	return p
}

// rpcServerReplying returns a server that answers with this JSON.
func rpcServerReplying(t testing.TB, reply string) *rpcServer {
	t.Helper()
	return rpcServerWith(t, http.StatusOK, "application/json", reply)
}

// closedServer returns the base URL of a server that refuses connections.
func closedServer(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(nil)
	srv.Close()
	return srv.URL
}

// maskSmall masks strings of more than 20 characters to 4 + marker + 4.
func maskSmall(s *setup) {
	s.hub.Masking.MaxChars, s.hub.Masking.HeadChars, s.hub.Masking.TailChars = 20, 4, 4
}

// maskWithoutRecoverLine is maskSmall without the recover line.
func maskWithoutRecoverLine(s *setup) {
	maskSmall(s)
	s.hub.Masking.RecoverLine = false
}

func seconds(n float64) unit.Duration { return unit.Duration(n * float64(time.Second)) }
