//go:build linux

package chaos

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

const drainGrace = 6 * time.Second

// drained is what came of one shutdown.
type drained struct {
	cs       calls
	exit     time.Duration
	idle     int // calls that met the closing of an idle connection
	closed   int // answers to calls after the signal that said Connection: close
	unclosed int // and that did not
	flipped  bool
}

// TestR9Drain ends the gateway politely under load, with twenty long calls under way. All calls
// under way are answered, readiness goes first, every later answer closes its connection, every
// subscription gets its last word, and the exit code is 0.
func TestR9Drain(t *testing.T) {
	var all calls
	var exits []time.Duration
	idle, closed, unclosed := 0, 0, 0
	rounds := pick(3, 50)
	for n := range rounds {
		d := drainOnce(t, n)
		all, exits = append(all, d.cs...), append(exits, d.exit)
		idle, closed, unclosed = idle+d.idle, closed+d.closed, unclosed+d.unclosed
		if !d.flipped {
			t.Errorf("round %d: readiness was not withdrawn before the listener closed", n)
		}
	}
	if unclosed > 0 || closed == 0 {
		t.Errorf("after the signal %d answers did not say Connection: close, %d did", unclosed, closed)
	}
	report(t, "R9", fmt.Sprintf("SIGTERM under %d rps and 20 calls of 2 s ×%d", pick(100, 200), rounds), all,
		"%d answered after the signal, all with Connection: close; %d refused after the end, %d met a closing idle connection; exit 0 after p50 %s max %s", closed, all.count(unsent)-idle, idle, short(quantile(exits, 0.5)), short(quantile(exits, 1)))
}

func drainOnce(t *testing.T, n int) drained {
	t.Helper()
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("b", book, "-era", string(modern)))
	s.tail = fmt.Sprintf("[http]\ndrain_grace = %q\ndrain_delay = \"300ms\"", drainGrace)
	g, err := s.launch()
	if err != nil {
		t.Fatal(err)
	}
	defer g.bury(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], "a", "b")
	news := openStreams(t, g, 2)

	quick := load{rate: pick(100, 200), servers: []string{"a", "b"}, more: `"delay_ms":5`, peers: peers, fresh: g.fresh}
	slow := load{rate: 200, servers: []string{"a", "b"}, more: `"delay_ms":2000`, peers: peers}
	quick.start()
	slow.start()
	within(5*time.Second, func() bool { slow.mu.Lock(); defer slow.mu.Unlock(); return len(slow.calls) >= 20 })
	slow.stop()
	<-slow.stopped
	time.Sleep(200 * time.Millisecond)
	signalled := time.Now()
	g.signal(t, syscall.SIGTERM)
	d := drained{flipped: within(280*time.Millisecond, func() bool { return g.status("/readyz") == http.StatusServiceUnavailable })}
	code, err := g.exit(drainGrace + time.Second)
	if err != nil || code != 0 {
		t.Errorf("round %d: exit code %d, %v", n, code, err)
	}
	d.exit = time.Since(signalled)
	time.Sleep(100 * time.Millisecond)
	d.cs = append(quick.end(), slow.end()...)
	d.judge(t, n, signalled, book)
	for i, s := range news {
		if i%2 == 1 { // the modern ones
			if ended, result, err := s.state(); !ended || result.Result == nil {
				t.Errorf("round %d: a subscription did not get its result (ended %v): %v", n, ended, err)
			}
		}
	}
	return d
}

// judge sets apart the calls that nobody could have saved: those sent on an idle connection at the
// moment it was closed, which never ran.
func (d *drained) judge(t *testing.T, n int, signalled time.Time, book *ledger) {
	t.Helper()
	runs := book.executions()
	for _, c := range d.cs {
		after := c.due.After(signalled)
		switch {
		case c.verdict == ok && c.due.After(signalled.Add(50*time.Millisecond)) && c.got.closing:
			d.closed++
		case c.verdict == ok && c.due.After(signalled.Add(50*time.Millisecond)):
			d.unclosed++
		case c.verdict == lost && after && len(runs[c.nonce]) == 0:
			d.idle++
			c.verdict, c.why = unsent, "idle connection closed"
		case c.verdict != ok && !after:
			t.Errorf("round %d: a call under way at the signal came to %s, %s", n, c.verdict, c.why)
		}
	}
	d.cs.sound(t, book)
	d.cs.complain(t, failed)
}
