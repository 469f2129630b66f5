package hub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// A7: a client's notification that the gateway does not know goes to all servers, a routed one to the configured
// servers only, at the endpoint of one server to that one; notifications about the client's own connection go
// nowhere.
func TestClientNotificationsA7(t *testing.T) {
	t.Parallel()
	servers := []*fakeServer{newFakeServer(t, "a", mcp.Legacy, true), newFakeServer(t, "b", mcp.Legacy, false), newFakeServer(t, "c", mcp.Modern, true), newFakeServer(t, "d", mcp.Modern, false)}
	routed := func(s *setup) {
		s.hub.Notifications = []hub.NotificationRoute{{Method: "notifications/to/*", Servers: []string{"b", "c", "none"}}, {Method: "notifications/to/a", Servers: []string{"a"}}}
	}
	gw := startGateway(t, routed, servers...)
	for _, protocol := range protocols {
		for _, c := range []*client{gw.connect(t, "/mcp", protocol, "{}"), connectStdio(t, routed, protocol, "{}", servers...)} {
			checkNotified(t, c, servers, map[string]string{
				"notifications/odd": "abcd", "notifications/to/b": "bc", "notifications/to/a": "bc", mcp.NotifyRootsChanged: "abcd",
				mcp.NotifyInitialized: "", mcp.NotifyCancelled: "", mcp.NotifyProgress: "",
			})
		}
		checkNotified(t, gw.connect(t, "/mcp/c", protocol, "{}"), servers, map[string]string{"notifications/odd": "c", "notifications/to/b": "c"})
		checkNotified(t, gw.connect(t, "/mcp/a", protocol, "{}"), servers, map[string]string{"notifications/to/b": ""})
	}
}

// checkNotified sends notifications and checks which servers got them.
func checkNotified(t *testing.T, c *client, servers []*fakeServer, want map[string]string) {
	t.Helper()
	c.callResult(t, mcp.ToolsList, `{}`) // the servers are up
	for _, f := range servers {
		f.forgetMessages()
	}
	for method := range want {
		c.notify(t, `{"jsonrpc":"2.0","method":"`+method+`","params":`+c.withMeta(`{"a":1.0,"proxy":{"authToken":"x"},"s":"\/","_meta":{@meta,"k":1.0}}`)+`}`)
	}
	c.callResult(t, mcp.ToolsCall, `{"name":"none"}`) // on stdio, earlier messages have been read
	for method, who := range want {
		for _, f := range servers {
			if !strings.Contains(who, f.id) {
				if len(f.messagesOf(method)) > 0 {
					t.Errorf("%s got %s", f.id, method)
				}
				continue
			}
			got := stripGatewayChanges(c, f.awaitMessage(t, method, 1).raw)
			if want := `{"jsonrpc":"2.0","method":"` + method + `","params":{"a":1.0,"s":"\/","_meta":{"k":1.0}}}`; got != want {
				t.Errorf("%s got %s\nwant %s", f.id, got, want)
			}
		}
	}
}

// A7: a client can cancel only its own requests: ids are per client, and a server sees only the gateway's ids.
func TestCancellationOfAnotherClient(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		release := make(chan struct{})
		a := newFakeServer(t, "a", mcp.Legacy, stdio).handle(mcp.ToolsCall, func(*serverCall) string {
			<-release
			return `{"content":[]}`
		})
		gw := startGateway(t, nil, a)
		c, other := gw.connect(t, "/mcp", mcp.Legacy, "{}"), gw.connect(t, "/mcp", mcp.Modern, "{}")
		_, reply := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
		id := string(a.awaitMessage(t, mcp.ToolsCall, 1).ID)
		for _, one := range []*client{other, gw.connect(t, "/mcp/a", mcp.Modern, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}")} {
			one.notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+one.withMeta(`{"requestId":`+id+`}`)+`}`)
		}
		gw.post(t, "a", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
		other.callResult(t, mcp.ToolsList, `{}`)
		close(release)
		if got := resultOrError(t, receiveWithin(t, reply, "the result").body); got != `{"content":[]}` || len(a.messagesOf(mcp.NotifyCancelled)) > 0 {
			t.Errorf("got %s", got)
		}
	}
}

