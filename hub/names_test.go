package hub_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// fieldOfItems returns one member of each item of a list.
func fieldOfItems(t testing.TB, result, list, key string) []string {
	t.Helper()
	var members map[string]json.RawMessage
	var items []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(result), &members); err != nil {
		t.Fatalf("%v in %s", err, result)
	}
	if err := json.Unmarshal(members[list], &items); err != nil {
		t.Fatalf("%v in %s", err, result)
	}
	var out []string
	for _, item := range items {
		var s string
		_ = json.Unmarshal(item[key], &s)
		out = append(out, s)
	}
	return out
}

// tools returns the names of the tools without recover_text, which must be there once and last.
func (c *client) tools(t testing.TB) []string {
	t.Helper()
	all := fieldOfItems(t, c.callResult(t, mcp.ToolsList, `{}`), "tools", "name")
	if len(all) == 0 || slices.Index(all, "recover_text") != len(all)-1 {
		t.Fatalf("recover_text is not there once and last: %q", all)
	}
	return all[:len(all)-1]
}

// receivedBy returns which server got a request last, and the name in it.
func receivedBy(t testing.TB, method string, servers ...*fakeServer) (server, named string) {
	t.Helper()
	for _, f := range servers {
		if all := f.messagesOf(method); len(all) > 0 {
			var p struct {
				Name, URI string
				Ref       struct{ Name, URI string }
			}
			_ = json.Unmarshal(all[len(all)-1].Params, &p)
			server += f.id
			named += p.Name + p.URI + p.Ref.Name + p.Ref.URI
		}
		f.forgetMessages()
	}
	return server, named
}

