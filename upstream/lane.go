package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/grant"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// How a lane goes on after its server failed.
const (
	firstPause  = 100 * time.Millisecond // doubled with every failure in a row, and jittered
	longPause   = 30 * time.Second
	breakAfter  = 5               // failures in a row after which calls are refused without waiting
	steadyAfter = 3 * time.Second // a connection that lasted so long was no failure
	patience    = 5 * time.Second // a failing server that somebody wants is not left alone for longer
	maxWaiting  = 64              // calls that may wait for a server to come up
)

// Lane is a connection to a server that is made again whenever it is lost. A server has one that
// everybody shares, and others that serve one client alone.
type Lane struct {
	remote *Remote
	key    laneKey
	client mcp.Client // what the server is told of its client
	owner  Peer       // the client that has the lane alone; nil for a shared one
	steady bool       // kept up whether or not anybody calls
	caller string     // whose share of the server's lanes it counts against

	// Of a lane that is lent to one call at a time: the connection that had it last, and a context
	// that ends with that connection. The remote's lock holds them.
	lentTo string
	open   context.Context //nolint:containedctx // it says whether the connection is still open

	stop    context.CancelFunc
	stopped chan struct{}
	demand  chan struct{} // somebody wants a lane that is not kept up
	suspect chan struct{} // the server answered as one of the other era would

	odd atomic.Int32 // answers in a row that were none

	mu       sync.Mutex
	conn     *Conn
	turned   chan struct{} // closed and made new whenever conn or failures changes
	failures int           // in a row
	cause    error         // of the last one
	waiting  int
	used     time.Time
	holds    int  // calls that have picked it and not given it back
	ever     bool // it has been up
	watch    watch
}

func newLane(r *Remote, key laneKey, client mcp.Client, owner Peer) *Lane {
	ctx, stop := context.WithCancel(context.Background())
	l := &Lane{
		remote: r, key: key, client: client, owner: owner, steady: key == laneKey{},
		stop: stop, stopped: make(chan struct{}), demand: make(chan struct{}, 1), suspect: make(chan struct{}, 1),
		turned: make(chan struct{}), used: time.Now(),
	}
	go l.run(ctx)
	return l
}

// Server is the id of the lane's server.
func (l *Lane) Server() string { return l.remote.entry.ID }

// Shared says that the lane is the one that everybody shares.
func (l *Lane) Shared() bool { return l.key == laneKey{} }

// Conn is the lane's connection. A lane that is on its way up is waited for, as long as a start
// may take and as long as not too many wait already; one that keeps failing is not.
func (l *Lane) Conn(ctx context.Context) (*Conn, error) {
	limit := time.NewTimer(l.remote.entry.StartupTimeout.D())
	defer limit.Stop()
	for {
		l.mu.Lock()
		l.used = time.Now()
		conn, turned, failures, cause := l.conn, l.turned, l.failures, l.cause
		if conn != nil && conn.Why() != nil {
			conn = nil // the lane is about to notice
		}
		if conn == nil {
			l.want()
		}
		full := l.waiting >= maxWaiting
		if conn == nil && !full {
			l.waiting++
		}
		l.mu.Unlock()
		switch {
		case conn != nil:
			return conn, nil
		case full:
			return nil, fault.New(fault.Full, "too many calls wait for this server")
		case failures >= breakAfter:
			l.leave()
			return nil, unavailable(cause)
		}
		select {
		case <-turned:
			l.leave()
		case <-limit.C:
			l.leave()
			return nil, fault.Wrap(fault.Timeout, "the server did not start in time", cause)
		case <-ctx.Done():
			l.leave()
			return nil, failure(ctx, ctx.Err())
		case <-l.stopped:
			l.leave()
			return nil, fault.New(fault.Unavailable, "the server is being stopped")
		}
	}
}

// unavailable is the failure of a call to a server that keeps failing. Where somebody has to
// authorize the gateway first, the client may know.
func unavailable(cause error) error {
	var want *grant.Missing
	if errors.As(cause, &want) {
		return cause
	}
	return fault.Wrap(fault.Unavailable, "the server is not available", cause)
}

