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

// A8: who starts the gateway on stdio needs no token, and a wrong one is refused all the same.
func TestTokenOnStdioA8(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false)
	for _, era := range both {
		c := onStdio(t, guarded, era, "{}", a)
		for member, ok := range map[string]bool{
			``: true, `,"proxy":{}`: true, `,"proxy":{"authToken":"right"}`: true, `,"proxy":{"authToken":"wrong"}`: false, `,"proxy":{"authToken":""}`: false,
		} {
			got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"`+member+`}`)
			if (got[0] != '!') != ok || !ok && !strings.HasPrefix(got, `!{"code":-31401,`) {
				t.Errorf("%s: got %s", member, got)
			}
		}
		for _, seen := range a.got(mcp.ToolsCall) {
			if strings.Contains(seen.raw, "proxy") {
				t.Errorf("the server got %s", seen.raw)
			}
		}
		if len(a.got(mcp.ToolsCall)) != 3 {
			t.Errorf("%d calls", len(a.got(mcp.ToolsCall)))
		}
		a.forget()
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
