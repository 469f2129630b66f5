package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// fakeServer is a remote server without a socket, for synctest. By default it is a legacy server over HTTP+SSE.
type fakeServer struct {
	t *testing.T

	mu            sync.Mutex
	isDown        bool // it refuses connections
	http          bool // Streamable HTTP, not HTTP+SSE
	hasNoSessions bool // initialize gives no session
	handlers      map[string]handler
	received      []receivedMessage
	dials         []time.Time      // of all attempts to connect
	streams       []*io.PipeWriter // open or not, in order
}

// receivedMessage is a message that the server received.
type receivedMessage struct {
	stream   int // of HTTP+SSE, from 0
	Method   string
	ID       json.RawMessage
	Params   json.RawMessage
	Result   json.RawMessage
	Error    json.RawMessage
	canceled <-chan struct{} // closed when the request is canceled
}

// delay waits, unless the request is canceled first.
func (m receivedMessage) delay(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.canceled:
	}
}

// handler answers a message: with members of a reply, noReply, or an HTTP status.
type handler func(receivedMessage) string

const (
	noReply          = ""
	initializeResult = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"p"}}`
	discoverResult   = `"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}}`
	methodNotFound   = `"error":{"code":-32601,"message":"Method not found"}`
)

func respond(text string) handler { return func(receivedMessage) string { return text } }

func newFakeServer(t *testing.T) *fakeServer {
	return &fakeServer{t: t, handlers: map[string]handler{mcp.Initialize: respond(initializeResult), mcp.ServerDiscover: respond(methodNotFound)}}
}

// makeModern makes it a modern server.
func (p *fakeServer) makeModern() *fakeServer {
	p.http = true
	return p.on(mcp.ServerDiscover, respond(discoverResult)).on(mcp.Initialize, respond(methodNotFound))
}

// makeBoth makes it a server of both protocols, with legacy sessions. It lists the given legacy revisions.
func (p *fakeServer) makeBoth(versions ...string) *fakeServer {
	p.makeModern()
	listed := `"supportedVersions":` + string(mcp.QuoteAll(append([]string{mcp.V20260728}, versions...)))
	return p.on(mcp.Initialize, respond(initializeResult)).on(mcp.ServerDiscover, respond(strings.Replace(discoverResult, `"supportedVersions":["2026-07-28"]`, listed, 1)))
}

func (p *fakeServer) on(method string, a handler) *fakeServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[method] = a
	return p
}

func (p *fakeServer) setDown(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isDown = away
}

// closeStream ends the stream that was opened last.
func (p *fakeServer) closeStream() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[len(p.streams)-1].Close()
}

// sendEvent sends an event on the stream that was opened last.
func (p *fakeServer) sendEvent(text string) {
	p.mu.Lock()
	w := p.streams[len(p.streams)-1]
	p.mu.Unlock()
	_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
}

// paramsOf are the params of the received requests of a method.
func (p *fakeServer) paramsOf(method string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, m := range p.received {
		if m.Method == method {
			out = append(out, string(m.Params))
		}
	}
	return out
}

// connectTimes are the times of all attempts to connect.
func (p *fakeServer) connectTimes() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dials)
}

// connectCount is the number of attempts to connect.
func (p *fakeServer) connectCount() int { return len(p.connectTimes()) }

// RoundTrip makes the server an HTTP transport.
func (p *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	away, opens := p.isDown, r.Method == http.MethodGet && !p.http
	if opens {
		p.dials = append(p.dials, time.Now())
	}
	p.mu.Unlock()
	switch {
	case away:
		return nil, errors.New("connection refused")
	case r.Method == http.MethodPost:
		return p.post(r)
	case opens:
		w, n, resp := p.openStream(r)
		_, _ = fmt.Fprintf(w, "event: endpoint\ndata: /m?n=%d\n\n", n)
		return resp, nil
	}
	return response(405, "", strings.NewReader("")), nil
}

// openStream opens an event stream. The first write does not wait for a reader.
func (p *fakeServer) openStream(r *http.Request) (w *io.PipeWriter, n int, resp *http.Response) {
	out, w := io.Pipe()
	in, first := io.Pipe()
	go func() { // a buffer, as a socket has one
		_, err := io.Copy(first, out)
		first.CloseWithError(err)
	}()
	context.AfterFunc(r.Context(), func() {
		w.CloseWithError(r.Context().Err())
		in.CloseWithError(r.Context().Err())
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = append(p.streams, w)
	return w, len(p.streams) - 1, response(200, "text/event-stream", in)
}

func response(status int, kind string, body io.Reader) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: -1}
	resp.Header.Set("Content-Type", kind)
	closer, ok := body.(io.ReadCloser)
	if !ok {
		closer = io.NopCloser(body)
	}
	resp.Body = closer
	return resp
}

