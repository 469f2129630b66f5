package hub_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/mcp"
)

// deleteSession ends the session of a client, and returns the status.
func (c *client) deleteSession(t testing.TB) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, c.gateway.URL+c.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(mcp.HeaderSession, c.session)
	res, err := c.gateway.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// A5, A7: the stream of a session, its calls and its answers to requests of servers arrive at different replicas. The
// session's own process is started once, whichever replica gets its calls.
func TestSessionOverReplicas(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newAskingServer(t, stdio)
		all := startReplicas(t, 3, nil, a)
		c := all[0].connect(t, "/mcp", mcp.Legacy, allCapabilities)
		c.gateway = all[1].mcpGateway
		c.openStream(t)
		for i := range 12 {
			c.gateway = all[i%3].mcpGateway
			_, reply := c.startCall(t, mcp.ToolsCall, askParams(mcp.ElicitationCreate+` {"message":"?"}`))
			question := c.nextOfMethod(t, mcp.ElicitationCreate)
			c.gateway = all[(i+1)%3].mcpGateway
			c.answer(t, question, `{"action":"accept"}`)
			got := resultOrError(t, receiveWithin(t, reply, "the reply").body)
			if !strings.Contains(textOfResult(t, got), `"result":{"action":"accept"}`) {
				t.Fatalf("got %s", got)
			}
		}
		for i, gw := range all[1:] {
			if sessions, _, _ := gw.hub.Counts(); sessions != 0 {
				t.Errorf("replica %d has the session, too", i+1)
			}
		}
		if stdio {
			if n := len(a.childPIDs()); n > 4 { // each replica has the shared one
				t.Errorf("%d processes run", n)
			}
		}
		// The client ends the session at one replica, and no other serves it.
		if status := c.deleteSession(t); status != http.StatusNoContent {
			t.Errorf("status %d", status)
		}
		for _, gw := range all {
			c.gateway = gw.mcpGateway
			if got := c.call(t, mcp.ToolsList, `{}`); got.status != http.StatusNotFound {
				t.Errorf("an ended session: status %d, %s", got.status, got.body)
			}
		}
	}
}

// The cancellation of a request reaches the replica that serves it.
func TestCancelOverReplicas(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false).handle(mcp.ToolsCall, func(c *serverCall) string {
		<-c.done
		return ""
	})
	all := startReplicas(t, 2, nil, a)
	c := all[0].connect(t, "/mcp", mcp.Legacy, `{}`)
	id, _ := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
	a.awaitMessage(t, mcp.ToolsCall, 1)
	c.gateway = all[1].mcpGateway
	c.notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
	a.awaitMessage(t, mcp.NotifyCancelled, 1)
}

// When the replica of a session is gone, another takes a session over that has no state there, and all others forward to
// that one. One that has ended stays ended.
func TestSessionTakenOver(t *testing.T) {
	t.Parallel()
	for name, released := range map[string]bool{"killed": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFakeServer(t, "a", mcp.Legacy, false).handle(mcp.ToolsCall, respond(`{"content":[]}`))
			all := startReplicas(t, 4, nil, a)
			c := all[0].connect(t, "/mcp", mcp.Legacy, `{}`)
			ended := all[0].connect(t, "/mcp", mcp.Legacy, `{}`)
			if status := ended.deleteSession(t); status != http.StatusNoContent {
				t.Fatalf("status %d", status)
			}
			all[0].kill()
			if released {
				all[0].replica.Close()
			}
			for i := range 9 {
				c.gateway = all[1+i%3].mcpGateway
				if got := c.call(t, mcp.ToolsCall, `{"name":"a::x"}`); got.status != http.StatusOK || !strings.Contains(got.body, `"content"`) {
					t.Fatalf("at replica %d: status %d, %s", 1+i%3, got.status, got.body)
				}
			}
			held := 0
			for _, gw := range all[1:] {
				n, _, _ := gw.hub.Counts()
				held += n
			}
			if held != 1 {
				t.Errorf("%d replicas have the session", held)
			}
			for _, gw := range all[1:] {
				ended.gateway = gw.mcpGateway
				if got := ended.call(t, mcp.ToolsList, `{}`); got.status != http.StatusNotFound {
					t.Errorf("an ended session: status %d, %s", got.status, got.body)
				}
			}
			// The one that took it over is killed, too.
			for i, gw := range all[1:] {
				if n, _, _ := gw.hub.Counts(); n == 1 {
					gw.kill()
					c.gateway = all[1+(i+1)%3].mcpGateway
				}
			}
			if got := c.call(t, mcp.ToolsCall, `{"name":"a::x"}`); got.status != http.StatusOK {
				t.Errorf("after the second: status %d, %s", got.status, got.body)
			}
		})
	}
}