// A3: names carry their server's id as configured; of two equal names the first is listed and the other logged; a
// call reaches the server that its name means, with the separator of either profile, too.
func TestNamesA3(t *testing.T) {
	t.Parallel()
	type calls map[string]string // name → server and its own name; "" for none
	for name, tt := range map[string]struct {
		naming  catalog.Naming
		ids     [2]string
		first   string // the first server's own prefix
		tools   [2]string
		want    string
		clashes int
		calls   calls
	}{
		"default": {
			naming: catalog.Naming{Separator: "::", Prefix: "always"}, tools: [2]string{"y x", "x z"}, want: "a::x a::y b::x b::z",
			calls: calls{"a::x": "a x", "b::x": "b x", "b::hidden": "b hidden", "x": "", "c::x": "", "a:x": "", "a": "", "a::b::x": "a b::x", "a__x": "a x", "b__hidden": "b hidden", "c__x": ""},
		},
		"separator": {
			naming: catalog.Naming{Separator: "__", Prefix: "always"}, tools: [2]string{"x", "x"}, want: "a__x b__x",
			calls: calls{"a__x": "a x", "b::x": "b x", "a__hidden": "a hidden", "a_x": ""},
		},
		"never": {
			naming: catalog.Naming{Separator: "::", Prefix: "never"}, tools: [2]string{"x y", "x z"}, want: "x y z", clashes: 1,
			calls: calls{"x": "a x", "z": "b z", "b::x": "b x", "hidden": ""},
		},
		"auto": {
			naming: catalog.Naming{Separator: "::", Prefix: "auto"}, tools: [2]string{"x y", "x z"}, want: "a::x y b::x z",
			calls: calls{"y": "a y", "z": "b z", "a::x": "a x", "b::x": "b x", "a::y": "a y", "x": ""},
		},
		"one never": {
			naming: catalog.Naming{Separator: ".", Prefix: "always"}, first: "never", tools: [2]string{"x", "x"}, want: "x b.x",
			calls: calls{"x": "a x", "b.x": "b x", "a::x": "a x"},
		},
		"one always": {
			naming: catalog.Naming{Separator: "::", Prefix: "never"}, first: "always", tools: [2]string{"x", "x"}, want: "a::x x",
			calls: calls{"x": "b x", "a::x": "a x"},
		},
		"a raw name that looks prefixed": {
			naming: catalog.Naming{Separator: "::", Prefix: "never"}, first: "always", tools: [2]string{"x", "a::x"}, want: "a::x", clashes: 1,
			calls: calls{"a::x": "a x"},
		},
		"ids with the separator": {
			naming: catalog.Naming{Separator: "_", Prefix: "always"}, ids: [2]string{"a", "a_b"}, tools: [2]string{"b_c d", "c e"},
			want: "a_b_c a_d a_b_e", clashes: 1,
			calls: calls{"a_b_c": "a b_c", "a_b::c": "a_b c", "a_b_e": "a_b e", "a::b_c": "a b_c", "a_b_hidden": "a_b hidden"},
		},
		"the gateway's own name, always": {
			naming: catalog.Naming{Separator: "::", Prefix: "always"}, tools: [2]string{"recover_text", "x"}, want: "a::recover_text b::x",
			calls: calls{"a::recover_text": "a recover_text"},
		},
		"the gateway's own name, auto": {
			naming: catalog.Naming{Separator: "::", Prefix: "auto"}, tools: [2]string{"recover_text", "x"}, want: "a::recover_text x",
			calls: calls{"a::recover_text": "a recover_text"},
		},
		"the gateway's own name, never": {
			naming: catalog.Naming{Separator: "::", Prefix: "never"}, tools: [2]string{"recover_text", "x"}, want: "x", clashes: 1,
			calls: calls{"a::recover_text": "a recover_text"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.ids[0] == "" {
				tt.ids = [2]string{"a", "b"}
			}
			var servers []*fakeServer
			for i, id := range tt.ids {
				servers = append(servers, newFakeServer(t, id, mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed(strings.Fields(tt.tools[i])...)...)))
			}
			gw := startGateway(t, func(s *setup) {
				s.hub.Naming = tt.naming
				s.upstream.Servers[0].Prefix = tt.first
			}, servers...)
			c := gw.connect(t, "/mcp", mcp.Modern, "{}")
			if got := strings.Join(c.tools(t), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if _, clashes := gw.probe(t); len(clashes) != tt.clashes {
				t.Errorf("clashes: %q", clashes)
			}
			for sent, want := range tt.calls {
				got := c.callResult(t, mcp.ToolsCall, `{"name":"`+sent+`"}`)
				server, own := receivedBy(t, mcp.ToolsCall, servers...)
				if strings.TrimSpace(server+" "+own) != want || (got[0] == '!') != (want == "") {
					t.Errorf("%s: %s, %s got %s: %s", sent, want, server, own, got)
				}
				if want == "" && !strings.Contains(got, `"code":-32602`) {
					t.Errorf("%s: got %s", sent, got)
				}
			}
		})
	}
}

// A3: a resource is read by the name that clients see, in either alphabet of base64, padded or not, and the result
// names it as the request did.
func TestResourceNamesA3(t *testing.T) {
	t.Parallel()
	const uri = `mem://a?~~~>>>ü/b`
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ResourcesList, listResult("resources", resourcesAt(uri)...)).
		handle(mcp.ResourcesRead, respond(`{"contents":[{"uri":"`+uri+`","text":"x"}]}`))
	b := newFakeServer(t, "b", mcp.Legacy, false)
	gw := startGateway(t, nil, a, b)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	if got := fieldOfItems(t, c.callResult(t, mcp.ResourcesList, `{}`), "resources", "uri"); len(got) != 1 || got[0] != shownURI("a", uri) {
		t.Errorf("got %q", got)
	}
	plain := []byte(`{"server":"a","uri":"` + uri + `"}`)
	for _, enc := range []*base64.Encoding{base64.RawURLEncoding, base64.URLEncoding, base64.StdEncoding, base64.RawStdEncoding} {
		shown := "proxy://resource/" + enc.EncodeToString(plain)
		got := c.callResult(t, mcp.ResourcesRead, `{"uri":"`+shown+`"}`)
		if server, own := receivedBy(t, mcp.ResourcesRead, a, b); server != "a" || own != uri {
			t.Errorf("%s: %s got %s", shown, server, own)
		}
		if !strings.Contains(got, `"uri":"`+shown+`"`) {
			t.Errorf("%s: got %s", shown, got)
		}
	}
	for _, bad := range []string{
		"proxy://resource/", "proxy://resource/e30", "proxy://resource/%", shownURI("c", uri), shownURI("a", ""), "proxy://template/c/x", uri, "x",
	} {
		got := c.callResult(t, mcp.ResourcesRead, `{"uri":"`+bad+`"}`)
		if server, _ := receivedBy(t, mcp.ResourcesRead, a, b); server != "" || got != `!{"code":-32602,"message":"Resource not found","data":{"uri":"`+bad+`"}}` {
			t.Errorf("%s: %q got it: %s", bad, server, got)
		}
	}
	old := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	if got := old.callResult(t, mcp.ResourcesRead, `{"uri":"x"}`); got != `!{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}` {
		t.Errorf("got %s", got)
	}
}

