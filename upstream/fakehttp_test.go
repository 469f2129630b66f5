package upstream_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// httpRequest is one request that the fake server got.
type httpRequest struct {
	verb   string // the HTTP method
	path   string
	head   http.Header
	body   string
	ctx    context.Context
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params struct {
		Name string          `json:"name"`
		Meta json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// kind is the JSON-RPC method of a POST, "answer" for a reply, else the HTTP method.
func (h httpRequest) kind() string {
	switch {
	case h.verb != http.MethodPost:
		return h.verb
	case h.Method == "":
		return "answer"
	}
	return h.Method
}

type handler func(http.ResponseWriter, httpRequest)

// fakeHTTP is an HTTP server that records every request and answers it with the test's handler for its kind.
type fakeHTTP struct {
	*httptest.Server
	mu       sync.Mutex
	handlers map[string]handler
	seen     []httpRequest
	accepted atomic.Int64
	other    handler // for what has none
}

func newFakeHTTP(t *testing.T, acts map[string]handler) *fakeHTTP {
	t.Helper()
	f := &fakeHTTP{handlers: acts, other: respond(`{"content":[]}`)}
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.accepted.Add(1)
		}
	}
	f.Start()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// newLegacyServer is a legacy server with sessions.
func newLegacyServer(t *testing.T) *fakeHTTP {
	t.Helper()
	return newFakeHTTP(t, map[string]handler{
		mcp.ServerDiscover:    respondStatus(400, "Bad Request: Unsupported protocol version"),
		mcp.Initialize:        startSession("s1"),
		mcp.NotifyInitialized: respondStatus(202, ""),
		mcp.NotifyCancelled:   respondStatus(202, ""),
		"answer":              respondStatus(202, ""),
		"GET":                 respondStatus(405, ""),
		"DELETE":              respondStatus(204, ""),
	})
}

func newModernServer(t *testing.T) *fakeHTTP {
	t.Helper()
	return newFakeHTTP(t, map[string]handler{
		mcp.ServerDiscover: respond(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`),
	})
}

func (f *fakeHTTP) on(what string, a handler) *fakeHTTP {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers[what] = a
	return f
}

func (f *fakeHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := httpRequest{verb: r.Method, path: r.URL.RequestURI(), head: r.Header, body: string(body), ctx: r.Context()}
	_ = json.Unmarshal(body, &h)
	f.mu.Lock()
	f.seen = append(f.seen, h)
	a := f.handlers[h.kind()]
	if here := f.handlers[h.kind()+" at "+r.URL.Path]; here != nil {
		a = here
	}
	f.mu.Unlock()
	if a == nil {
		a = f.other
	}
	a(w, h)
}

// requests returns the requests of a kind, in order.
func (f *fakeHTTP) requests(what string) []httpRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []httpRequest
	for _, h := range f.seen {
		if h.kind() == what {
			out = append(out, h)
		}
	}
	return out
}

// awaitRequest waits for the n-th request of a kind.
func (f *fakeHTTP) awaitRequest(t *testing.T, what string, n int) httpRequest {
	t.Helper()
	for range 500 {
		if all := f.requests(what); len(all) >= n {
			return all[n-1]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("there were not %d requests of %s", n, what)
	return httpRequest{}
}

func respondStatus(code int, body string) handler {
	return func(w http.ResponseWriter, _ httpRequest) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// respond sends a result as one JSON body.
func respond(result string) handler { return respondAs(200, "result", result) }

func respondAs(code int, member, value string) handler {
	return func(w http.ResponseWriter, h httpRequest) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"%s":%s}`, h.ID, member, value)
	}
}

func startSession(session string) handler {
	return func(w http.ResponseWriter, h httpRequest) {
		w.Header().Set(mcp.HeaderSession, session)
		respond(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"far","version":"1"}}`)(w, h)
	}
}

// respondEvents sends events and flushes each; %s in it is the request's id.
func respondEvents(events ...string) handler {
	return func(w http.ResponseWriter, h httpRequest) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w)
		for _, e := range events {
			writeEvent(w, h, e)
		}
	}
}

func writeEvent(w http.ResponseWriter, h httpRequest, event string) {
	_, _ = io.WriteString(w, strings.ReplaceAll(event, "%s", string(h.ID)))
	flush(w)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

const finalEvent = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n"

// eventLog records what happens outside any call.
type eventLog struct {
	mu    sync.Mutex
	notes []string
	turns []bool
}

func (e *eventLog) record(m rpc.Message) {
	e.mu.Lock()
	e.notes = append(e.notes, m.Method)
	e.mu.Unlock()
}

func (e *eventLog) ListChanged(_ *upstream.ManagedConn, m rpc.Message)     { e.record(m) }
func (e *eventLog) ResourceUpdated(_ *upstream.ManagedConn, m rpc.Message) { e.record(m) }
func (e *eventLog) Notified(_ *upstream.ManagedConn, m rpc.Message)        { e.record(m) }
func (e *eventLog) StateChanged(_ *upstream.ManagedConn, up bool) {
	e.mu.Lock()
	e.turns = append(e.turns, up)
	e.mu.Unlock()
}

func (e *eventLog) awaitNotification(t *testing.T, method string) {
	t.Helper()
	for range 500 {
		e.mu.Lock()
		found := slices.Contains(e.notes, method)
		e.mu.Unlock()
		if found {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s was not received", method)
}

// fakePeer is the client of a call.
type fakePeer struct {
	mu     sync.Mutex
	notes  []string // the raw params
	asked  []string // the methods
	answer func(rpc.Message) (rpc.Reply, error)
}

func (p *fakePeer) Notify(_ string, m rpc.Message) {
	p.mu.Lock()
	p.notes = append(p.notes, string(m.Params.Of(m.Body)))
	p.mu.Unlock()
}

func (p *fakePeer) Request(_ context.Context, _ string, m rpc.Message) (rpc.Reply, error) {
	p.mu.Lock()
	p.asked = append(p.asked, m.Method)
	p.mu.Unlock()
	return p.answer(m)
}

// resultReply answers every server request with a result.
func resultReply(result string) func(rpc.Message) (rpc.Reply, error) {
	return func(rpc.Message) (rpc.Reply, error) {
		return rpc.Reply{Body: []byte(result), Result: jsonscan.Span{End: len(result)}}, nil
	}
}

func (p *fakePeer) notifications() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.notes)
}

// testClient is the gateway's side of one server.
type testClient struct {
	*upstream.Server
	ears  eventLog
	mu    sync.Mutex
	lost  []error // why its connections were
	count atomic.Int64

	onFailure func(failures int64) // called before the server is started again; may be nil
}

// awaitFailure waits for the first connection that was lost or not made.
func (n *testClient) awaitFailure(t *testing.T) error {
	t.Helper()
	for range 500 {
		n.mu.Lock()
		lost := n.lost
		n.mu.Unlock()
		if len(lost) > 0 {
			return lost[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no connection failed")
	return nil
}

// hasFailure reports whether a connection failed for this reason.
func (n *testClient) hasFailure(why string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.lost, func(err error) bool { return err.Error() == why })
}

// connect starts a server. After the test, nothing of it may be left.
func connect(t *testing.T, entry upstream.ServerConfig, options func(*upstream.Config, *upstream.ServerConfig)) *testClient {
	t.Helper()
	return connectAs(t, entry, mcp.Client{}, options)
}

func connectAs(t *testing.T, entry upstream.ServerConfig, client mcp.Client, options func(*upstream.Config, *upstream.ServerConfig)) *testClient {
	t.Helper()
	before := goleak.IgnoreCurrent()
	cfg := upstream.Default()
	cfg.HealthcheckInterval = 0
	cfg.ResponseTimeout = unit.Duration(10 * time.Second)
	full := entry
	full.SetDefaults()
	full.ID = "a"
	full.Transport = cmp.Or(entry.Transport, full.Transport)
	full.Credentials = cmp.Or(entry.Credentials, full.Credentials)
	if options != nil {
		options(&cfg, &full)
	}
	transport := upstream.NewTransport()
	n := &testClient{}
	n.Server = upstream.NewServer(full, cfg, upstream.Deps{
		Transport: transport, Events: &n.ears, ParseLimits: func() (int, int) { return 64, 4000 },
		CountFailure: func(err error) {
			n.count.Add(1)
			n.mu.Lock()
			n.lost = append(n.lost, err)
			n.mu.Unlock()
		},
	})
	n.StartForClient(client, nil)
	t.Cleanup(func() {
		n.Close()
		for range 3 { // a POST that was being answered gives its connection back a moment later
			transport.CloseIdleConnections()
			if goleak.Find(before) == nil {
				return
			}
		}
		goleak.VerifyNone(t, before)
	})
	return n
}

// call makes a call on the shared connection.
func (n *testClient) call(t *testing.T, method, params string, options ...func(*upstream.Call)) (rpc.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.SharedConn().Call(ctx, newCall(t, method, params, options...))
}

func newCall(t *testing.T, method, params string, options ...func(*upstream.Call)) *upstream.Call {
	t.Helper()
	p, err := mcp.ParseParams([]byte(params))
	if err != nil {
		t.Fatal(err)
	}
	c := &upstream.Call{Method: method, Params: p}
	for _, m := range options {
		m(c)
	}
	return c
}

// mustCall makes a call that must succeed.
func (n *testClient) mustCall(t *testing.T, method, params string, options ...func(*upstream.Call)) string {
	t.Helper()
	m, err := n.call(t, method, params, options...)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return string(m.Result.Of(m.Body))
}
