package upstream

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// Call is one request to a server, independent of the protocol revision: the connection encodes it for the
// revision that its server speaks.
type Call struct {
	Method  string
	Params  mcp.Params        // as the client sent them
	Changes []jsonscan.Change // to the params: the tool's name without its prefix, for example

	Client        mcp.Client // on whose behalf
	WantsProgress bool       // progress notifications are passed on
	ClientKey     string     // no two clients have the same; "" where the client is not known
	LogLevel      string     // the least severe log messages the client wants; "" for none
	Peer          Peer       // the client that waits for the call; nil for calls of our own
	Streaming     bool       // no reply is expected: the call is a stream of notifications
	OnReady       func()     // is called when such a stream has started; may be nil
}

// Peer is the client that waits for a call. Its server may send it messages meanwhile.
type Peer interface {
	// Notify takes a notification that belongs to the call. The token of a progress notification is the
	// connection's, not the client's.
	Notify(server string, note rpc.Message)

	// Request sends a server's request to the client and returns the reply, whose id means nothing.
	Request(ctx context.Context, server string, request rpc.Message) (rpc.Reply, error)
}

// Conn is one connection to a server: it numbers requests, matches replies, and passes on what the server
// sends meanwhile.
type Conn struct {
	serverID     string
	limits       limits
	wire         wire.Wire
	handshake    Handshake
	upSince      time.Time  // the end of the handshake
	owner        Peer       // the client that has the connection to itself; nil when it is shared
	singleClient bool       // all calls on it are of one client
	asksByCause  bool       // clients share it, and its server may send requests to the one whose call caused them
	declared     requestSet // what the legacy handshake declared for all of them
	onEvent      func(note rpc.Message)

	onRequest func(method string)                          // the server sends a request to a client
	onCause   func(method string, isKnown, isUnclear bool) // which client that is was found out, where asksByCause

	budget  *membudget.Budget
	memory  *membudget.Scope // is charged for messages on a stream that all calls share, while they are read
	charged int64            // what memory holds for the message being read; only its reader uses it

	mu             sync.Mutex
	lastID         int64
	pending        map[int64]*inflight
	serverRequests map[string]context.CancelFunc // requests of the server that are being answered, by raw id
	ended          chan struct{}
	closed         chan struct{} // the wire is closed as well
	endErr         error

	callEnded        chan struct{}    // closed and replaced whenever a call has ended, where asksByCause
	abandoned        map[int64]string // calls without a reply, and whose they were
	abandonedTooMany bool             // there were more

	callCount          atomic.Int64 // calls in flight
	streamCount        atomic.Int64 // those of them that are streams
	hasServed          atomic.Bool  // it has answered a call of a client
	serverRequestCount atomic.Int64 // requests of the server that are being answered
	unexpectedCount    atomic.Int64 // input that was not a message, and replies to no pending call
}

type limits struct {
	parse   func() (depth, chars int)
	timeout time.Duration // for the reply to a call
	start   time.Duration // for the replies of a handshake, if that is longer
}

// replyTimeout is how long the server may take to reply to a method.
func (l limits) replyTimeout(method string) time.Duration {
	if method == mcp.Initialize || method == mcp.ServerDiscover {
		return max(l.start, l.timeout)
	}
	return l.timeout
}

func newConn(server string, lim limits, budget *membudget.Budget) *Conn {
	return &Conn{
		serverID: server, limits: lim, budget: budget, memory: budget.Scope("server " + server),
		pending: map[int64]*inflight{}, serverRequests: map[string]context.CancelFunc{},
		ended: make(chan struct{}), closed: make(chan struct{}), onEvent: func(rpc.Message) {},
		onRequest: func(string) {}, onCause: func(string, bool, bool) {}, callEnded: make(chan struct{}), abandoned: map[int64]string{},
	}
}

// Handshake is what the server declared when the connection was made.
func (c *Conn) Handshake() Handshake { return c.handshake }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Err says why it ended; nil before.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endErr
}

// end fails everything in flight and closes the wire. The first reason counts.
func (c *Conn) end(why error) {
	c.mu.Lock()
	if c.endErr != nil {
		c.mu.Unlock()
		return
	}
	c.endErr = why
	close(c.ended)
	for _, cancel := range c.serverRequests {
		cancel()
	}
	c.mu.Unlock()
	c.wire.Close()
	c.memory.Release()
	close(c.closed)
}

// Close ends the connection and waits until its wire is closed: a child process is gone then.
func (c *Conn) Close() {
	c.end(fault.New(fault.Unavailable, "the server is being stopped"))
	<-c.closed
}

