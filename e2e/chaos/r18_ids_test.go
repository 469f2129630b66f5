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

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

func touchFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// oddIDs are ids that careless decoding changes.
var oddIDs = []string{`-1`, `0`, `9007199254740993`, `-9223372036854775808`, `""`, `"1"`, `1`, `"é\u00e9"`, `"a\"b\\"`, `"\u0000"`, `"😀"`, `" 1 "`}

// TestR18OddIDs: ids and progress tokens come back byte for byte, through every endpoint.
func TestR18OddIDs(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events))
	g := s.start(t)
	endpoints := map[string]mcpclient.Client{"legacy http": g.connect(t, mcpwire.Legacy), "modern http": g.connect(t, mcpwire.Modern), "legacy stdio": s.connectStdio(t, mcpwire.Legacy), "modern stdio": s.connectStdio(t, mcpwire.Modern)}
	var cs calls
	for name, p := range endpoints {
		waitReady(t, p, "a")
		for i, id := range oddIDs {
			c := &call{id: id, progressToken: id, nonce: fmt.Sprintf("%s-%d", name, i), tenant: "t", server: "a", tool: "progress", extraArgs: `"n":2`}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			c.send(ctx, p)
			cancel()
			if c.verdict == ok && len(c.got.Notifications) != 2 {
				t.Errorf("%s, id %s: %d progress notifications, want 2", name, id, len(c.got.Notifications))
			}
			cs = append(cs, c)
		}
	}
	cs.requireSound(t, events)
	cs.requireAllOK(t)
	report(t, "R18", "unusual ids and tokens, 4 endpoints", cs, "the same bytes come back")
}

// TestR18Stdio: `ctxgate stdio` with many concurrent calls, ids of both types, and progress before and after
// the responses.
func TestR18Stdio(t *testing.T) {
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
		t.Run(string(e), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			s := newSite(t, events, stdioServer("a", events), stdioServer("b", events, "-revision", string(mcpwire.Modern)))
			p := s.connectStdio(t, e)
			waitReady(t, p, "a", "b")
			cs := pipeBurst(p, shortOrFull(400, 4000))
			cs.requireSound(t, events)
			cs.requireAllOK(t)
			if strays := p.Unexpected(); len(strays) > 0 {
				t.Errorf("on stdout: %q", strays[:min(3, len(strays))])
			}
			if n := len(events.PIDs("a")) + len(events.PIDs("b")); n != 2 {
				t.Errorf("the children were restarted: %d processes", n)
			}
			report(t, "R18", fmt.Sprintf("`ctxgate stdio`, %s client, ids of both types and progress", e), cs, "no stray line")
		})
	}
}

// pipeBurst makes calls over one stdio connection, forty at a time.
func pipeBurst(p mcpclient.Client, n int) calls {
	all := make(calls, n)
	var workers sync.WaitGroup
	for w := range 40 {
		workers.Go(func() {
			for k := w; k < n; k += 40 {
				id := fmt.Sprint(k/2 + 1)
				if k%2 == 1 {
					id = mcpwire.Quote(id)
				}
				c := &call{id: id, progressToken: id, nonce: fmt.Sprintf("p%d", k), tenant: "t", server: []string{"a", "b"}[k/2%2], tool: "progress", extraArgs: `"n":2,"late":true`}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				c.send(ctx, p)
				cancel()
				all[k] = c
			}
		})
	}
	workers.Wait()
	return all
}

// TestR18PingsAndProgress: the gateway answers a server's pings, and fifty thousand progress notifications to
// a client that does not read cost little and block no other client.
func TestR18PingsAndProgress(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	g := newSite(t, events, stdioServer("a", events), stdioServer("x", events)).start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a", "x")
	cs := burst(20, 4, clients, []string{"a"}, func(_ int, c *call) { c.tool, c.extraArgs = "broken", `"how":"ping"` })
	base := memoryOf(g.PID(), "VmRSS")
	stalled := make(chan *call, 1)
	slow := g.connect(t, mcpwire.Modern)
	go func() {
		c := &call{id: "1", progressToken: "1", nonce: "chatter", tenant: "t", server: "x", tool: "progress", extraArgs: fmt.Sprintf(`"n":%d`, shortOrFull(50_000, 500_000))}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		got, err := slow.Call(ctx, withNotificationHandler(c.request("x::"), func(mcpwire.Message) { runtime.Gosched() }))
		c.ended, c.got = got.At, got
		c.verdict, c.reason = c.judge(got, err)
		stalled <- c
	}()
	during := burst(200, 2, clients, []string{"a"}, nil)
	during.requireAllOK(t)
	c := <-stalled
	cs = append(append(cs, during...), c)
	cs.requireSound(t, events)
	events.RequireNoViolations(t)
	if grown := memoryOf(g.PID(), "VmHWM") - base; grown > 64<<20 {
		t.Errorf("the gateway grew by %d MiB", grown>>20)
	}
	report(t, "R18", "a server that pings; one that reports 50,000 steps to a slow client", cs, "%d steps arrived, then the response: %s %s", len(c.got.Notifications), c.verdict, c.reason)
}

func withNotificationHandler(a mcpclient.Request, note func(mcpwire.Message)) mcpclient.Request {
	a.OnNotification = note
	return a
}
