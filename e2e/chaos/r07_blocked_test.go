//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
)

// TestR7ChildStopsReading: a child stops reading but keeps running. At most 64 messages or 1 MiB are queued
// and time out; the rest is refused as full after a second; all get a well-formed error in time, and the
// other server is not affected.
func TestR7ChildStopsReading(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("x", events, "-stop-reading-after", "60"), stdioServer("a", events))
	s.topLevel = "response_timeout = \"3s\"\nhealthcheck_interval = \"1h\""
	g := s.start(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], "x", "a")
	before := burst(300, 2, clients, []string{"a"}, nil)
	memory := memoryOf(g.PID(), "VmRSS")

	pad := fmt.Sprintf(`"pad":%q`, strings.Repeat("p", 16<<10))
	stuck := make(chan calls, 1)
	go func() {
		stuck <- burst(400, 400, clients, []string{"x"}, func(_ int, c *call) { c.extraArgs = pad })
	}()
	time.Sleep(500 * time.Millisecond)
	during := burst(300, 2, clients, []string{"a"}, nil)
	cs := <-stuck
	all := append(cs, during...)
	all.requireSound(t, events)
	during.requireAllOK(t)
	found := checkBlocked(t, cs)
	if n := len(events.PIDs("x")); n != 1 {
		t.Errorf("the child should hang, but was started %d times", n)
	}
	grown := memoryOf(g.PID(), "VmRSS") - memory
	report(t, "R7", "a child that stops reading, 400 calls of 16 KiB at once", all, "%s; RSS +%d MiB; %s", found, grown>>20,
		checkSlowdown(t, "p99 of the neighbour", before.quantile(0.99), during.quantile(0.99), 1.2, 10*time.Millisecond))
}

// checkBlocked checks the calls of R7: queued calls wait for the whole response_timeout, the others are
// refused soon, and nothing else happens.
func checkBlocked(t *testing.T, cs calls) string {
	t.Helper()
	queued := cs.filter(func(c *call) bool { return c.reason == "timeout" })
	refused := cs.filter(func(c *call) bool { return c.reason == "full" })
	if cs.count(ok)+len(queued)+len(refused) != len(cs) {
		t.Errorf("calls on a child that reads nothing: %s; want only full and timeout", cs.summary())
	}
	if len(queued) > 64+8 { // 64 KiB in the pipe, and as much that the server has read ahead
		t.Errorf("%d calls waited for a child that reads nothing; the bar is 64 and the pipe's own", len(queued))
	}
	if hasty := queued.filter(func(c *call) bool { return c.took() < 3*time.Second }); len(hasty) > 0 {
		t.Errorf("%d calls timed out before the response_timeout of 3s", len(hasty))
	}
	if most := slowestOf(refused); most > time.Duration(shortOrFull(6, 2))*time.Second {
		t.Errorf("a call was refused as full after %s; the bar is a second", most)
	}
	if most := slowestOf(cs); most > time.Duration(shortOrFull(8, 4))*time.Second {
		t.Errorf("a call waited for %s, with a response_timeout of 3s", most)
	}
	return fmt.Sprintf("%d queued and timed out, slowest %s; %d refused as full within %s", len(queued), short(slowestOf(queued)), len(refused), short(slowestOf(refused)))
}

// TestR1QueueWhileRestarting: a killed child takes two seconds to start. At most 64 calls wait for it and
// succeed; the others are refused at once.
func TestR1QueueWhileRestarting(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("x", events, "-start-delay", "2s"), stdioServer("a", events))
	g := s.start(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], "x", "a")
	kill := killChildren(t, events, []string{"x"}, 1, 300*time.Millisecond)
	cs := burst(200, 200, clients, []string{"x"}, nil)
	cs.requireSound(t, events)
	waited := cs.filter(func(c *call) bool { return c.took() > time.Second })
	if len(waited) > 64 {
		t.Errorf("%d calls waited for a child that was starting; the bar is 64", len(waited))
	}
	if n := len(cs) - len(waited); cs.count(failed) > n {
		t.Errorf("calls that waited for the child failed: %s", cs.summary())
	}
	waitReady(t, clients[0], "x")
	report(t, "R1", "200 calls at once for a child that takes 2 s to start again", cs, "%d waited, %d refused; killed %s", len(waited), cs.count(failed), kill[0].server)
}
