package hub_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// 250 notifications of 4 KB for 500 sessions that read none of them are held once each. A session that then opens
// a stream gets them all.
func TestNotificationsToManySessions(t *testing.T) {
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, nil, a)
	const count = 500
	last := gw.connect(t, "/mcp/a", mcp.Legacy, "{}")
	for range count - 1 {
		// The clients of the test are large, too: only the gateway is measured.
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + info + `}}`
		if g := gw.do(t, http.MethodPost, "/mcp/a", strings.NewReader(body), nil); g.status != 200 {
			t.Fatalf("%d %s", g.status, g.body)
		}
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for n := range 250 {
		a.broadcast(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":%d,"text":"%s"}}`, n, strings.Repeat("x", 4000)))
	}
	last.openStream(t)
	for n := range 250 {
		if got := last.nextMessage(t); !strings.Contains(got.text, fmt.Sprintf(`"n":%d,`, n)) {
			t.Fatalf("note %d: got %.80s", n, got.text)
		}
	}
	grown := heap() - before
	t.Logf("the heap grew by %d KiB", grown>>10)
	if grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// A session that was evicted keeps its own child process: made again from its id, it finds its state there.
func TestEvictedSessionKeepsItsProcess(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true)
	gw := startGateway(t, func(s *setup) { ownProcesses(s); s.hub.MaxSessions = 4 }, a)
	first := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities)
	first.tools(t)
	first.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	wait.For(t, "process of the client", func() bool { return len(a.childPIDs()) == 2 })
	mine := a.childPIDs()[1]
	for range 20 {
		if g := gw.connect(t, "/mcp", mcp.Legacy, "{}").call(t, mcp.Ping, `{}`); g.status != 200 {
			t.Fatalf("a newcomer: %d %s", g.status, g.body)
		}
	}
	if n, _, _ := gw.hub.Counts(); n != 2 { // one caller has half of them
		t.Errorf("%d sessions are held", n)
	}
	if got := first.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' {
		t.Errorf("got %s", got)
	}
	if n := len(a.childPIDs()); n != 2 || !alive(mine) {
		t.Errorf("there were %d processes, and the client's own is alive: %v", n, alive(mine))
	}
}

// A session whose stream is open is not evicted, and goes on to get notifications.
func TestSessionWithStreamIsNotEvicted(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, func(s *setup) { s.hub.MaxSessions = 4 }, a)
	c := gw.connect(t, "/mcp/a", mcp.Legacy, "{}")
	c.openStream(t)
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/first"}`)
	c.nextMessage(t) // the stream is open
	for range 10 {
		gw.connect(t, "/mcp", mcp.Legacy, "{}")
	}
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/second"}`)
	if n := c.nextMessage(t); !strings.Contains(n.text, "notifications/second") {
		t.Errorf("got %s", n.text)
	}
}

// One caller cannot open all listen streams: half of them are for others.
func TestStreamsHaveAShareForEachCaller(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, func(s *setup) { s.hub.MaxSessions = 4 }, newFakeServer(t, "a", mcp.Modern, false))
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	stop := c.listenFor(t, `{"toolsListChanged":true}`)
	defer c.listenFor(t, `{"toolsListChanged":true}`)()
	g := c.call(t, mcp.SubscriptionsListen, `{"notifications":{}}`)
	if !strings.Contains(g.body, "max_sessions = 4") || !strings.Contains(g.body, "share") {
		t.Errorf("got %d %s", g.status, g.body)
	}
	stop()
	wait.For(t, "room for another stream", func() bool {
		one := newClient(t, mcp.Modern, "{}")
		one.gateway, one.path = gw, "/mcp"
		_, reply := one.startCall(t, mcp.SubscriptionsListen, `{"notifications":{}}`)
		select {
		case <-one.received: // it is acknowledged
			return true
		case <-reply:
			return false
		case <-time.After(patience):
			t.Fatal("neither a stream nor a refusal")
			return false
		}
	})
}

// A8: a stream that was opened with a token is closed when a reload replaces the token, in either protocol; a
// reload that keeps the token leaves it open, and the new token opens another.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, requireToken, a)
	open := func(bearer string) (legacy *client, end <-chan httpReply, listening <-chan httpReply) {
		legacy = newClient(t, mcp.Legacy, "{}")
		legacy.gateway, legacy.path = gw, "/mcp/a"
		legacy.header.Set("Authorization", bearer)
		legacy.initialize(t, mcp.V20251125)
		_, end = legacy.openStream(t)
		one := newClient(t, mcp.Modern, "{}")
		one.gateway, one.path, one.header = gw, "/mcp", legacy.header.Clone()
		_, listening = one.startCall(t, mcp.SubscriptionsListen, `{"notifications":{"toolsListChanged":true}}`)
		if n := one.nextMessage(t); !strings.Contains(n.text, mcp.NotifySubscriptionsAcknowledged) {
			t.Errorf("got %s", n.text)
		}
		a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
		legacy.nextOfMethod(t, "notifications/odd")
		return legacy, end, listening
	}
	legacy, end, listening := open("Bearer right")
	gw.reload(func(s *setup) { s.hub.PageSize++ })
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	legacy.nextOfMethod(t, "notifications/odd")
	select {
	case <-listening:
		t.Error("a stream was closed by a reload that keeps its token")
	default:
	}
	gw.reload(func(s *setup) { s.auth.Token = secret.Literal("other") })
	receiveWithin(t, end, "the end of a session's stream")
	receiveWithin(t, listening, "the end of a listen stream")
	legacy.header.Set("Authorization", "Bearer right")
	if _, again := legacy.openStream(t); receiveWithin(t, again, "a refusal").status != http.StatusUnauthorized {
		t.Error("the old token opened a stream")
	}
	open("Bearer other")
}

// A stream is closed when the token expires that opened it.
func TestStreamsEndWhenTheirTokenExpires(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, requireToken, newFakeServer(t, "a", mcp.Modern, false))
	for life := 2 * time.Second; ; life *= 4 { // a busy machine needs longer to open a stream
		expires := time.Now().Add(life)
		gw.reload(func(s *setup) {
			s.auth.Tokens = []auth.Token{{Name: "short", Token: secret.Literal("a token that expires soon"), Expires: expires.Format(time.RFC3339Nano)}}
		})
		c := newClient(t, mcp.Modern, "{}")
		c.gateway, c.path = gw, "/mcp"
		c.header.Set("Authorization", "Bearer a token that expires soon")
		_, end := c.startCall(t, mcp.SubscriptionsListen, `{"notifications":{"toolsListChanged":true}}`)
		select {
		case <-c.received: // it is acknowledged
			receiveWithin(t, end, "the end of the stream")
			if early := time.Until(expires); early > 0 {
				t.Errorf("it ended %s before the token expired", early)
			}
			return
		case <-end: // it expired before
		}
		if life > time.Minute {
			t.Fatal("no stream was opened")
		}
	}
}
