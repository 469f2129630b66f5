package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
)

// When a lost connection is opened again, and a child restarted.
const (
	minBackoff       = 100 * time.Millisecond // doubled with every failure in a row, with jitter
	maxBackoff       = 30 * time.Second
	maxDemandBackoff = 5 * time.Second // the longest pause while a caller waits for the server
	breakerThreshold = 5               // failures in a row after which calls fail at once
	stableAfter      = 3 * time.Second // a connection that lasted so long resets the failure count
)

// supervise opens the connection, probes it until it ends, and opens it again: a child process is restarted
// here. It returns when ctx ends, or when the server does not speak the legacy protocol after all.
func (m *ManagedConn) supervise(ctx context.Context) {
	defer close(m.stopped)
	if root := m.server.root; root != nil {
		defer root.credentialConns.Add(-1)
	}
	for ctx.Err() == nil {
		if !m.awaitDemand(ctx) {
			return
		}
		start := m.noteAttempt()
		stopReport := m.reportStart()
		conn, err := m.server.connect(ctx, m)
		stopReport()
		if err == nil && m.mustRedeclare(conn) { // meanwhile a client has come that can answer requests
			conn.Close()
			continue
		}
		if err == nil {
			m.setUp(conn)
			if m.mustRedeclare(conn) {
				m.replaceConn(conn)
			}
			err = m.monitor(ctx, conn)
			if errors.Is(err, errReplaced) {
				m.setReplaced(ctx, conn)
				continue
			}
			conn.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if conn == nil && m.server.isLegacyDeclined(m, err) {
			slog.Info("server speaks only the modern protocol: it cannot send requests to legacy clients", "server", m.ServerID(), "reason", err)
			m.server.refuseLegacy(m)
			return
		}
		// A child that ends before it has served a call counts as broken. One that was killed in the midst of
		// its work does not, nor does a remote server that forgot a session.
		resetFailures := conn != nil && (m.server.isRemote() || conn.hasServed.Load() || time.Since(start) >= stableAfter)
		m.setDown(err, resetFailures)
		m.waitBackoff(ctx, err)
	}
}

// awaitDemand waits for a reason to connect. The shared connection of the table's server, and one with subscriptions, always has
// one; any other waits for a call, or for the authorization that it lacked.
func (m *ManagedConn) awaitDemand(ctx context.Context) bool {
	m.mu.Lock()
	subscribed := len(m.wanted.uris) > 0
	var authorized <-chan struct{} // nil blocks forever
	if missing, ok := errors.AsType[*oauth.NotAuthorizedError](m.lastFailure); ok {
		authorized = missing.Retry
	}
	m.mu.Unlock()
	if m.IsShared() && m.server.root == nil || subscribed {
		select {
		case <-m.demand: // this attempt is for it; a later call shortens the next pause
		default:
		}
		return true
	}
	select {
	case <-m.demand:
		return true
	case <-authorized:
		return true
	case <-ctx.Done():
		return false
	}
}

// requestConn notes that a caller wants a connection.
func (m *ManagedConn) requestConn() {
	select {
	case m.demand <- struct{}{}:
	default:
	}
}

// waitBackoff waits before the next attempt: longer with each failure, but not much longer than a call can wait
// if one does. If the failure was a missing authorization, it ends when the user has granted it.
func (m *ManagedConn) waitBackoff(ctx context.Context, failure error) {
	var authorized <-chan struct{} // nil blocks forever
	if missing, ok := errors.AsType[*oauth.NotAuthorizedError](failure); ok {
		authorized = missing.Retry
	}
	pause, began := m.backoff(), time.Now()
	m.setNextAttempt(began.Add(pause))
	backoff := time.NewTimer(pause)
	defer backoff.Stop()
	demandBackoff := time.NewTimer(maxDemandBackoff*3/4 + rand.N(maxDemandBackoff/4))
	defer demandBackoff.Stop()
	for demanded := false; ; {
		demand, late := m.demand, demandBackoff.C
		if demanded {
			demand = nil
		} else {
			late = nil
		}
		select {
		case <-demand:
			demanded = true
			m.setNextAttempt(began.Add(min(pause, maxDemandBackoff)))
			defer m.requestConn() // it is for the next attempt
		case <-late:
			return
		case <-backoff.C:
			return
		case <-authorized:
			return
		case <-ctx.Done():
			return
		}
	}
}

// backoff is the pause before the next attempt, with jitter so that servers that failed together do not come
// back together.
func (m *ManagedConn) backoff() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := maxBackoff
	if m.failureCount < 10 {
		d = min(minBackoff<<max(m.failureCount-1, 0), maxBackoff)
	}
	return d/2 + rand.N(d/2+1)
}

// noteAttempt notes that an attempt to connect begins.
func (m *ManagedConn) noteAttempt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextAttempt = time.Time{}
	m.stderr = stderrTail{}
	return time.Now()
}

