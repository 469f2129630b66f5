package upstream_test

import (
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

// heard is one request that a server got.
type heard struct {
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

// what names a request: the JSON-RPC method of a POST, "answer" for a reply, else the verb.
func (h heard) what() string {
	switch {
	case h.verb != http.MethodPost:
		return h.verb
	case h.Method == "":
		return "answer"
	}
	return h.Method
}

type act func(http.ResponseWriter, heard)

// far is a hand-written server. It notes every request, and does with it what the test says.
type far struct {
	*httptest.Server
	mu       sync.Mutex
	acts     map[string]act
	seen     []heard
	accepted atomic.Int64
	other    act // for what has none
}

func newFar(t *testing.T, acts map[string]act) *far {
	t.Helper()
	f := &far{acts: acts, other: reply(`{"content":[]}`)}
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

// legacy is a server of the older era with sessions; modern is one of the newer.
func legacy(t *testing.T) *far {
	t.Helper()
	return newFar(t, map[string]act{
		mcp.Discover:    status(400, "Bad Request: Unsupported protocol version"),
		mcp.Initialize:  begin("s1"),
		mcp.Initialized: status(202, ""),
		mcp.Cancelled:   status(202, ""),
		"answer":        status(202, ""),
		"GET":           status(405, ""),
		"DELETE":        status(204, ""),
	})
}

func modern(t *testing.T) *far {
	t.Helper()
	return newFar(t, map[string]act{
		mcp.Discover: reply(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`),
	})
}

func (f *far) on(what string, a act) *far {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts[what] = a
	return f
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := heard{verb: r.Method, path: r.URL.RequestURI(), head: r.Header, body: string(body), ctx: r.Context()}
	_ = json.Unmarshal(body, &h)
	f.mu.Lock()
	f.seen = append(f.seen, h)
	a := f.acts[h.what()]
	if here := f.acts[h.what()+" at "+r.URL.Path]; here != nil {
		a = here
	}
	f.mu.Unlock()
	if a == nil {
		a = f.other
	}
	a(w, h)
}

// got are the requests of a kind, in order.
func (f *far) got(what string) []heard {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []heard
	for _, h := range f.seen {
		if h.what() == what {
			out = append(out, h)
		}
	}
	return out
}

// await waits for the n-th request of a kind.
func (f *far) await(t *testing.T, what string, n int) heard {
	t.Helper()
	for range 500 {
		if all := f.got(what); len(all) >= n {
			return all[n-1]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("there were not %d requests of %s", n, what)
	return heard{}
}

func status(code int, body string) act {
	return func(w http.ResponseWriter, _ heard) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// reply answers a request in one JSON body.
func reply(result string) act { return replyAs(200, "result", result) }

func replyAs(code int, member, value string) act {
	return func(w http.ResponseWriter, h heard) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"%s":%s}`, h.ID, member, value)
	}
}

func begin(session string) act {
	return func(w http.ResponseWriter, h heard) {
		w.Header().Set(mcp.HeaderSession, session)
		reply(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"far","version":"1"}}`)(w, h)
	}
}

// stream answers with events; each is written and flushed, and %s in it is the request's id.
func stream(events ...string) act {
	return func(w http.ResponseWriter, h heard) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w)
		for _, e := range events {
			write(w, h, e)
		}
	}
}

func write(w http.ResponseWriter, h heard, event string) {
	_, _ = io.WriteString(w, strings.ReplaceAll(event, "%s", string(h.ID)))
	flush(w)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

const done = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n"

// ears hears what a server says outside any call.
type ears struct {
	mu    sync.Mutex
	notes []string
	turns []bool
}

func (e *ears) note(m rpc.Message) {
	e.mu.Lock()
	e.notes = append(e.notes, m.Method)
	e.mu.Unlock()
}

func (e *ears) Changed(_ *upstream.Lane, m rpc.Message) { e.note(m) }
func (e *ears) Updated(_ *upstream.Lane, m rpc.Message) { e.note(m) }
func (e *ears) Said(_ *upstream.Lane, m rpc.Message)    { e.note(m) }
func (e *ears) Turned(_ *upstream.Lane, up bool) {
	e.mu.Lock()
	e.turns = append(e.turns, up)
	e.mu.Unlock()
}

func (e *ears) await(t *testing.T, method string) {
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
	t.Fatalf("%s was not heard", method)
}

// peer is a client that waits for a call.
type peer struct {
	mu     sync.Mutex
	notes  []string // the raw params
	asked  []string // the methods
	answer func(rpc.Message) (rpc.Reply, error)
}

func (p *peer) Notify(_ string, m rpc.Message) {
	p.mu.Lock()
	p.notes = append(p.notes, string(m.Params.Of(m.Body)))
	p.mu.Unlock()
}

func (p *peer) Ask(_ context.Context, _ string, m rpc.Message) (rpc.Reply, error) {
	p.mu.Lock()
	p.asked = append(p.asked, m.Method)
	p.mu.Unlock()
	return p.answer(m)
}

// yes answers every question with a result.
func yes(result string) func(rpc.Message) (rpc.Reply, error) {
	return func(rpc.Message) (rpc.Reply, error) {
		return rpc.Reply{Body: []byte(result), Result: jsonscan.Span{End: len(result)}}, nil
	}
}

func (p *peer) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.notes)
}

// near is the gateway's side of one server.
type near struct {
	*upstream.Remote
	ears  ears
	mu    sync.Mutex
	lost  []error // why its connections were
	count atomic.Int64
}

// failed waits for the first connection that was lost or not made.
func (n *near) failed(t *testing.T) error {
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

// lostFor says whether a connection failed for this reason.
func (n *near) lostFor(why string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.lost, func(err error) bool { return err.Error() == why })
}

// connect starts a server's lane. When the test is over nothing of it may be left.
func connect(t *testing.T, entry upstream.Server, mend func(*upstream.Config, *upstream.Server)) *near {
	t.Helper()
	return connectAs(t, entry, mcp.Client{}, mend)
}

func connectAs(t *testing.T, entry upstream.Server, client mcp.Client, mend func(*upstream.Config, *upstream.Server)) *near {
	t.Helper()
	before := goleak.IgnoreCurrent()
	cfg := upstream.Default()
	cfg.HealthcheckInterval = 0
	cfg.ResponseTimeout = unit.Duration(10 * time.Second)
	full := entry
	full.SetDefaults()
	full.ID = "a"
	if entry.Transport != "" {
		full.Transport = entry.Transport
	}
	if mend != nil {
		mend(&cfg, &full)
	}
	transport := upstream.NewTransport()
	n := &near{}
	n.Remote = upstream.NewRemote(full, cfg, upstream.Deps{
		Transport: transport, Listener: &n.ears, Limits: func() (int, int) { return 64, 4000 },
		Count: func(err error) {
			n.count.Add(1)
			n.mu.Lock()
			n.lost = append(n.lost, err)
			n.mu.Unlock()
		},
	})
	n.StartFor(client, nil)
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

// call makes a call through the shared lane.
func (n *near) call(t *testing.T, method, params string, mend ...func(*upstream.Call)) (rpc.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Shared().Call(ctx, newCall(t, method, params, mend...))
}

func newCall(t *testing.T, method, params string, mend ...func(*upstream.Call)) *upstream.Call {
	t.Helper()
	p, err := mcp.ReadParams([]byte(params))
	if err != nil {
		t.Fatal(err)
	}
	c := &upstream.Call{Method: method, Params: p}
	for _, m := range mend {
		m(c)
	}
	return c
}

// must is a call that has to be answered.
func (n *near) must(t *testing.T, method, params string, mend ...func(*upstream.Call)) string {
	t.Helper()
	m, err := n.call(t, method, params, mend...)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return string(m.Result.Of(m.Body))
}
