//go:build linux

package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestR2NoSurvivors kills the gateway without a word. Below it run trees as `npx` grows them, deaf
// to TERM and to the end of their input, one of them in a session of its own, one without a
// parent. Two seconds later none is left.
func TestR2NoSurvivors(t *testing.T) {
	var gone []time.Duration
	for n := range pick(5, 50) {
		gone = append(gone, killGateway(t, n, syscall.SIGKILL))
	}
	report(t, "R2", fmt.Sprintf("SIGKILL of the gateway over trees ×%d", len(gone)), nil,
		"0 survivors; the last of %d processes gone after p50 %s, max %s", 2*treeSize, short(quantile(gone, 0.5)), short(quantile(gone, 1)))
}

// TestR2NoSurvivorsOfAPoliteEnd is the same with SIGTERM: the shutdown's grace passes, and then
// whatever is left is killed.
func TestR2NoSurvivorsOfAPoliteEnd(t *testing.T) {
	var gone []time.Duration
	for n := range pick(2, 10) {
		gone = append(gone, killGateway(t, n, syscall.SIGTERM))
	}
	report(t, "R2", fmt.Sprintf("SIGTERM of the gateway over trees ×%d, shutdown_grace 1 s", len(gone)), nil,
		"0 survivors; exit and the last process gone after p50 %s, max %s", short(quantile(gone, 0.5)), short(quantile(gone, 1)))
}

// TestR2Stdio is the same with `ctxgate stdio`: killed, or left by its client, it leaves nobody.
func TestR2Stdio(t *testing.T) {
	var gone []time.Duration
	for _, e := range []era{legacy, modern} {
		for _, how := range []string{"killed", "left"} {
			book := newLedger(t)
			s := newSite(t, book, child("a", book, "-tree", "-stubborn"))
			s.servers[0].more = "shutdown_grace = 1"
			p := s.pipe(t, e)
			ready(t, p, "a")
			within(5*time.Second, func() bool { return len(book.events(didStart)) >= treeSize })
			begin := time.Now()
			limit := 2 * time.Second
			if how == "killed" {
				_ = p.cmd.Process.Kill()
			} else {
				limit = 5 * time.Second
				_ = p.in.Close()
			}
			if !within(limit, func() bool { return len(book.survivors()) == 0 }) {
				t.Errorf("%s, %s: survivors after %s: %+v", e, how, limit, book.survivors())
				book.reap()
			}
			gone = append(gone, time.Since(begin))
			if strays := p.lost(); len(strays) > 0 {
				t.Errorf("on stdout: %q", strays)
			}
		}
	}
	report(t, "R2", "`ctxgate stdio` killed, and left by its client, over a tree", nil, "0 survivors; gone after %v", gone)
}

// killGateway is one round; it gives how long the last process lived.
func killGateway(t *testing.T, n int, signal syscall.Signal) time.Duration {
	t.Helper()
	book := newLedger(t)
	defer book.reap()
	s := newSite(t, book, child("old", book, "-tree", "-stubborn"), child("new", book, "-tree", "-stubborn", "-era", string(modern)))
	for i := range s.servers {
		s.servers[i].more = "shutdown_grace = 1"
	}
	g, err := s.launch()
	if err != nil {
		t.Fatal(err)
	}
	defer g.kill()
	if !within(10*time.Second, func() bool { return len(book.events(didStart)) >= 2*treeSize && len(book.events(didListen)) >= 2 }) {
		t.Fatalf("round %d: the trees did not grow: %d processes\n%s", n, len(book.events(didStart)), lastLines(g.said(), 20))
	}
	ready(t, g.web(t, modern), "old", "new")
	begin := time.Now()
	g.signal(t, signal)
	limit := 2 * time.Second
	if signal == syscall.SIGTERM {
		limit = 5 * time.Second // the grace, TERM's own wait, and the kill
		if code, err := g.exit(10 * time.Second); err != nil || code != 0 {
			t.Errorf("round %d: exit code %d, %v", n, code, err)
		}
	}
	if !within(limit-time.Since(begin), func() bool { return len(book.survivors()) == 0 }) {
		t.Errorf("round %d: survivors after %s: %+v", n, limit, book.survivors())
	}
	return time.Since(begin)
}
