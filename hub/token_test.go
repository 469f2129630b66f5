package hub_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

func guarded(s *setup) { s.auth.Token = secret.Literal("right") }

// credentials are the ways to bring a token, and whether they are good.
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

// A8: every request at every door of HTTP carries the token, in a header or in params.proxy; a wrong
// one is worse than none; params.proxy never reaches a server.
func TestTokenA8(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, guarded, a)
	old := map[string]*client{}
	for _, path := range []string{"/mcp", "/mcp/a"} {
		c := newClient(t, mcp.EraLegacy, "{}")
		c.yard, c.path = y, path
		c.header.Set("Authorization", "Bearer right")
		c.initialize(t, mcp.V20251125)
		old[path] = c
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
		check := func(door string, g got) {
			t.Helper()
			all := a.got(mcp.ToolsCall)
			a.forget()
			if tt.ok {
				if g.status != 200 || len(all) != 1 || strings.Contains(all[0].raw, "proxy") {
					t.Errorf("%s at %s: got %d %s", tt.name, door, g.status, g.body)
				}
				return
			}
			if g.status != 401 || g.head.Get("WWW-Authenticate") != "Bearer" || len(all) > 0 ||
				!strings.Contains(g.body, `"error":{"code":-31401,"message":"a valid bearer token is required"`) {
				t.Errorf("%s at %s: got %d %s", tt.name, door, g.status, g.body)
			}
		}
		for path, tool := range map[string]string{"/mcp": "a::x", "/mcp/a": "x"} {
			c := y.visit(t, path, mcp.EraModern, "{}")
			c.header = head.Clone()
			check("newer "+path, c.call(t, mcp.ToolsCall, `{"name":"`+tool+`"`+member+`}`))
			c = y.as(t, path, old[path].session)
			c.header = head.Clone()
			check("older "+path, c.call(t, mcp.ToolsCall, `{"name":"`+tool+`"`+member+`}`))
		}
		g := y.do(t, http.MethodPost, path("a"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"`+member+`}}`), head)
		check("rpc", got{g.status, g.header, g.body})
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if g := y.do(t, method, "/mcp", nil, http.Header{mcp.HeaderSession: {old["/mcp"].session}, "Accept": {"text/event-stream"}}); g.status != 401 {
			t.Errorf("%s: got %d", method, g.status)
		}
	}
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	if g := c.call(t, mcp.Listen, `{"notifications":{}}`); g.status != 401 {
		t.Errorf("listen: got %d %s", g.status, g.body)
	}
}

// withToken is a gateway whose process was started with a token.
func withToken(token string) func(*setup) {
	return func(s *setup) {
		guarded(s)
		s.token = token
	}
}

// A8: on stdio too each request carries the token, initialize and ping among them, in both eras; without
// it the refusal has the code of every other door, and says where the token goes; nothing is started and nothing reaches a server.
func TestStdioWithoutTokenIsRefusedA8(t *testing.T) {
	t.Parallel()
	const refused = `!{"code":-31401,"message":"a valid token is required: in params.proxy.authToken, or in CTXGATE_TOKEN when the process is started","data":{"reason":"unauthorized","retryable":false}}`
	for _, era := range both {
		a := newFar(t, "a", mcp.EraModern, false)
		c := connectStdio(t, guarded, era, "{}", a)
		for _, tt := range []struct{ method, params string }{
			{mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + info},
			{mcp.Ping, `{"x":1`}, {mcp.Discover, `{"x":1`}, {mcp.ToolsList, `{"x":1`}, {mcp.ToolsCall, `{"name":"a::x"`}, {mcp.Listen, `{"notifications":{}`}, {"none", `{"x":1`},
		} {
			for _, member := range []string{``, `,"proxy":{}`, `,"proxy":1`, `,"proxy":{"authToken":"wrong"}`, `,"proxy":{"authToken":""}`, `,"proxy":{"authToken":1}`} {
				if got := c.ask(t, tt.method, tt.params+member+`}`); got != refused {
					t.Errorf("%s with %q: got %s", tt.method, member, got)
				}
			}
		}
		c.tell(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`) // nobody has shown the token yet
		c.ask(t, mcp.Ping, `{"x":1}`)                               // after the notification
		for _, method := range []string{mcp.Discover, mcp.Initialize, mcp.ToolsList, "notifications/odd"} {
			if n := len(a.got(method)); n != 0 {
				t.Errorf("the server got %d messages of %s", n, method)
			}
		}
	}
}

// A8: a request with the token is served in both eras, and the token goes no further. A notification
// may leave it out once a request has shown it.
func TestStdioWithTokenIsServedA8(t *testing.T) {
	t.Parallel()
	const token = `,"proxy":{"authToken":"right"}}`
	for _, era := range both {
		a := newFar(t, "a", mcp.EraLegacy, true)
		c := connectStdio(t, guarded, era, "{}", a)
		if era == mcp.EraLegacy {
			if got := c.ask(t, mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":`+info+token); got[0] == '!' {
				t.Fatalf("got %s", got)
			}
			c.tell(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
		if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"`+token); got[0] == '!' {
			t.Errorf("got %s", got)
		}
		if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.HasPrefix(got, `!{"code":-31401,`) {
			t.Errorf("the next one, without a token, got %s", got)
		}
		if era == mcp.EraLegacy {
			c.tell(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
			a.await(t, "notifications/odd", 1)
		}
		if calls := a.got(mcp.ToolsCall); len(calls) != 1 || strings.Contains(calls[0].raw, "proxy") {
			t.Errorf("the server got %v", calls)
		}
	}
}

// A8: a process that was started with the token serves its client without one; a wrong one in a
// message is refused all the same, and so is everything once a reload has changed the token.
func TestStdioStartedWithTokenA8(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		a := newFar(t, "a", mcp.EraModern, false)
		c := onStdio(t, withToken("right"), era, "{}", a)
		for member, ok := range map[string]bool{
			``: true, `,"proxy":{}`: true, `,"proxy":{"authToken":"right"}`: true, `,"proxy":{"authToken":"wrong"}`: false, `,"proxy":{"authToken":""}`: false,
		} {
			got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"`+member+`}`)
			if (got[0] != '!') != ok || !ok && !strings.HasPrefix(got, `!{"code":-31401,`) {
				t.Errorf("%s: got %s", member, got)
			}
		}
		if calls := a.got(mcp.ToolsCall); len(calls) != 3 {
			t.Errorf("%d calls", len(calls))
		}
		c.yard.apply(func(s *setup) { s.auth.Token = secret.Literal("rotated") })
		if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.HasPrefix(got, `!{"code":-31401,`) {
			t.Errorf("after the token was changed: got %s", got)
		}
		if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x","proxy":{"authToken":"rotated"}}`); got[0] == '!' {
			t.Errorf("with the new token: got %s", got)
		}
	}
}

