package hub_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

func requireToken(s *setup) { s.auth.Token = secret.Literal("right") }

// credentials is the ways to send a token, and whether they are valid.
var credentials = []struct {
	name, header, proxy string
	ok                  bool
}{
	{"none", "", "", false},
	{"header", "Bearer right", "", true},
	{"wrong header", "Bearer wrong", "", false},
	{"member", "", `{"authToken":"right"}`, true},
	{"member with escapes", "", `{"authToken":"\u0072ight","x":1}`, true},
	{"wrong member", "", `{"authToken":"wrong"}`, false},
	{"empty member", "", `{"authToken":""}`, false},
	{"member of no text", "", `{"authToken":1}`, false},
	{"member without a token", "", `{"x":1}`, false},
	{"member of no object", "", `"right"`, false},
	{"header, wrong member", "Bearer right", `{"authToken":"wrong"}`, false},
	{"wrong header, member", "Bearer wrong", `{"authToken":"right"}`, false},
	{"header, member without a token", "Bearer right", `{"x":1}`, true},
	{"both", "Bearer right", `{"authToken":"right"}`, true},
}

// A8: every HTTP request at every endpoint carries the token, in a header or in params.proxy; a wrong one is
// refused even beside a valid one; params.proxy never reaches a server.
func TestTokenA8(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, requireToken, a)
	legacy := map[string]*client{}
	for _, path := range []string{"/mcp", "/mcp/a"} {
		c := newClient(t, mcp.Legacy, "{}")
		c.gateway, c.path = gw, path
		c.header.Set("Authorization", "Bearer right")
		c.initialize(t, mcp.V20251125)
		legacy[path] = c
	}
	for _, tt := range credentials {
		head := http.Header{}
		if tt.header != "" {
			head.Set("Authorization", tt.header)
		}
		member := ""
		if tt.proxy != "" {
			member = `,"proxy":` + tt.proxy
		}
		check := func(endpoint string, g httpReply) {
			t.Helper()
			all := a.messagesOf(mcp.ToolsCall)
			a.forgetMessages()
			if tt.ok {
				if g.status != 200 || len(all) != 1 || strings.Contains(all[0].raw, "proxy") {
					t.Errorf("%s at %s: got %d %s", tt.name, endpoint, g.status, g.body)
				}
				return
			}
			if g.status != 401 || g.head.Get("WWW-Authenticate") != "Bearer" || len(all) > 0 ||
				!strings.Contains(g.body, `"error":{"code":-31401,"message":"a valid bearer token is required"`) {
				t.Errorf("%s at %s: got %d %s", tt.name, endpoint, g.status, g.body)
			}
		}
		for path, tool := range map[string]string{"/mcp": "a::x", "/mcp/a": "x"} {
			c := gw.connect(t, path, mcp.Modern, "{}")
			c.header = head.Clone()
			check("modern "+path, c.call(t, mcp.ToolsCall, `{"name":"`+tool+`"`+member+`}`))
			c = gw.resume(t, path, legacy[path].session)
			c.header = head.Clone()
			check("legacy "+path, c.call(t, mcp.ToolsCall, `{"name":"`+tool+`"`+member+`}`))
		}
		g := gw.do(t, http.MethodPost, rpcPath("a"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"`+member+`}}`), head)
		check("rpc", httpReply{g.status, g.header, g.body})
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if g := gw.do(t, method, "/mcp", nil, http.Header{mcp.HeaderSession: {legacy["/mcp"].session}, "Accept": {"text/event-stream"}}); g.status != 401 {
			t.Errorf("%s: got %d", method, g.status)
		}
	}
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	if g := c.call(t, mcp.SubscriptionsListen, `{"notifications":{}}`); g.status != 401 {
		t.Errorf("listen: got %d %s", g.status, g.body)
	}
}

// withToken configures a gateway whose process was started with a token.
func withToken(token string) func(*setup) {
	return func(s *setup) {
		requireToken(s)
		s.token = token
	}
}

// A8: on stdio, too, each request carries the token, initialize and ping included, in both protocols; without it
// the error has the code of every other endpoint and says where the token goes; no server is started, and none
// gets a message.
func TestStdioWithoutTokenIsRefusedA8(t *testing.T) {
	t.Parallel()
	const refused = `!{"code":-31401,"message":"a valid token is required: in params.proxy.authToken, or in CTXGATE_TOKEN when the process is started","data":{"reason":"unauthorized","retryable":false}}`
	for _, protocol := range protocols {
		a := newFakeServer(t, "a", mcp.Modern, false)
		c := connectStdioUninitialized(t, requireToken, protocol, "{}", a)
		for _, tt := range []struct{ method, params string }{
			{mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + info},
			{mcp.Ping, `{"x":1`}, {mcp.ServerDiscover, `{"x":1`}, {mcp.ToolsList, `{"x":1`}, {mcp.ToolsCall, `{"name":"a::x"`}, {mcp.SubscriptionsListen, `{"notifications":{}`}, {"none", `{"x":1`},
		} {
			for _, member := range []string{``, `,"proxy":{}`, `,"proxy":1`, `,"proxy":{"authToken":"wrong"}`, `,"proxy":{"authToken":""}`, `,"proxy":{"authToken":1}`} {
				if got := c.callResult(t, tt.method, tt.params+member+`}`); got != refused {
					t.Errorf("%s with %q: got %s", tt.method, member, got)
				}
			}
		}
		c.notify(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`) // no request has shown the token yet
		c.callResult(t, mcp.Ping, `{"x":1}`)                          // after the notification
		for _, method := range []string{mcp.ServerDiscover, mcp.Initialize, mcp.ToolsList, "notifications/odd"} {
			if n := len(a.messagesOf(method)); n != 0 {
				t.Errorf("the server got %d messages of %s", n, method)
			}
		}
	}
}

// A8: a request with the token is served in both protocols, and the token is not forwarded. A notification may
// leave it out once a request has shown it.
func TestStdioWithTokenIsServedA8(t *testing.T) {
	t.Parallel()
	const token = `,"proxy":{"authToken":"right"}}`
	for _, protocol := range protocols {
		a := newFakeServer(t, "a", mcp.Legacy, true)
		c := connectStdioUninitialized(t, requireToken, protocol, "{}", a)
		if protocol == mcp.Legacy {
			if got := c.callResult(t, mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":`+info+token); got[0] == '!' {
				t.Fatalf("got %s", got)
			}
			c.notify(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
		if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"`+token); got[0] == '!' {
			t.Errorf("got %s", got)
		}
		if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.HasPrefix(got, `!{"code":-31401,`) {
			t.Errorf("the next one, without a token, got %s", got)
		}
		if protocol == mcp.Legacy {
			c.notify(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
			a.awaitMessage(t, "notifications/odd", 1)
		}
		if calls := a.messagesOf(mcp.ToolsCall); len(calls) != 1 || strings.Contains(calls[0].raw, "proxy") {
			t.Errorf("the server got %v", calls)
		}
	}
}

// A8: a process that was started with the token serves its client without one; a wrong one in a message is refused
// all the same, and so is everything once a reload has changed the token.
func TestStdioStartedWithTokenA8(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		a := newFakeServer(t, "a", mcp.Modern, false)
		c := connectStdio(t, withToken("right"), protocol, "{}", a)
		for member, ok := range map[string]bool{
			``: true, `,"proxy":{}`: true, `,"proxy":{"authToken":"right"}`: true, `,"proxy":{"authToken":"wrong"}`: false, `,"proxy":{"authToken":""}`: false,
		} {
			got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"`+member+`}`)
			if (got[0] != '!') != ok || !ok && !strings.HasPrefix(got, `!{"code":-31401,`) {
				t.Errorf("%s: got %s", member, got)
			}
		}
		if calls := a.messagesOf(mcp.ToolsCall); len(calls) != 3 {
			t.Errorf("%d calls", len(calls))
		}
		c.gateway.reload(func(s *setup) { s.auth.Token = secret.Literal("rotated") })
		if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.HasPrefix(got, `!{"code":-31401,`) {
			t.Errorf("after the token was changed: got %s", got)
		}
		if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x","proxy":{"authToken":"rotated"}}`); got[0] == '!' {
			t.Errorf("with the new token: got %s", got)
		}
	}
}

