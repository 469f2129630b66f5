package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// builtinTools is the tools of a builtin server, in its order.
var builtinTools = []string{
	`{"name":@prune_text,"inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"x":1.0}}`,
	`{"name":@recover_text ,"inputSchema":{"type":"object"}}`,
	`{"name":@health,"inputSchema":{"type":"object"}}`,
}

// builtinList returns the tools as they are listed, by name, with a prefix before the names.
func builtinList(prefix string, order ...int) (items []string) {
	for _, i := range order {
		items = append(items, toolName.ReplaceAllString(builtinTools[i], `"`+prefix+`$1"`))
	}
	return items
}

// withBuiltin adds a builtin server. Its tools return who called them with which arguments.
func withBuiltin(s *setup) {
	s.builtins = []hub.Builtin{{
		ID: "pruner",
		Tools: func() (items [][]byte) {
			for _, item := range builtinList("", 0, 1, 2) {
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
			return nil, fmt.Errorf("wrapped: %w", &hub.RPCError{Code: -32004, Message: "prune_id_not_found", Data: []byte(`{"code":"prune_id_not_found","n":1.0}`)})
		},
	}}
}

// P1: every endpoint serves a builtin like any other server, in both protocols: under its prefix among all
// servers, whatever naming says, and under its own names at its own endpoint.
func TestBuiltinIsListed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		naming   catalog.Naming
		prefixes [2]string // of a and of the builtin
	}{
		"always":             {catalog.Naming{Separator: "::", Prefix: "always"}, [2]string{"a::", "pruner::"}},
		"auto":               {catalog.Naming{Separator: "::", Prefix: "auto"}, [2]string{"", "pruner::"}},
		"never":              {catalog.Naming{Separator: "::", Prefix: "never"}, [2]string{"", "pruner::"}},
		"never, another sep": {catalog.Naming{Separator: "_", Prefix: "never"}, [2]string{"", "pruner_"}},
	} {
		a := newFakeServer(t, "a", mcp.Legacy, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("prune_text")...))
		gw := startGateway(t, func(s *setup) {
			withBuiltin(s)
			s.hub.Naming = tt.naming
		}, a)
		theirs := `{"name":"` + tt.prefixes[0] + `prune_text","inputSchema":{"type":"object"}}`
		for _, protocol := range protocols {
			c := gw.connect(t, "/mcp", protocol, "{}")
			checkList(t, c, mcp.ToolsList, "tools", append([]string{theirs}, builtinList(tt.prefixes[1], 2, 0, 1)...))
			for _, called := range []string{tt.prefixes[1], "pruner::"} {
				if got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"`+called+`prune_text"}`)); got != "default prune_text {}" {
					t.Errorf("%s: %s: got %s", name, called, got)
				}
			}
			a.forgetMessages()
			c.callResult(t, mcp.ToolsCall, `{"name":"`+tt.prefixes[0]+`prune_text"}`)
			a.awaitMessage(t, mcp.ToolsCall, 1)
		}
	}
}

// P1, I8: a builtin gets the caller's tenant and the arguments as they came; its result is not shortened and is
// translated for the client's revision; a failure has the code and data that it names.
func TestBuiltinIsCalled(t *testing.T) {
	t.Parallel()
	long := quoted(strings.Repeat("long ", 2000))
	a := newFakeServer(t, "a", mcp.Legacy, false)
	for _, gw := range []*mcpGateway{startGateway(t, withBuiltin), startGateway(t, withBuiltin, a)} {
		for _, protocol := range protocols {
			for path, prefix := range map[string]string{"/mcp": "pruner::", "/mcp/pruner": ""} {
				c := gw.connect(t, path, protocol, "{}")
				resultType := map[mcp.Protocol]string{mcp.Modern: `,"resultType":"complete"`}[protocol]
				args := `{ "text":` + long + `,"n":1.0}`
				want := `{"content":[{"type":"text","text":` + quoted("default prune_text "+args) + `}],"structuredContent":{"long":"` + strings.Repeat("x", 9000) + `"},"n":1.0` + resultType + `}`
				if got := c.callResult(t, mcp.ToolsCall, `{"name":"`+prefix+`prune_text","arguments":`+args+`}`); got != want {
					t.Errorf("%s: got %.300s", path, got)
				}
				if got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"`+prefix+`recover_text","arguments":{"x":1}}`)); got != `default recover_text {"x":1}` {
					t.Errorf("%s: got %s", path, got)
				}
				for name, want := range map[string]string{
					"unknown": `!{"code":-32004,"message":"prune_id_not_found","data":{"code":"prune_id_not_found","n":1.0}}`,
					"fail":    `!{"code":-32603,"message":"the store is away","data":{"reason":"unavailable","retryable":true}}`,
					"break":   `!{"code":-32603,"message":"the server's answer is not a JSON-RPC reply","data":{"reason":"bad_reply","retryable":false}}`,
				} {
					if g := c.call(t, mcp.ToolsCall, `{"name":"`+prefix+name+`"}`); resultOrError(t, g.body) != want || g.status != http.StatusOK {
						t.Errorf("%s %s: got %d %s", path, name, g.status, g.body)
					}
				}
			}
		}
		if got := gw.metrics(); !strings.Contains(got, `ctxgate_server_up{server="pruner"} 1`) || !strings.Contains(got, `ctxgate_call_duration_seconds_count{outcome="unavailable",server="pruner"} 4`) {
			t.Error("it is not counted")
		}
	}
	c := connectStdio(t, withBuiltin, mcp.Modern, "{}")
	if got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"pruner::prune_text"}`)); got != "default prune_text {}" {
		t.Errorf("stdio: got %s", got)
	}
}

// P1 at the builtin's own endpoint: initialize, pings and empty lists; nothing else is there.
func TestBuiltinEndpoint(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, withBuiltin, newFakeServer(t, "a", mcp.Modern, false))
	for _, protocol := range protocols {
		c := gw.connect(t, "/mcp/pruner", protocol, "{}")
		tail := map[mcp.Protocol]string{mcp.Modern: `,"resultType":"complete","cacheScope":"private","ttlMs":3600000`}[protocol]
		if got, want := c.callResult(t, mcp.ToolsList, `{}`), `{"tools":[`+strings.Join(builtinList("", 2, 0, 1), ",")+`]`+tail+`}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		first := c.callResult(t, mcp.ToolsList, `{"limit":2}`)
		rest := c.callResult(t, mcp.ToolsList, `{"cursor":"`+nextCursor(t, first)+`"}`)
		if got := append(fieldOfItems(t, first, "tools", "name"), fieldOfItems(t, rest, "tools", "name")...); strings.Join(got, " ") != "health prune_text recover_text" {
			t.Errorf("in pages: %q", got)
		}
		for method, member := range map[string]string{mcp.PromptsList: "prompts", mcp.ResourcesList: "resources", mcp.ResourceTemplatesList: "resourceTemplates"} {
			if got, want := c.callResult(t, method, `{}`), `{"`+member+`":[]`+tail+`}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		if protocol == mcp.Legacy {
			if got := c.callResult(t, mcp.Ping, `{}`); got != `{}` {
				t.Errorf("ping: got %s", got)
			}
		} else if got := c.callResult(t, mcp.ServerDiscover, `{}`); !strings.Contains(got, `"supportedVersions":["2026-07-28",`) {
			t.Errorf("discover: got %s", got)
		}
		for method, params := range map[string]string{
			mcp.PromptsGet: `{"name":"x"}`, mcp.ResourcesRead: `{"uri":"mem://a"}`, "vendor/odd": `{}`,
			mcp.CompletionComplete: `{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}`,
		} {
			if got := c.callResult(t, method, params); got[0] != '!' {
				t.Errorf("%s: got %s", method, got)
			}
		}
		c.notify(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	}
	c := gw.connect(t, "/mcp/pruner", mcp.Legacy, "{}")
	if got := c.callResult(t, mcp.ResourcesSubscribe, `{"uri":"mem://a"}`); got[0] != '!' {
		t.Errorf("subscribe: got %s", got)
	}
	all := gw.connect(t, "/mcp", mcp.Modern, "{}")
	for method, params := range map[string]string{mcp.PromptsGet: `{"name":"pruner::x"}`, mcp.ResourcesRead: `{"uri":"` + shownURI("pruner", "mem://a") + `"}`} {
		if got := all.callResult(t, method, params); got[0] != '!' {
			t.Errorf("%s: got %s", method, got)
		}
	}
}

// P1 at the gateway for single messages: the methods of the document, without any server behind it.
func TestBuiltinAtRPCGateway(t *testing.T) {
	t.Parallel()
	g := startRPCGateway(t, "", withBuiltin)
	for method, want := range map[string]string{
		`"initialize","params":{"protocolVersion":"2025-06-18"}`: `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"pruner","version":"test"}}`,
		`"ping"`:                     `"result":{}`,
		`"tools/list"`:               `"result":{"tools":[` + strings.Join(builtinList("", 0, 1, 2), ",") + `]}`,
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

// A8, A9, I8: authentication and rate limits hold for a builtin, too.
func TestBuiltinIsGuarded(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, func(s *setup) {
		withBuiltin(s)
		requireToken(s)
		s.limit.PerMinute = 3
	})
	if got := gw.post(t, "pruner", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != http.StatusUnauthorized {
		t.Errorf("got %d %s", got.status, got.body)
	}
	message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"prune_text","proxy":{"authToken":"right"}}}`
	last := 0
	for range 4 {
		last = gw.post(t, "pruner", message).status
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the fourth: got %d", last)
	}
}

// A configured server of the same id replaces a builtin, until it is removed.
func TestConfiguredServerReplacesBuiltin(t *testing.T) {
	t.Parallel()
	p := newFakeServer(t, "pruner", mcp.Legacy, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("theirs")...))
	gw := startGateway(t, withBuiltin)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	own := "pruner::health pruner::prune_text pruner::recover_text"
	if got := strings.Join(c.tools(t), " "); got != own {
		t.Errorf("got %s", got)
	}
	gw.reload(func(s *setup) { s.upstream.Servers = append([]upstream.ServerConfig{}, p.config()) })
	wait.For(t, "the configured server", func() bool { return strings.Join(c.tools(t), " ") == "pruner::theirs" })
	c.callResult(t, mcp.ToolsCall, `{"name":"pruner::theirs"}`)
	p.awaitMessage(t, mcp.ToolsCall, 1)
	found, clashes := gw.probe(t)
	if len(found) != 1 || found[0].Err != nil || !strings.HasPrefix(found[0].Summary, "MCP ") || len(clashes) > 0 {
		t.Errorf("got %+v, %q", found, clashes)
	}
	gw.reload(func(s *setup) { s.removeServer("pruner") })
	if got := strings.Join(c.tools(t), " "); got != own {
		t.Errorf("got %s", got)
	}
	if got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"pruner::prune_text"}`)); got != "default prune_text {}" {
		t.Errorf("got %s", got)
	}
	found, clashes = gw.probe(t)
	if len(found) != 1 || found[0].Err != nil || found[0].Summary != "built in, 3 tools" || len(clashes) > 0 {
		t.Errorf("got %+v, %q", found, clashes)
	}
}
