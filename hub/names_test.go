package hub_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

// field are the values of one member of the items of a list.
func field(t testing.TB, result, list, key string) []string {
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

// tools are the names of the tools, recover_text aside, which must be there once and last.
func (c *client) tools(t testing.TB) []string {
	t.Helper()
	all := field(t, c.ask(t, mcp.ToolsList, `{}`), "tools", "name")
	if len(all) == 0 || slices.Index(all, "recover_text") != len(all)-1 {
		t.Fatalf("recover_text is not there once and last: %q", all)
	}
	return all[:len(all)-1]
}

// received says which server got a request last, and what it named.
func receivedBy(t testing.TB, method string, fars ...*far) (server, named string) {
	t.Helper()
	for _, f := range fars {
		if all := f.got(method); len(all) > 0 {
			var p struct {
				Name, URI string
				Ref       struct{ Name, URI string }
			}
			_ = json.Unmarshal(all[len(all)-1].Params, &p)
			server += f.id
			named += p.Name + p.URI + p.Ref.Name + p.Ref.URI
		}
		f.forget()
	}
	return server, named
}

// A3: names carry their server's id as the configuration says; of two that would be the same the
// first is kept and the other reported; a call reaches whom its name means, in the default form
// whatever the separator.
func TestNamesA3(t *testing.T) {
	t.Parallel()
	type calls map[string]string // name → server and its own name; "" for nobody
	for name, tt := range map[string]struct {
		naming  hub.Naming
		ids     [2]string
		first   string // the first server's own prefix
		tools   [2]string
		want    string
		clashes int
		calls   calls
	}{
		"default": {
			naming: hub.Naming{Separator: "::", Prefix: "always"}, tools: [2]string{"y x", "x z"}, want: "a::x a::y b::x b::z",
			calls: calls{"a::x": "a x", "b::x": "b x", "b::hidden": "b hidden", "x": "", "c::x": "", "a:x": "", "a": "", "a::b::x": "a b::x"},
		},
		"separator": {
			naming: hub.Naming{Separator: "__", Prefix: "always"}, tools: [2]string{"x", "x"}, want: "a__x b__x",
			calls: calls{"a__x": "a x", "b::x": "b x", "a__hidden": "a hidden", "a_x": ""},
		},
		"never": {
			naming: hub.Naming{Separator: "::", Prefix: "never"}, tools: [2]string{"x y", "x z"}, want: "x y z", clashes: 1,
			calls: calls{"x": "a x", "z": "b z", "b::x": "b x", "hidden": ""},
		},
		"auto": {
			naming: hub.Naming{Separator: "::", Prefix: "auto"}, tools: [2]string{"x y", "x z"}, want: "a::x y b::x z",
			calls: calls{"y": "a y", "z": "b z", "a::x": "a x", "b::x": "b x", "a::y": "a y", "x": ""},
		},
		"one never": {
			naming: hub.Naming{Separator: ".", Prefix: "always"}, first: "never", tools: [2]string{"x", "x"}, want: "x b.x",
			calls: calls{"x": "a x", "b.x": "b x", "a::x": "a x"},
		},
		"one always": {
			naming: hub.Naming{Separator: "::", Prefix: "never"}, first: "always", tools: [2]string{"x", "x"}, want: "a::x x",
			calls: calls{"x": "b x", "a::x": "a x"},
		},
		"a raw name that looks prefixed": {
			naming: hub.Naming{Separator: "::", Prefix: "never"}, first: "always", tools: [2]string{"x", "a::x"}, want: "a::x", clashes: 1,
			calls: calls{"a::x": "a x"},
		},
		"ids with the separator": {
			naming: hub.Naming{Separator: "_", Prefix: "always"}, ids: [2]string{"a", "a_b"}, tools: [2]string{"b_c d", "c e"},
			want: "a_b_c a_d a_b_e", clashes: 1,
			calls: calls{"a_b_c": "a b_c", "a_b::c": "a_b c", "a_b_e": "a_b e", "a::b_c": "a b_c", "a_b_hidden": "a_b hidden"},
		},
		"the gateway's own name, always": {
			naming: hub.Naming{Separator: "::", Prefix: "always"}, tools: [2]string{"recover_text", "x"}, want: "a::recover_text b::x",
			calls: calls{"a::recover_text": "a recover_text"},
		},
		"the gateway's own name, auto": {
			naming: hub.Naming{Separator: "::", Prefix: "auto"}, tools: [2]string{"recover_text", "x"}, want: "a::recover_text x",
			calls: calls{"a::recover_text": "a recover_text"},
		},
		"the gateway's own name, never": {
			naming: hub.Naming{Separator: "::", Prefix: "never"}, tools: [2]string{"recover_text", "x"}, want: "x", clashes: 1,
			calls: calls{"a::recover_text": "a recover_text"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.ids[0] == "" {
				tt.ids = [2]string{"a", "b"}
			}
			var fars []*far
			for i, id := range tt.ids {
				fars = append(fars, newFar(t, id, mcp.EraModern, false).on(mcp.ToolsList, page("tools", named(strings.Fields(tt.tools[i])...)...)))
			}
			y := start(t, func(s *setup) {
				s.hub.Naming = tt.naming
				s.upstream.Servers[0].Prefix = tt.first
			}, fars...)
			c := y.visit(t, "/mcp", mcp.EraModern, "{}")
			if got := strings.Join(c.tools(t), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if _, clashes := y.door.Survey(context.Background()); len(clashes) != tt.clashes {
				t.Errorf("clashes: %q", clashes)
			}
			for sent, want := range tt.calls {
				got := c.ask(t, mcp.ToolsCall, `{"name":"`+sent+`"}`)
				server, own := receivedBy(t, mcp.ToolsCall, fars...)
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

// A3: a resource is read by the name it has here, in either alphabet of base64, padded or not, and
// what comes back is named as it was asked for.
func TestResourceNamesA3(t *testing.T) {
	t.Parallel()
	const uri = `mem://a?~~~>>>ü/b`
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ResourcesList, page("resources", located(uri)...)).
		on(mcp.ResourcesRead, says(`{"contents":[{"uri":"`+uri+`","text":"x"}]}`))
	b := newFar(t, "b", mcp.EraLegacy, false)
	y := start(t, nil, a, b)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	if got := field(t, c.ask(t, mcp.ResourcesList, `{}`), "resources", "uri"); len(got) != 1 || got[0] != shownURI("a", uri) {
		t.Errorf("got %q", got)
	}
	plain := []byte(`{"server":"a","uri":"` + uri + `"}`)
	for _, enc := range []*base64.Encoding{base64.RawURLEncoding, base64.URLEncoding, base64.StdEncoding, base64.RawStdEncoding} {
		shown := "proxy://resource/" + enc.EncodeToString(plain)
		got := c.ask(t, mcp.ResourcesRead, `{"uri":"`+shown+`"}`)
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
		got := c.ask(t, mcp.ResourcesRead, `{"uri":"`+bad+`"}`)
		if server, _ := receivedBy(t, mcp.ResourcesRead, a, b); server != "" || got != `!{"code":-32602,"message":"Resource not found","data":{"uri":"`+bad+`"}}` {
			t.Errorf("%s: %q got it: %s", bad, server, got)
		}
	}
	old := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	if got := old.ask(t, mcp.ResourcesRead, `{"uri":"x"}`); got != `!{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}` {
		t.Errorf("got %s", got)
	}
}

// A3: a template is read as it was filled in; completion finds the server of a template, a
// resource and a prompt.
func TestTemplateNamesA3(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false)
	b := newFar(t, "b", mcp.EraLegacy, false)
	for _, f := range []*far{a, b} {
		f.on(mcp.TemplatesList, page("resourceTemplates", `{"uriTemplate":"mem://{+p}/{q}","name":"t"}`)).
			on(mcp.ResourcesList, page("resources", located("mem://1")...)).
			on(mcp.PromptsList, page("prompts", `{"name":"p"}`)).
			on(mcp.Complete, says(`{"completion":{"values":[]}}`))
	}
	c := start(t, nil, a, b).visit(t, "/mcp", mcp.EraLegacy, "{}")
	want := []string{"proxy://template/a/mem://{+p}/{q}", "proxy://template/b/mem://{+p}/{q}"}
	if got := field(t, c.ask(t, mcp.TemplatesList, `{}`), "resourceTemplates", "uriTemplate"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, tt := range []struct{ method, params, server, own string }{
		{mcp.ResourcesRead, `{"uri":"proxy://template/b/mem://x%2Fy/z?é"}`, "b", "mem://x%2Fy/z?é"},
		{mcp.ResourcesRead, `{"uri":"proxy://template/a/proxy://resource/x"}`, "a", "proxy://resource/x"},
		{mcp.Complete, `{"ref":{"type":"ref/resource","uri":"proxy://template/b/mem://{+p}/{q}"},"argument":{"name":"p","value":""}}`, "b", "mem://{+p}/{q}"},
		{mcp.Complete, `{"ref":{"type":"ref/resource","uri":"` + shownURI("a", "mem://1") + `"},"argument":{"name":"p","value":""}}`, "a", "mem://1"},
		{mcp.Complete, `{"ref":{"type":"ref/prompt","name":"b::p"},"argument":{"name":"p","value":""}}`, "b", "p"},
		{mcp.Complete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"p","value":""}}`, "", ""},
		{mcp.Complete, `{"ref":{"type":"ref/resource","uri":"mem://{+p}/{q}"},"argument":{"name":"p","value":""}}`, "", ""},
		{mcp.Complete, `{"argument":{"name":"p","value":""}}`, "", ""},
		{mcp.PromptsGet, `{"name":"a::p"}`, "a", "p"},
		{mcp.PromptsGet, `{}`, "", ""},
		{mcp.ResourcesRead, `{}`, "", ""},
		{mcp.ToolsCall, `{}`, "", ""},
	} {
		got := c.ask(t, tt.method, tt.params)
		if server, own := receivedBy(t, tt.method, a, b); server != tt.server || own != tt.own || (server == "") != (got[0] == '!') {
			t.Errorf("%s %s: %s got %s: %s", tt.method, tt.params, server, own, got)
		}
	}
}

// A3: under never, a URI stays as its server wrote it, and leads to the server that listed it,
// whose template it fits, or which alone has resources.
func TestRawNamesA3(t *testing.T) {
	t.Parallel()
	never := func(s *setup) { s.hub.Naming.Prefix = "never" }
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ResourcesList, page("resources", located("mem://1", "mem://2")...)).
		on(mcp.TemplatesList, page("resourceTemplates", `{"uriTemplate":"file:///{path}","name":"t"}`)).
		on(mcp.PromptsList, page("prompts", `{"name":"p"}`)).on(mcp.Complete, says(`{"completion":{"values":[]}}`)).
		on(mcp.ResourcesRead, says(`{"contents":[{"uri":"mem://1","text":"x"}]}`))
	b := newFar(t, "b", mcp.EraLegacy, false).on(mcp.ResourcesList, page("resources", located("mem://2", "mem://3")...)).
		on(mcp.TemplatesList, page("resourceTemplates", `{"uriTemplate":"mem://{n}","name":"t"}`)).on(mcp.Complete, says(`{"completion":{"values":[]}}`))
	y := start(t, never, a, b)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	if got := field(t, c.ask(t, mcp.ResourcesList, `{}`), "resources", "uri"); strings.Join(got, " ") != "mem://1 mem://2 mem://3" {
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
		{mcp.Complete, `{"ref":{"type":"ref/resource","uri":"mem://{n}"},"argument":{"name":"n","value":""}}`, "b", "mem://{n}"},
		{mcp.Complete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":""}}`, "a", "p"},
	} {
		got := c.ask(t, tt.method, tt.params)
		if server, own := receivedBy(t, tt.method, a, b); server != tt.server || own != tt.own {
			t.Errorf("%s %s: %s got %s: %s", tt.method, tt.params, server, own, got)
		}
	}
	if got := c.ask(t, mcp.ResourcesRead, `{"uri":"mem://1"}`); !strings.Contains(got, `"uri":"mem://1"`) {
		t.Errorf("got %s", got)
	}
	y.apply(func(s *setup) { s.remove("a") })
	c.ask(t, mcp.ResourcesRead, `{"uri":"other://1"}`)
	if server, own := receivedBy(t, mcp.ResourcesRead, b); server != "b" || own != "other://1" {
		t.Errorf("the only server with resources: %s got %s", server, own)
	}
}

// A3: under auto, what a result names can be read by that name, also where two servers have the same.
func TestAutoNamesInResultsA3(t *testing.T) {
	t.Parallel()
	var fars []*far
	for _, id := range []string{"a", "b"} {
		fars = append(fars, newFar(t, id, mcp.EraModern, false).on(mcp.ResourcesList, page("resources", located("mem://same")...)).
			on(mcp.ToolsCall, says(`{"content":[{"type":"resource_link","uri":"mem://same","name":"n"}]}`)))
	}
	c := start(t, func(s *setup) { s.hub.Naming.Prefix = "auto" }, fars...).visit(t, "/mcp", mcp.EraModern, "{}")
	c.tools(t)
	var result struct{ Content []struct{ URI string } }
	if err := json.Unmarshal([]byte(c.ask(t, mcp.ToolsCall, `{"name":"b::x"}`)), &result); err != nil {
		t.Fatal(err)
	}
	got := c.ask(t, mcp.ResourcesRead, `{"uri":"`+result.Content[0].URI+`"}`)
	if server, own := receivedBy(t, mcp.ResourcesRead, fars...); server != "b" || own != "mem://same" {
		t.Errorf("%s: %q got %q: %s", result.Content[0].URI, server, own, got)
	}
	fars[0].on(mcp.ResourcesList, page("resources", located("mem://a")...)).on(mcp.ToolsCall, says(`{"content":[{"type":"resource_link","uri":"mem:\/\/a"}]}`))
	fars[0].push(t, `{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"x":1@sub}}`)
	eventually(t, "names that do not collide", func() bool {
		return strings.Contains(c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`), `{"type":"resource_link","uri":"mem:\/\/a"}`)
	})
}
