//go:build linux

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestR18Collisions: fifty clients share one child, all with the same ids, of both types, and the
// same progress tokens, of both types. Every answer and every progress reaches its own call, and
// no progress comes after the answer, though the child sends some.
func TestR18Collisions(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(string(e), func(t *testing.T) {
			book := newLedger(t)
			s := newSite(t, book, child("a", book, "-era", string(e)))
			g := s.start(t)
			const clients = 50
			peers := g.webs(t, clients)
			ready(t, peers[0], "a")
			quiet := idleStreams(t, peers)
			cs := collide(peers, pick(20, 100))
			cs.sound(t, book)
			cs.allOK(t)
			steps := 0
			for _, c := range cs {
				steps += len(c.got.before)
			}
			if want := 2 * len(cs); steps != want {
				t.Errorf("%d progress notifications arrived, want %d", steps, want)
			}
			for i, n := range quiet {
				if got := n.count("notifications/progress"); got != 0 {
					t.Errorf("%d progress notifications on stream %d, where no call is", got, i)
				}
			}
			book.obedient(t)
			report(t, "R18", fmt.Sprintf("50 clients, one %s child, the same ids and tokens", e), cs, "%d progress notifications, none misdelivered, none late", steps)
		})
	}
}

// collide lets every client make the same calls, with ids 1, "1", 2, "2" … and tokens alike.
func collide(peers []peer, each int) calls {
	var mu sync.Mutex
	var all calls
	var clients sync.WaitGroup
	for k, p := range peers {
		clients.Go(func() {
			for n := range each {
				id := fmt.Sprint(n/2 + 1)
				if n%2 == 1 {
					id = quote(id)
				}
				c := &call{id: id, token: id, nonce: fmt.Sprintf("c%d-%d", k, n), tenant: fmt.Sprintf("t%d", k), server: "a", tool: "progress", more: `"n":2,"late":true`}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				c.make(ctx, p)
				cancel()
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return all
}

// TestR18OwnChildren: a client that can be asked has a child of its own where the server's era
// makes that necessary. It ends with the client's session, and the shared one stays.
func TestR18OwnChildren(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book))
	g := s.start(t)
	ready(t, g.web(t, legacy), "a")
	for range 3 {
		c := g.webWho(t, legacy, answersAll)
		ready(t, c, "a")
		if said, err := converse(t.Context(), c, "a::ask", "own", 10); err != nil || said.Said != "what is own?" {
			t.Errorf("ask: %+v, %v", said, err)
		}
		if err := c.leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !within(6*time.Second, func() bool { return len(book.survivors()) == 1 }) {
		t.Errorf("after three sessions ended there are %d processes, want the shared one: %+v", len(book.survivors()), book.survivors())
	}
	g.noZombies(t)
	report(t, "R18", "three clients with children of their own come and go", nil, "%d processes started, 1 left", len(book.pids("a")))
}

// idleStreams opens the streams of some legacy clients.
func idleStreams(t *testing.T, peers []peer) []*stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var out []*stream
	for _, p := range peers[:10] {
		if web, ok := p.(*webClient); ok && web.era == legacy {
			s, err := web.listen(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.close)
			out = append(out, s)
		}
	}
	return out
}

// TestR18Questions: twenty clients of every kind call a tool that asks back, all at once, on every
// kind of server (A5). Each is asked its own question, and nobody else's.
func TestR18Questions(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, upstreams(t, book)...)
	g := s.start(t)
	names := idsOf(s.servers)
	first := g.web(t, modern)
	ready(t, first, names...)
	var asked sync.WaitGroup
	for k := range pick(20, 100) {
		c := g.webWho(t, []era{legacy, modern}[k%2], answersAll)
		c.answers = func(f frame) string {
			if q := f.read().Message; !strings.Contains(q, fmt.Sprintf("-k%d-", k)) {
				t.Errorf("client %d was asked %q", k, q)
			}
			return obliging(f)
		}
		asked.Go(func() {
			for i, id := range names {
				nonce := fmt.Sprintf("q-k%d-%d", k, i)
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				said, err := converse(ctx, c, id+"::ask", nonce, 10*i+1)
				cancel()
				if err != nil || said.Nonce != nonce || said.Server != id || said.Said != "what is "+nonce+"?" {
					t.Errorf("client %d (%s) on %s: %+v, %v", k, c.era, id, said, err)
				}
			}
		})
	}
	asked.Wait()
	book.obedient(t)
	report(t, "R18", fmt.Sprintf("%d clients asked back at once by 5 kinds of server", pick(20, 100)), nil, "every question reached its own client")
}
