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
)

// tape is a wire that notes what is sent, and says nothing by itself.
type tape struct {
	mu       sync.Mutex
	sent     []string
	canceled []string // id and reason
	closed   int
	refuse   error
}

func (w *tape) send(_ *flight, msg []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, string(msg))
	return w.refuse
}

func (w *tape) cancel(f *flight, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.canceled = append(w.canceled, fmt.Sprint(f.id, " ", reason))
}

func (w *tape) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
}

// last is what was sent last.
func (w *tape) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sent) == 0 {
		return ""
	}
	return w.sent[len(w.sent)-1]
}

// taped is a connection of the older era on a tape. What belongs to no call is noted in its events.
type taped struct {
	*Conn
	wire   *tape
	events *mate
}

func newTaped(timeout time.Duration) taped {
	w, e := &tape{}, &mate{}
	c := newConn("a", limits{read: func() (int, int) { return 64, 4000 }, timeout: timeout}, nil)
	c.wire, c.hello = w, Hello{Era: mcp.EraLegacy, Version: mcp.V20251125}
	c.events = func(m rpc.Message) { e.Notify("a", m) }
	return taped{c, w, e}
}

// says is a message of the server on the stream that all calls share.
func (c taped) says(format string, args ...any) { c.take(fmt.Appendf(nil, format, args...), nil) }

// answered is a reply that says nothing but whose it is.
func (c taped) answered(id int64) {
	c.says(`{"jsonrpc":"2.0","id":%d,"result":{"to":%d}}`, id, id)
}

// outcome is how a call ended.
type outcome struct {
	body string
	err  error
}

func (o outcome) String() string {
	if o.err != nil {
		return fault.KindOf(o.err).String() + ": " + fault.PublicOf(o.err)
	}
	return o.body
}

// begin starts a call and returns when it is on its way; the channel gets its outcome.
func (c taped) begin(ctx context.Context, call *Call) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		m, err := c.Call(ctx, call)
		done <- outcome{string(m.Result.Of(m.Body)), err}
	}()
	synctest.Wait()
	return done
}

func (c taped) flight(id int64) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flights[id]
}

// mate is a client as servers see it: it notes what reaches it, and answers when told.
type mate struct {
	mu    sync.Mutex
	notes []string
	asked []string
	ended []error // of questions that were taken back
	reply func(ctx context.Context, q rpc.Message) (rpc.Reply, error)
}

func (p *mate) Notify(_ string, m rpc.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = append(p.notes, m.Method+" "+string(m.Params.Of(m.Body)))
}

func (p *mate) Ask(ctx context.Context, _ string, q rpc.Message) (rpc.Reply, error) {
	p.mu.Lock()
	p.asked = append(p.asked, q.Method)
	p.mu.Unlock()
	if p.reply != nil {
		return p.reply(ctx, q)
	}
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, ctx.Err())
	return rpc.Reply{}, ctx.Err()
}

// heard are the notes so far, which are forgotten.
func (p *mate) heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := strings.Join(p.notes, "; ")
	p.notes = nil
	return got
}

// result answers a question with it.
func result(raw string) func(context.Context, rpc.Message) (rpc.Reply, error) {
	return func(context.Context, rpc.Message) (rpc.Reply, error) {
		return rpc.Reply{Body: []byte(raw), Result: jsonscan.Span{End: len(raw)}}, nil
	}
}

// able is a client that can answer what its capabilities name.
func able(capabilities ...string) mcp.Client {
	var b strings.Builder
	for i, c := range capabilities {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:{}", c)
	}
	return mcp.Client{Capabilities: []byte("{" + b.String() + "}")}
}

// calling makes a call of a method with params.
func calling(method, params string, mend ...func(*Call)) *Call {
	p, err := mcp.ReadParams([]byte(params))
	if err != nil {
		panic(err)
	}
	c := &Call{Method: method, Params: p}
	for _, m := range mend {
		m(c)
	}
	return c
}

// of makes a call one of a client that waits for it.
func of(p Peer, client mcp.Client) func(*Call) {
	return func(c *Call) { c.Peer, c.Client, c.Progress = p, client, true }
}

// want compares, and says both.
func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
