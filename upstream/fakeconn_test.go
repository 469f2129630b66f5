package upstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// recordingWire is a wire that records what is sent and receives nothing.
type recordingWire struct {
	mu       sync.Mutex
	sent     []string
	canceled []string // id and reason
	closed   int
	sendErr  error
}

func (w *recordingWire) Send(_ wire.Request, msg []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, string(msg))
	return w.sendErr
}

func (w *recordingWire) Cancel(f wire.Request, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.canceled = append(w.canceled, fmt.Sprint(f.ID(), " ", reason))
}

func (w *recordingWire) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
}

// lastSent is the last message that was sent.
func (w *recordingWire) lastSent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sent) == 0 {
		return ""
	}
	return w.sent[len(w.sent)-1]
}

// testConn is a legacy connection over a recordingWire. events records notifications outside any call.
type testConn struct {
	*Conn
	wire   *recordingWire
	events *fakePeer
}

func newTestConn(timeout time.Duration) testConn {
	w, e := &recordingWire{}, &fakePeer{}
	c := newConn("a", limits{parse: func() (int, int) { return 64, 4000 }, timeout: timeout}, nil)
	c.wire, c.handshake = w, Handshake{Protocol: mcp.Legacy, Version: mcp.V20251125}
	c.onEvent = func(m rpc.Message) { e.Notify("a", m) }
	return testConn{c, w, e}
}

// receive handles a message on the stream that all calls share.
func (c testConn) receive(format string, args ...any) {
	c.handleMessage(fmt.Appendf(nil, format, args...), nil)
}

// receiveReply handles a reply that contains only its id.
func (c testConn) receiveReply(id int64) {
	c.receive(`{"jsonrpc":"2.0","id":%d,"result":{"to":%d}}`, id, id)
}

// callResult is the result of a call.
type callResult struct {
	body string
	err  error
}

func (o callResult) String() string {
	if o.err != nil {
		return fault.KindOf(o.err).String() + ": " + fault.PublicOf(o.err)
	}
	return o.body
}

// beginCall starts a call and returns when it was sent; the channel gets its result.
func (c testConn) beginCall(ctx context.Context, call *Call) <-chan callResult {
	done := make(chan callResult, 1)
	go func() {
		m, err := c.Call(ctx, call)
		done <- callResult{string(m.Result.Of(m.Body)), err}
	}()
	synctest.Wait()
	return done
}

func (c testConn) inflightCall(id int64) *inflight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id]
}

// fakePeer is a client that records what reaches it, and answers server requests with reply.
type fakePeer struct {
	mu            sync.Mutex
	notifications []string
	requests      []string
	canceled      []error // of server requests that were canceled
	reply         func(ctx context.Context, q rpc.Message) (rpc.Reply, error)
}

func (p *fakePeer) Notify(_ string, m rpc.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notifications = append(p.notifications, m.Method+" "+string(m.Params.Of(m.Body)))
}

func (p *fakePeer) Request(ctx context.Context, _ string, q rpc.Message) (rpc.Reply, error) {
	p.mu.Lock()
	p.requests = append(p.requests, q.Method)
	p.mu.Unlock()
	if p.reply != nil {
		return p.reply(ctx, q)
	}
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.canceled = append(p.canceled, ctx.Err())
	return rpc.Reply{}, ctx.Err()
}

// takeNotifications returns the notifications so far and forgets them.
func (p *fakePeer) takeNotifications() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := strings.Join(p.notifications, "; ")
	p.notifications = nil
	return got
}

// resultReply answers a server request with a result.
func resultReply(raw string) func(context.Context, rpc.Message) (rpc.Reply, error) {
	return func(context.Context, rpc.Message) (rpc.Reply, error) {
		return rpc.Reply{Body: []byte(raw), Result: jsonscan.Span{End: len(raw)}}, nil
	}
}

// clientWith is a client with these capabilities.
func clientWith(capabilities ...string) mcp.Client {
	var b strings.Builder
	for i, c := range capabilities {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:{}", c)
	}
	return mcp.Client{Capabilities: []byte("{" + b.String() + "}")}
}

// newCall makes a call of a method with params.
func newCall(method, params string, options ...func(*Call)) *Call {
	p, err := mcp.ParseParams([]byte(params))
	if err != nil {
		panic(err)
	}
	c := &Call{Method: method, Params: p}
	for _, m := range options {
		m(c)
	}
	return c
}

// forPeer sets the client of a call.
func forPeer(p Peer, client mcp.Client) func(*Call) {
	return func(c *Call) { c.Peer, c.Client, c.WantsProgress = p, client, true }
}

// checkEqual fails the test if got is not want.
func checkEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
