package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

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
		if conn == nil && l.remote.isDeclined(l, err) {
			slog.Info("server speaks the newer era only: it cannot ask clients of the older one", "server", l.Server(), "reason", err)
			l.remote.refuseOlder(l)
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
				l.doubt()
				return fmt.Errorf("the server changed: %w", err)
			}
		case <-tick:
			if err := l.probe(ctx, conn); err != nil && ctx.Err() == nil {
				return fmt.Errorf("the health probe failed: %w", err)
			}
		}
	}
}

// doubt forgets what was learned of the server when this lane greeted it.
func (l *Lane) doubt() {
	if l.key.older {
		l.remote.doubtOlder()
	} else {
		l.remote.doubt()
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
	if l.key.older {
		l.remote.metOlder()
	} else {
		l.remote.met(conn.hello) // who waits for the lane goes by its era
	}
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