// A9: over the limit, every door says "Rate limit exceeded", on HTTP with 429 and when to come back;
// the doors count together, notifications too.
func TestRateLimitA9(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false)
	limited := func(s *setup) {
		guarded(s)
		s.limit.PerMinute = 10
	}
	y := start(t, limited, a)
	bearer := http.Header{"Authorization": {"Bearer right"}}
	old := newClient(t, mcp.EraLegacy, "{}")
	old.yard, old.path, old.header = y, "/mcp", bearer
	old.initialize(t, mcp.V20251125) // 1, and the notification 2
	modern := y.visit(t, "/mcp", mcp.EraModern, "{}")
	one := y.visit(t, "/mcp/a", mcp.EraModern, "{}")
	modern.header, one.header = bearer, bearer.Clone()
	rpc := func() got {
		g := y.do(t, http.MethodPost, path("a"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"proxy":{"authToken":"right"}}}`), nil)
		return got{g.status, g.header, g.body}
	}
	calls := map[string]func() got{
		"older":  func() got { return old.call(t, mcp.Ping, `{}`) },
		"newer":  func() got { return modern.call(t, mcp.ToolsList, `{}`) },
		"single": func() got { return one.call(t, mcp.ToolsCall, `{"name":"x"}`) },
		"rpc":    rpc,
	}
	for name, call := range calls { // 6
		if g := call(); g.status != 200 {
			t.Errorf("%s: got %d %s", name, g.status, g.body)
		}
	}
	old.tell(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)       // 7
	old.tell(t, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`) // 8
	calls["unknown"] = func() got { return modern.call(t, "none", `{}`) }
	if g := calls["unknown"](); g.status != 404 { // 9
		t.Errorf("got %d %s", g.status, g.body)
	}
	calls["listen"] = func() got { return modern.call(t, mcp.Listen, `{"notifications":{}}`) }
	stop := modern.hear(t, `{}`) // 10
	defer stop()
	calls["initialize"] = func() got { return old.call(t, mcp.Initialize, `{}`) }
	for name, call := range calls {
		g := call()
		after, err := strconv.Atoi(g.head.Get("Retry-After"))
		if g.status != 429 || err != nil || after < 1 || after > 9 || !strings.Contains(g.body, `"error":{"code":-31429,"message":"Rate limit exceeded"`) {
			t.Errorf("%s: got %d %v %s", name, g.status, g.head, g.body)
		}
	}

	// A notification is refused as well, but for one that ends work.
	tell := func(method string) int {
		header := bearer.Clone()
		header.Set(mcp.HeaderSession, old.session)
		return y.do(t, http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","method":"`+method+`"}`), header).status
	}
	if odd, cancelled := tell("notifications/odd"), tell("notifications/cancelled"); odd != 429 || cancelled != 202 {
		t.Errorf("notifications over the limit: %d, a cancellation: %d", odd, cancelled)
	}

	c := onStdio(t, func(s *setup) { s.limit.PerMinute = 3 }, mcp.EraLegacy, "{}", a)
	c.ask(t, mcp.Ping, `{}`)
	if got := c.ask(t, mcp.Ping, `{}`); !strings.HasPrefix(got, `!{"code":-31429,"message":"Rate limit exceeded"`) {
		t.Errorf("got %s", got)
	}
}