// A9: over the limit, every endpoint says "Rate limit exceeded", over HTTP with 429 and Retry-After; all endpoints
// count together, notifications too.
func TestRateLimitA9(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false)
	limited := func(s *setup) {
		requireToken(s)
		s.limit.PerMinute = 10
	}
	gw := startGateway(t, limited, a)
	bearer := http.Header{"Authorization": {"Bearer right"}}
	legacy := newClient(t, mcp.Legacy, "{}")
	legacy.gateway, legacy.path, legacy.header = gw, "/mcp", bearer
	legacy.initialize(t, mcp.V20251125) // 1, and the notification 2
	modern := gw.connect(t, "/mcp", mcp.Modern, "{}")
	one := gw.connect(t, "/mcp/a", mcp.Modern, "{}")
	modern.header, one.header = bearer, bearer.Clone()
	rpc := func() httpReply {
		g := gw.do(t, http.MethodPost, rpcPath("a"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"proxy":{"authToken":"right"}}}`), nil)
		return httpReply{g.status, g.header, g.body}
	}
	calls := map[string]func() httpReply{
		"legacy": func() httpReply { return legacy.call(t, mcp.Ping, `{}`) },
		"modern": func() httpReply { return modern.call(t, mcp.ToolsList, `{}`) },
		"single": func() httpReply { return one.call(t, mcp.ToolsCall, `{"name":"x"}`) },
		"rpc":    rpc,
	}
	for name, call := range calls { // 6
		if g := call(); g.status != 200 {
			t.Errorf("%s: got %d %s", name, g.status, g.body)
		}
	}
	legacy.notify(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)       // 7
	legacy.notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`) // 8
	calls["unknown"] = func() httpReply { return modern.call(t, "none", `{}`) }
	if g := calls["unknown"](); g.status != 404 { // 9
		t.Errorf("got %d %s", g.status, g.body)
	}
	calls["listen"] = func() httpReply { return modern.call(t, mcp.SubscriptionsListen, `{"notifications":{}}`) }
	stop := modern.listenFor(t, `{}`) // 10
	defer stop()
	calls["initialize"] = func() httpReply { return legacy.call(t, mcp.Initialize, `{}`) }
	for name, call := range calls {
		g := call()
		after, err := strconv.Atoi(g.head.Get("Retry-After"))
		if g.status != 429 || err != nil || after < 1 || after > 9 || !strings.Contains(g.body, `"error":{"code":-31429,"message":"Rate limit exceeded"`) {
			t.Errorf("%s: got %d %v %s", name, g.status, g.head, g.body)
		}
	}

	// A notification is refused as well, except one that cancels.
	notify := func(method string) int {
		header := bearer.Clone()
		header.Set(mcp.HeaderSession, legacy.session)
		return gw.do(t, http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","method":"`+method+`"}`), header).status
	}
	if odd, cancelled := notify("notifications/odd"), notify("notifications/cancelled"); odd != 429 || cancelled != 202 {
		t.Errorf("notifications over the limit: %d, a cancellation: %d", odd, cancelled)
	}

	c := connectStdio(t, func(s *setup) { s.limit.PerMinute = 3 }, mcp.Legacy, "{}", a)
	c.callResult(t, mcp.Ping, `{}`)
	if got := c.callResult(t, mcp.Ping, `{}`); !strings.HasPrefix(got, `!{"code":-31429,"message":"Rate limit exceeded"`) {
		t.Errorf("got %s", got)
	}
}
