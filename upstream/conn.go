package upstream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// wire carries messages to one server. What comes back is given to the connection's take.
type wire interface {
	// send carries one message. f is the call that it begins, nil for anything else.
	send(f *flight, msg []byte) error

	// cancel says that nobody waits for f any more.
	cancel(f *flight, reason string)

	// close ends the wire; the connection has failed everything that was under way.
	close()
}

// limits are what a connection reads at most.
type limits struct {
	read    func() (depth, chars int)
	timeout time.Duration
}

// Conn is one conversation with a server: it numbers requests, matches replies, and takes what
// the server says meanwhile to whom it concerns.
type Conn struct {
	server string
	limits limits
	wire   wire
	hello  Hello
	owner  Peer // the client this connection belongs to alone; nil when it is shared
	alone  bool // all calls on it are of one client
	events func(note rpc.Message)

	budget  *membudget.Budget
	memory  *membudget.Scope // of messages on a stream that all calls share, while they are read
	charged int64            // what memory holds for the message at hand; its reader's alone

	mu      sync.Mutex
	next    int64
	flights map[int64]*flight
	asks    map[string]context.CancelFunc // questions of the server under way, by their raw id
	ended   chan struct{}
	closed  chan struct{} // the wire is closed as well
	why     error
	busy    atomic.Int64 // calls under way
	streams atomic.Int64 // those of them that have no end
	useful  atomic.Bool  // it has answered what a client asked

	answering atomic.Int64 // questions of the server under way
	strange   atomic.Int64 // messages that were none, and replies nobody waits for
}

// flight is one request under way.
type flight struct {
	id     int64
	call   *Call
	reply  chan rpc.Message
	failed chan error
	stir   chan struct{} // the server showed that it is working
	asking atomic.Int32  // questions to the client under way: the server waits for us
	talk   sync.Mutex    // held while the client is told something of the call
	over   atomic.Bool   // answered: nothing may follow
	memory *membudget.Scope
	own    bool // memory belongs to the flight, not to who called
	stop   context.CancelFunc
}

func newConn(server string, lim limits, budget *membudget.Budget) *Conn {
	return &Conn{
		server: server, limits: lim, budget: budget, memory: budget.Scope("server " + server), flights: map[int64]*flight{}, asks: map[string]context.CancelFunc{},
		ended: make(chan struct{}), closed: make(chan struct{}), events: func(rpc.Message) {},
	}
}

// Hello is what the server said of itself when the connection was made.
func (c *Conn) Hello() Hello { return c.hello }

// Ended is closed when the connection is of no use any more.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Why says how it ended.
func (c *Conn) Why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// end fails everything that is under way. The first reason counts.
func (c *Conn) end(why error) {
	c.mu.Lock()
	if c.why != nil {
		c.mu.Unlock()
		return
	}
	c.why = why
	close(c.ended)
	for _, cancel := range c.asks {
		cancel()
	}
	c.mu.Unlock()
	c.wire.close()
	c.memory.Release()
	close(c.closed)
}

