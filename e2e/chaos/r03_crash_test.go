//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestR3CrashLoop: a child that always exits at once is restarted with a growing backoff and costs hardly any
// CPU; its calls fail fast with a well-formed error; other servers are not affected; and it is used again
// once it works.
func TestR3CrashLoop(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	heal := filepath.Join(t.TempDir(), "heal")
	s := newSite(t, events, stdioServer("a", events), stdioServer("b", events), stdioServer("x", events, "-fail-until-file", heal))
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a", "b")
	before := burst(200, 2, clients, []string{"a", "b"}, nil)

	quiet := time.Duration(shortOrFull(6, 60)) * time.Second
	begin := time.Now()
	own, below := process.CPUTime(g.PID())
	time.Sleep(quiet)
	own2, below2 := process.CPUTime(g.PID())
	cpu := 100 * (own2 - own).Seconds() / quiet.Seconds()
	if cpu > 2 {
		t.Errorf("the gateway used %.1f %% of a core while a child crashed; the bar is 2 %%", cpu)
	}
	starts := len(events.PIDs("x"))
	if most := shortOrFull(12, 25); starts > most || starts < 4 {
		t.Errorf("%d starts in %s; with a backoff from 100 ms to 30 s, want between 4 and %d", starts, time.Since(begin), most)
	}
	gaps := startGaps(events, "x")

	during := burst(200, 2, clients, []string{"a", "b"}, nil)
	during.requireSound(t, events)
	during.requireAllOK(t)
	noise := checkSlowdown(t, "p99 of the others", before.quantile(0.99), during.quantile(0.99), 1.2, 5*time.Millisecond)
	crashed := burst(50, 5, clients, []string{"x"}, nil)
	crashed.requireSound(t, events)
	if crashed.count(failed) != 50 {
		t.Errorf("calls on a crashing child: %s", crashed.summary())
	}
	slowest := slowestOf(crashed)
	if slowest > 250*time.Millisecond {
		t.Errorf("a call on a child known to crash failed after %s", slowest)
	}

	if err := os.WriteFile(heal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	if !wait.True(time.Duration(shortOrFull(15, 35))*time.Second, func() bool { return callOnce(clients[1], "x", "echo", "", 5*time.Second).verdict == ok }) {
		t.Error("the child works again but was not used within the longest backoff")
	}
	report(t, "R3", fmt.Sprintf("a child that crashes for %s", quiet), append(during, crashed...),
		"%d starts, gaps %v; gateway %.2f %% of a core (its shims %.2f %%); calls on it fail within %s; %s; healed after %s",
		starts, gaps, cpu, 100*(below2-below).Seconds()/quiet.Seconds(), short(slowest), noise, short(time.Since(healed)))
	g.requireNoZombies(t)
	events.RequireNoViolations(t)
}

// TestR3Recovers: a child that crashes a few times is used right after its first good start: crashes must not
// change which protocol revision the gateway tries.
func TestR3Recovers(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events)
	var names []string
	for n := range 7 {
		names = append(names, fmt.Sprintf("x%d", n))
		s.servers = append(s.servers, stdioServer(names[n], events, "-crash-count", fmt.Sprint(n)))
	}
	g := s.start(t)
	p := g.connect(t, mcpwire.Modern)
	var took []string
	for _, id := range names {
		waitReady(t, p, id)
		took = append(took, short(firstCallDelay(events, id)))
	}
	events.RequireNoViolations(t)
	report(t, "R3", "children that crash 0 to 6 times and then work", nil, "in use %s after their first good start", strings.Join(took, ", "))
	for i, id := range names {
		if n := len(events.PIDs(id)); n != i+1 {
			t.Errorf("%s crashed %d times and was started %d times", id, i, n)
		}
	}
}

// firstCallDelay is the time from the start of a server's newest process to its first call.
func firstCallDelay(events *mcpserver.EventLog, id string) time.Duration {
	start, _ := events.Latest(mcpserver.Started, id)
	for _, e := range events.Events(mcpserver.Executed) {
		if e.Server == id && e.At > start.At {
			return e.Time().Sub(start.Time())
		}
	}
	return 0
}

// startGaps returns the times between the starts of a server's processes.
func startGaps(events *mcpserver.EventLog, server string) []time.Duration {
	var gaps []time.Duration
	var last time.Time
	for _, e := range events.Events(mcpserver.Started) {
		if e.Server != server {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, e.Time().Sub(last).Round(10*time.Millisecond))
		}
		last = e.Time()
	}
	return gaps
}

func slowestOf(cs calls) time.Duration {
	var most time.Duration
	for _, c := range cs {
		most = max(most, c.took())
	}
	return most
}
