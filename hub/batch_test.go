package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// A9: each message of a batch counts towards the rate limit, notifications too.
func TestBatchMembersAreCountedA9(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, func(s *setup) { s.limit.PerMinute = 5 }, newFakeServer(t, "a", mcp.Modern, false))
	c := newClient(t, mcp.Legacy, "{}")
	c.gateway, c.path = gw, "/mcp"
	c.initialize(t, mcp.V20250326) // 1, and the notification 2
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	g := receiveWithin(t, c.send(t, "", `[{"jsonrpc":"2.0","method":"notifications/odd"},`+ping+","+ping+","+ping+","+ping+"]"), "the batch")
	if ok, refused := strings.Count(g.body, `"result"`), strings.Count(g.body, "Rate limit exceeded"); g.status != 200 || ok != 2 || refused != 2 {
		t.Errorf("%d served and %d refused of a batch of four and a notification: %d %s", ok, refused, g.status, g.body)
	}
}

// A13 (2025-03-26, JSON-RPC Batching): the messages of an array are answered by an array, each as it would be
// alone; replies to a server's requests may be among them.
func TestBatch(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	gw := startGateway(t, nil, a)
	c := newClient(t, mcp.Legacy, allCapabilities)
	c.gateway, c.path = gw, "/mcp"
	c.initialize(t, mcp.V20250326)
	c.tools(t)
	post := func(body string) httpReply { return receiveWithin(t, c.send(t, "", body), "the batch") }
	g := post(` [{"jsonrpc":"2.0","id":"a\u0062","method":"ping"},{"jsonrpc":"2.0","method":"notifications/odd"},` +
		`{"jsonrpc":"2.0","id":2,"method":"none"},{"jsonrpc":"2.0","id":3,"method":"prompts/list"}]`)
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(g.body), &all); err != nil || g.status != 200 {
		t.Fatalf("got %d %s", g.status, g.body)
	}
	var texts []string
	for _, one := range all {
		texts = append(texts, string(one))
	}
	slices.Sort(texts)
	want := []string{
		`{"jsonrpc":"2.0","id":"a\u0062","result":{}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found","data":{"reason":"no_method","retryable":false}}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"prompts":[]}}`,
	}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q", texts)
	}
	if g := post(`[{"jsonrpc":"2.0","method":"notifications/odd"}]`); g.status != 202 || g.body != "" {
		t.Errorf("got %d %s", g.status, g.body)
	}

	c.openStream(t)
	_, reply := c.startCall(t, mcp.ToolsCall, askParams(mcp.RootsList+` {}`))
	q := c.nextMessage(t)
	if g := post(`[{"jsonrpc":"2.0","id":` + idOf(q) + `,"result":{"roots":[1.0]}}]`); g.status != 202 {
		t.Errorf("got %d %s", g.status, g.body)
	}
	if got := receiveWithin(t, reply, "the result").body; !strings.Contains(got, `{\"roots\":[1.0]}`) {
		t.Errorf("got %s", got)
	}
}

// A13: an invalid batch is refused as a whole, and none of its messages is served.
func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false)
	gw := startGateway(t, nil, a)
	c := newClient(t, mcp.Legacy, "{}")
	c.gateway, c.path = gw, "/mcp"
	c.initialize(t, mcp.V20250326)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a::x"}}`
	other := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	for name, tt := range map[string]struct {
		body, session string
		status        int
	}{
		"empty":               {`[]`, c.session, 400},
		"no JSON":             {`[` + call, c.session, 400},
		"something else":      {`[` + call + `,1]`, c.session, 400},
		"initialize":          {`[` + call + `,{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}]`, c.session, 400},
		"too many":            {`[` + strings.Repeat(call+`,`, 64) + call + `]`, c.session, 400},
		"of another revision": {`[` + call + `]`, other.session, 400},
		"no session":          {`[` + call + `]`, "", 400},
		"unknown session":     {`[` + call + `]`, "nonsense", 404},
	} {
		g := gw.do(t, http.MethodPost, "/mcp", strings.NewReader(tt.body), http.Header{mcp.HeaderSession: {tt.session}})
		if g.status != tt.status || !strings.Contains(g.body, `"error":{"code":-32`) || len(a.messagesOf(mcp.ToolsCall)) > 0 {
			t.Errorf("%s: got %d %s", name, g.status, g.body)
		}
	}
}

