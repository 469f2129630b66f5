package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// ownItems are the tools of a server that is part of the gateway, in its order.
var ownItems = []string{
	`{"name":@prune_text,"inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"x":1.0}}`,
	`{"name":@recover_text ,"inputSchema":{"type":"object"}}`,
	`{"name":@health,"inputSchema":{"type":"object"}}`,
}

// ownList is what is listed of it, by name, with a prefix before the names.
func ownList(prefix string, order ...int) (items []string) {
	for _, i := range order {
		items = append(items, toolName.ReplaceAllString(ownItems[i], `"`+prefix+`$1"`))
	}
	return items
}

// withOwn makes a server part of the gateway. Its tools say who calls what with which arguments.
func withOwn(s *setup) {
	s.own = []hub.Own{{
		ID: "pruner",
		Tools: func() (items [][]byte) {
			for _, item := range ownList("", 0, 1, 2) {
				items = append(items, []byte(item))
			}
			return items
		},
		Call: func(_ context.Context, tenant, name string, args []byte) ([]byte, error) {
			switch name {
			case "prune_text", "recover_text":
				text := quoted(fmt.Sprintf("%s %s %s", tenant, name, args))
				return []byte(`{"content":[{"type":"text","text":` + text + `}],"structuredContent":{"long":` + quoted(strings.Repeat("x", 9000)) + `},"n":1.0}`), nil
			case "health":
				return []byte(`{"content":[],"structuredContent":{"status":"healthy"}}`), nil
			case "fail":
				return nil, fault.New(fault.Unavailable, "the store is away")
			case "break":
				return []byte(`{"content":`), nil
			}
			return nil, fmt.Errorf("wrapped: %w", &hub.Failure{Code: -32004, Message: "prune_id_not_found", Data: []byte(`{"code":"prune_id_not_found","n":1.0}`)})
		},
	}}
}

// P1: a server that is part of the gateway is at every door like any other, in both eras: under its
// prefix among all, whatever naming says, and under its own names at its own.
func TestOwnIsListed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		naming   hub.Naming
		prefixes [2]string // of a's and of our own
	}{
		"always":             {hub.Naming{Separator: "::", Prefix: "always"}, [2]string{"a::", "pruner::"}},
		"auto":               {hub.Naming{Separator: "::", Prefix: "auto"}, [2]string{"", "pruner::"}},
		"never":              {hub.Naming{Separator: "::", Prefix: "never"}, [2]string{"", "pruner::"}},
		"never, another sep": {hub.Naming{Separator: "_", Prefix: "never"}, [2]string{"", "pruner_"}},
	} {
		a := newFar(t, "a", mcp.EraLegacy, false).on(mcp.ToolsList, page("tools", named("prune_text")...))
		y := start(t, func(s *setup) {
			withOwn(s)
			s.hub.Naming = tt.naming
		}, a)
		theirs := `{"name":"` + tt.prefixes[0] + `prune_text","inputSchema":{"type":"object"}}`
		for _, era := range both {
			c := y.visit(t, "/mcp", era, "{}")
			checkList(t, c, mcp.ToolsList, "tools", append([]string{theirs}, ownList(tt.prefixes[1], 2, 0, 1)...))
			for _, called := range []string{tt.prefixes[1], "pruner::"} {
				if got := said(t, c.ask(t, mcp.ToolsCall, `{"name":"`+called+`prune_text"}`)); got != "default prune_text {}" {
					t.Errorf("%s: %s: got %s", name, called, got)
				}
			}
			a.forget()
			c.ask(t, mcp.ToolsCall, `{"name":"`+tt.prefixes[0]+`prune_text"}`)
			a.await(t, mcp.ToolsCall, 1)
		}
	}
}

