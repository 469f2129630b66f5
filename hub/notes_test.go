package hub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

// A7: a notification of a client that the gateway does not know goes to all servers, one that the
// configuration routes to the named ones alone, through the door of one server to that one; what
// belongs to the gateway's own conversation goes nowhere.
func TestClientNotificationsA7(t *testing.T) {
	t.Parallel()
	fars := []*far{newFar(t, "a", mcp.EraLegacy, true), newFar(t, "b", mcp.EraLegacy, false), newFar(t, "c", mcp.EraModern, true), newFar(t, "d", mcp.EraModern, false)}
	routed := func(s *setup) {
		s.hub.Notifications = []hub.Route{{Method: "notifications/to/*", Servers: []string{"b", "c", "none"}}, {Method: "notifications/to/a", Servers: []string{"a"}}}
	}
	y := start(t, routed, fars...)
	for _, era := range both {
		for _, c := range []*client{y.visit(t, "/mcp", era, "{}"), onStdio(t, routed, era, "{}", fars...)} {
			checkHeard(t, c, fars, map[string]string{
				"notifications/odd": "abcd", "notifications/to/b": "bc", "notifications/to/a": "bc", mcp.RootsChanged: "abcd",
				mcp.Initialized: "", mcp.Cancelled: "", mcp.Progress: "",
			})
		}
		checkHeard(t, y.visit(t, "/mcp/c", era, "{}"), fars, map[string]string{"notifications/odd": "c", "notifications/to/b": "c"})
		checkHeard(t, y.visit(t, "/mcp/a", era, "{}"), fars, map[string]string{"notifications/to/b": ""})
	}
}

// checkHeard sends notifications and looks who got them.
func checkHeard(t *testing.T, c *client, fars []*far, want map[string]string) {
	t.Helper()
	c.ask(t, mcp.ToolsList, `{}`) // the servers are up
	for _, f := range fars {
		f.forget()
	}
	for method := range want {
		c.tell(t, `{"jsonrpc":"2.0","method":"`+method+`","params":`+c.dress(`{"a":1.0,"proxy":{"authToken":"x"},"s":"\/","_meta":{@meta,"k":1.0}}`)+`}`)
	}
	c.ask(t, mcp.ToolsCall, `{"name":"none"}`) // on stdio, what came before has been read
	for method, who := range want {
		for _, f := range fars {
			if !strings.Contains(who, f.id) {
				if len(f.got(method)) > 0 {
					t.Errorf("%s got %s", f.id, method)
				}
				continue
			}
			got := strip(c, f.await(t, method, 1).raw)
			if want := `{"jsonrpc":"2.0","method":"` + method + `","params":{"a":1.0,"s":"\/","_meta":{"k":1.0}}}`; got != want {
				t.Errorf("%s got %s\nwant %s", f.id, got, want)
			}
		}
	}
}

// A7: what a client takes back is its own: ids are each client's, and a server knows only the gateway's.
func TestCancellationOfAnother(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		release := make(chan struct{})
		a := newFar(t, "a", mcp.EraLegacy, stdio).on(mcp.ToolsCall, func(*turn) string {
			<-release
			return `{"content":[]}`
		})
		y := start(t, nil, a)
		c, other := y.visit(t, "/mcp", mcp.EraLegacy, "{}"), y.visit(t, "/mcp", mcp.EraModern, "{}")
		_, reply := c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
		id := string(a.await(t, mcp.ToolsCall, 1).ID)
		for _, one := range []*client{other, y.visit(t, "/mcp/a", mcp.EraModern, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}")} {
			one.tell(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+one.dress(`{"requestId":`+id+`}`)+`}`)
		}
		y.post(t, "a", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
		other.ask(t, mcp.ToolsList, `{}`)
		close(release)
		if got := outcome(t, wait(t, reply, "the result").body); got != `{"content":[]}` || len(a.got(mcp.Cancelled)) > 0 {
			t.Errorf("got %s", got)
		}
	}
}

