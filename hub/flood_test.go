package hub_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

// A server that sends 250 notes of 4 KB to 500 sessions that read none of them: each is held once. Who
// opens a stream then gets them all.
func TestNotesToManySessions(t *testing.T) {
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, nil, a)
	const count = 500
	last := y.visit(t, "/mcp/a", mcp.EraLegacy, "{}")
	for range count - 1 {
		// A client of a test is large: what is measured is the gateway.
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + info + `}}`
		if g := y.do(t, http.MethodPost, "/mcp/a", strings.NewReader(body), nil); g.status != 200 {
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
		a.push(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":%d,"text":"%s"}}`, n, strings.Repeat("x", 4000)))
	}
	last.listen(t)
	for n := range 250 {
		if got := last.next(t); !strings.Contains(got.text, fmt.Sprintf(`"n":%d,`, n)) {
			t.Fatalf("note %d: got %.80s", n, got.text)
		}
	}
	grown := heap() - before
	t.Logf("the heap grew by %d KiB", grown>>10)
	if grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// A session that was evicted keeps its own process: its id makes it again, and it finds what it did.
func TestEvictedSessionKeepsItsProcess(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true)
	y := start(t, func(s *setup) { s.hub.MaxSessions = 4 }, a)
	first := y.visit(t, "/mcp", mcp.EraLegacy, able)
	first.tools(t)
	first.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
	eventually(t, "process of the client", func() bool { return len(a.programs()) == 2 })
	mine := a.programs()[1]
	for range 20 {
		if g := y.visit(t, "/mcp", mcp.EraLegacy, "{}").call(t, mcp.Ping, `{}`); g.status != 200 {
			t.Fatalf("a newcomer: %d %s", g.status, g.body)
		}
	}
	if n, _, _ := y.door.Held(); n != 2 { // one caller has half of them
		t.Errorf("%d sessions are held", n)
	}
	if got := first.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' {
		t.Errorf("got %s", got)
	}
	if n := len(a.programs()); n != 2 || !alive(mine) {
		t.Errorf("there were %d processes, and the client's own is alive: %v", n, alive(mine))
	}
}

// A session whose stream is open is not evicted, and goes on to hear.
func TestListeningSessionIsNotEvicted(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, func(s *setup) { s.hub.MaxSessions = 4 }, a)
	c := y.visit(t, "/mcp/a", mcp.EraLegacy, "{}")
	c.listen(t)
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/first"}`)
	c.next(t) // the stream is open
	for range 10 {
		y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	}
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/second"}`)
	if n := c.next(t); !strings.Contains(n.text, "notifications/second") {
		t.Errorf("got %s", n.text)
	}
}

// One caller cannot open all streams of the newer era: half of them are for others.
func TestStreamsHaveAShareForEachCaller(t *testing.T) {
	t.Parallel()
	y := start(t, func(s *setup) { s.hub.MaxSessions = 4 }, newFar(t, "a", mcp.EraModern, false))
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	stop := c.hear(t, `{"toolsListChanged":true}`)
	defer c.hear(t, `{"toolsListChanged":true}`)()
	g := c.call(t, mcp.Listen, `{"notifications":{}}`)
	if !strings.Contains(g.body, "max_sessions = 4") || !strings.Contains(g.body, "share") {
		t.Errorf("got %d %s", g.status, g.body)
	}
	stop()
	eventually(t, "room for another stream", func() bool {
		one := newClient(t, mcp.EraModern, "{}")
		one.yard, one.path = y, "/mcp"
		_, reply := one.begin(t, mcp.Listen, `{"notifications":{}}`)
		select {
		case <-one.notes: // it is acknowledged
			return true
		case <-reply:
			return false
		case <-time.After(patience):
			t.Fatal("neither a stream nor a refusal")
			return false
		}
	})
}

// A8: a stream that was opened with a token is closed when a reload replaces the token, in either era; a
// reload that keeps the token leaves it open, and the new token opens another.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, guarded, a)
	open := func(bearer string) (old *client, end <-chan got, newer <-chan got) {
		old = newClient(t, mcp.EraLegacy, "{}")
		old.yard, old.path = y, "/mcp/a"
		old.header.Set("Authorization", bearer)
		old.initialize(t, mcp.V20251125)
		_, end = old.listen(t)
		one := newClient(t, mcp.EraModern, "{}")
		one.yard, one.path, one.header = y, "/mcp", old.header.Clone()
		_, newer = one.begin(t, mcp.Listen, `{"notifications":{"toolsListChanged":true}}`)
		if n := one.next(t); !strings.Contains(n.text, mcp.Acknowledged) {
			t.Errorf("got %s", n.text)
		}
		a.push(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
		old.nextOf(t, "notifications/odd")
		return old, end, newer
	}
	old, end, newer := open("Bearer right")
	y.apply(func(s *setup) { s.hub.PageSize++ })
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	old.nextOf(t, "notifications/odd")
	select {
	case <-newer:
		t.Error("a stream was closed by a reload that keeps its token")
	default:
	}
	y.apply(func(s *setup) { s.auth.Token = secret.Literal("other") })
	wait(t, end, "the end of a session's stream")
	wait(t, newer, "the end of a stream of the newer era")
	old.header.Set("Authorization", "Bearer right")
	if _, again := old.listen(t); wait(t, again, "a refusal").status != http.StatusUnauthorized {
		t.Error("the old token opened a stream")
	}
	open("Bearer other")
}
