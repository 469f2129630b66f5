package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

const (
	maxWaitingCalls  = 64 // calls that may wait for a server to come up
	maxCallRestarts  = 2  // how often a call that was not started is sent again
	suspiciousInARow = 2  // mismatched replies in a row after which the server is probed
)

// ManagedConn is a connection to a server that its supervisor opens again whenever it is lost. A server has one
// that all clients share, and others for one client each.
type ManagedConn struct {
	server *Server
	key    connKey
	client mcp.Client // what the handshake tells the server of its client
	owner  Peer       // the client that has the connection to itself; nil for a shared one
	quota  string     // whose share of the server's connections it counts against

	// Of a connection for one call at a time: the client connection that used it last, and a context that ends
	// when that one is closed. The server's lock guards them.
	lastUser     string
	lastUserOpen context.Context //nolint:containedctx // it says whether the client's connection is still open

	cancel   context.CancelFunc
	stopped  chan struct{}
	demand   chan struct{} // a caller wants a connection
	mismatch chan struct{} // the server replied as one of the other protocol does
	replace  chan *Conn    // a connection to replace
	draining sync.WaitGroup

	mismatchCount atomic.Int32 // mismatched replies in a row

	mu           sync.Mutex
	conn         *Conn         // nil while it is down
	changed      chan struct{} // closed and replaced whenever conn or failureCount changes
	starting     *starting     // the start that is under way; nil if there is none
	failureCount int           // in a row
	lastFailure  error
	waitingCalls int
	lastUsed     time.Time
	useCount     int  // calls that have acquired and not released it
	ownCallCount int  // those of them that have it to themselves
	wasUp        bool // it has been up
	isReplacing  bool // it has left a connection for another one that is being opened
	wanted       subscriptions

	// For Status:
	stateSince    time.Time // it is up or down since then
	restartCount  int       // how often it was lost or not made
	failedAt      time.Time // of lastFailure
	nextAttempt   time.Time // zero while one is under way
	lastHandshake Handshake // of the last connection that came up
	stderr        stderrTail
	lastStderr    []string // the last lines of the child that failed last
}

func newManagedConn(s *Server, key connKey, client mcp.Client, owner Peer) *ManagedConn {
	ctx, cancel := context.WithCancel(context.Background())
	m := &ManagedConn{
		server: s, key: key, client: client, owner: owner,
		cancel: cancel, stopped: make(chan struct{}), demand: make(chan struct{}, 1), mismatch: make(chan struct{}, 1), replace: make(chan *Conn, 1),
		changed: make(chan struct{}), lastUsed: time.Now(), stateSince: time.Now(),
	}
	if s.root != nil {
		s.root.credentialConns.Add(1)
	}
	go m.supervise(ctx)
	return m
}

// Server is the connection's server, as the table has it.
func (m *ManagedConn) Server() *Server { return m.server.tableServer() }

// SharedHandshake is what the server declared on the connection that all callers with the same credentials share; false while
// that is not connected.
func (m *ManagedConn) SharedHandshake() (h Handshake, connected bool) {
	if shared := m.server.SharedConn(); shared != nil {
		return shared.Handshake()
	}
	return Handshake{}, false
}

// ServerID is the id of the connection's server.
func (m *ManagedConn) ServerID() string { return m.server.entry.ID }

// IsShared reports whether all clients share the connection: all for which the server sees the same credentials.
func (m *ManagedConn) IsShared() bool { return m.key == connKey{} }

// IsOfSession reports whether the connection is that of one session, whose state its server may have.
func (m *ManagedConn) IsOfSession() bool { return m.key.kind == perSession }

// ClientClass is the class of the connection's client; "" for the shared connection.
func (m *ManagedConn) ClientClass() string { return m.key.class }

