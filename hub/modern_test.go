package hub_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// modernPost sends a body with just these headers.
func (gw *mcpGateway) modernPost(t testing.TB, path string, head map[string]string, body string) relayReply {
	t.Helper()
	h := http.Header{"Accept": {"application/json, text/event-stream"}}
	for k, v := range head {
		h.Set(k, v)
	}
	return gw.do(t, http.MethodPost, path, strings.NewReader(body), h)
}

// A13 (2026-07-28, Request Metadata): a request whose headers and body do not agree, or that lacks what it must
// have, is refused with 400 before any server gets it.
func TestModernRefusals(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	gw := startGateway(t, nil, a)
	meta := `"` + mcp.MetaProtocolVersion + `":"2026-07-28","` + mcp.MetaClientCapabilities + `":{}`
	call := `{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{"name":"a::x","_meta":{` + meta + `}}}`
	good := map[string]string{mcp.HeaderVersion: "2026-07-28", mcp.HeaderMethod: "tools/call", mcp.HeaderName: "a::x"}
	for name, tt := range map[string]struct {
		change []string // of the headers: a name and a value, "" to leave it out
		from   string   // of the body
		to     string
		want   string // the beginning of the error; "" for none
	}{
		"good":                   {},
		"name in Base64":         {change: []string{mcp.HeaderName, "=?base64?YTo6eA==?="}},
		"no version header":      {change: []string{mcp.HeaderVersion, ""}, want: `{"code":-32020,`},
		"another version":        {change: []string{mcp.HeaderVersion, "2025-11-25"}, want: `{"code":-32020,`},
		"no method header":       {change: []string{mcp.HeaderMethod, ""}, want: `{"code":-32020,`},
		"another method":         {change: []string{mcp.HeaderMethod, "tools/list"}, want: `{"code":-32020,`},
		"method in capitals":     {change: []string{mcp.HeaderMethod, "TOOLS/CALL"}, want: `{"code":-32020,`},
		"no name header":         {change: []string{mcp.HeaderName, ""}, want: `{"code":-32020,`},
		"another name":           {change: []string{mcp.HeaderName, "a::y"}, want: `{"code":-32020,`},
		"bad Base64":             {change: []string{mcp.HeaderName, "=?base64?YTo6eA?="}, want: `{"code":-32020,`},
		"no revision in _meta":   {from: `"` + mcp.MetaProtocolVersion + `":"2026-07-28",`, want: `{"code":-32602,`},
		"no _meta":               {from: `,"_meta":{` + meta + `}`, want: `{"code":-32602,`},
		"no capabilities":        {from: `,"` + mcp.MetaClientCapabilities + `":{}`, want: `{"code":-32602,`},
		"capabilities no object": {from: `Capabilities":{}`, to: `Capabilities":[]`, want: `{"code":-32602,`},
		"level that is none":     {from: `,"` + mcp.MetaClientCapabilities, to: `,"` + mcp.MetaLogLevel + `":"loud","` + mcp.MetaClientCapabilities, want: `{"code":-32602,`},
		"unknown revision": {change: []string{mcp.HeaderVersion, "2027-01-01"}, from: `"2026-07-28"`, to: `"2027-01-01"`,
			want: `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}`},
		"unknown revision in the header alone": {change: []string{mcp.HeaderVersion, "2027-01-01"}, from: `"` + mcp.MetaProtocolVersion + `":"2026-07-28",`, want: `{"code":-32022,`},
		"older revision":                       {change: []string{mcp.HeaderVersion, "2025-11-25"}, from: `"2026-07-28"`, to: `"2025-11-25"`, want: `{"code":-32022,`},
		"revision no string":                   {from: `"2026-07-28"`, to: `20260728`, want: `{"code":-32020,`},
	} {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			a.forgetMessages()
			head := map[string]string{}
			for k, v := range good {
				head[k] = v
			}
			for i := 0; i < len(tt.change); i += 2 {
				head[tt.change[i]] = tt.change[i+1]
				if tt.change[i+1] == "" {
					delete(head, tt.change[i])
				}
			}
			g := gw.modernPost(t, path, head, strings.Replace(call, tt.from, tt.to, 1))
			if tt.want == "" {
				if g.status != 200 || len(a.messagesOf(mcp.ToolsCall)) != 1 {
					t.Errorf("%s: got %d %s", name, g.status, g.body)
				}
				continue
			}
			if g.status != 400 || !strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":"i","error":`+tt.want) || len(a.messagesOf(mcp.ToolsCall)) > 0 {
				t.Errorf("%s at %s: got %d %s", name, path, g.status, g.body)
			}
		}
	}
	twice := http.Header{mcp.HeaderVersion: {"2026-07-28"}, mcp.HeaderMethod: {"tools/call"}, mcp.HeaderName: {"a::x", "a::x"}}
	if g := gw.do(t, http.MethodPost, "/mcp", strings.NewReader(call), twice); g.status != 400 || !strings.Contains(g.body, "-32020") {
		t.Errorf("a header twice: got %d %s", g.status, g.body)
	}
}

