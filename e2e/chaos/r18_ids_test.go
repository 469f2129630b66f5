//go:build linux

package chaos

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

func touchFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// oddIDs are ids that a careless reader changes.
var oddIDs = []string{`-1`, `0`, `9007199254740993`, `-9223372036854775808`, `""`, `"1"`, `1`, `"é\u00e9"`, `"a\"b\\"`, `"\u0000"`, `"😀"`, `" 1 "`}

// TestR18OddIDs: ids and progress tokens come back in the very bytes they were sent in, through
// every door.
func TestR18OddIDs(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book))
	g := s.start(t)
	doors := map[string]peer{"legacy http": g.web(t, legacy), "modern http": g.web(t, modern), "legacy stdio": s.pipe(t, legacy), "modern stdio": s.pipe(t, modern)}
	var cs calls
	for name, p := range doors {
		ready(t, p, "a")
		for i, id := range oddIDs {
			c := &call{id: id, token: id, nonce: fmt.Sprintf("%s-%d", name, i), tenant: "t", server: "a", tool: "progress", more: `"n":2`}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			c.make(ctx, p)
			cancel()
			if c.verdict == ok && len(c.got.before) != 2 {
				t.Errorf("%s, id %s: %d progress notifications, want 2", name, id, len(c.got.before))
			}
			cs = append(cs, c)
		}
	}
	cs.sound(t, book)
	cs.allOK(t)
	report(t, "R18", "odd ids and tokens, 4 doors", cs, "the same bytes come back")
}

// TestR18Pipe is the collision of ids on one pipe: `ctxgate stdio`, many calls at once with ids of
// both types, and progress before and after the answers.
func TestR18Pipe(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(string(e), func(t *testing.T) {
			book := newLedger(t)
			s := newSite(t, book, child("a", book), child("b", book, "-era", string(modern)))
			p := s.pipe(t, e)
			ready(t, p, "a", "b")
			cs := pipeBurst(p, pick(400, 4000))
			cs.sound(t, book)
			cs.allOK(t)
			if strays := p.lost(); len(strays) > 0 {
				t.Errorf("on stdout: %q", strays[:min(3, len(strays))])
			}
			if n := len(book.pids("a")) + len(book.pids("b")); n != 2 {
				t.Errorf("the children were restarted: %d processes", n)
			}
			report(t, "R18", fmt.Sprintf("`ctxgate stdio`, %s client, ids of both types and progress", e), cs, "no stray line")
		})
	}
}

// pipeBurst makes calls on one pipe, forty at a time.
func pipeBurst(p peer, n int) calls {
	all := make(calls, n)
	var workers sync.WaitGroup
	for w := range 40 {
		workers.Go(func() {
			for k := w; k < n; k += 40 {
				id := fmt.Sprint(k/2 + 1)
				if k%2 == 1 {
					id = quote(id)
				}
				c := &call{id: id, token: id, nonce: fmt.Sprintf("p%d", k), tenant: "t", server: []string{"a", "b"}[k/2%2], tool: "progress", more: `"n":2,"late":true`}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				c.make(ctx, p)
				cancel()
				all[k] = c
			}
		})
	}
	workers.Wait()
	return all
}

// TestR18Chatter: a server that pings the gateway is answered, and one that reports fifty thousand
// steps to a client that does not read them costs little and stops nobody.
func TestR18Chatter(t *testing.T) {
	book := newLedger(t)
	g := newSite(t, book, child("a", book), child("x", book)).start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a", "x")
	cs := burst(20, 4, peers, []string{"a"}, func(_ int, c *call) { c.tool, c.more = "broken", `"how":"ping"` })
	base := memoryOf(g.pid(), "VmRSS")
	stalled := make(chan *call, 1)
	slow := g.web(t, modern)
	go func() {
		c := &call{id: "1", token: "1", nonce: "chatter", tenant: "t", server: "x", tool: "progress", more: fmt.Sprintf(`"n":%d`, pick(50_000, 500_000))}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		got, err := slow.ask(ctx, withNote(c.request("x::"), func(frame) { runtime.Gosched() }))
		c.ended, c.got = got.at, got
		c.verdict, c.why = c.judge(got, err)
		stalled <- c
	}()
	during := burst(200, 2, peers, []string{"a"}, nil)
	during.allOK(t)
	c := <-stalled
	cs = append(append(cs, during...), c)
	cs.sound(t, book)
	book.obedient(t)
	if grown := memoryOf(g.pid(), "VmHWM") - base; grown > 64<<20 {
		t.Errorf("the gateway grew by %d MiB", grown>>20)
	}
	report(t, "R18", "a server that pings; one that reports 50,000 steps to a slow client", cs, "%d steps arrived, then the answer: %s %s", len(c.got.before), c.verdict, c.why)
}

func withNote(a ask, note func(frame)) ask {
	a.note = note
	return a
}
