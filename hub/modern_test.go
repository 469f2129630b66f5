package hub_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// post sends a body with just these headers.
func (y *yard) modernPost(t testing.TB, path string, head map[string]string, body string) answer {
	t.Helper()
	h := http.Header{"Accept": {"application/json, text/event-stream"}}
	for k, v := range head {
		h.Set(k, v)
	}
	return y.do(t, http.MethodPost, path, strings.NewReader(body), h)
}

// A13 (2026-07-28, Request Metadata): a request whose headers and body do not agree, or that does not
// say what it must, is refused with 400 before any server hears of it.
func TestModernRefusals(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...))
	y := start(t, nil, a)
	meta := `"` + mcp.KeyVersion + `":"2026-07-28","` + mcp.KeyCapabilities + `":{}`
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
		"no revision in _meta":   {from: `"` + mcp.KeyVersion + `":"2026-07-28",`, want: `{"code":-32602,`},
		"no _meta":               {from: `,"_meta":{` + meta + `}`, want: `{"code":-32602,`},
		"no capabilities":        {from: `,"` + mcp.KeyCapabilities + `":{}`, want: `{"code":-32602,`},
		"capabilities no object": {from: `Capabilities":{}`, to: `Capabilities":[]`, want: `{"code":-32602,`},
		"level that is none":     {from: `,"` + mcp.KeyCapabilities, to: `,"` + mcp.KeyLogLevel + `":"loud","` + mcp.KeyCapabilities, want: `{"code":-32602,`},
		"unknown revision": {change: []string{mcp.HeaderVersion, "2027-01-01"}, from: `"2026-07-28"`, to: `"2027-01-01"`,
			want: `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}`},
		"unknown revision in the header alone": {change: []string{mcp.HeaderVersion, "2027-01-01"}, from: `"` + mcp.KeyVersion + `":"2026-07-28",`, want: `{"code":-32022,`},
		"older revision":                       {change: []string{mcp.HeaderVersion, "2025-11-25"}, from: `"2026-07-28"`, to: `"2025-11-25"`, want: `{"code":-32022,`},
		"revision no string":                   {from: `"2026-07-28"`, to: `20260728`, want: `{"code":-32020,`},
	} {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			a.forget()
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
			g := y.modernPost(t, path, head, strings.Replace(call, tt.from, tt.to, 1))
			if tt.want == "" {
				if g.status != 200 || len(a.got(mcp.ToolsCall)) != 1 {
					t.Errorf("%s: got %d %s", name, g.status, g.body)
				}
				continue
			}
			if g.status != 400 || !strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":"i","error":`+tt.want) || len(a.got(mcp.ToolsCall)) > 0 {
				t.Errorf("%s at %s: got %d %s", name, path, g.status, g.body)
			}
		}
	}
	twice := http.Header{mcp.HeaderVersion: {"2026-07-28"}, mcp.HeaderMethod: {"tools/call"}, mcp.HeaderName: {"a::x", "a::x"}}
	if g := y.do(t, http.MethodPost, "/mcp", strings.NewReader(call), twice); g.status != 400 || !strings.Contains(g.body, "-32020") {
		t.Errorf("a header twice: got %d %s", g.status, g.body)
	}
}

// A13: what the newer era has removed is not there, at any door.
func TestModernRemovedMethods(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, nil, a)
	methods := []string{mcp.Initialize, mcp.Ping, mcp.Subscribe, mcp.Unsubscribe, mcp.SetLevel}
	stdio := onStdio(t, nil, mcp.EraModern, "{}", a)
	for _, c := range []*client{y.visit(t, "/mcp", mcp.EraModern, "{}"), y.visit(t, "/mcp/a", mcp.EraModern, "{}"), stdio} {
		for _, m := range methods {
			if c == stdio && m == mcp.Initialize {
				continue // there it begins the older era
			}
			g := c.call(t, m, `{"uri":"mem://1","level":"info"}`)
			if c.in == nil && g.status != 404 || outcome(t, g.body) != `!{"code":-32601,"message":"Method not found","data":{"reason":"no_method","retryable":false}}` {
				t.Errorf("%s: got %d %s", m, g.status, g.body)
			}
		}
	}
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	for _, m := range []string{"tools/none", mcp.RootsList, mcp.Initialized, "x"} {
		if g := c.call(t, m, `{}`); g.status != 404 || !strings.Contains(g.body, "-32601") {
			t.Errorf("%s: got %d %s", m, g.status, g.body)
		}
	}
	// What the gateway does not know goes to the server of the door, in the server's own words.
	a.on("vendor/odd", says(`{"ok":1.0}`))
	one := y.visit(t, "/mcp/a", mcp.EraModern, "{}")
	if got := one.ask(t, "vendor/odd", `{"x":1.0}`); got != `{"ok":1.0,"resultType":"complete"}` {
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
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", `{"name":"x","inputSchema":`+schema+`}`))
	y := start(t, nil, a)
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
		"null, and said":   {`{"region":null,"n":7}`, "null", "7", false},
		"another number":   {`{"region":"eu","n":7}`, "eu", "8", false},
		"no arguments":     {`"none"`, "eu", "-", false},
	} {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			c := y.visit(t, path, mcp.EraModern, "{}")
			c.tools(t)
			a.forget()
			for key, value := range map[string]string{"Mcp-Param-Region": tt.region, "Mcp-Param-N": tt.n} {
				if value != "-" {
					c.header.Set(key, value)
				}
			}
			tool := map[string]string{"/mcp": "a::x", "/mcp/a": "x"}[path]
			g := c.call(t, mcp.ToolsCall, `{"name":"`+tool+`","arguments":`+tt.arguments+`}`)
			all := a.got(mcp.ToolsCall)
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
			if got := all[0].head.Get("Mcp-Param-Region"); tt.region != "-" && got != tt.region || tt.region == "-" && got != "" {
				t.Errorf("%s: the server got %q", name, got)
			}
			if all[0].head.Get(mcp.HeaderName) != "x" || all[0].head.Get(mcp.HeaderMethod) != mcp.ToolsCall {
				t.Errorf("%s: the server got %v", name, all[0].head)
			}
		}
	}
}

