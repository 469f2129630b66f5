//go:build linux

package chaos

import (
	"fmt"
	"testing"
	"time"
)

// TestR20Sessions: an HTTP server forgets its sessions, cuts its streams, or is restarted, again
// and again. The gateway begins anew by itself: at most one call of each time fails, in good form,
// and none runs twice. Where nothing that runs can have been lost, no call fails at all.
func TestR20Sessions(t *testing.T) {
	for _, kind := range []string{"http", "sse"} {
		for _, f := range []fault{
			{"expires", func(h *httpFake) error { h.expire(); return nil }, kind == "http"},
			{"is cut", func(h *httpFake) error { h.cutStreams(); return nil }, kind == "http"},
			{"restarts", func(h *httpFake) error { return h.restart(0) }, false},
		} {
			t.Run(kind+" "+f.name, func(t *testing.T) { forget(t, kind, f) })
		}
	}
}

// fault is something that befalls an HTTP server.
type fault struct {
	name string
	do   func(*httpFake) error
	free bool // nothing that runs is lost, so no call may fail
}

func forget(t *testing.T, kind string, f fault) {
	t.Helper()
	book := newLedger(t)
	h := startHTTPFake(t, options{server: "x", era: legacy}, book)
	up := far("x", h)
	if kind == "sse" {
		up = server{id: "x", url: h.url("/sse"), more: `transport = "sse"`}
	}
	g := newSite(t, book, up, child("a", book)).start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "x", "a")
	var all calls
	worst, times := 0, pick(8, 34)
	for i := range times {
		if err := f.do(h); err != nil {
			t.Fatal(err)
		}
		cs := burst(4, 1, peers, []string{"x"}, nil)
		bad := cs.count(failed)
		worst = max(worst, bad)
		if bad > 1 || f.free && bad > 0 {
			t.Errorf("time %d: %s", i, cs.summary())
		}
		all = append(all, cs...)
	}
	all.sound(t, book)
	book.obedient(t)
	neighbour := burst(20, 2, peers, []string{"a"}, nil)
	neighbour.allOK(t)
	report(t, "R20", fmt.Sprintf("a legacy %s server that %s ×%d", kind, f.name, times), all, "at most %d errors a time; %d sessions", worst, h.inits.Load())
}

// TestR20Load is the same under a steady load: errors only in good form, nothing lost or run twice.
func TestR20Load(t *testing.T) {
	book := newLedger(t)
	old := startHTTPFake(t, options{server: "x", era: legacy}, book)
	mod := startHTTPFake(t, options{server: "y", era: modern}, book)
	g := newSite(t, book, far("x", old), far("y", mod), child("a", book)).start(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], "x", "y", "a")
	l := load{rate: 60, servers: []string{"x", "y", "a"}, more: `"delay_ms":10`, peers: peers}
	l.start()
	n := pick(6, 50)
	for i := range n {
		time.Sleep(300 * time.Millisecond)
		if i%2 == 0 {
			old.expire()
			continue
		}
		if err := errorsOf([]error{old.restart(20 * time.Millisecond), mod.restart(20 * time.Millisecond)}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	cs := l.end()
	cs.sound(t, book)
	cs.where(func(c *call) bool { return c.server == "a" }).allOK(t)
	if bad := cs.count(failed); bad > 4*n {
		t.Errorf("%d errors for %d faults: %s", bad, n, cs.summary())
	}
	last := cs.between(time.Now().Add(-900*time.Millisecond), time.Now())
	last.allOK(t)
	report(t, "R20", fmt.Sprintf("HTTP servers of both eras expire and restart ×%d under 60 rps", n), cs, "%d errors", cs.count(failed))
}
