package hub_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// withEnv changes the environment of a server's child process, which makes it another server.
func withEnv(id, value string) func(*setup) {
	return func(s *setup) {
		for i, e := range s.upstream.Servers {
			if e.ID == id {
				s.upstream.Servers[i].Env = map[string]secret.Text{"X": secret.Literal(value)}
			}
		}
	}
}

// A15: a reload leaves unchanged servers alone, replaces changed ones, stops removed ones and starts new ones;
// clients are notified.
func TestReloadServers(t *testing.T) {
	t.Parallel()
	same := newFakeServer(t, "same", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("s")...))
	changed := newFakeServer(t, "changed", mcp.Modern, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("c")...))
	gone := newFakeServer(t, "gone", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("g")...))
	added := newFakeServer(t, "added", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("a")...))
	gw := startGateway(t, nil, same, changed, gone)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	c.tools(t)
	defer c.listenFor(t, `{"toolsListChanged":true}`)()
	before := []int{same.childPIDs()[0], changed.childPIDs()[0], gone.childPIDs()[0]}
	gw.reload(func(s *setup) {
		withEnv("changed", "1")(s)
		s.removeServer("gone")
		s.upstream.Servers = append(s.upstream.Servers, added.config())
	})
	c.nextOfMethod(t, mcp.NotifyToolsChanged)
	want := []string{"same::s", "changed::c", "added::a"}
	wait.For(t, "new list", func() bool { return slices.Equal(c.tools(t), want) })
	if got := c.callResult(t, mcp.ToolsCall, `{"name":"gone::g"}`); !strings.HasPrefix(got, `!{"code":-32602,"message":"unknown tool`) {
		t.Errorf("got %s", got)
	}
	c.callResult(t, mcp.ToolsCall, `{"name":"changed::c"}`)
	wait.For(t, "end of the old child processes", func() bool { return !alive(before[1]) && !alive(before[2]) })
	if now := same.childPIDs(); len(now) != 1 || !alive(before[0]) {
		t.Errorf("what did not change was started again: %v", now)
	}
	if now := changed.childPIDs(); len(now) != 2 || now[1] == before[1] || !alive(now[1]) {
		t.Errorf("what changed was not: %v", now)
	}
}

// A15: changed settings of the gateway itself take effect at once: masking, names, limits, routes.
func TestReloadSettings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 5)
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...)).handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":"`+long+`"}]}`))
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	c.tools(t)
	call := func(name string) string { return c.callResult(t, mcp.ToolsCall, `{"name":"`+name+`"}`) }
	if got := call("a::x"); !strings.Contains(got, long) {
		t.Errorf("got %s", got)
	}
	gw.reload(maskSmall)
	if got := call("a::x"); strings.Contains(got, long) {
		t.Errorf("got %s", got)
	}
	gw.reload(func(s *setup) { s.hub.Naming.Prefix = "never" })
	if got := c.tools(t); !slices.Equal(got, []string{"x"}) {
		t.Errorf("got %q", got)
	}
	call("x")
	gw.reload(func(s *setup) { s.upstream.Servers[0].Prefix = "always" })
	if got := c.tools(t); !slices.Equal(got, []string{"a::x"}) {
		t.Errorf("got %q", got)
	}
	gw.reload(func(s *setup) { s.limit.PerMinute = 1 })
	call("a::x")
	if got := call("a::x"); !strings.Contains(got, "Rate limit exceeded") {
		t.Errorf("got %s", got)
	}
	if got := a.childPIDs(); len(got) != 1 {
		t.Errorf("the server was started again: %v", got)
	}
}

// A15: streams outlive reloads, in both protocols, and go on to carry notifications.
func TestReloadKeepsStreams(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	b := newFakeServer(t, "b", mcp.Modern, false)
	gw := startGateway(t, nil, a, b)
	modern, legacy := gw.connect(t, "/mcp", mcp.Modern, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}")
	legacy.openStream(t)
	legacy.tools(t)
	uri := shownURI("a", "mem://1")
	defer modern.listenFor(t, `{"toolsListChanged":true,"resourceSubscriptions":["`+uri+`"]}`)()
	legacy.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+uri+`"}`)
	for range 10 {
		gw.reload(func(s *setup) { s.upstream.Servers = s.upstream.Servers[:1] })
		gw.reload(func(s *setup) { s.upstream.Servers = []upstream.ServerConfig{a.config(), b.config()} })
	}
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://1"@sub}}`)
	modern.nextOfMethod(t, mcp.NotifyResourceUpdated)
	legacy.nextOfMethod(t, mcp.NotifyResourceUpdated)
	a.handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...))
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	modern.nextOfMethod(t, mcp.NotifyToolsChanged)
	legacy.nextOfMethod(t, mcp.NotifyToolsChanged)
	if got := legacy.tools(t); !slices.Equal(got, []string{"a::x", "a::y"}) {
		t.Errorf("got %q", got)
	}
	if n := len(a.childPIDs()); n != 1 {
		t.Errorf("%d child processes", n)
	}
}