// P1, I8: calls go there with the caller's tenant and the arguments as they came; what comes back is
// not cut, and dressed for the client's era; a failure has the code and data that it says.
func TestOwnIsCalled(t *testing.T) {
	t.Parallel()
	long := quoted(strings.Repeat("long ", 2000))
	a := newFar(t, "a", mcp.EraLegacy, false)
	for _, y := range []*yard{start(t, withOwn), start(t, withOwn, a)} {
		for _, era := range both {
			for path, prefix := range map[string]string{"/mcp": "pruner::", "/mcp/pruner": ""} {
				c := y.visit(t, path, era, "{}")
				dress := map[mcp.Era]string{mcp.EraModern: `,"resultType":"complete"`}[era]
				args := `{ "text":` + long + `,"n":1.0}`
				want := `{"content":[{"type":"text","text":` + quoted("default prune_text "+args) + `}],"structuredContent":{"long":"` + strings.Repeat("x", 9000) + `"},"n":1.0` + dress + `}`
				if got := c.ask(t, mcp.ToolsCall, `{"name":"`+prefix+`prune_text","arguments":`+args+`}`); got != want {
					t.Errorf("%s: got %.300s", path, got)
				}
				if got := said(t, c.ask(t, mcp.ToolsCall, `{"name":"`+prefix+`recover_text","arguments":{"x":1}}`)); got != `default recover_text {"x":1}` {
					t.Errorf("%s: got %s", path, got)
				}
				for name, want := range map[string]string{
					"unknown": `!{"code":-32004,"message":"prune_id_not_found","data":{"code":"prune_id_not_found","n":1.0}}`,
					"fail":    `!{"code":-32603,"message":"the store is away","data":{"reason":"unavailable","retryable":true}}`,
					"break":   `!{"code":-32603,"message":"the server's answer is not a JSON-RPC reply","data":{"reason":"bad_reply","retryable":false}}`,
				} {
					if g := c.call(t, mcp.ToolsCall, `{"name":"`+prefix+name+`"}`); outcome(t, g.body) != want || g.status != http.StatusOK {
						t.Errorf("%s %s: got %d %s", path, name, g.status, g.body)
					}
				}
			}
		}
		if got := y.metrics(); !strings.Contains(got, `ctxgate_server_up{server="pruner"} 1`) || !strings.Contains(got, `ctxgate_call_duration_seconds_count{outcome="unavailable",server="pruner"} 4`) {
			t.Error("it is not counted")
		}
	}
	c := onStdio(t, withOwn, mcp.EraModern, "{}")
	if got := said(t, c.ask(t, mcp.ToolsCall, `{"name":"pruner::prune_text"}`)); got != "default prune_text {}" {
		t.Errorf("stdio: got %s", got)
	}
}

