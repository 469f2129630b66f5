//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// TestR20Sessions: an HTTP server repeatedly drops its sessions, cuts its streams, or restarts. The gateway
// reconnects: at most one call fails each time, with a well-formed error, and none is executed twice. If no
// execution can have been lost, no call fails.
func TestR20Sessions(t *testing.T) {
	for _, kind := range []string{"http", "sse"} {
		for _, f := range []disruption{
			{"expires", func(h *mcpserver.HTTPServer) error { h.ExpireSessions(); return nil }, kind == "http"},
			{"is cut", func(h *mcpserver.HTTPServer) error { h.CutStreams(); return nil }, kind == "http"},
			{"restarts", func(h *mcpserver.HTTPServer) error { return h.Restart(0) }, false},
		} {
			t.Run(kind+" "+f.name, func(t *testing.T) { disruptSessions(t, kind, f) })
		}
	}
}

// disruption is an event that interrupts an HTTP server.
type disruption struct {
	name        string
	do          func(*mcpserver.HTTPServer) error
	mustNotFail bool // no execution is lost, so no call may fail
}

func disruptSessions(t *testing.T, kind string, f disruption) {
	t.Helper()
	events := mcpserver.NewEventLog(t)
	h := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "x", Revision: mcpwire.Legacy}, events)
	up := httpServer("x", h)
	if kind == "sse" {
		up = server{id: "x", url: h.URL("/sse"), extraTOML: `transport = "sse"`}
	}
	g := newSite(t, events, up, stdioServer("a", events)).start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "x", "a")
	var all calls
	worst, times := 0, shortOrFull(8, 34)
	for i := range times {
		if err := f.do(h); err != nil {
			t.Fatal(err)
		}
		cs := burst(4, 1, clients, []string{"x"}, nil)
		bad := cs.count(failed)
		worst = max(worst, bad)
		if bad > 1 || f.mustNotFail && bad > 0 {
			t.Errorf("time %d: %s", i, cs.summary())
		}
		all = append(all, cs...)
	}
	all.requireSound(t, events)
	events.RequireNoViolations(t)
	neighbour := burst(20, 2, clients, []string{"a"}, nil)
	neighbour.requireAllOK(t)
	report(t, "R20", fmt.Sprintf("a legacy %s server that %s ×%d", kind, f.name, times), all, "at most %d errors a time; %d sessions", worst, h.Initializes.Load())
}

// TestR20Load: the same under load: only well-formed errors, nothing lost or executed twice.
func TestR20Load(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	old := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "x", Revision: mcpwire.Legacy}, events)
	mod := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "y", Revision: mcpwire.Modern}, events)
	g := newSite(t, events, httpServer("x", old), httpServer("y", mod), stdioServer("a", events)).start(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], "x", "y", "a")
	l := loadGenerator{rate: 60, servers: []string{"x", "y", "a"}, extraArgs: `"delay_ms":10`, clients: clients}
	l.startLoad()
	n := shortOrFull(6, 50)
	for i := range n {
		time.Sleep(300 * time.Millisecond)
		if i%2 == 0 {
			old.ExpireSessions()
			continue
		}
		if err := errors.Join(old.Restart(20*time.Millisecond), mod.Restart(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	cs := l.stopLoad()
	cs.requireSound(t, events)
	cs.filter(func(c *call) bool { return c.server == "a" }).requireAllOK(t)
	if bad := cs.count(failed); bad > 4*n {
		t.Errorf("%d errors for %d disruptions: %s", bad, n, cs.summary())
	}
	last := cs.between(time.Now().Add(-900*time.Millisecond), time.Now())
	last.requireAllOK(t)
	report(t, "R20", fmt.Sprintf("HTTP servers of both revisions expire and restart ×%d under 60 rps", n), cs, "%d errors", cs.count(failed))
}