func (m *ManagedConn) setNextAttempt(at time.Time) {
	m.mu.Lock()
	m.nextAttempt = at
	m.mu.Unlock()
}

// monitor probes the connection at intervals, and returns why it ended.
func (m *ManagedConn) monitor(ctx context.Context, conn *Conn) error {
	var tick <-chan time.Time
	if interval := m.server.cfg.HealthcheckInterval.D(); interval > 0 {
		t := time.NewTicker(interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-conn.Done():
			return conn.Err()
		case <-ctx.Done():
			return nil
		case replaced := <-m.replace:
			if replaced == conn {
				return errReplaced
			}
		case <-m.mismatch:
			if err := m.probe(ctx, conn); err != nil && ctx.Err() == nil {
				if m.key.legacy {
					m.server.setLegacySupport(legacyUnknown)
				} else {
					m.server.forgetProtocol()
				}
				return fmt.Errorf("the server changed: %w", err)
			}
		case <-tick:
			if err := m.probe(ctx, conn); err != nil && ctx.Err() == nil {
				return fmt.Errorf("the health probe failed: %w", err)
			}
		}
	}
}

// probe sends the cheapest request of the server's protocol. Any answer of that protocol is a sign of life.
func (m *ManagedConn) probe(ctx context.Context, conn *Conn) error {
	ctx, cancel := context.WithTimeout(ctx, m.server.cfg.HealthcheckTimeout.D())
	defer cancel()
	method := mcp.Ping
	if conn.handshake.Protocol == mcp.Modern {
		method = mcp.ServerDiscover
	}
	reply, err := conn.callEmpty(ctx, method, m.client)
	if err == nil && (isMismatched(reply, conn.handshake.Protocol) || reply.IsError && method == mcp.ServerDiscover) {
		return refusalError(method, reply)
	}
	return err
}

// setUp makes conn the current connection.
func (m *ManagedConn) setUp(conn *Conn) {
	conn.upSince = time.Now()
	if m.key.legacy {
		m.server.setLegacySupport(legacyAccepted)
	} else {
		m.server.noteHandshake(conn.handshake) // before the waiting calls go on, which depend on it
	}
	m.server.mu.Lock()
	m.server.wasUp = true
	m.server.mu.Unlock()
	m.mu.Lock()
	m.conn, m.isReplacing = conn, false
	m.lastUsed = time.Now()
	m.stateSince, m.lastHandshake = time.Now(), conn.handshake
	reconnect := m.wasUp
	m.wasUp = true
	uris, level := m.wanted.snapshot() // later subscribers ask this connection themselves
	select {
	case <-m.demand: // it is met
	default:
	}
	m.wakeWaiters()
	m.mu.Unlock()
	m.restoreSubscriptions(conn, uris, level)
	slog.Info("server is up", "server", m.ServerID(), "era", conn.handshake.Protocol.String(), "revision", conn.handshake.Version,
		"shared", m.IsShared(), "again", reconnect)
	m.server.deps.Events.StateChanged(m, true)
}

// setReplaced lets the calls in flight on a connection that was replaced go on. It is no failure.
func (m *ManagedConn) setReplaced(ctx context.Context, conn *Conn) {
	slog.Info("server is connected again: its shared connection declares other capabilities now", "server", m.ServerID())
	m.draining.Go(func() { m.drain(ctx, conn) })
}

// setDown counts a failure and removes the current connection.
func (m *ManagedConn) setDown(why error, resetFailures bool) {
	m.mu.Lock()
	wasUp := m.conn != nil
	m.conn, m.isReplacing = nil, false
	m.lastFailure, m.failedAt = why, time.Now()
	m.lastStderr = m.stderr.lines()
	if wasUp || m.failureCount == 0 {
		m.stateSince = m.failedAt
	}
	if resetFailures {
		m.failureCount = 0
	}
	m.failureCount++
	m.restartCount++
	n := m.failureCount
	m.wakeWaiters()
	m.mu.Unlock()
	level := slog.LevelWarn
	if n > breakerThreshold && n&(n-1) != 0 {
		level = slog.LevelDebug // log only the 8th, 16th, 32nd… failure
	}
	if missing, ok := errors.AsType[*oauth.NotAuthorizedError](why); ok && missing.Address != "" {
		level = slog.LevelDebug // a caller has to authorize it, and is told so
	}
	slog.Log(context.Background(), level, "server is down", "server", m.ServerID(), "error", why, "failures", n)
	m.server.deps.CountFailure(why)
	if wasUp || n == 1 {
		m.server.deps.Events.StateChanged(m, false)
	}
}

// wakeWaiters wakes the callers that wait for the connection to change; the lock is held.
func (m *ManagedConn) wakeWaiters() {
	close(m.changed)
	m.changed = make(chan struct{})
}