// permitted is closed when somebody has authorized the gateway whose lack of it was the cause; nil,
// which never is, for any other.
func permitted(cause error) <-chan struct{} {
	var want *grant.Missing
	if errors.As(cause, &want) {
		return want.Until
	}
	return nil
}

// isSettled says whether the lane has come up, failed or been stopped.
func (l *Lane) isSettled() bool {
	select {
	case <-l.stopped:
		return true
	case <-l.Settled():
		return true
	default:
		return false
	}
}

func (l *Lane) leave() {
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
}

// Call makes a call on the lane's connection. One that was not begun, because the server had forgotten
// the session or the connection ended before it could be sent, is made again on a new one.
func (l *Lane) Call(ctx context.Context, call *Call) (rpc.Message, error) {
	for attempt := 0; ; attempt++ {
		conn, err := l.Conn(ctx)
		if err != nil {
			return rpc.Message{}, err
		}
		if call.LogLevel != "" {
			l.louder(ctx, conn, call.LogLevel)
		}
		m, err := conn.Call(ctx, call)
		if isUnbegun(err) && attempt < 2 {
			select {
			case <-conn.Ended():
			case <-ctx.Done():
			}
			continue
		}
		l.judge(conn, m, err)
		return m, err
	}
}

// judge looks for signs that the server is not the one that was greeted. One odd answer is none.
func (l *Lane) judge(conn *Conn, m rpc.Message, err error) {
	if odd := err != nil && fault.KindOf(err) == fault.BadReply || strays(m, conn.hello.Era); !odd {
		if err == nil {
			l.odd.Store(0)
		}
		return
	}
	if l.odd.Add(1) > 1 {
		select {
		case l.suspect <- struct{}{}:
		default:
		}
	}
}

// strays says whether an answer is one that only a server of the other era gives.
func strays(m rpc.Message, era mcp.Era) bool {
	if !m.IsError || era != mcp.EraLegacy {
		return false
	}
	code := codeOf(m)
	return code == mcp.CodeHeaderMismatch || code == mcp.CodeBadVersion
}

// Notify sends a notification to a server that is there. One that is not misses it.
func (l *Lane) Notify(method string, params []byte) error {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return fault.New(fault.Unavailable, "the server is not available")
	}
	return conn.Notify(method, params)
}

// Current is the lane's connection; nil when it has none.
func (l *Lane) Current() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// Up says whether the lane has a connection now, and what its server said of itself.
func (l *Lane) Up() (Hello, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return Hello{}, false
	}
	return l.conn.hello, true
}

// Settled is closed when the lane has come up for the first time or has failed once.
func (l *Lane) Settled() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ever || l.failures > 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	return l.turned
}

// calling says that calls are under way, or wait to be.
func (l *Lane) calling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds > 0 || l.waiting > 0 || l.conn != nil && l.conn.busy.Load() > l.conn.streams.Load()
}

// hold says that somebody is about to use the lane, until the function that it gives is called.
func (l *Lane) hold() func() {
	l.mu.Lock()
	l.holds++
	l.used = time.Now()
	l.mu.Unlock()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		l.holds--
		l.used = time.Now()
		l.mu.Unlock()
	})
}

func (l *Lane) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds > 0
}

// idle says when the lane was used last, and whether nobody has for a while and nothing is under
// way on it.
func (l *Lane) idle(since time.Duration) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := l.holds > 0 || l.waiting > 0 || len(l.watch.uris) > 0 || l.conn != nil && l.conn.busy.Load() > 0
	return l.used, !busy && time.Since(l.used) > since
}

// Close ends the lane and waits for it.
func (l *Lane) Close() {
	l.stop()
	<-l.stopped
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// event takes what the server says outside any call to who listens.
func (l *Lane) event(note rpc.Message) {
	switch note.Method {
	case mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged:
		l.remote.listener.Changed(l, note)
	case mcp.ResourceUpdated:
		l.remote.listener.Updated(l, note)
	default:
		l.remote.listener.Said(l, note)
	}
}

// Class is what the lane's client can answer; "" for the lane that everybody shares.
func (l *Lane) Class() string { return l.key.class }

// Remote is the lane's server.
func (l *Lane) Remote() *Remote { return l.remote }