// A13: methods that the modern protocol has removed are unknown, at any endpoint.
func TestModernRemovedMethods(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, nil, a)
	methods := []string{mcp.Initialize, mcp.Ping, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe, mcp.LoggingSetLevel}
	stdio := connectStdio(t, nil, mcp.Modern, "{}", a)
	for _, c := range []*client{gw.connect(t, "/mcp", mcp.Modern, "{}"), gw.connect(t, "/mcp/a", mcp.Modern, "{}"), stdio} {
		for _, m := range methods {
			if c == stdio && m == mcp.Initialize {
				continue // on stdio it starts the legacy protocol
			}
			g := c.call(t, m, `{"uri":"mem://1","level":"info"}`)
			if c.in == nil && g.status != 404 || resultOrError(t, g.body) != `!{"code":-32601,"message":"Method not found","data":{"reason":"no_method","retryable":false}}` {
				t.Errorf("%s: got %d %s", m, g.status, g.body)
			}
		}
	}
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	for _, m := range []string{"tools/none", mcp.RootsList, mcp.NotifyInitialized, "x"} {
		if g := c.call(t, m, `{}`); g.status != 404 || !strings.Contains(g.body, "-32601") {
			t.Errorf("%s: got %d %s", m, g.status, g.body)
		}
	}
	// A method that the gateway does not know goes to the server of the endpoint, unchanged.
	a.handle("vendor/odd", respond(`{"ok":1.0}`))
	one := gw.connect(t, "/mcp/a", mcp.Modern, "{}")
	if got := one.callResult(t, "vendor/odd", `{"x":1.0}`); got != `{"ok":1.0,"resultType":"complete"}` {
		t.Errorf("got %s", got)
	}
	if g := one.call(t, "vendor/none", `{}`); g.status != 404 || !strings.Contains(g.body, "-32601") {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A13 (Custom Headers): the headers that mirror arguments must agree with them, and reach the server.
func TestModernParamHeaders(t *testing.T) {
	t.Parallel()
	schema := `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", `{"name":"x","inputSchema":`+schema+`}`))
	gw := startGateway(t, nil, a)
	for name, tt := range map[string]struct {
		arguments string
		region, n string // headers; "-" for none
		ok        bool
	}{
		"both":             {`{"region":"eu","n":7}`, "eu", "7", true},
		"encoded":          {`{"region":"\u00e9","n":7}`, "=?base64?w6k=?=", "7", true},
		"a number's forms": {`{"region":"eu","n":7.0}`, "eu", "70e-1", true},
		"neither":          {`{}`, "-", "-", true},
		"null":             {`{"region":null,"n":7}`, "-", "7", true},
		"another":          {`{"region":"eu","n":7}`, "us", "7", false},
		"missing":          {`{"region":"eu","n":7}`, "-", "7", false},
		"too many":         {`{"n":7}`, "eu", "7", false},
		"null, and sent":   {`{"region":null,"n":7}`, "null", "7", false},
		"another number":   {`{"region":"eu","n":7}`, "eu", "8", false},
		"no arguments":     {`"none"`, "eu", "-", false},
	} {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			c := gw.connect(t, path, mcp.Modern, "{}")
			c.tools(t)
			a.forgetMessages()
			for key, value := range map[string]string{"Mcp-Param-Region": tt.region, "Mcp-Param-N": tt.n} {
				if value != "-" {
					c.header.Set(key, value)
				}
			}
			tool := map[string]string{"/mcp": "a::x", "/mcp/a": "x"}[path]
			g := c.call(t, mcp.ToolsCall, `{"name":"`+tool+`","arguments":`+tt.arguments+`}`)
			all := a.messagesOf(mcp.ToolsCall)
			if !tt.ok {
				if g.status != 400 || !strings.Contains(g.body, `"code":-32020`) || len(all) > 0 {
					t.Errorf("%s: got %d %s", name, g.status, g.body)
				}
				continue
			}
			if g.status != 200 || len(all) != 1 {
				t.Errorf("%s: got %d %s", name, g.status, g.body)
				continue
			}
			if got := all[0].header.Get("Mcp-Param-Region"); tt.region != "-" && got != tt.region || tt.region == "-" && got != "" {
				t.Errorf("%s: the server got %q", name, got)
			}
			if all[0].header.Get(mcp.HeaderName) != "x" || all[0].header.Get(mcp.HeaderMethod) != mcp.ToolsCall {
				t.Errorf("%s: the server got %v", name, all[0].header)
			}
		}
	}
}

// A13 (Subscriptions): a stream begins with what it will carry, and carries only that; the id is the request's,
// whatever its type.
func TestListen(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...)).handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://1")...))
	b := newFakeServer(t, "b", mcp.Legacy, true).handle(mcp.ResourcesSubscribe, func(c *serverCall) string {
		if strings.Contains(string(c.Params), "never") {
			return `!{"code":-32602,"message":"no"}`
		}
		return `{}`
	})
	gw := startGateway(t, nil, a, b)
	c, stdio := gw.connect(t, "/mcp", mcp.Modern, "{}"), connectStdio(t, nil, mcp.Modern, "{}", a, b)
	for _, one := range []*client{c, stdio} {
		one.callResult(t, mcp.ToolsList, `{}`)
		for _, id := range []string{`"s\u0074r"`, `7`, `-1.50`} {
			msg := `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true,"toolsListChanged":false,"odd":true,"resourceSubscriptions":["` +
				shownURI("a", "mem://1") + `","` + shownURI("b", "never") + `","unknown"]},"_meta":{` + one.meta() + `}}}`
			one.send(t, id, msg)
			sub := `"_meta":{"` + mcp.MetaSubscriptionID + `":` + id + `}`
			want := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + sub +
				`,"notifications":{"promptsListChanged":true,"resourceSubscriptions":["` + shownURI("a", "mem://1") + `"]}}}`
			if n := one.nextMessage(t); n.text != want {
				t.Errorf("got %s\nwant %s", n.text, want)
			}
		}
	}
	a.handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...)).handle(mcp.PromptsList, listResult("prompts", itemsNamed("p")...))
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"x":1@sub}}`)
	for _, one := range []*client{c, stdio} {
		var got []string
		for range 3 {
			got = append(got, one.nextMessage(t).text)
		}
		slices.Sort(got)
		for i, id := range []string{`"s\u0074r"`, `-1.50`, `7`} {
			if want := `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"` + mcp.MetaSubscriptionID + `":` + id + `}}}`; got[i] != want {
				t.Errorf("got %s\nwant %s", got[i], want)
			}
		}
		one.expectSilence(t, 100*time.Millisecond)
	}
	for params, want := range map[string]string{
		`{}`: "-32602", `{"notifications":[]}`: "-32602", `{"notifications":{"resourceSubscriptions":["x",1]}}`: "-32602",
	} {
		if got := c.callResult(t, mcp.SubscriptionsListen, params); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", params, got)
		}
	}
}

// A13 (Subscriptions, Graceful Closure): when the gateway ends a stream, it answers the request that opened it; a
// client that closes it has cancelled it.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	stop := c.listenFor(t, `{"resourceSubscriptions":["`+shownURI("a", "mem://1")+`"]}`)
	a.awaitMessage(t, mcp.ResourcesSubscribe, 1)
	stop()
	a.awaitMessage(t, mcp.ResourcesUnsubscribe, 1)

	id, end := c.startCall(t, mcp.SubscriptionsListen, `{"notifications":{"toolsListChanged":true}}`)
	c.nextMessage(t)
	gw.hub.EndStreams()
	want := `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"` + mcp.MetaSubscriptionID + `":` + id + `}}}`
	if g := receiveWithin(t, end, "the farewell"); g.body != want {
		t.Errorf("got %s\nwant %s", g.body, want)
	}
}

// A client that does not accept an event stream cannot listen, and leaves nothing behind.
func TestListenWithoutStream(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Modern, "{}")
	c.header.Set("Accept", "application/json")
	if got := c.callResult(t, mcp.SubscriptionsListen, `{"notifications":{"resourceSubscriptions":["`+shownURI("a", "mem://1")+`"]}}`); got[0] != '!' {
		t.Errorf("got %s", got)
	}
	a.awaitMessage(t, mcp.ResourcesUnsubscribe, 1)
}