// A15: a call in flight is answered when its server is removed or replaced.
func TestReloadFinishesCalls(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		release := make(chan struct{})
		slow := func(*serverCall) string {
			<-release
			return `{"content":[{"type":"text","text":"late"}]}`
		}
		gone := newFakeServer(t, "gone", mcp.Legacy, stdio).handle(mcp.ToolsCall, slow)
		other := newFakeServer(t, "other", mcp.Modern, stdio).handle(mcp.ToolsCall, slow)
		gw := startGateway(t, nil, gone, other)
		c := gw.connect(t, "/mcp", mcp.Modern, "{}")
		_, first := c.startCall(t, mcp.ToolsCall, `{"name":"gone::x"}`)
		_, second := c.startCall(t, mcp.ToolsCall, `{"name":"other::x"}`)
		gone.awaitMessage(t, mcp.ToolsCall, 1)
		other.awaitMessage(t, mcp.ToolsCall, 1)
		gw.reload(func(s *setup) {
			s.removeServer("gone")
			withEnv("other", "1")(s)
		})
		if got := c.callResult(t, mcp.ToolsCall, `{"name":"gone::x"}`); !strings.Contains(got, "unknown tool") {
			t.Errorf("got %s", got)
		}
		time.Sleep(100 * time.Millisecond)
		close(release)
		for _, reply := range []<-chan httpReply{first, second} {
			if got := receiveWithin(t, reply, "the call that was under way").body; !strings.Contains(got, "late") {
				t.Errorf("got %s", got)
			}
		}
	}
}

// A15: on stdio, too, a reload starts new servers for the single client, and stops removed ones.
func TestReloadOnStdio(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	b := newAskingServer(t, true)
	b.id = "b"
	b.handle(mcp.ToolsList, listResult("tools", itemsNamed("ask")...))
	c := connectStdio(t, nil, mcp.Legacy, allCapabilities, a)
	c.tools(t)
	c.gateway.reload(func(s *setup) { s.upstream.Servers = []upstream.ServerConfig{b.config()} })
	c.nextOfMethod(t, mcp.NotifyToolsChanged)
	wait.For(t, "new list", func() bool { return slices.Equal(c.tools(t), []string{"b::ask"}) })
	wait.For(t, "end of the old child process", func() bool { return !alive(a.childPIDs()[0]) })
	got := c.callAnswering(t, strings.Replace(askParams(mcp.ElicitationCreate+` {}`), "a::ask", "b::ask", 1), func(string) string { return `{"action":"cancel"}` })
	if !strings.Contains(got, `cancel`) {
		t.Errorf("got %s", got)
	}
}

// A15: subscriptions to resources survive the replacement of their server.
func TestReloadKeepsSubscriptions(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true)
	gw := startGateway(t, nil, a)
	uri := shownURI("a", "mem://1")
	modern, legacy := gw.connect(t, "/mcp", mcp.Modern, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}")
	legacy.openStream(t)
	defer modern.listenFor(t, `{"resourceSubscriptions":["`+uri+`"]}`)()
	legacy.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+uri+`"}`)
	gw.reload(withEnv("a", "1"))
	wait.For(t, "new child process alone", func() bool { p := a.childPIDs(); return len(p) == 2 && !alive(p[0]) })
	legacy.callResult(t, mcp.ToolsList, `{}`)
	legacy.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+uri+`"}`) // sending it again does no harm
	for _, c := range []*client{modern, legacy} {                     // the subscription moves when the new server is up
		wait.For(t, "news", func() bool {
			a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://1"@sub}}`)
			time.Sleep(20 * time.Millisecond)
			select {
			case n := <-c.received:
				return strings.Contains(n.text, mcp.NotifyResourceUpdated) && strings.Contains(n.text, uri)
			default:
				return false
			}
		})
	}
}