// guard is deferred by whatever reads what a server said. A mistake of ours that its bytes bring to
// light costs the call they were for, or else this connection, and nobody else's.
func (c *Conn) guard(f *flight) {
	p := recover()
	if p == nil {
		return
	}
	slog.Error("reading what a server said panicked", "server", c.server, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	err := fault.Wrap(fault.Internal, "internal error", fmt.Errorf("panic: %v", p))
	if f != nil {
		f.fail(err)
		return
	}
	c.end(err)
}

// Close ends the connection from our side, and waits until its wire is closed: by whomever it was
// ended, the program behind it is gone then.
func (c *Conn) Close() {
	c.end(fault.New(fault.Unavailable, "the server is being stopped"))
	<-c.closed
}

// Call sends a request and waits for its reply. A server that shows progress, or that waits for
// an answer of the client, is not out of time.
func (c *Conn) Call(ctx context.Context, call *Call) (rpc.Message, error) {
	f, err := c.open(ctx, call)
	if err != nil {
		return rpc.Message{}, err
	}
	defer c.shut(f)
	msg, err := c.request(f)
	if err != nil {
		return rpc.Message{}, err
	}
	if err := c.wire.send(f, msg); err != nil {
		return rpc.Message{}, err
	}
	return c.wait(ctx, f)
}

func (c *Conn) wait(ctx context.Context, f *flight) (rpc.Message, error) {
	timer := time.NewTimer(c.limits.timeout)
	defer timer.Stop()
	for {
		select {
		case m := <-f.reply:
			return m, nil
		case err := <-f.failed:
			return rpc.Message{}, err
		case <-f.stir:
			timer.Reset(c.limits.timeout)
		case <-timer.C:
			if f.asking.Load() > 0 || f.call.Endless {
				timer.Reset(c.limits.timeout)
				continue
			}
			c.wire.cancel(f, "timeout")
			return rpc.Message{}, fault.New(fault.Timeout, "the server did not answer in time")
		case <-ctx.Done():
			c.wire.cancel(f, "cancelled")
			return rpc.Message{}, failure(ctx, ctx.Err())
		case <-c.ended:
			select { // what was answered before the end counts
			case m := <-f.reply:
				return m, nil
			default:
			}
			return rpc.Message{}, lost(c.Why())
		}
	}
}

// lost is what a call gets whose connection ended under it.
func lost(why error) error {
	if fault.KindOf(why) == fault.Internal {
		return fault.Wrap(fault.Unavailable, "the server went away during the call", why)
	}
	return why
}

// open begins a call. What it holds is charged to the scope of who calls; a call of our own has one
// for itself.
func (c *Conn) open(ctx context.Context, call *Call) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return nil, unbegun{lost(c.why)}
	}
	c.next++
	f := &flight{
		id: c.next, call: call, reply: make(chan rpc.Message, 1), failed: make(chan error, 1), stir: make(chan struct{}, 1),
		stop: func() {}, memory: membudget.From(ctx),
	}
	if f.memory == nil {
		f.memory, f.own = c.budget.Scope("server "+c.server), true
	}
	c.flights[f.id] = f
	c.busy.Add(1)
	if call.Endless {
		c.streams.Add(1)
	}
	return f, nil
}

func (c *Conn) shut(f *flight) {
	f.finish()
	c.mu.Lock()
	delete(c.flights, f.id)
	c.mu.Unlock()
	c.busy.Add(-1)
	if f.call.Endless {
		c.streams.Add(-1)
	}
	f.stop()
	if f.own {
		f.memory.Release()
	}
}

// request is the message that begins a call, in the server's dress.
func (c *Conn) request(f *flight) ([]byte, error) {
	if err := f.memory.Take(int64(len(f.call.Params.Raw()))); err != nil {
		return nil, err
	}
	params := c.hello.dress(f)
	dst := make([]byte, 0, len(params)+len(f.call.Method)+64)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendInt(dst, f.id, 10)
	dst = append(dst, `,"method":`...)
	dst = jsonscan.AppendString(dst, f.call.Method)
	dst = append(dst, `,"params":`...)
	return append(append(dst, params...), '}'), nil
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params []byte) error {
	return c.wire.send(nil, notification(method, params))
}