// A7: a notification of a server that the gateway does not know reaches the clients that use that server,
// tagged: those at its own door, those that have called it or watch a resource of it. It does not reach those at the
// door of another, those that have only listed tools or called another server, nor who did not ask to hear anything.
func TestServerNotificationsA7(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a, b := newFar(t, "a", mcp.EraLegacy, stdio), newFar(t, "b", mcp.EraLegacy, stdio)
		y := start(t, nil, a, b)
		all, one, other := y.visit(t, "/mcp", mcp.EraLegacy, "{}"), y.visit(t, "/mcp/a", mcp.EraLegacy, "{}"), y.visit(t, "/mcp/b", mcp.EraLegacy, "{}")
		watching, reading, idle, elsewhere := y.visit(t, "/mcp", mcp.EraLegacy, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}"),
			y.visit(t, "/mcp", mcp.EraLegacy, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}")
		all.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
		watching.ask(t, mcp.Subscribe, `{"uri":"`+shownURI("a", "mem://1")+`"}`)
		reading.ask(t, mcp.ResourcesRead, `{"uri":"`+shownURI("a", "mem://1")+`"}`)
		idle.tools(t)
		elsewhere.ask(t, mcp.ToolsCall, `{"name":"b::x"}`)
		for _, c := range []*client{all, one, other, watching, reading, idle, elsewhere} {
			c.listen(t)
		}
		a.push(t, `{"jsonrpc":"2.0","method":"notifications/odd","params":{"x":1.0, "_meta":{"k":"\/"}}}`)
		for _, c := range []*client{all, one, watching, reading} {
			if n := c.next(t); n.text != `{"jsonrpc":"2.0","method":"notifications/odd","params":{"x":1.0, "_meta":{"k":"\/","ctxgate/server":"a"}}}` {
				t.Errorf("got %s", n.text)
			}
		}
		b.push(t, `{"jsonrpc":"2.0","method":"notifications/last"}`) // what a said is through by now
		for _, c := range []*client{other, elsewhere} {
			if n := c.next(t); !strings.Contains(n.text, "notifications/last") {
				t.Errorf("got %s", n.text)
			}
		}
		idle.quiet(t, 50*time.Millisecond)
	}
	a := newFar(t, "a", mcp.EraLegacy, true)
	old, newer := onStdio(t, nil, mcp.EraLegacy, "{}", a), onStdio(t, nil, mcp.EraModern, "{}", a)
	newer.ask(t, mcp.ToolsList, `{}`)
	eventually(t, "program for each", func() bool { return len(a.programs()) == 2 })
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	if n := old.next(t); n.text != `{"jsonrpc":"2.0","method":"notifications/odd","params":{`+tagOf+`}}` {
		t.Errorf("got %s", n.text)
	}
	newer.quiet(t, 50*time.Millisecond)
}

// A13: who has asked for no list is not told that it changed: servers that come up one after the
// other are no news, and on stdio a client of the newer era hears nothing that it did not ask for.
func TestNoNewsAtStart(t *testing.T) {
	t.Parallel()
	var fars []*far
	for i, id := range []string{"a", "b", "c"} {
		fars = append(fars, newFar(t, id, both[i%2], i > 0).on(mcp.ToolsList, func(*turn) string {
			time.Sleep(time.Duration(i) * 50 * time.Millisecond)
			return page("tools", named("x")...)(nil)
		}))
	}
	clients := []*client{onStdio(t, nil, mcp.EraLegacy, "{}", fars...), onStdio(t, nil, mcp.EraModern, "{}", fars...)}
	for _, c := range clients {
		if got := c.tools(t); len(got) != 3 {
			t.Errorf("got %q", got)
		}
		c.quiet(t, 100*time.Millisecond)
	}
	fars[0].on(mcp.ToolsList, page("tools", named("x", "y")...))
	fars[0].push(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	if n := clients[0].next(t); n.text != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("got %s", n.text)
	}
	eventually(t, "longer list", func() bool { return len(clients[1].tools(t)) == 4 })
	clients[1].quiet(t, 100*time.Millisecond)
}