// A7: a server's notification that the gateway does not know reaches the clients that use the server, tagged:
// those at its own endpoint, those that have called it or watch a resource of it. It does not reach clients at the
// endpoint of another server, clients that have only listed tools or called another server, or modern clients.
func TestServerNotificationsA7(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a, b := newFakeServer(t, "a", mcp.Legacy, stdio), newFakeServer(t, "b", mcp.Legacy, stdio)
		gw := startGateway(t, nil, a, b)
		all, one, other := gw.connect(t, "/mcp", mcp.Legacy, "{}"), gw.connect(t, "/mcp/a", mcp.Legacy, "{}"), gw.connect(t, "/mcp/b", mcp.Legacy, "{}")
		watching, reading, idle, elsewhere := gw.connect(t, "/mcp", mcp.Legacy, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}"),
			gw.connect(t, "/mcp", mcp.Legacy, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}")
		all.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
		watching.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+shownURI("a", "mem://1")+`"}`)
		reading.callResult(t, mcp.ResourcesRead, `{"uri":"`+shownURI("a", "mem://1")+`"}`)
		idle.tools(t)
		elsewhere.callResult(t, mcp.ToolsCall, `{"name":"b::x"}`)
		for _, c := range []*client{all, one, other, watching, reading, idle, elsewhere} {
			c.openStream(t)
		}
		a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/odd","params":{"x":1.0, "_meta":{"k":"\/"}}}`)
		for _, c := range []*client{all, one, watching, reading} {
			if n := c.nextMessage(t); n.text != `{"jsonrpc":"2.0","method":"notifications/odd","params":{"x":1.0, "_meta":{"k":"\/","ctxgate/server":"a"}}}` {
				t.Errorf("got %s", n.text)
			}
		}
		b.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/last"}`) // what a sent has arrived by now
		for _, c := range []*client{other, elsewhere} {
			if n := c.nextMessage(t); !strings.Contains(n.text, "notifications/last") {
				t.Errorf("got %s", n.text)
			}
		}
		idle.expectSilence(t, 50*time.Millisecond)
	}
	a := newFakeServer(t, "a", mcp.Legacy, true)
	legacy, modern := connectStdio(t, nil, mcp.Legacy, "{}", a), connectStdio(t, nil, mcp.Modern, "{}", a)
	modern.callResult(t, mcp.ToolsList, `{}`)
	wait.For(t, "child process for each", func() bool { return len(a.childPIDs()) == 2 })
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	if n := legacy.nextMessage(t); n.text != `{"jsonrpc":"2.0","method":"notifications/odd","params":{`+tagOf+`}}` {
		t.Errorf("got %s", n.text)
	}
	modern.expectSilence(t, 50*time.Millisecond)
}

// A13: a client that has not read a list is not notified that it changed: servers that come up one after the other
// cause no notification, and on stdio a modern client gets nothing that it did not ask for.
func TestNoListChangedAtStart(t *testing.T) {
	t.Parallel()
	var servers []*fakeServer
	for i, id := range []string{"a", "b", "c"} {
		servers = append(servers, newFakeServer(t, id, protocols[i%2], i > 0).handle(mcp.ToolsList, func(*serverCall) string {
			time.Sleep(time.Duration(i) * 50 * time.Millisecond)
			return listResult("tools", itemsNamed("x")...)(nil)
		}))
	}
	clients := []*client{connectStdio(t, nil, mcp.Legacy, "{}", servers...), connectStdio(t, nil, mcp.Modern, "{}", servers...)}
	for _, c := range clients {
		if got := c.tools(t); len(got) != 3 {
			t.Errorf("got %q", got)
		}
		c.expectSilence(t, 100*time.Millisecond)
	}
	servers[0].handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...))
	servers[0].broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	if n := clients[0].nextMessage(t); n.text != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("got %s", n.text)
	}
	wait.For(t, "longer list", func() bool { return len(clients[1].tools(t)) == 4 })
	clients[1].expectSilence(t, 100*time.Millisecond)
}
