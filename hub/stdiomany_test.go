package hub_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
)

// joinStdio returns one of many clients of a gateway on byte streams. The functions close its side, and return what
// ServeStdio returned.
func (gw *mcpGateway) joinStdio(ctx context.Context, t testing.TB, protocol mcp.Protocol, caps string, opts hub.StdioOptions) (c *client, ended <-chan error) {
	t.Helper()
	c = newClient(t, protocol, caps)
	c.gateway = gw
	theirs, ours := pipes(t)
	back, out := pipes(t)
	done := make(chan error, 1)
	go func() {
		err := gw.hub.ServeStdio(ctx, theirs, out, opts)
		theirs.Close()
		done <- err
		close(done)
	}()
	c.in = ours
	c.wg.Go(func() { c.readStdout(back) })
	t.Cleanup(func() {
		ours.Close()
		<-done
	})
	if protocol == mcp.Legacy {
		c.call(t, mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":`+caps+`,"clientInfo":`+c.info+`}`)
		c.notify(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return c, done
}

// leaveWithin tells a client that the gateway stops.
func leaveWithin(grace time.Duration) func() ([]byte, time.Duration) {
	return func() ([]byte, time.Duration) {
		return []byte(`{"jsonrpc":"2.0","method":"notifications/leave"}`), grace
	}
}

// Three clients on byte streams and one over HTTP share one child. Equal ids do not collide, and a cancellation ends
// the call of its own client only.
func TestManyStdioClientsShareOneChild(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		select {
		case <-release:
			return `{"content":[{"type":"text","text":` + string(c.Params) + `}]}`
		case <-c.done:
			return ""
		}
	})
	gw := startGateway(t, nil, a)
	var clients []*client
	for _, protocol := range []mcp.Protocol{mcp.Legacy, mcp.Modern, mcp.Legacy} {
		c, _ := gw.joinStdio(t.Context(), t, protocol, "{}", hub.StdioOptions{Client: "codex"})
		clients = append(clients, c)
	}
	clients = append(clients, gw.connect(t, "/mcp?client=cursor", mcp.Legacy, "{}"))
	var replies []<-chan httpReply
	for i, c := range clients {
		c.lastID = 41 // all use the same id
		_, reply := c.startCall(t, mcp.ToolsCall, fmt.Sprintf(`{"name":"a::x","arguments":{"client":%d}}`, i))
		replies = append(replies, reply)
		a.awaitMessage(t, mcp.ToolsCall, i+1)
	}
	clients[0].notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":42}}`)
	a.awaitMessage(t, mcp.NotifyCancelled, 1)
	close(release)
	for i, reply := range replies[1:] {
		if got := receiveWithin(t, reply, "a reply").body; !strings.Contains(got, fmt.Sprintf(`"client":%d`, i+1)) {
			t.Errorf("client %d got %s", i+1, got)
		}
	}
	if n := len(a.childPIDs()); n != 1 {
		t.Errorf("%d children run for four clients", n)
	}
	if n := len(a.messagesOf(mcp.NotifyCancelled)); n != 1 {
		t.Errorf("%d calls were cancelled", n)
	}
}

// A client that leaves ends its own session and nothing of the others: their streams stay open, and they are notified
// and asked as before.
func TestStdioClientThatLeavesEndsNothingOfOthers(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, true)
	gw := startGateway(t, nil, a)
	legacy, _ := gw.joinStdio(t.Context(), t, mcp.Legacy, allCapabilities, hub.StdioOptions{})
	modern, _ := gw.joinStdio(t.Context(), t, mcp.Modern, "{}", hub.StdioOptions{})
	leaving, left := gw.joinStdio(t.Context(), t, mcp.Legacy, allCapabilities, hub.StdioOptions{})
	web := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	web.openStream(t)
	for _, c := range []*client{legacy, modern, leaving, web} {
		c.call(t, mcp.ToolsList, `{}`)
	}
	modern.startCall(t, mcp.SubscriptionsListen, `{"notifications":{"toolsListChanged":true}}`)
	modern.nextOfMethod(t, mcp.NotifySubscriptionsAcknowledged)
	ask := func(c *client, answer string) {
		t.Helper()
		got := c.callAnswering(t, askParams(mcp.ElicitationCreate+` {}`), func(string) string { return `{"action":"` + answer + `"}` })
		if !strings.Contains(got, answer) {
			t.Errorf("got %s, want the client's own answer %s", got, answer)
		}
	}
	ask(legacy, "accept")
	ask(leaving, "decline")
	if sessions, _, _ := gw.hub.Counts(); sessions != 4 {
		t.Errorf("%d sessions, want one for each client", sessions)
	}
	_ = leaving.in.(io.Closer).Close()
	if err := receiveWithin(t, left, "the end of the client that left"); err != nil {
		t.Error(err)
	}
	if sessions, _, _ := gw.hub.Counts(); sessions != 3 {
		t.Errorf("%d sessions after one client left", sessions)
	}
	ask(legacy, "cancel")
	a.handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for _, c := range []*client{legacy, modern, web} {
		c.nextOfMethod(t, mcp.NotifyToolsChanged)
	}
}

// A gateway that stops tells its clients, serves them until they close their side, and answers what is in flight.
func TestStdioDrainNotice(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(*serverCall) string {
		<-release
		return `{"content":[]}`
	})
	gw := startGateway(t, nil, a)
	ctx, stop := context.WithCancel(t.Context())
	c, ended := gw.joinStdio(ctx, t, mcp.Legacy, "{}", hub.StdioOptions{Drain: leaveWithin(patience)})
	_, reply := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
	a.awaitMessage(t, mcp.ToolsCall, 1)
	stop()
	c.nextOfMethod(t, "notifications/leave")
	_, last := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`) // was sent before the notice was read
	a.awaitMessage(t, mcp.ToolsCall, 2)
	_ = c.in.(io.Closer).Close()
	close(release)
	for _, r := range []<-chan httpReply{reply, last} {
		if got := receiveWithin(t, r, "a reply").body; !strings.Contains(got, `"content"`) {
			t.Errorf("got %s", got)
		}
	}
	if err := receiveWithin(t, ended, "the end"); err != nil {
		t.Error(err)
	}
}

// A client that ignores the notice, or that cannot be told, is served no longer than draining may take.
func TestStdioDrainIsBounded(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		<-c.done
		return ""
	})
	gw := startGateway(t, func(s *setup) { s.http.DrainGrace = unit.Duration(50 * time.Millisecond) }, a)
	for _, opts := range []hub.StdioOptions{{}, {Drain: leaveWithin(50 * time.Millisecond)}} {
		ctx, stop := context.WithCancel(t.Context())
		c, ended := gw.joinStdio(ctx, t, mcp.Legacy, "{}", opts)
		a.forgetMessages()
		c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
		a.awaitMessage(t, mcp.ToolsCall, 1)
		stop()
		if err := receiveWithin(t, ended, "the end"); err != nil {
			t.Error(err)
		}
	}
}

// max_sessions bounds the clients on byte streams too: one too many is told why.
func TestStdioClientsAreBounded(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, func(s *setup) { s.hub.MaxSessions = 2 }, newFakeServer(t, "a", mcp.Legacy, true))
	for range 2 {
		gw.joinStdio(t.Context(), t, mcp.Legacy, "{}", hub.StdioOptions{})
	}
	c, _ := gw.joinStdio(t.Context(), t, mcp.Modern, "{}", hub.StdioOptions{})
	if got := c.callResult(t, mcp.ToolsList, `{}`); !strings.Contains(got, "max_sessions = 2") {
		t.Errorf("got %s", got)
	}
}
