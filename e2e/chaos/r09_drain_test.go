//go:build linux

package chaos

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const drainGrace = 6 * time.Second

// drainResult is the result of one shutdown.
type drainResult struct {
	cs       calls
	exit     time.Duration
	idle     int // calls sent on an idle connection while it was closed
	closed   int // replies after the signal with Connection: close
	unclosed int // and without
	flipped  bool
}

// TestR9Drain: SIGTERM under load with twenty long calls in flight. All calls in flight are answered,
// readiness is withdrawn first, every later reply closes its connection, every subscription gets its result,
// and the exit code is 0.
func TestR9Drain(t *testing.T) {
	var all calls
	var exits []time.Duration
	idle, closed, unclosed := 0, 0, 0
	rounds := shortOrFull(3, 50)
	for n := range rounds {
		d := drainOnce(t, n)
		all, exits = append(all, d.cs...), append(exits, d.exit)
		idle, closed, unclosed = idle+d.idle, closed+d.closed, unclosed+d.unclosed
		if !d.flipped {
			t.Errorf("round %d: readiness was not withdrawn before the listener closed", n)
		}
	}
	if unclosed > 0 || closed == 0 {
		t.Errorf("after the signal %d replies had no Connection: close, %d had", unclosed, closed)
	}
	report(t, "R9", fmt.Sprintf("SIGTERM under %d rps and 20 calls of 2 s ×%d", shortOrFull(100, 200), rounds), all,
		"%d answered after the signal, all with Connection: close; %d refused after the end, %d met a closing idle connection; exit 0 after p50 %s max %s", closed, all.count(unsent)-idle, idle, short(quantile(exits, 0.5)), short(quantile(exits, 1)))
}

func drainOnce(t *testing.T, n int) drainResult {
	t.Helper()
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("b", events, "-revision", string(mcpwire.Modern)))
	s.sections = fmt.Sprintf("[http]\ndrain_grace = %q\ndrain_delay = \"300ms\"", drainGrace)
	g, err := s.startGateway()
	if err != nil {
		t.Fatal(err)
	}
	defer g.cleanUp(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], "a", "b")
	news := openStreams(t, g, 2)

	quick := loadGenerator{rate: shortOrFull(100, 200), servers: []string{"a", "b"}, extraArgs: `"delay_ms":5`, clients: clients, newConnection: g.newConnection}
	slow := loadGenerator{rate: 200, servers: []string{"a", "b"}, extraArgs: `"delay_ms":2000`, clients: clients}
	quick.startLoad()
	slow.startLoad()
	wait.True(5*time.Second, func() bool { slow.mu.Lock(); defer slow.mu.Unlock(); return len(slow.calls) >= 20 })
	slow.stop()
	<-slow.stopped
	time.Sleep(200 * time.Millisecond)
	signalled := time.Now()
	g.sendSignal(t, syscall.SIGTERM)
	d := drainResult{flipped: wait.True(280*time.Millisecond, func() bool { return process.Status(g.URL+"/readyz") == http.StatusServiceUnavailable })}
	code, err := g.ExitCode(drainGrace + time.Second)
	if err != nil || code != 0 {
		t.Errorf("round %d: exit code %d, %v", n, code, err)
	}
	d.exit = time.Since(signalled)
	time.Sleep(100 * time.Millisecond)
	d.cs = append(quick.stopLoad(), slow.stopLoad()...)
	d.classify(t, n, signalled, events)
	for i, s := range news {
		if i%2 == 1 { // modern
			if ended, result, err := s.State(); !ended || result.Result == nil {
				t.Errorf("round %d: a subscription did not get its result (ended %v): %v", n, ended, err)
			}
		}
	}
	return d
}

// classify separates the calls that could not be saved: sent on an idle connection while it was closed, and
// never executed.
func (d *drainResult) classify(t *testing.T, n int, signalled time.Time, events *mcpserver.EventLog) {
	t.Helper()
	runs := events.Executions()
	for _, c := range d.cs {
		after := c.scheduled.After(signalled)
		switch {
		case c.verdict == ok && c.scheduled.After(signalled.Add(50*time.Millisecond)) && c.got.Closing:
			d.closed++
		case c.verdict == ok && c.scheduled.After(signalled.Add(50*time.Millisecond)):
			d.unclosed++
		case c.verdict == lost && after && len(runs[c.nonce]) == 0:
			d.idle++
			c.verdict, c.reason = unsent, "idle connection closed"
		case c.verdict != ok && !after:
			t.Errorf("round %d: a call in flight at the signal: %s, %s", n, c.verdict, c.reason)
		}
	}
	d.cs.requireSound(t, events)
	d.cs.reportCalls(t, failed)
}
