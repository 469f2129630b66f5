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

// A9: each message of a batch counts, notifications too.
func TestBatchMembersAreCountedA9(t *testing.T) {
	t.Parallel()
	y := start(t, func(s *setup) { s.limit.PerMinute = 5 }, newFar(t, "a", mcp.EraModern, false))
	c := newClient(t, mcp.EraLegacy, "{}")
	c.yard, c.path = y, "/mcp"
	c.initialize(t, mcp.V20250326) // 1, and the notification 2
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	g := wait(t, c.send(t, "", `[{"jsonrpc":"2.0","method":"notifications/odd"},`+ping+","+ping+","+ping+","+ping+"]"), "the batch")
	if ok, refused := strings.Count(g.body, `"result"`), strings.Count(g.body, "Rate limit exceeded"); g.status != 200 || ok != 2 || refused != 2 {
		t.Errorf("%d served and %d refused of a batch of four and a notification: %d %s", ok, refused, g.status, g.body)
	}
}

// A13 (2025-03-26, JSON-RPC Batching): messages that come at once are answered at once, each as it
// would be alone; answers to a server's questions may be among them.
func TestBatch(t *testing.T) {
	t.Parallel()
	a := asking(t, false).on(mcp.ToolsList, page("tools", named("x")...))
	y := start(t, nil, a)
	c := newClient(t, mcp.EraLegacy, able)
	c.yard, c.path = y, "/mcp"
	c.initialize(t, mcp.V20250326)
	c.tools(t)
	post := func(body string) got { return wait(t, c.send(t, "", body), "the batch") }
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

	c.listen(t)
	_, reply := c.begin(t, mcp.ToolsCall, asks(mcp.RootsList+` {}`))
	q := c.next(t)
	if g := post(`[{"jsonrpc":"2.0","id":` + idOf(q) + `,"result":{"roots":[1.0]}}]`); g.status != 202 {
		t.Errorf("got %d %s", g.status, g.body)
	}
	if got := wait(t, reply, "the result").body; !strings.Contains(got, `{\"roots\":[1.0]}`) {
		t.Errorf("got %s", got)
	}
}

// A13: what is no batch is refused as a whole, and nothing of it is done.
func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false)
	y := start(t, nil, a)
	c := newClient(t, mcp.EraLegacy, "{}")
	c.yard, c.path = y, "/mcp"
	c.initialize(t, mcp.V20250326)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a::x"}}`
	other := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	for name, tt := range map[string]struct {
		body, session string
		status        int
	}{
		"empty":               {`[]`, c.session, 400},
		"no JSON":             {`[` + call, c.session, 400},
		"something else":      {`[` + call + `,1]`, c.session, 400},
		"a greeting":          {`[` + call + `,{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}]`, c.session, 400},
		"too many":            {`[` + strings.Repeat(call+`,`, 64) + call + `]`, c.session, 400},
		"of another revision": {`[` + call + `]`, other.session, 400},
		"no session":          {`[` + call + `]`, "", 400},
		"unknown session":     {`[` + call + `]`, "nonsense", 404},
	} {
		g := y.do(t, http.MethodPost, "/mcp", strings.NewReader(tt.body), http.Header{mcp.HeaderSession: {tt.session}})
		if g.status != tt.status || !strings.Contains(g.body, `"error":{"code":-32`) || len(a.got(mcp.ToolsCall)) > 0 {
			t.Errorf("%s: got %d %s", name, g.status, g.body)
		}
	}
}

// A13: a client that takes its request back, or leaves in the newer era, takes it back from the server.
func TestCancellation(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		for _, upstreamEra := range both {
			over := make(chan struct{}, 10)
			a := newFar(t, "a", upstreamEra, stdio).on(mcp.ToolsCall, func(c *turn) string {
				<-c.over
				over <- struct{}{}
				return ""
			})
			y := start(t, nil, a)
			for i, era := range both {
				c := y.visit(t, "/mcp", era, "{}")
				id, _ := c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
				a.await(t, mcp.ToolsCall, i+1)
				if era == mcp.EraLegacy {
					c.tell(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
				} else {
					c.leave()
				}
				wait(t, over, fmt.Sprintf("the end of the call at the server (%v, %v to %v)", stdio, era, upstreamEra))
			}
		}
	}
}

// A13: a client of the older era that leaves has not taken its request back.
func TestLeavingIsNoCancellation(t *testing.T) {
	t.Parallel()
	release, done := make(chan struct{}), make(chan bool, 1)
	a := newFar(t, "a", mcp.EraLegacy, false).on(mcp.ToolsCall, func(c *turn) string {
		select {
		case <-release:
			done <- true
			return `{"content":[]}`
		case <-c.over:
			done <- false
			return ""
		}
	})
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraLegacy, "{}")
	c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
	a.await(t, mcp.ToolsCall, 1)
	c.leave()
	c.wg.Wait()
	close(release)
	if !wait(t, done, "the end of the call") {
		t.Error("the call was cancelled")
	}
}

// G2: a message for a server that the gateway is connected to goes over that connection, in the server's
// era, and its reply comes back byte for byte but for the id.
func TestRelayToConnected(t *testing.T) {
	t.Parallel()
	fars := four(t)
	y := start(t, nil, fars...)
	y.visit(t, "/mcp", mcp.EraModern, "{}").tools(t)
	c := newClient(t, mcp.EraModern, "{}")
	c.info = `{"name":"ctxgate","version":"1"}`
	for _, f := range fars {
		for _, r := range rows {
			f.forget()
			f.on(r.method, says(write(r.answer, ownNames())))
			params := write(strings.ReplaceAll(r.params, "@meta,", ""), ownNames())
			g := y.post(t, f.id, `{"jsonrpc":"2.0","id":"\u0069","method":"`+r.method+`","params":`+params+`}`)
			if want := envelope(write(r.answer, ownNames()), `"\u0069"`); g.status != 200 || g.body != want {
				t.Errorf("%s from %s: got %d %s\nwant %s", r.method, f.id, g.status, g.body, want)
			}
			seen := f.await(t, r.method, 1)
			token := strings.Contains(params, "progressToken") // nobody here hears of progress
			if want := strip(c, params); strip(c, string(seen.Params)) != want && !token || strings.Contains(seen.raw, "authToken") {
				t.Errorf("%s got %s\nwant %s", f.id, seen.raw, want)
			}
		}
		g := y.post(t, f.id, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		if !strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}`) {
			t.Errorf("got %s", g.body)
		}
		if g := y.post(t, f.id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); g.body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("got %s", g.body)
		}
		f.forget()
		for _, method := range []string{mcp.Initialized, "notifications/odd"} {
			if g := y.post(t, f.id, `{"jsonrpc":"2.0","method":"`+method+`","params":{"x":1.0}}`); g.status != 202 || g.body != "" {
				t.Errorf("got %d %s", g.status, g.body)
			}
		}
		f.await(t, "notifications/odd", 1)
		if len(f.got(mcp.Initialized)) > 0 {
			t.Errorf("%s was told that a session began", f.id)
		}
	}
}
