//go:build linux

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestR18Collisions: fifty clients share one child, with the same ids and progress tokens of both types.
// Every response and progress reaches its own call, and no progress comes after the response, although the
// child sends some.
func TestR18Collisions(t *testing.T) {
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
		t.Run(string(e), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			s := newSite(t, events, stdioServer("a", events, "-revision", string(e)))
			g := s.start(t)
			clients := g.connectMany(t, 50)
			waitReady(t, clients[0], "a")
			quiet := idleStreams(t, clients)
			cs := sendColliding(clients, shortOrFull(20, 100))
			cs.requireSound(t, events)
			cs.requireAllOK(t)
			steps := 0
			for _, c := range cs {
				steps += len(c.got.Notifications)
			}
			if want := 2 * len(cs); steps != want {
				t.Errorf("%d progress notifications arrived, want %d", steps, want)
			}
			for i, n := range quiet {
				if got := n.Count("notifications/progress"); got != 0 {
					t.Errorf("%d progress notifications on stream %d, which has no call", got, i)
				}
			}
			events.RequireNoViolations(t)
			report(t, "R18", fmt.Sprintf("50 clients, one %s child, the same ids and tokens", e), cs, "%d progress notifications, none misdelivered, none late", steps)
		})
	}
}

// sendColliding lets every client make the same calls, with ids and tokens 1, "1", 2, "2" …
func sendColliding(clients []mcpclient.Client, each int) calls {
	var mu sync.Mutex
	var all calls
	var senders sync.WaitGroup
	for k, p := range clients {
		senders.Go(func() {
			for n := range each {
				id := fmt.Sprint(n/2 + 1)
				if n%2 == 1 {
					id = mcpwire.Quote(id)
				}
				c := &call{id: id, progressToken: id, nonce: fmt.Sprintf("c%d-%d", k, n), tenant: fmt.Sprintf("t%d", k), server: "a", tool: "progress", extraArgs: `"n":2,"late":true`}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				c.send(ctx, p)
				cancel()
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	return all
}

// TestR18OwnChildren: a client with capabilities has its own child where the server's revision requires it.
// The child ends with the client's session; the shared one stays.
func TestR18OwnChildren(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events))
	g := s.start(t)
	waitReady(t, g.connect(t, mcpwire.Legacy), "a")
	for range 3 {
		c := g.connectWith(t, mcpwire.Legacy, mcpclient.AllCapabilities)
		waitReady(t, c, "a")
		if result, err := callWithElicitation(t.Context(), c, "a::ask", "own", 10); err != nil || result.Answer != "what is own?" {
			t.Errorf("ask: %+v, %v", result, err)
		}
		if err := c.DeleteSession(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !wait.True(6*time.Second, func() bool { return len(events.Survivors()) == 1 }) {
		t.Errorf("after three sessions ended there are %d processes, want the shared one: %+v", len(events.Survivors()), events.Survivors())
	}
	g.requireNoZombies(t)
	report(t, "R18", "three clients with children of their own come and go", nil, "%d processes started, 1 left", len(events.PIDs("a")))
}

// idleStreams opens streams of some legacy clients.
func idleStreams(t *testing.T, clients []mcpclient.Client) []*mcpclient.Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var out []*mcpclient.Stream
	for _, p := range clients[:10] {
		if web, ok := p.(*mcpclient.HTTPClient); ok && web.Revision == mcpwire.Legacy {
			s, err := web.OpenStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			out = append(out, s)
		}
	}
	return out
}

// TestR18Elicitations: twenty clients of every kind call a tool that elicits, all at once, on every kind of
// server (A5). Each gets only its own question.
func TestR18Elicitations(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, allServerKinds(t, events)...)
	// All clients are one caller, whose share is half. On a busy machine all of them are asked at the same moment.
	s.topLevel = "max_client_connections = 256"
	g := s.start(t)
	names := idsOf(s.servers)
	first := g.connect(t, mcpwire.Modern)
	waitReady(t, first, names...)
	var asked sync.WaitGroup
	for k := range shortOrFull(20, 100) {
		c := g.connectWith(t, []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern}[k%2], mcpclient.AllCapabilities)
		c.AnswerRequest = func(f mcpwire.Message) string {
			if q := f.ParseParams().Message; !strings.Contains(q, fmt.Sprintf("-k%d-", k)) {
				t.Errorf("client %d was asked %q", k, q)
			}
			return mcpclient.AcceptElicitation(f)
		}
		asked.Go(func() {
			for i, id := range names {
				nonce := fmt.Sprintf("q-k%d-%d", k, i)
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				result, err := callWithElicitation(ctx, c, id+"::ask", nonce, 10*i+1)
				cancel()
				if err != nil || result.Nonce != nonce || result.Server != id || result.Answer != "what is "+nonce+"?" {
					t.Errorf("client %d (%s) on %s: %+v, %v", k, c.Revision, id, result, err)
				}
			}
		})
	}
	asked.Wait()
	events.RequireNoViolations(t)
	report(t, "R18", fmt.Sprintf("%d clients elicited at once by 5 kinds of server", shortOrFull(20, 100)), nil, "every question reached its own client")
}
