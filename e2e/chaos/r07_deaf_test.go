//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestR7Deaf: a child stops reading, and lives. No more than 64 messages or a MiB wait for it, and
// time out; the rest is refused as full after a second; all get a well-formed answer in time, and the
// neighbour does not notice.
func TestR7Deaf(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("x", book, "-deaf", "60"), child("a", book))
	s.head = "response_timeout = \"3s\"\nhealthcheck_interval = \"1h\""
	g := s.start(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], "x", "a")
	before := burst(300, 2, peers, []string{"a"}, nil)
	memory := memoryOf(g.pid(), "VmRSS")

	pad := fmt.Sprintf(`"pad":%q`, strings.Repeat("p", 16<<10))
	stuck := make(chan calls, 1)
	go func() {
		stuck <- burst(400, 400, peers, []string{"x"}, func(_ int, c *call) { c.more = pad })
	}()
	time.Sleep(500 * time.Millisecond)
	during := burst(300, 2, peers, []string{"a"}, nil)
	cs := <-stuck
	all := append(cs, during...)
	all.sound(t, book)
	during.allOK(t)
	found := judgeDeaf(t, cs)
	if n := len(book.pids("x")); n != 1 {
		t.Errorf("the child was to hang, and was started %d times", n)
	}
	grown := memoryOf(g.pid(), "VmRSS") - memory
	report(t, "R7", "a child that stops reading, 400 calls of 16 KiB at once", all, "%s; RSS +%d MiB; %s", found, grown>>20,
		noisier(t, "p99 of the neighbour", before.quantile(0.99), during.quantile(0.99), 1.2, 10*time.Millisecond))
}

// judgeDeaf holds the calls of R7 to its bars: who has a place in the queue waits for the whole
// response_timeout, who has none is refused within a moment, and nothing else becomes of anybody.
func judgeDeaf(t *testing.T, cs calls) string {
	t.Helper()
	queued := cs.where(func(c *call) bool { return c.why == "timeout" })
	refused := cs.where(func(c *call) bool { return c.why == "full" })
	if cs.count(ok)+len(queued)+len(refused) != len(cs) {
		t.Errorf("calls on a child that reads nothing: %s; the bar is full and timeout", cs.summary())
	}
	if len(queued) > 64+8 { // 64 KiB of the pipe, and as many that the fake has read ahead
		t.Errorf("%d calls waited for a child that reads nothing; the bar is 64 and the pipe's own", len(queued))
	}
	if hasty := queued.where(func(c *call) bool { return c.took() < 3*time.Second }); len(hasty) > 0 {
		t.Errorf("%d calls timed out before the response_timeout of 3s", len(hasty))
	}
	if most := slowestOf(refused); most > time.Duration(pick(6, 2))*time.Second {
		t.Errorf("a call was refused as full after %s; the bar is a second", most)
	}
	if most := slowestOf(cs); most > time.Duration(pick(8, 4))*time.Second {
		t.Errorf("a call waited for %s, with a response_timeout of 3s", most)
	}
	return fmt.Sprintf("%d queued and timed out, slowest %s; %d refused as full within %s", len(queued), short(slowestOf(queued)), len(refused), short(slowestOf(refused)))
}

// TestR1QueueWhileRestarting: a killed child takes two seconds to start. At most 64 calls wait for
// it and go well, the others are refused at once.
func TestR1QueueWhileRestarting(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("x", book, "-delay", "2s"), child("a", book))
	g := s.start(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], "x", "a")
	kill := killChildren(t, book, []string{"x"}, 1, 300*time.Millisecond)
	cs := burst(200, 200, peers, []string{"x"}, nil)
	cs.sound(t, book)
	waited := cs.where(func(c *call) bool { return c.took() > time.Second })
	if len(waited) > 64 {
		t.Errorf("%d calls waited for a child that was starting; the bar is 64", len(waited))
	}
	if n := len(cs) - len(waited); cs.count(failed) > n {
		t.Errorf("calls that waited for the child failed: %s", cs.summary())
	}
	ready(t, peers[0], "x")
	report(t, "R1", "200 calls at once for a child that takes 2 s to start again", cs, "%d waited, %d refused; killed %s", len(waited), cs.count(failed), kill[0].server)
}