// A session that has a process of its own, or subscriptions, ends with the replica that has them: its client is told
// to initialize again.
func TestSessionEndsWithItsState(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*testing.T, *client){
		"a process of its own": func(t *testing.T, c *client) {
			_, reply := c.startCall(t, mcp.ToolsCall, askParams(mcp.ElicitationCreate+` {"message":"?"}`))
			c.answer(t, c.nextOfMethod(t, mcp.ElicitationCreate), `{"action":"accept"}`)
			receiveWithin(t, reply, "the reply")
		},
		"a subscription": func(t *testing.T, c *client) {
			if got := c.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+catalog.PrefixedURI("a", "x://1")+`"}`); got != `{}` {
				t.Fatalf("got %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAskingServer(t, true).handle(mcp.ResourcesList, listResult("resources", resourcesAt("x://1")...)).handle(mcp.ResourcesSubscribe, respond(`{}`))
			all := startReplicas(t, 2, func(s *setup) { s.upstream.Servers[0].Shared = new(bool) }, a)
			c := all[0].connect(t, "/mcp", mcp.Legacy, allCapabilities)
			c.gateway = all[1].mcpGateway
			use(t, c)
			all[0].kill()
			began := time.Now()
			got := c.call(t, mcp.ToolsList, `{}`)
			var reply struct{ Error struct{ Message string } }
			_ = json.Unmarshal([]byte(got.body), &reply)
			if got.status != http.StatusNotFound || !strings.Contains(reply.Error.Message, "initialize again") {
				t.Errorf("status %d, %s after %v", got.status, got.body, time.Since(began))
			}
			c.session = ""
			c.initialize(t, mcp.V20251125)
			if got := c.call(t, mcp.ToolsList, `{}`); got.status != http.StatusOK {
				t.Errorf("the new session: status %d", got.status)
			}
		})
	}
}

// A call that a replica serves for another when it is killed gets an error, and not half a reply.
func TestReplicaKilledDuringCall(t *testing.T) {
	t.Parallel()
	for _, notes := range []bool{false, true} {
		a := newFakeServer(t, "a", mcp.Legacy, false).handle(mcp.ToolsCall, func(c *serverCall) string {
			if notes {
				var p struct {
					Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
				}
				_ = json.Unmarshal(c.Params, &p)
				c.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(p.Meta.ProgressToken) + `,"progress":1}}`)
			}
			<-c.done
			return ""
		})
		all := startReplicas(t, 2, nil, a)
		c := all[0].connect(t, "/mcp", mcp.Legacy, `{}`)
		c.gateway = all[1].mcpGateway
		_, reply := c.startCall(t, mcp.ToolsCall, `{"name":"a::x","_meta":{"progressToken":7}}`)
		a.awaitMessage(t, mcp.ToolsCall, 1)
		if notes {
			c.nextOfMethod(t, mcp.NotifyProgress)
		}
		all[0].kill()
		got := receiveWithin(t, reply, "the reply")
		if !strings.Contains(got.body, "the replica that served this stopped") {
			t.Errorf("notes %v: status %d, %q", notes, got.status, got.body)
		}
	}
}

// An array of messages is forwarded as one, and served by the replica that takes the session over.
func TestBatchOverReplicas(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 2, nil, newFakeServer(t, "a", mcp.Legacy, false))
	c := newClient(t, mcp.Legacy, `{}`)
	c.gateway, c.path = all[0].mcpGateway, "/mcp"
	c.initialize(t, mcp.V20250326)
	c.gateway = all[1].mcpGateway
	for _, killed := range []bool{false, true} {
		if killed {
			all[0].kill()
		}
		got := receiveWithin(t, c.send(t, "", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`), "the reply")
		if got.body != `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]` {
			t.Errorf("killed %v: status %d, %s", killed, got.status, got.body)
		}
	}
}
