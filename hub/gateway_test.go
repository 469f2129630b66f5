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

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// This binary is the test, the shim that programs run under, and the program of the tests.
func TestMain(m *testing.M) {
	child.Lifeline()
	if len(os.Args) == 3 && os.Args[1] == "run:join" {
		join(os.Args[2])
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(late{m})
}

// late gives what ends by itself the time to: a server's lists are not read twice within half a
// second, and who read them waits.
type late struct{ *testing.M }

func (l late) Run() int {
	defer time.Sleep(time.Second)
	return l.M.Run()
}

// setup is what a test may change before the gateway opens.
type setup struct {
	self      string // the gateway's own base URL
	hub       hub.Config
	http      front.HTTP
	auth      auth.Config
	token     string // that the process was started with
	limit     limit.Config
	upstream  upstream.Config
	recall    recall.Config
	driver    state.Driver
	own       []hub.Own
	transport http.RoundTripper
	budget    int64 // of memory
	mount     func(*http.ServeMux)
}

// server adds an rpc server to the table.
func (s *setup) server(id, base string) {
	s.upstream.Servers = append(s.upstream.Servers, upstream.Server{ID: id, RPC: secret.URL(base)})
}

// gateway is the door behind its chain, on a real listener.
type gateway struct {
	*httptest.Server
	recall *recall.Recall
	meter  *meter.Meter
}

// open starts a gateway with one server "a" at base and whatever mend changes.
func open(t testing.TB, base string, mend func(*setup)) *gateway {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	transport := upstream.NewTransport()
	s := setup{
		self: "http://" + srv.Listener.Addr().String(), hub: hub.Default(), http: front.Default().HTTP,
		upstream: upstream.Default(), recall: recall.Default(), driver: memory.New(), transport: transport,
	}
	if base != "" {
		s.server("a", base)
	}
	if mend != nil {
		mend(&s)
	}
	store := state.New(s.driver, state.Default(), time.Now)
	r, err := recall.New(store, bytes.Repeat([]byte("k"), recall.MinSecret), s.recall)
	if err != nil {
		t.Fatal(err)
	}
	m := meter.New("test", func() (meter.Store, bool) { return meter.Store{}, true })
	door, err := hub.New(hub.Settings{Hub: s.hub, HTTP: s.http, Auth: s.auth, Upstream: s.upstream},
		hub.Deps{Transport: s.transport, Recall: r, Meter: m, Limiter: limit.New(s.limit, time.Now), Secret: bytes.Repeat([]byte("k"), recall.MinSecret), Own: s.own, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	door.Routes(mux)
	if s.mount != nil {
		s.mount(mux)
	}
	guard := front.NewGuard(srv.Listener.Addr().String(), front.HTTP{})
	srv.Config.Handler = front.Wrap(mux, front.Chain(auth.New(s.auth), guard, s.http, nil, hub.Refuse, hub.ReadsToken)...)
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		door.Close()
		transport.CloseIdleConnections()
		_ = store.Close()
	})
	return &gateway{Server: srv, recall: r, meter: m}
}

func path(server string) string { return "/api/mcp-gateway/" + server + "/rpc" }

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends a message to a server through the gateway.
func (g *gateway) post(t testing.TB, server, body string) answer {
	t.Helper()
	return g.do(t, http.MethodPost, path(server), strings.NewReader(body), nil)
}

func (g *gateway) do(t testing.TB, method, path string, body io.Reader, header http.Header) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
	return answer{resp.StatusCode, resp.Header, string(got)}
}

// metrics is what a scrape shows.
func (g *gateway) metrics() string {
	w := httptest.NewRecorder()
	g.meter.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// peer is an upstream server that gives the same reply to everything and remembers what it got.
type peer struct {
	*httptest.Server
	mu  sync.Mutex
	got []received
}

type received struct {
	method, path string
	header       http.Header
	body         string
}

func (p *peer) requests() []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

func answering(t testing.TB, status int, contentType, reply string) *peer {
	t.Helper()
	p := &peer{}
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

// replying is a server that answers with this JSON.
func replying(t testing.TB, reply string) *peer {
	t.Helper()
	return answering(t, http.StatusOK, "application/json", reply)
}

// down is the base URL of a server that refuses connections.
func down(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(nil)
	srv.Close()
	return srv.URL
}

// small cuts strings of more than 20 characters to 4 + marker + 4.
func small(s *setup) {
	s.hub.Masking.MaxChars, s.hub.Masking.HeadChars, s.hub.Masking.TailChars = 20, 4, 4
}

// bare is small without the recover line.
func bare(s *setup) {
	small(s)
	s.hub.Masking.RecoverLine = false
}

func seconds(n float64) unit.Duration { return unit.Duration(n * float64(time.Second)) }
