//go:build linux

package chaos

import (
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

const frameCap = 32 << 20 // the largest frame of a child

// TestR5LongLines: a line of 20 MB is a normal result, within a second and four times its size in memory; 100
// MB is over the limit and fails, without a restart of the child.
func TestR5LongLines(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("b", events))
	s.topLevel = "max_reply_bytes = \"32MiB\""
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a", "b")
	burst(200, 4, clients, []string{"a", "b"}, nil) // warm up the heap, so that later growth is the line's

	base := memoryOf(g.PID(), "VmRSS")
	if err := process.ResetPeakMemory(g.PID()); err != nil {
		t.Fatal("memory cannot be measured: ", err)
	}
	big := callOnce(clients[1], "a", "big", `"mb":20`, 30*time.Second)
	peak := memoryOf(g.PID(), "VmHWM") - base
	if big.verdict != ok {
		t.Errorf("20 MB: %s, %s", big.verdict, big.reason)
	}
	if big.took() > time.Duration(shortOrFull(3, 1))*time.Second {
		t.Errorf("20 MB took %s", big.took())
	}
	if peak > 4*20<<20 {
		t.Errorf("20 MB cost %d MiB; the bar is 4 times the payload", peak>>20)
	}

	slow := make(chan *call, 1)
	go func() { slow <- callOnce(clients[0], "a", "echo", `"delay_ms":3000`, 30*time.Second) }()
	time.Sleep(50 * time.Millisecond)
	_ = process.ResetPeakMemory(g.PID())
	base = memoryOf(g.PID(), "VmRSS")
	huge := callOnce(clients[1], "a", "big", `"mb":100`, 30*time.Second)
	peakHuge := memoryOf(g.PID(), "VmHWM") - base
	if huge.verdict != failed {
		t.Errorf("100 MB: %s, %s", huge.verdict, huge.reason)
	}
	next := callOnce(clients[1], "a", "echo", "", 10*time.Second)
	cs := calls{big, huge, next, <-slow}
	cs.requireSound(t, events)
	if next.verdict != ok || cs[3].verdict != ok || len(events.PIDs("a")) != 1 {
		t.Errorf("beside and after 100 MB: %s %s, %s %s, processes %v", next.verdict, next.reason, cs[3].verdict, cs[3].reason, events.PIDs("a"))
	}
	report(t, "R5", "a line of 20 MB, a line of 100 MB", cs, "20 MB: %s, +%d MiB; 100 MB: %s after %s, +%d MiB, the same child continues",
		short(big.took()), peak>>20, huge.reason, short(huge.took()), peakHuge>>20)
}

// TestR5EndlessLine: a line without an end costs at most the limit and 8 MiB, its call gets an error, and the
// other server's calls succeed.
func TestR5EndlessLine(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("x", events))
	s.topLevel = "response_timeout = \"2s\"\nmax_reply_bytes = \"32MiB\""
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a", "x")
	burst(200, 4, clients, []string{"a", "x"}, nil)
	base := memoryOf(g.PID(), "VmRSS")
	if err := process.ResetPeakMemory(g.PID()); err != nil {
		t.Fatal("memory cannot be measured: ", err)
	}
	endless := make(chan *call, 1)
	go func() { endless <- callOnce(clients[1], "x", "broken", `"how":"endless"`, 20*time.Second) }()
	cs := burst(200, 2, clients, []string{"a"}, nil)
	cs.requireAllOK(t)
	cs = append(cs, <-endless)
	cs.requireSound(t, events)
	peak := memoryOf(g.PID(), "VmHWM") - base
	if peak > frameCap+8<<20 {
		t.Errorf("an endless line cost %d MiB; the bar is the cap of 32 MiB and 8 more", peak>>20)
	}
	last := cs[len(cs)-1]
	if last.verdict != failed {
		t.Errorf("the call got %s, %s", last.verdict, last.reason)
	}
	report(t, "R5", "a line without an end", cs, "error %s after %s; peak +%d MiB", last.reason, short(last.took()), peak>>20)
	if c := callOnce(clients[0], "x", "echo", "", 5*time.Second); c.verdict != ok && c.verdict != failed {
		t.Errorf("after the endless line: %s %s", c.verdict, c.reason)
	}
}