// A3: a template is read as the client filled it in; completion finds the server of a template, a resource and a
// prompt.
func TestTemplateNamesA3(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false)
	b := newFakeServer(t, "b", mcp.Legacy, false)
	for _, f := range []*fakeServer{a, b} {
		f.handle(mcp.ResourceTemplatesList, listResult("resourceTemplates", `{"uriTemplate":"mem://{+p}/{q}","name":"t"}`)).
			handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://1")...)).
			handle(mcp.PromptsList, listResult("prompts", `{"name":"p"}`)).
			handle(mcp.CompletionComplete, respond(`{"completion":{"values":[]}}`))
	}
	c := startGateway(t, nil, a, b).connect(t, "/mcp", mcp.Legacy, "{}")
	want := []string{"proxy://template/a/mem://{+p}/{q}", "proxy://template/b/mem://{+p}/{q}"}
	if got := fieldOfItems(t, c.callResult(t, mcp.ResourceTemplatesList, `{}`), "resourceTemplates", "uriTemplate"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, tt := range []struct{ method, params, server, own string }{
		{mcp.ResourcesRead, `{"uri":"proxy://template/b/mem://x%2Fy/z?é"}`, "b", "mem://x%2Fy/z?é"},
		{mcp.ResourcesRead, `{"uri":"proxy://template/a/proxy://resource/x"}`, "a", "proxy://resource/x"},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/resource","uri":"proxy://template/b/mem://{+p}/{q}"},"argument":{"name":"p","value":""}}`, "b", "mem://{+p}/{q}"},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/resource","uri":"` + shownURI("a", "mem://1") + `"},"argument":{"name":"p","value":""}}`, "a", "mem://1"},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/prompt","name":"b::p"},"argument":{"name":"p","value":""}}`, "b", "p"},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"p","value":""}}`, "", ""},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/resource","uri":"mem://{+p}/{q}"},"argument":{"name":"p","value":""}}`, "", ""},
		{mcp.CompletionComplete, `{"argument":{"name":"p","value":""}}`, "", ""},
		{mcp.PromptsGet, `{"name":"a::p"}`, "a", "p"},
		{mcp.PromptsGet, `{}`, "", ""},
		{mcp.ResourcesRead, `{}`, "", ""},
		{mcp.ToolsCall, `{}`, "", ""},
	} {
		got := c.callResult(t, tt.method, tt.params)
		if server, own := receivedBy(t, tt.method, a, b); server != tt.server || own != tt.own || (server == "") != (got[0] == '!') {
			t.Errorf("%s %s: %s got %s: %s", tt.method, tt.params, server, own, got)
		}
	}
}

