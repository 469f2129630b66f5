//go:build linux

package chaos

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// TestR4Junk: a child prints a line that is no message before every tenth frame. Every call succeeds, and the
// log does not repeat every line.
func TestR4Junk(t *testing.T) {
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
		t.Run(string(e), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			s := newSite(t, events, stdioServer("a", events, "-junk-every", "10", "-revision", string(e)))
			g := s.start(t)
			clients := g.connectMany(t, 4)
			waitReady(t, clients[0], "a")
			logged := sizeOf(s.log)
			n := shortOrFull(1000, 10_000)
			cs := burst(n, 16, clients, []string{"a"}, nil)
			cs.requireSound(t, events)
			cs.requireAllOK(t)
			if pids := events.PIDs("a"); len(pids) != 1 {
				t.Errorf("the child was restarted: %v", pids)
			}
			report(t, "R4", fmt.Sprintf("%d junk lines on stdout among the frames, %s child", n/10, e), cs,
				"all answered; the log grew by %d bytes a call", (sizeOf(s.log)-logged)/int64(n))
		})
	}
}

// TestR4Flood: a child prints very many junk lines before its response. The call succeeds or fails with a
// reason; the other server is not affected; the log stays small.
func TestR4Flood(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("x", events))
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a", "x")
	before := burst(200, 2, clients, []string{"a"}, nil)
	logged := sizeOf(s.log)
	flooded := make(chan *call, 1)
	go func() {
		flooded <- callOnce(clients[1], "x", "broken", fmt.Sprintf(`"how":"flood","n":%d`, shortOrFull(50_000, 500_000)), 30*time.Second)
	}()
	during := burst(200, 2, clients, []string{"a"}, nil)
	flood := <-flooded
	all := append(during, flood)
	all.requireSound(t, events)
	during.requireAllOK(t)
	grown := sizeOf(s.log) - logged
	if grown > 1<<20 {
		t.Errorf("the log grew by %d bytes", grown)
	}
	after := callOnce(clients[0], "x", "echo", "", 10*time.Second)
	if v := after.verdict; v != ok && v != failed {
		t.Errorf("after the flood: %s, %s", v, after.reason)
	}
	report(t, "R4", fmt.Sprintf("a flood of %d junk lines before one response", shortOrFull(50_000, 500_000)), all,
		"flooded call: %s %s after %s, the next: %s %s; log +%d KiB; %s", flood.verdict, flood.reason, short(flood.took()), after.verdict, after.reason, grown>>10,
		checkSlowdown(t, "p99 of the other server", before.quantile(0.99), during.quantile(0.99), 20, 50*time.Millisecond)) // the flood itself needs a core
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
