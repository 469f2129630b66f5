//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestR3CrashLoop: a child that ends at once, again and again, is started less and less often and
// costs next to nothing; calls on it fail fast and in good form; the others do not notice; and
// when it is well again it is found to be.
func TestR3CrashLoop(t *testing.T) {
	book := newLedger(t)
	heal := filepath.Join(t.TempDir(), "heal")
	s := newSite(t, book, child("a", book), child("b", book), child("x", book, "-heal", heal))
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a", "b")
	before := burst(200, 2, peers, []string{"a", "b"}, nil)

	quiet := time.Duration(pick(6, 60)) * time.Second
	begin := time.Now()
	own, below := cpuOf(g.pid())
	time.Sleep(quiet)
	own2, below2 := cpuOf(g.pid())
	cpu := 100 * (own2 - own).Seconds() / quiet.Seconds()
	if cpu > 2 {
		t.Errorf("the gateway used %.1f %% of a core while a child crashed; the bar is 2 %%", cpu)
	}
	starts := len(book.pids("x"))
	if most := pick(12, 25); starts > most || starts < 4 {
		t.Errorf("%d starts in %s; with a backoff from 100 ms to 30 s there are between 4 and %d", starts, time.Since(begin), most)
	}
	gaps := startGaps(book, "x")

	during := burst(200, 2, peers, []string{"a", "b"}, nil)
	during.sound(t, book)
	during.allOK(t)
	noise := noisier(t, "p99 of the others", before.quantile(0.99), during.quantile(0.99), 1.2, 5*time.Millisecond)
	crashed := burst(50, 5, peers, []string{"x"}, nil)
	crashed.sound(t, book)
	if crashed.count(failed) != 50 {
		t.Errorf("calls on a crashing child: %s", crashed.summary())
	}
	slowest := slowestOf(crashed)
	if slowest > 250*time.Millisecond {
		t.Errorf("a call on a child known to crash failed only after %s", slowest)
	}

	if err := os.WriteFile(heal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	if !within(time.Duration(pick(15, 35))*time.Second, func() bool { return one(peers[1], "x", "echo", "", 5*time.Second).verdict == ok }) {
		t.Error("the child was well again and nobody found out within its longest pause")
	}
	report(t, "R3", fmt.Sprintf("a child that crashes for %s", quiet), append(during, crashed...),
		"%d starts, gaps %v; gateway %.2f %% of a core (its shims %.2f %%); calls on it fail within %s; %s; healed after %s",
		starts, gaps, cpu, 100*(below2-below).Seconds()/quiet.Seconds(), short(slowest), noise, short(time.Since(healed)))
	g.noZombies(t)
	book.obedient(t)
}

// TestR3Recovers: a child that crashes some times and then is well is in use as soon as its next
// start, however often it crashed: a crash says nothing of how it wants to be spoken to.
func TestR3Recovers(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book)
	var names []string
	for n := range 7 {
		names = append(names, fmt.Sprintf("x%d", n))
		s.servers = append(s.servers, child(names[n], book, "-crashes", fmt.Sprint(n)))
	}
	g := s.start(t)
	p := g.web(t, modern)
	var took []string
	for _, id := range names {
		ready(t, p, id)
		took = append(took, short(lag(book, id)))
	}
	book.obedient(t)
	report(t, "R3", "children that crash 0 to 6 times and then are well", nil, "in use %s after their first good start", strings.Join(took, ", "))
	for i, id := range names {
		if n := len(book.pids(id)); n != i+1 {
			t.Errorf("%s crashed %d times and was started %d times", id, i, n)
		}
	}
}

// lag is from the start of a server's newest process to its first call.
func lag(book *ledger, id string) time.Duration {
	start, _ := book.latest(didStart, id)
	for _, e := range book.events(didExec) {
		if e.Server == id && e.At > start.At {
			return e.time().Sub(start.time())
		}
	}
	return 0
}

// startGaps are the times between the starts of a server's processes.
func startGaps(book *ledger, server string) []time.Duration {
	var gaps []time.Duration
	var last time.Time
	for _, e := range book.events(didStart) {
		if e.Server != server {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, e.time().Sub(last).Round(10*time.Millisecond))
		}
		last = e.time()
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
