//go:build linux

package chaos

import (
	"testing"
	"time"
)

const frameCap = 32 << 20 // the largest frame of a child

// TestR5LongLines: 20 MB in one line is a result like any other, within a second and four times
// its size; 100 MB is over the cap and fails alone, while the child goes on.
func TestR5LongLines(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("b", book))
	s.head = "max_reply_bytes = \"32MiB\""
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a", "b")
	burst(200, 4, peers, []string{"a", "b"}, nil) // a warm heap, so that what follows is the line's

	base := memoryOf(g.pid(), "VmRSS")
	if err := resetPeak(g.pid()); err != nil {
		t.Fatal("the bar cannot be measured: ", err)
	}
	big := one(peers[1], "a", "big", `"mb":20`, 30*time.Second)
	peak := memoryOf(g.pid(), "VmHWM") - base
	if big.verdict != ok {
		t.Errorf("20 MB: %s, %s", big.verdict, big.why)
	}
	if big.took() > time.Duration(pick(3, 1))*time.Second {
		t.Errorf("20 MB took %s", big.took())
	}
	if peak > 4*20<<20 {
		t.Errorf("20 MB cost %d MiB; the bar is 4 times the payload", peak>>20)
	}

	slow := make(chan *call, 1)
	go func() { slow <- one(peers[0], "a", "echo", `"delay_ms":3000`, 30*time.Second) }()
	time.Sleep(50 * time.Millisecond)
	_ = resetPeak(g.pid())
	base = memoryOf(g.pid(), "VmRSS")
	huge := one(peers[1], "a", "big", `"mb":100`, 30*time.Second)
	peakHuge := memoryOf(g.pid(), "VmHWM") - base
	if huge.verdict != failed {
		t.Errorf("100 MB: %s, %s", huge.verdict, huge.why)
	}
	next := one(peers[1], "a", "echo", "", 10*time.Second)
	cs := calls{big, huge, next, <-slow}
	cs.sound(t, book)
	if next.verdict != ok || cs[3].verdict != ok || len(book.pids("a")) != 1 {
		t.Errorf("beside and after 100 MB: %s %s, %s %s, processes %v", next.verdict, next.why, cs[3].verdict, cs[3].why, book.pids("a"))
	}
	report(t, "R5", "a line of 20 MB, a line of 100 MB", cs, "20 MB: %s, +%d MiB; 100 MB: %s after %s, +%d MiB, the same child goes on",
		short(big.took()), peak>>20, huge.why, short(huge.took()), peakHuge>>20)
}

// TestR5EndlessLine: a line without an end costs no more than the cap and eight MiB, its call gets
// an error, and the neighbour's calls go on.
func TestR5EndlessLine(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("x", book))
	s.head = "response_timeout = \"2s\"\nmax_reply_bytes = \"32MiB\""
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a", "x")
	burst(200, 4, peers, []string{"a", "x"}, nil)
	base := memoryOf(g.pid(), "VmRSS")
	if err := resetPeak(g.pid()); err != nil {
		t.Fatal("the bar cannot be measured: ", err)
	}
	endless := make(chan *call, 1)
	go func() { endless <- one(peers[1], "x", "broken", `"how":"endless"`, 20*time.Second) }()
	cs := burst(200, 2, peers, []string{"a"}, nil)
	cs.allOK(t)
	cs = append(cs, <-endless)
	cs.sound(t, book)
	peak := memoryOf(g.pid(), "VmHWM") - base
	if peak > frameCap+8<<20 {
		t.Errorf("an endless line cost %d MiB; the bar is the cap of 32 MiB and 8 more", peak>>20)
	}
	last := cs[len(cs)-1]
	if last.verdict != failed {
		t.Errorf("the call got %s, %s", last.verdict, last.why)
	}
	report(t, "R5", "a line without an end", cs, "error %s after %s; peak +%d MiB", last.why, short(last.took()), peak>>20)
	if c := one(peers[0], "x", "echo", "", 5*time.Second); c.verdict != ok && c.verdict != failed {
		t.Errorf("after the endless line: %s %s", c.verdict, c.why)
	}
}