// A13 (Subscriptions): a stream begins with what it will tell of, and tells of that alone; the id is
// the request's, whatever its kind.
func TestListen(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...)).on(mcp.ResourcesList, page("resources", located("mem://1")...))
	b := newFar(t, "b", mcp.EraLegacy, true).on(mcp.Subscribe, func(c *turn) string {
		if strings.Contains(string(c.Params), "never") {
			return `!{"code":-32602,"message":"no"}`
		}
		return `{}`
	})
	y := start(t, nil, a, b)
	c, stdio := y.visit(t, "/mcp", mcp.EraModern, "{}"), onStdio(t, nil, mcp.EraModern, "{}", a, b)
	for _, one := range []*client{c, stdio} {
		one.ask(t, mcp.ToolsList, `{}`)
		for _, id := range []string{`"s\u0074r"`, `7`, `-1.50`} {
			msg := `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true,"toolsListChanged":false,"odd":true,"resourceSubscriptions":["` +
				shownURI("a", "mem://1") + `","` + shownURI("b", "never") + `","unknown"]},"_meta":{` + one.meta() + `}}}`
			one.send(t, id, msg)
			sub := `"_meta":{"` + mcp.KeySubscription + `":` + id + `}`
			want := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + sub +
				`,"notifications":{"promptsListChanged":true,"resourceSubscriptions":["` + shownURI("a", "mem://1") + `"]}}}`
			if n := one.next(t); n.text != want {
				t.Errorf("got %s\nwant %s", n.text, want)
			}
		}
	}
	a.on(mcp.ToolsList, page("tools", named("x", "y")...)).on(mcp.PromptsList, page("prompts", named("p")...))
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"x":1@sub}}`)
	for _, one := range []*client{c, stdio} {
		var got []string
		for range 3 {
			got = append(got, one.next(t).text)
		}
		slices.Sort(got)
		for i, id := range []string{`"s\u0074r"`, `-1.50`, `7`} {
			if want := `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"` + mcp.KeySubscription + `":` + id + `}}}`; got[i] != want {
				t.Errorf("got %s\nwant %s", got[i], want)
			}
		}
		one.quiet(t, 100*time.Millisecond)
	}
	for params, want := range map[string]string{
		`{}`: "-32602", `{"notifications":[]}`: "-32602", `{"notifications":{"resourceSubscriptions":["x",1]}}`: "-32602",
	} {
		if got := c.ask(t, mcp.Listen, params); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", params, got)
		}
	}
}

// A13 (Subscriptions, Graceful Closure): the gateway answers the request that opened a stream when it
// ends it; a client that closes it has cancelled it.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	stop := c.hear(t, `{"resourceSubscriptions":["`+shownURI("a", "mem://1")+`"]}`)
	a.await(t, mcp.Subscribe, 1)
	stop()
	a.await(t, mcp.Unsubscribe, 1)

	id, end := c.begin(t, mcp.Listen, `{"notifications":{"toolsListChanged":true}}`)
	c.next(t)
	y.door.End()
	want := `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"` + mcp.KeySubscription + `":` + id + `}}}`
	if g := wait(t, end, "the farewell"); g.body != want {
		t.Errorf("got %s\nwant %s", g.body, want)
	}
}

// A client that takes no stream cannot listen, and leaves nothing behind.
func TestListenWithoutStream(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraModern, "{}")
	c.header.Set("Accept", "application/json")
	if got := c.ask(t, mcp.Listen, `{"notifications":{"resourceSubscriptions":["`+shownURI("a", "mem://1")+`"]}}`); got[0] != '!' {
		t.Errorf("got %s", got)
	}
	a.await(t, mcp.Unsubscribe, 1)
}