func (p *fakeServer) post(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	var m receivedMessage
	if err := json.Unmarshal(body, &m); err != nil {
		p.t.Errorf("it was sent %s", body)
	}
	m.canceled = r.Context().Done()
	m.stream, _ = strconv.Atoi(r.URL.Query().Get("n"))
	p.mu.Lock()
	p.received = append(p.received, m)
	a, own, forgets := p.handlers[m.Method], p.http, p.hasNoSessions
	p.mu.Unlock()
	text := `"result":{}`
	if a != nil {
		text = a(m)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if status, err := strconv.Atoi(text); err == nil {
		return response(status, "", strings.NewReader("")), nil
	}
	if m.ID == nil || m.Method == "" {
		return response(202, "", strings.NewReader("")), nil
	}
	reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, text)
	switch {
	case own && m.Method == mcp.SubscriptionsListen && text != methodNotFound:
		w, _, resp := p.openStream(r)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		return resp, nil
	case own && text == noReply:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case own:
		resp := response(200, "application/json", strings.NewReader(reply))
		if m.Method == mcp.Initialize && !forgets {
			resp.Header.Set(mcp.HeaderSession, "s")
		}
		return resp, nil
	case text != noReply:
		p.mu.Lock()
		w := p.streams[m.stream]
		p.mu.Unlock()
		go func() { _, _ = fmt.Fprintf(w, "data: %s\n\n", reply) }()
	}
	return response(202, "", strings.NewReader("")), nil
}

// eventLog records what happens outside any call.
type eventLog struct {
	mu            sync.Mutex
	notifications []string
	stateChanges  []string
	failures      []error // why connections were lost or not made
}

func (e *eventLog) record(kind string, m rpc.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notifications = append(e.notifications, kind+" "+string(m.Params.Of(m.Body)))
}

func (e *eventLog) ListChanged(_ *ManagedConn, m rpc.Message)     { e.record("changed", m) }
func (e *eventLog) ResourceUpdated(_ *ManagedConn, m rpc.Message) { e.record("updated", m) }
func (e *eventLog) Notified(_ *ManagedConn, m rpc.Message)        { e.record("notified", m) }

func (e *eventLog) StateChanged(_ *ManagedConn, up bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stateChanges = append(e.stateChanges, map[bool]string{true: "up", false: "down"}[up])
}

// states waits first: a connection is up before its state change is reported.
func (e *eventLog) states() string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.stateChanges, " ")
}

func (e *eventLog) lostConns() []error {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failures
}

// newServer is a Server for the fake, not started.
func (p *fakeServer) newServer(options ...func(*Config, *ServerConfig)) (*Server, *eventLog) {
	cfg, entry, e := Default(), ServerConfig{}, &eventLog{}
	cfg.HealthcheckInterval = 0
	entry.SetDefaults()
	entry.ID, entry.URL, entry.OAuth.Disabled = "a", "http://far.test/mcp", true
	if !p.http {
		entry.Transport = "sse"
	}
	for _, m := range options {
		m(&cfg, &entry)
	}
	server := NewServer(entry, cfg, Deps{
		Transport: p, Events: e, ParseLimits: func() (int, int) { return 64, 4000 },
		CountFailure: func(err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.failures = append(e.failures, err)
		},
	})
	p.t.Cleanup(func() {
		server.Close()
		time.Sleep(expiryQuiet) // until sessions that are expiring have noticed the end
	})
	return server, e
}

// startShared starts a Server for the fake and returns its shared connection.
func (p *fakeServer) startShared(options ...func(*Config, *ServerConfig)) (*ManagedConn, *eventLog) {
	server, e := p.newServer(options...)
	server.Start()
	return server.SharedConn(), e
}

// callTool calls a tool without a name.
func callTool(ctx context.Context, conn *ManagedConn) callResult {
	m, err := conn.Call(ctx, newCall(mcp.ToolsCall, `{}`))
	return callResult{string(m.Result.Of(m.Body)), err}
}

// withProbes turns health probes on.
func withProbes(every, within time.Duration) func(*Config, *ServerConfig) {
	return func(c *Config, _ *ServerConfig) {
		c.HealthcheckInterval, c.HealthcheckTimeout = unit.Duration(every), unit.Duration(within)
	}
}