// recoverPanic is deferred where a server's message is handled. A bug that its bytes bring to light costs
// the call they were for, or else this connection.
func (c *Conn) recoverPanic(f *inflight) {
	if p := recover(); p != nil {
		err := wire.PanicError(c.serverID, p)
		if f != nil {
			f.Fail(err)
		} else {
			c.end(err)
		}
	}
}

// Call sends a request and waits for its reply. The timeout starts anew when the server reports progress or
// gets an answer from the client.
func (c *Conn) Call(ctx context.Context, call *Call) (rpc.Message, error) {
	f, err := c.startCall(ctx, call)
	if err != nil {
		return rpc.Message{}, err
	}
	defer c.finishCall(f)
	msg, err := c.encodeRequest(f)
	if err != nil {
		return rpc.Message{}, err
	}
	if err := c.wire.Send(f, msg); err != nil {
		return rpc.Message{}, err
	}
	return c.awaitReply(ctx, f)
}

func (c *Conn) awaitReply(ctx context.Context, f *inflight) (rpc.Message, error) {
	timeout := c.limits.replyTimeout(f.call.Method)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case m := <-f.reply:
			return m, nil
		case err := <-f.failed:
			return rpc.Message{}, err
		case <-f.activity:
			timer.Reset(timeout)
		case <-timer.C:
			if f.clientRequests.Load() > 0 || f.call.Streaming {
				timer.Reset(timeout)
				continue
			}
			c.cancelCall(f, "timeout")
			return rpc.Message{}, fault.New(fault.Timeout, "the server did not answer in time")
		case <-ctx.Done():
			c.cancelCall(f, "cancelled")
			return rpc.Message{}, wire.CallError(ctx, ctx.Err())
		case <-c.ended:
			select { // a reply that came before the end counts
			case m := <-f.reply:
				return m, nil
			default:
			}
			return rpc.Message{}, wire.ConnLost(c.Err())
		}
	}
}

// cancelCall tells the server and then stops the call's exchange at once, which a finished call would not.
func (c *Conn) cancelCall(f *inflight, reason string) {
	c.wire.Cancel(f, reason)
	f.stop()
}

// startCall registers a call. Its memory is charged to the caller's scope; a call of our own has a scope for
// itself.
func (c *Conn) startCall(ctx context.Context, call *Call) (*inflight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return nil, wire.NotStarted(wire.ConnLost(c.endErr))
	}
	c.lastID++
	f := &inflight{
		conn: c, id: c.lastID, call: call, reply: make(chan rpc.Message, 1), failed: make(chan error, 1), activity: make(chan struct{}, 1),
		stop: func() {}, memory: membudget.FromContext(ctx),
	}
	if f.memory == nil {
		f.memory, f.ownsMemory = c.budget.Scope("server "+c.serverID), true
	}
	c.pending[f.id] = f
	c.callCount.Add(1)
	if call.Streaming {
		c.streamCount.Add(1)
	}
	return f, nil
}

func (c *Conn) finishCall(f *inflight) {
	f.markFinished()
	c.mu.Lock()
	delete(c.pending, f.id)
	c.mu.Unlock()
	c.noteEnd(f)
	c.callCount.Add(-1)
	if f.call.Streaming {
		c.streamCount.Add(-1)
	}
	f.stop()
	if f.ownsMemory {
		f.memory.Release()
	}
}

// encodeRequest encodes a call for the server's revision.
func (c *Conn) encodeRequest(f *inflight) ([]byte, error) {
	if err := f.memory.Reserve(int64(len(f.call.Params.Raw()))); err != nil {
		return nil, err
	}
	params := c.handshake.encodeParams(f)
	dst := make([]byte, 0, len(params)+len(f.call.Method)+64)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendInt(dst, f.id, 10)
	dst = append(dst, `,"method":`...)
	dst = jsonscan.AppendQuoted(dst, f.call.Method)
	dst = append(dst, `,"params":`...)
	return append(append(dst, params...), '}'), nil
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params []byte) error {
	return c.wire.Send(nil, wire.Notification(method, params))
}

// callEmpty makes a call of our own without params, except for changes.
func (c *Conn) callEmpty(ctx context.Context, method string, client mcp.Client, changes ...jsonscan.Change) (rpc.Message, error) {
	params, _ := mcp.ParseParams(nil)
	return c.Call(ctx, &Call{Method: method, Params: params, Client: client, Changes: changes})
}
