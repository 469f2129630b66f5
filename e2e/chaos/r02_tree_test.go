//go:build linux

package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestR2NoSurvivors: the gateway is killed. Its children have process trees as `npx` makes them, which ignore
// SIGTERM and the end of stdin, one in its own session, one without a parent. Two seconds later none is left.
func TestR2NoSurvivors(t *testing.T) {
	var gone []time.Duration
	for n := range shortOrFull(5, 50) {
		gone = append(gone, killGateway(t, n, syscall.SIGKILL))
	}
	report(t, "R2", fmt.Sprintf("SIGKILL of the gateway over trees ×%d", len(gone)), nil,
		"0 survivors; the last of %d processes gone after p50 %s, max %s", 2*mcpserver.TreeSize, short(quantile(gone, 0.5)), short(quantile(gone, 1)))
}

// TestR2NoSurvivorsAfterSIGTERM: the same with SIGTERM: after shutdown_grace the rest is killed.
func TestR2NoSurvivorsAfterSIGTERM(t *testing.T) {
	var gone []time.Duration
	for n := range shortOrFull(2, 10) {
		gone = append(gone, killGateway(t, n, syscall.SIGTERM))
	}
	report(t, "R2", fmt.Sprintf("SIGTERM of the gateway over trees ×%d, shutdown_grace 1 s", len(gone)), nil,
		"0 survivors; exit and the last process gone after p50 %s, max %s", short(quantile(gone, 0.5)), short(quantile(gone, 1)))
}

// TestR2Stdio: the same with `ctxgate stdio`, killed or left by its client.
func TestR2Stdio(t *testing.T) {
	var gone []time.Duration
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
		for _, how := range []string{"killed", "left"} {
			events := mcpserver.NewEventLog(t)
			s := newSite(t, events, stdioServer("a", events, "-tree", "-ignore-signals"))
			s.servers[0].extraTOML = "shutdown_grace = 1"
			p := s.connectStdio(t, e)
			waitReady(t, p, "a")
			wait.True(5*time.Second, func() bool { return len(events.Events(mcpserver.Started)) >= mcpserver.TreeSize })
			begin := time.Now()
			limit := 2 * time.Second
			if how == "killed" {
				_ = p.Cmd.Process.Kill()
			} else {
				limit = 5 * time.Second
				_ = p.Stdin.Close()
			}
			if !wait.True(limit, func() bool { return len(events.Survivors()) == 0 }) {
				t.Errorf("%s, %s: survivors after %s: %+v", e, how, limit, events.Survivors())
				events.KillSurvivors()
			}
			gone = append(gone, time.Since(begin))
			if strays := p.Unexpected(); len(strays) > 0 {
				t.Errorf("on stdout: %q", strays)
			}
		}
	}
	report(t, "R2", "`ctxgate stdio` killed, and left by its client, over a tree", nil, "0 survivors; gone after %v", gone)
}

// killGateway runs one round and returns how long the last process lived.
func killGateway(t *testing.T, n int, signal syscall.Signal) time.Duration {
	t.Helper()
	events := mcpserver.NewEventLog(t)
	defer events.KillSurvivors()
	s := newSite(t, events, stdioServer("old", events, "-tree", "-ignore-signals"), stdioServer("new", events, "-tree", "-ignore-signals", "-revision", string(mcpwire.Modern)))
	for i := range s.servers {
		s.servers[i].extraTOML = "shutdown_grace = 1"
	}
	g, err := s.startGateway()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Kill()
	if !wait.True(10*time.Second, func() bool {
		return len(events.Events(mcpserver.Started)) >= 2*mcpserver.TreeSize && len(events.Events(mcpserver.Listening)) >= 2
	}) {
		t.Fatalf("round %d: the trees are not complete: %d processes\n%s", n, len(events.Events(mcpserver.Started)), lastLines(g.readLog(), 20))
	}
	waitReady(t, g.connect(t, mcpwire.Modern), "old", "new")
	begin := time.Now()
	g.sendSignal(t, signal)
	limit := 2 * time.Second
	if signal == syscall.SIGTERM {
		limit = 5 * time.Second // the grace period, the wait after SIGTERM, and the kill
		if code, err := g.ExitCode(10 * time.Second); err != nil || code != 0 {
			t.Errorf("round %d: exit code %d, %v", n, code, err)
		}
	}
	if !wait.True(limit-time.Since(begin), func() bool { return len(events.Survivors()) == 0 }) {
		t.Errorf("round %d: survivors after %s: %+v", n, limit, events.Survivors())
	}
	return time.Since(begin)
}