// A13: a request that a client cancels, or a modern client leaves, is cancelled at the server.
func TestCancellation(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		for _, serverProtocol := range protocols {
			over := make(chan struct{}, 10)
			a := newFakeServer(t, "a", serverProtocol, stdio).handle(mcp.ToolsCall, func(c *serverCall) string {
				<-c.done
				over <- struct{}{}
				return ""
			})
			gw := startGateway(t, nil, a)
			for i, protocol := range protocols {
				c := gw.connect(t, "/mcp", protocol, "{}")
				id, _ := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
				a.awaitMessage(t, mcp.ToolsCall, i+1)
				if protocol == mcp.Legacy {
					c.notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
				} else {
					c.cancel()
				}
				receiveWithin(t, over, fmt.Sprintf("the end of the call at the server (%v, %v to %v)", stdio, protocol, serverProtocol))
			}
		}
	}
}

// A13: a legacy client that disconnects does not cancel its request.
func TestLegacyDisconnectDoesNotCancel(t *testing.T) {
	t.Parallel()
	release, done := make(chan struct{}), make(chan bool, 1)
	a := newFakeServer(t, "a", mcp.Legacy, false).handle(mcp.ToolsCall, func(c *serverCall) string {
		select {
		case <-release:
			done <- true
			return `{"content":[]}`
		case <-c.done:
			done <- false
			return ""
		}
	})
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Legacy, "{}")
	c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
	a.awaitMessage(t, mcp.ToolsCall, 1)
	c.cancel()
	c.wg.Wait()
	close(release)
	if !receiveWithin(t, done, "the end of the call") {
		t.Error("the call was cancelled")
	}
}

// G2: a message that is relayed to a server with an MCP connection goes over that connection, in the server's
// revision, and its reply comes back byte for byte but for the id.
func TestRelayToConnected(t *testing.T) {
	t.Parallel()
	servers := fourServers(t)
	gw := startGateway(t, nil, servers...)
	gw.connect(t, "/mcp", mcp.Modern, "{}").tools(t)
	c := newClient(t, mcp.Modern, "{}")
	c.info = `{"name":"ctxgate","version":"1"}`
	for _, f := range servers {
		for _, r := range verbatimCases {
			f.forgetMessages()
			f.handle(r.method, respond(replaceNames(r.answer, serverNames())))
			params := replaceNames(strings.ReplaceAll(r.params, "@meta,", ""), serverNames())
			g := gw.post(t, f.id, `{"jsonrpc":"2.0","id":"\u0069","method":"`+r.method+`","params":`+params+`}`)
			if want := wrapReply(replaceNames(r.answer, serverNames()), `"\u0069"`); g.status != 200 || g.body != want {
				t.Errorf("%s from %s: got %d %s\nwant %s", r.method, f.id, g.status, g.body, want)
			}
			seen := f.awaitMessage(t, r.method, 1)
			token := strings.Contains(params, "progressToken") // no client here gets progress
			if want := stripGatewayChanges(c, params); stripGatewayChanges(c, string(seen.Params)) != want && !token || strings.Contains(seen.raw, "authToken") {
				t.Errorf("%s got %s\nwant %s", f.id, seen.raw, want)
			}
		}
		g := gw.post(t, f.id, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		if !strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}`) {
			t.Errorf("got %s", g.body)
		}
		if g := gw.post(t, f.id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); g.body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("got %s", g.body)
		}
		f.forgetMessages()
		for _, method := range []string{mcp.NotifyInitialized, "notifications/odd"} {
			if g := gw.post(t, f.id, `{"jsonrpc":"2.0","method":"`+method+`","params":{"x":1.0}}`); g.status != 202 || g.body != "" {
				t.Errorf("got %d %s", g.status, g.body)
			}
		}
		f.awaitMessage(t, "notifications/odd", 1)
		if len(f.messagesOf(mcp.NotifyInitialized)) > 0 {
			t.Errorf("%s got a notification of the session", f.id)
		}
	}
}