// P1 at the door of the one server: greetings, pings and empty lists; nothing else is there.
func TestOwnDoor(t *testing.T) {
	t.Parallel()
	y := start(t, withOwn, newFar(t, "a", mcp.EraModern, false))
	for _, era := range both {
		c := y.visit(t, "/mcp/pruner", era, "{}")
		tail := map[mcp.Era]string{mcp.EraModern: `,"resultType":"complete","cacheScope":"private","ttlMs":3600000`}[era]
		if got, want := c.ask(t, mcp.ToolsList, `{}`), `{"tools":[`+strings.Join(ownList("", 2, 0, 1), ",")+`]`+tail+`}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		first := c.ask(t, mcp.ToolsList, `{"limit":2}`)
		rest := c.ask(t, mcp.ToolsList, `{"cursor":"`+nextCursor(t, first)+`"}`)
		if got := append(field(t, first, "tools", "name"), field(t, rest, "tools", "name")...); strings.Join(got, " ") != "health prune_text recover_text" {
			t.Errorf("in pages: %q", got)
		}
		for method, member := range map[string]string{mcp.PromptsList: "prompts", mcp.ResourcesList: "resources", mcp.TemplatesList: "resourceTemplates"} {
			if got, want := c.ask(t, method, `{}`), `{"`+member+`":[]`+tail+`}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		if era == mcp.EraLegacy {
			if got := c.ask(t, mcp.Ping, `{}`); got != `{}` {
				t.Errorf("ping: got %s", got)
			}
		} else if got := c.ask(t, mcp.Discover, `{}`); !strings.Contains(got, `"supportedVersions":["2026-07-28",`) {
			t.Errorf("discover: got %s", got)
		}
		for method, params := range map[string]string{
			mcp.PromptsGet: `{"name":"x"}`, mcp.ResourcesRead: `{"uri":"mem://a"}`, "vendor/odd": `{}`,
			mcp.Complete: `{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}`,
		} {
			if got := c.ask(t, method, params); got[0] != '!' {
				t.Errorf("%s: got %s", method, got)
			}
		}
		c.tell(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	}
	c := y.visit(t, "/mcp/pruner", mcp.EraLegacy, "{}")
	if got := c.ask(t, mcp.Subscribe, `{"uri":"mem://a"}`); got[0] != '!' {
		t.Errorf("subscribe: got %s", got)
	}
	all := y.visit(t, "/mcp", mcp.EraModern, "{}")
	for method, params := range map[string]string{mcp.PromptsGet: `{"name":"pruner::x"}`, mcp.ResourcesRead: `{"uri":"` + shownURI("pruner", "mem://a") + `"}`} {
		if got := all.ask(t, method, params); got[0] != '!' {
			t.Errorf("%s: got %s", method, got)
		}
	}
}

// P1 at the gateway of one message: the methods of the document, without any server behind it.
func TestOwnAtTheGatewayOfOneMessage(t *testing.T) {
	t.Parallel()
	g := open(t, "", withOwn)
	for method, want := range map[string]string{
		`"initialize","params":{"protocolVersion":"2025-06-18"}`: `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"pruner","version":"test"}}`,
		`"ping"`:                     `"result":{}`,
		`"tools/list"`:               `"result":{"tools":[` + strings.Join(ownList("", 0, 1, 2), ",") + `]}`,
		`"resources/list"`:           `"result":{"resources":[]}`,
		`"resources/templates/list"`: `"result":{"resourceTemplates":[]}`,
		`"prompts/list"`:             `"result":{"prompts":[]}`,
		`"health"`:                   `"result":{"status":"healthy"}`,
		`"tools/call","params":{"name":"health"}`:                           `"result":{"content":[],"structuredContent":{"status":"healthy"}}`,
		`"tools/call","params":{"name":"recover_text","arguments":{"a":1}}`: `"result":{"content":[{"type":"text","text":"default recover_text {\"a\":1}"}],"structuredContent":{"long":"` + strings.Repeat("x", 9000) + `"},"n":1.0}`,
		`"tools/call","params":{"name":"unknown"}`:                          `"error":{"code":-32004,"message":"prune_id_not_found","data":{"code":"prune_id_not_found","n":1.0}}`,
		`"tools/call"`:                          `"error":{"code":-32602,"message":"params.name is missing"}`,
		`"resources/read","params":{"uri":"x"}`: `"error":{"code":-32601,"message":"Method not found"}`,
	} {
		got := g.post(t, "pruner", `{"jsonrpc":"2.0","id":"\u0061","method":`+method+`}`)
		if want := `{"jsonrpc":"2.0","id":"\u0061",` + want + `}`; got.status != http.StatusOK || got.body != want {
			t.Errorf("%s: got %d %.300s\nwant %.300s", method, got.status, got.body, want)
		}
	}
	if got := g.post(t, "pruner", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != http.StatusAccepted || got.body != "" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := g.post(t, "pruner", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fail"}}`); got.status != http.StatusBadGateway || !strings.Contains(got.body, `"code":-32002`) {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// A8, A9, I8: who may not call, or calls too often, may not call it either.
func TestOwnIsGuarded(t *testing.T) {
	t.Parallel()
	y := start(t, func(s *setup) {
		withOwn(s)
		guarded(s)
		s.limit.PerMinute = 3
	})
	if got := y.post(t, "pruner", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != http.StatusUnauthorized {
		t.Errorf("got %d %s", got.status, got.body)
	}
	message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"prune_text","proxy":{"authToken":"right"}}}`
	last := 0
	for range 4 {
		last = y.post(t, "pruner", message).status
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the fourth: got %d", last)
	}
}

// A configured server of the same id takes its place, and gives it back.
func TestOwnGivesWay(t *testing.T) {
	t.Parallel()
	p := newFar(t, "pruner", mcp.EraLegacy, false).on(mcp.ToolsList, page("tools", named("theirs")...))
	y := start(t, withOwn)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	own := "pruner::health pruner::prune_text pruner::recover_text"
	if got := strings.Join(c.tools(t), " "); got != own {
		t.Errorf("got %s", got)
	}
	y.apply(func(s *setup) { s.upstream.Servers = append([]upstream.Server{}, p.entry()) })
	eventually(t, "the configured server", func() bool { return strings.Join(c.tools(t), " ") == "pruner::theirs" })
	c.ask(t, mcp.ToolsCall, `{"name":"pruner::theirs"}`)
	p.await(t, mcp.ToolsCall, 1)
	found, clashes := y.door.Survey(t.Context())
	if len(found) != 1 || found[0].Problem != nil || !strings.HasPrefix(found[0].Line, "MCP ") || len(clashes) > 0 {
		t.Errorf("got %+v, %q", found, clashes)
	}
	y.apply(func(s *setup) { s.remove("pruner") })
	if got := strings.Join(c.tools(t), " "); got != own {
		t.Errorf("got %s", got)
	}
	if got := said(t, c.ask(t, mcp.ToolsCall, `{"name":"pruner::prune_text"}`)); got != "default prune_text {}" {
		t.Errorf("got %s", got)
	}
	found, clashes = y.door.Survey(t.Context())
	if len(found) != 1 || found[0].Problem != nil || found[0].Line != "built in, 3 tools" || len(clashes) > 0 {
		t.Errorf("got %+v, %q", found, clashes)
	}
}