// A3: with naming "never", a URI stays as its server wrote it, and leads to the server that listed it, whose
// template matches, or that alone has resources.
func TestRawNamesA3(t *testing.T) {
	t.Parallel()
	never := func(s *setup) { s.hub.Naming.Prefix = "never" }
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://1", "mem://2")...)).
		handle(mcp.ResourceTemplatesList, listResult("resourceTemplates", `{"uriTemplate":"file:///{path}","name":"t"}`)).
		handle(mcp.PromptsList, listResult("prompts", `{"name":"p"}`)).handle(mcp.CompletionComplete, respond(`{"completion":{"values":[]}}`)).
		handle(mcp.ResourcesRead, respond(`{"contents":[{"uri":"mem://1","text":"x"}]}`))
	b := newFakeServer(t, "b", mcp.Legacy, false).handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://2", "mem://3")...)).
		handle(mcp.ResourceTemplatesList, listResult("resourceTemplates", `{"uriTemplate":"mem://{n}","name":"t"}`)).handle(mcp.CompletionComplete, respond(`{"completion":{"values":[]}}`))
	gw := startGateway(t, never, a, b)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	if got := fieldOfItems(t, c.callResult(t, mcp.ResourcesList, `{}`), "resources", "uri"); strings.Join(got, " ") != "mem://1 mem://2 mem://3" {
		t.Errorf("got %q", got)
	}
	for _, tt := range []struct{ method, params, server, own string }{
		{mcp.ResourcesRead, `{"uri":"mem://1"}`, "a", "mem://1"},
		{mcp.ResourcesRead, `{"uri":"mem://2"}`, "a", "mem://2"},
		{mcp.ResourcesRead, `{"uri":"mem://3"}`, "b", "mem://3"},
		{mcp.ResourcesRead, `{"uri":"mem://4"}`, "b", "mem://4"},
		{mcp.ResourcesRead, `{"uri":"file:///etc/x"}`, "a", "file:///etc/x"},
		{mcp.ResourcesRead, `{"uri":"` + shownURI("b", "mem://2") + `"}`, "b", "mem://2"},
		{mcp.ResourcesRead, `{"uri":"other://1"}`, "", ""},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/resource","uri":"mem://{n}"},"argument":{"name":"n","value":""}}`, "b", "mem://{n}"},
		{mcp.CompletionComplete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":""}}`, "a", "p"},
	} {
		got := c.callResult(t, tt.method, tt.params)
		if server, own := receivedBy(t, tt.method, a, b); server != tt.server || own != tt.own {
			t.Errorf("%s %s: %s got %s: %s", tt.method, tt.params, server, own, got)
		}
	}
	if got := c.callResult(t, mcp.ResourcesRead, `{"uri":"mem://1"}`); !strings.Contains(got, `"uri":"mem://1"`) {
		t.Errorf("got %s", got)
	}
	gw.reload(func(s *setup) { s.removeServer("a") })
	c.callResult(t, mcp.ResourcesRead, `{"uri":"other://1"}`)
	if server, own := receivedBy(t, mcp.ResourcesRead, b); server != "b" || own != "other://1" {
		t.Errorf("the only server with resources: %s got %s", server, own)
	}
}

// A3: with naming "auto", what a result names can be read by that name, also where two servers have the same.
func TestAutoNamesInResultsA3(t *testing.T) {
	t.Parallel()
	var servers []*fakeServer
	for _, id := range []string{"a", "b"} {
		servers = append(servers, newFakeServer(t, id, mcp.Modern, false).handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://same")...)).
			handle(mcp.ToolsCall, respond(`{"content":[{"type":"resource_link","uri":"mem://same","name":"n"}]}`)))
	}
	c := startGateway(t, func(s *setup) { s.hub.Naming.Prefix = "auto" }, servers...).connect(t, "/mcp", mcp.Modern, "{}")
	c.tools(t)
	var result struct{ Content []struct{ URI string } }
	if err := json.Unmarshal([]byte(c.callResult(t, mcp.ToolsCall, `{"name":"b::x"}`)), &result); err != nil {
		t.Fatal(err)
	}
	got := c.callResult(t, mcp.ResourcesRead, `{"uri":"`+result.Content[0].URI+`"}`)
	if server, own := receivedBy(t, mcp.ResourcesRead, servers...); server != "b" || own != "mem://same" {
		t.Errorf("%s: %q got %q: %s", result.Content[0].URI, server, own, got)
	}
	servers[0].handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://a")...)).handle(mcp.ToolsCall, respond(`{"content":[{"type":"resource_link","uri":"mem:\/\/a"}]}`))
	servers[0].broadcast(t, `{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"x":1@sub}}`)
	wait.For(t, "names that do not collide", func() bool {
		return strings.Contains(c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`), `{"type":"resource_link","uri":"mem:\/\/a"}`)
	})
}