// AwaitConn returns the current connection. While one is being opened it waits, as long as a start may take and
// not too many calls wait already; for an install, no longer than clients wait. If the server keeps failing, it
// fails at once.
func (m *ManagedConn) AwaitConn(ctx context.Context) (*Conn, error) {
	timeout := time.NewTimer(m.server.callWait())
	defer timeout.Stop()
	for {
		m.mu.Lock()
		m.lastUsed = time.Now()
		conn, changed, failures, cause := m.conn, m.changed, m.failureCount, m.lastFailure
		if conn != nil && conn.Err() != nil {
			conn = nil // the supervisor is about to notice
		}
		if conn == nil {
			m.requestConn()
		}
		full := m.waitingCalls >= maxWaitingCalls
		if conn == nil && !full {
			m.waitingCalls++
		}
		m.mu.Unlock()
		switch {
		case conn != nil:
			return conn, nil
		case full:
			return nil, fault.New(fault.Full, "too many calls wait for this server")
		}
		var err error
		if missing, ok := errors.AsType[*oauth.NotAuthorizedError](cause); ok && missing.IsWaiting() {
			err = cause // the caller has to be told at once
		} else if failures >= breakerThreshold {
			err = unavailable(cause)
		} else {
			select {
			case <-changed:
			case <-timeout.C:
				err = m.notUpYet(cause)
			case <-ctx.Done():
				err = wire.CallError(ctx, ctx.Err())
			case <-m.stopped:
				err = fault.New(fault.Unavailable, "the server is being stopped")
			}
		}
		m.mu.Lock()
		m.waitingCalls--
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// notUpYet is the failure of a call that has waited long enough.
func (m *ManagedConn) notUpYet(cause error) error {
	if p, ok := m.startProgress(); ok && p.Launcher != "" {
		text := fmt.Sprintf("the server is not ready: %s is still installing it, for %d s now; try again in a minute", p.Launcher, int(p.Elapsed.Seconds()))
		return fault.Wrap(fault.Unavailable, text, cause)
	}
	return fault.Wrap(fault.Timeout, "the server did not start in time", cause)
}

// unavailable is the failure of a call to a server that keeps failing. Its message says so when a user has to
// authorize the gateway first.
func unavailable(cause error) error {
	if _, missing := errors.AsType[*oauth.NotAuthorizedError](cause); missing {
		return cause
	}
	return fault.Wrap(fault.Unavailable, "the server is not available", cause)
}

// Call makes a call on the current connection. If the server did not start it, because it had forgotten the
// session or the connection ended first, the call is made again on a new connection.
func (m *ManagedConn) Call(ctx context.Context, call *Call) (rpc.Message, error) {
	for attempt := 0; ; attempt++ {
		conn, err := m.AwaitConn(ctx)
		if err != nil {
			return rpc.Message{}, err
		}
		if call.LogLevel != "" {
			m.lowerLogLevel(ctx, conn, call.LogLevel)
		}
		reply, err := conn.Call(ctx, call)
		if wire.IsNotStarted(err) && attempt < maxCallRestarts {
			select {
			case <-conn.Done():
			case <-ctx.Done():
			}
			continue
		}
		m.checkReply(conn, reply, err)
		return reply, err
	}
}

// checkReply looks for signs that the server has been replaced by another one. One mismatched reply is not
// enough; after the second in a row the supervisor probes the server.
func (m *ManagedConn) checkReply(conn *Conn, reply rpc.Message, err error) {
	switch {
	case err != nil && fault.KindOf(err) == fault.BadReply || isMismatched(reply, conn.handshake.Protocol):
		if m.mismatchCount.Add(1) >= suspiciousInARow {
			select {
			case m.mismatch <- struct{}{}:
			default:
			}
		}
	case err == nil:
		m.mismatchCount.Store(0)
	}
}

// isMismatched reports whether a reply is one that only a server of the other protocol sends.
func isMismatched(reply rpc.Message, protocol mcp.Protocol) bool {
	if protocol != mcp.Legacy {
		return false
	}
	code := reply.ErrorCode()
	return code == mcp.CodeHeaderMismatch || code == mcp.CodeUnsupportedVersion
}

// Notify sends a notification, if the server is connected.
func (m *ManagedConn) Notify(method string, params []byte) error {
	conn := m.CurrentConn()
	if conn == nil {
		return fault.New(fault.Unavailable, "the server is not available")
	}
	return conn.Notify(method, params)
}

// CurrentConn is the current connection; nil while it is down.
func (m *ManagedConn) CurrentConn() *Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conn
}

// Handshake is what the server declared about itself; false while it is not connected.
func (m *ManagedConn) Handshake() (h Handshake, connected bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return Handshake{}, false
	}
	return m.conn.handshake, true
}

// LastHandshake is what the server declared when it was connected last; empty before the first time.
func (m *ManagedConn) LastHandshake() Handshake {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastHandshake
}

// FirstAttemptDone is closed when the first attempt to connect has succeeded or failed.
func (m *ManagedConn) FirstAttemptDone() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wasUp || m.failureCount > 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	return m.changed
}

// hasAttempted reports whether the connection has come up, failed or been closed.
func (m *ManagedConn) hasAttempted() bool {
	select {
	case <-m.stopped:
		return true
	case <-m.FirstAttemptDone():
		return true
	default:
		return false
	}
}

// hasCalls reports whether calls are in flight or about to be; streams do not count.
func (m *ManagedConn) hasCalls() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.useCount > 0 || m.waitingCalls > 0 || m.conn != nil && m.conn.callCount.Load() > m.conn.streamCount.Load()
}

// acquire marks the connection as used until the returned function is called.
func (m *ManagedConn) acquire() (release func()) {
	m.mu.Lock()
	m.useCount++
	m.lastUsed = time.Now()
	m.mu.Unlock()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		m.useCount--
		m.lastUsed = time.Now()
		m.mu.Unlock()
	})
}

// acquireForCall is acquire for a call that has the connection to itself.
func (m *ManagedConn) acquireForCall() (release func()) {
	done := m.acquire()
	m.mu.Lock()
	m.ownCallCount++
	m.mu.Unlock()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		m.ownCallCount--
		m.mu.Unlock()
		done()
	})
}

// hasCall reports whether a call has the connection to itself.
func (m *ManagedConn) hasCall() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ownCallCount > 0
}

// idleSince returns when the connection was used last, and whether it has been idle for longer than d and has
// nothing in flight.
func (m *ManagedConn) idleSince(d time.Duration) (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	busy := m.useCount > 0 || m.waitingCalls > 0 || len(m.wanted.uris) > 0 || m.conn != nil && m.conn.callCount.Load() > 0
	return m.lastUsed, !busy && time.Since(m.lastUsed) > d
}

// Close stops the supervisor, closes the connection and waits for both.
func (m *ManagedConn) Close() {
	m.cancel()
	<-m.stopped
	m.draining.Wait()
	m.mu.Lock()
	conn := m.conn
	m.conn = nil
	m.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// handleEvent passes a notification outside any call to the event handler.
func (m *ManagedConn) handleEvent(note rpc.Message) {
	events := m.server.deps.Events
	switch note.Method {
	case mcp.NotifyToolsChanged, mcp.NotifyPromptsChanged, mcp.NotifyResourcesChanged:
		events.ListChanged(m, note)
	case mcp.NotifyResourceUpdated:
		events.ResourceUpdated(m, note)
	default:
		events.Notified(m, note)
	}
}