func notification(method string, params []byte) []byte {
	dst := append([]byte(`{"jsonrpc":"2.0","method":`), jsonscan.AppendString(nil, method)...)
	if len(params) > 0 {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// take is what a wire calls with each message, and says whether it was one. from is the call on
// whose own stream it came, nil where all messages share one.
func (c *Conn) take(body []byte, from *flight) bool {
	depth, chars := c.limits.read()
	m, err := rpc.ParseMessage(body, depth, chars)
	if err != nil {
		if from == nil {
			from = c.broken(body)
		}
		c.odd(from, "a server sent what is no message", err)
		return false
	}
	switch {
	case m.IsReply():
		c.settle(m, from)
	case m.IsNotification():
		c.hear(m, from)
	default:
		c.mu.Lock()
		alive := c.why == nil
		c.mu.Unlock()
		if alive && c.answering.Add(1) <= maxAnswers {
			go func() {
				defer c.guard(from)
				defer c.answering.Add(-1)
				c.answer(m, from)
			}()
		} else if alive {
			c.answering.Add(-1)
			c.odd(nil, "a server asks too much at once", nil)
		}
	}
	return true
}

// maxAnswers is how many questions of a server may be open at once. More are not answered.
const maxAnswers = 256

// nameBytes is how much of either end of a broken message is searched for its id.
const nameBytes = 512

// broken finds the call that a broken message was to answer. What merely names a call is no answer.
func (c *Conn) broken(body []byte) *flight {
	head, tail := body[:min(len(body), nameBytes)], body[max(len(body)-nameBytes, 0):]
	if bytes.Contains(head, []byte(`"method"`)) || !bytes.Contains(head, []byte(`"jsonrpc"`)) && !bytes.Contains(tail, []byte(`"jsonrpc"`)) {
		return nil
	}
	return c.named(head, tail)
}

// odd counts what should not have come. Where only one call can be meant, it fails that call.
func (c *Conn) odd(from *flight, what string, err error) {
	if n := c.strange.Add(1); n&(n-1) == 0 { // the 1st, 2nd, 4th, 8th…: a noisy server does not fill the log
		slog.Warn(what, "server", c.server, "error", err, "so_far", n)
	}
	if from != nil {
		from.fail(err)
	}
}

// finish says that nothing may follow, and waits for what is being told. It is false when it was
// said before.
func (f *flight) finish() bool {
	f.talk.Lock()
	defer f.talk.Unlock()
	return !f.over.Swap(true)
}

// tell takes a notification to the call's client, unless the call is over. The two exclude each
// other: on HTTP a note and the reply may come on different streams at once.
func (f *flight) tell(server string, note rpc.Message) {
	f.talk.Lock()
	defer f.talk.Unlock()
	if !f.over.Load() {
		f.call.Peer.Notify(server, note)
	}
}

func (f *flight) fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// settle gives a reply to the call that waits for it.
func (c *Conn) settle(m rpc.Message, from *flight) {
	id, err := strconv.ParseInt(string(m.ID.Of(m.Body)), 10, 64)
	c.mu.Lock()
	f := c.flights[id]
	c.mu.Unlock()
	if err != nil || f == nil || from != nil && from != f {
		c.odd(nil, "a server answered what nobody asked", err)
		return
	}
	if from == nil {
		if err := c.charge(f, m); err != nil {
			f.fail(err)
			return
		}
	}
	if !f.finish() {
		c.odd(nil, "a server answered twice", nil)
		return
	}
	if !mcp.IsHousekeeping(f.call.Method) {
		c.useful.Store(true)
	}
	f.reply <- m
}

// charge makes a reply that came on a shared stream one of the bytes that its caller holds.
func (c *Conn) charge(f *flight, m rpc.Message) error {
	if c.charged == 0 {
		return f.memory.Take(int64(len(m.Body)))
	}
	err := c.memory.MoveTo(f.memory, c.charged)
	if err == nil {
		c.charged = 0
	}
	return err
}

// takeShared is take for a stream that all calls share. The connection's scope holds charged bytes
// for the message: those of a reply go to its call, the others are given back.
func (c *Conn) takeShared(body []byte, charged int64) bool {
	c.charged = charged
	ok := c.take(body, nil)
	c.memory.Give(c.charged)
	c.charged = 0
	return ok
}

// hear takes a notification to whom it concerns.
func (c *Conn) hear(m rpc.Message, from *flight) {
	params, err := jsonscan.ReadFields(m.Body, m.Params)
	if err != nil {
		return
	}
	switch m.Method {
	case mcp.Progress:
		token, _ := params.Get("progressToken")
		c.progress(string(token), m)
	case mcp.Cancelled:
		id, _ := params.Get("requestId")
		c.mu.Lock()
		if cancel := c.asks[string(id)]; cancel != nil {
			cancel()
		}
		c.mu.Unlock()
	case mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged, mcp.ResourceUpdated:
		c.events(m)
	case mcp.Acknowledged:
		c.begun(params, from)
	default:
		c.speak(m, from)
	}
}

// begun says that a stream of notifications is there.
func (c *Conn) begun(params jsonscan.Fields, from *flight) {
	if meta, ok := params.Get("_meta"); ok && from == nil {
		fields, _ := jsonscan.FieldsOf(meta)
		raw, _ := fields.Get(mcp.KeySubscription)
		if id, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			c.mu.Lock()
			from = c.flights[id]
			c.mu.Unlock()
		}
	}
	if from != nil && from.call.Ready != nil {
		from.call.Ready()
	}
}

// progress goes to the call that the token names, and never after its reply.
func (c *Conn) progress(token string, m rpc.Message) {
	id, err := strconv.ParseInt(token, 10, 64)
	c.mu.Lock()
	f := c.flights[id]
	c.mu.Unlock()
	if err != nil || f == nil || f.over.Load() {
		return
	}
	select {
	case f.stir <- struct{}{}:
	default:
	}
	if f.call.Peer != nil && f.call.Progress {
		f.tell(c.server, m)
	}
}

// speak takes a notification of any other kind to the call it belongs to, if there is only one
// it can belong to, else to whoever owns the connection, else to all who listen.
func (c *Conn) speak(m rpc.Message, from *flight) {
	if from == nil {
		from = c.only()
	}
	switch {
	case from != nil && from.call.Peer != nil:
		from.tell(c.server, m)
	case c.owner != nil:
		c.owner.Notify(c.server, m)
	default:
		c.events(m)
	}
}
