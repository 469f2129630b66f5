package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	lent     bool // to a call that has the lane alone
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

// run makes the connection, waits for its end, and makes it again.
func (l *Lane) run(ctx context.Context) {
	defer close(l.stopped)
	for ctx.Err() == nil {
		if !l.wanted(ctx) {
			return
		}
		began := time.Now()
		conn, err := l.remote.dial(ctx, l)
		if err == nil {
			l.up(conn)
			err = l.tend(ctx, conn)
			conn.Close()
		}
		if ctx.Err() != nil {
			return
		}
		// A program that ends before it was of any use is broken; one that was killed in the midst of
		// its work is not, nor is a far server that forgot a session.
		l.down(err, conn != nil && (l.remote.isFar() || conn.useful.Load() || time.Since(began) >= steadyAfter))
		l.rest(ctx, permitted(err))
	}
}

// rest waits before the next attempt: as long as the failures ask for or, where somebody wants the
// server, as long as one can be made to wait.
func (l *Lane) rest(ctx context.Context, permitted <-chan struct{}) {
	timer := time.NewTimer(l.pause())
	defer timer.Stop()
	enough := time.NewTimer(patience*3/4 + rand.N(patience/4))
	defer enough.Stop()
	var wanted bool
	for {
		demand, late := l.demand, enough.C
		if wanted {
			demand = nil
		} else {
			late = nil
		}
		select {
		case <-demand:
			wanted = true
			defer l.want() // it is for the next attempt
		case <-late:
			return
		case <-timer.C:
			return
		case <-permitted:
			return
		case <-ctx.Done():
			return
		}
	}
}

// want says that somebody wants a connection.
func (l *Lane) want() {
	select {
	case l.demand <- struct{}{}:
	default:
	}
}

// wanted waits until there is a reason to connect. A lane of one client has none until it calls,
// unless it has subscribed to something.
func (l *Lane) wanted(ctx context.Context) bool {
	l.mu.Lock()
	watched := len(l.watch.uris) > 0
	l.mu.Unlock()
	if l.steady || watched {
		select {
		case <-l.demand: // this attempt is for it; the next rest is for who calls after it
		default:
		}
		return true
	}
	select {
	case <-l.demand:
		return true
	case <-ctx.Done():
		return false
	}
}

// tend watches over a connection until it ends, with a probe now and then.
func (l *Lane) tend(ctx context.Context, conn *Conn) error {
	every := l.remote.cfg.HealthcheckInterval.D()
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-conn.Ended():
			return conn.Why()
		case <-ctx.Done():
			return nil
		case <-l.suspect:
			if err := l.probe(ctx, conn); err != nil && ctx.Err() == nil {
				l.remote.doubt()
				return fmt.Errorf("the server changed: %w", err)
			}
		case <-tick:
			if err := l.probe(ctx, conn); err != nil && ctx.Err() == nil {
				return fmt.Errorf("the health probe failed: %w", err)
			}
		}
	}
}

// probe asks the cheapest question of the server's era. Any answer of that era is a sign of life.
func (l *Lane) probe(ctx context.Context, conn *Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.remote.cfg.HealthcheckTimeout.D())
	defer cancel()
	method := mcp.Ping
	if conn.hello.Era == mcp.EraModern {
		method = mcp.Discover
	}
	params, _ := mcp.ReadParams(nil)
	m, err := conn.Call(ctx, &Call{Method: method, Params: params, Client: l.client})
	if err == nil && (strays(m, conn.hello.Era) || m.IsError && method == mcp.Discover) {
		return refusal(method, m)
	}
	return err
}

func (l *Lane) up(conn *Conn) {
	l.remote.met(conn.hello) // who waits for the lane goes by its era
	l.mu.Lock()
	l.conn = conn
	l.used = time.Now()
	again := l.ever
	l.ever = true
	uris, level := l.watch.wishes() // who has others from now on asks this connection itself
	select {
	case <-l.demand: // it is met
	default:
	}
	l.turn()
	l.mu.Unlock()
	l.rewatch(conn, uris, level)
	slog.Info("server is up", "server", l.Server(), "era", conn.hello.Era.String(), "revision", conn.hello.Version,
		"shared", l.Shared(), "again", again)
	l.remote.listener.Turned(l, true)
}

func (l *Lane) down(why error, steady bool) {
	l.mu.Lock()
	wasUp := l.conn != nil
	l.conn = nil
	l.cause = why
	if steady {
		l.failures = 0
	}
	l.failures++
	n := l.failures
	l.turn()
	l.mu.Unlock()
	level := slog.LevelWarn
	if n > breakAfter && n&(n-1) != 0 {
		level = slog.LevelDebug // it has been said
	}
	slog.Log(context.Background(), level, "server is down", "server", l.Server(), "error", why, "failures", n)
	l.remote.restarted(why)
	if wasUp || n == 1 {
		l.remote.listener.Turned(l, false)
	}
}

// turn wakes who waits for the lane to change; the lock is held.
func (l *Lane) turn() {
	close(l.turned)
	l.turned = make(chan struct{})
}

// pause is how long to wait before the next attempt: longer with each failure, and never the
// same for two servers that fail together.
func (l *Lane) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := longPause
	if l.failures < 10 {
		d = min(firstPause<<max(l.failures-1, 0), longPause)
	}
	return d/2 + rand.N(d/2+1)
}

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

func (l *Lane) leave() {
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
}

// Call makes a call on the lane's connection. One that was refused because the server had
// forgotten the session was not begun, and is made again on a new one.
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
		if isForgotten(err) && attempt < 2 {
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
	return l.lent || l.waiting > 0 || l.conn != nil && l.conn.busy.Load() > l.conn.streams.Load()
}

func (l *Lane) touch() {
	l.mu.Lock()
	l.used = time.Now()
	l.mu.Unlock()
}

// idle says when the lane was used last, and whether nobody has for a while and nothing is under
// way on it.
func (l *Lane) idle(since time.Duration) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := l.lent || l.waiting > 0 || len(l.watch.uris) > 0 || l.conn != nil && l.conn.busy.Load() > 0
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
