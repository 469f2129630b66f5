//go:build linux

package chaos

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestR4Junk: a child prints a line that is no message before every tenth answer. Every call goes
// well, and the log does not repeat every line.
func TestR4Junk(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(string(e), func(t *testing.T) {
			book := newLedger(t)
			s := newSite(t, book, child("a", book, "-junk", "10", "-era", string(e)))
			g := s.start(t)
			peers := g.webs(t, 4)
			ready(t, peers[0], "a")
			logged := sizeOf(s.log)
			n := pick(1000, 10_000)
			cs := burst(n, 16, peers, []string{"a"}, nil)
			cs.sound(t, book)
			cs.allOK(t)
			if pids := book.pids("a"); len(pids) != 1 {
				t.Errorf("the child was restarted: %v", pids)
			}
			report(t, "R4", fmt.Sprintf("%d junk lines on stdout among the answers, %s child", n/10, e), cs,
				"all answered; the log grew by %d bytes a call", (sizeOf(s.log)-logged)/int64(n))
		})
	}
}

// TestR4Flood: a child that prints very much that is no message before its answer is either
// listened to or given up with a reason; its neighbour does not notice; the log stays small.
func TestR4Flood(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("x", book))
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a", "x")
	before := burst(200, 2, peers, []string{"a"}, nil)
	logged := sizeOf(s.log)
	flooded := make(chan *call, 1)
	go func() {
		flooded <- one(peers[1], "x", "broken", fmt.Sprintf(`"how":"flood","n":%d`, pick(50_000, 500_000)), 30*time.Second)
	}()
	during := burst(200, 2, peers, []string{"a"}, nil)
	flood := <-flooded
	all := append(during, flood)
	all.sound(t, book)
	during.allOK(t)
	grown := sizeOf(s.log) - logged
	if grown > 1<<20 {
		t.Errorf("the log grew by %d bytes", grown)
	}
	after := one(peers[0], "x", "echo", "", 10*time.Second)
	if v := after.verdict; v != ok && v != failed {
		t.Errorf("after the flood: %s, %s", v, after.why)
	}
	report(t, "R4", fmt.Sprintf("a flood of %d junk lines before one answer", pick(50_000, 500_000)), all,
		"flooded call: %s %s after %s, the next: %s %s; log +%d KiB; %s", flood.verdict, flood.why, short(flood.took()), after.verdict, after.why, grown>>10,
		noisier(t, "p99 of the neighbour", before.quantile(0.99), during.quantile(0.99), 20, 50*time.Millisecond)) // the flood itself takes a core
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
