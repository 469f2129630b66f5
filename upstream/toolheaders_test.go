package upstream_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

const toolsWithHeaders = `{"tools":[
 {"name":"query","inputSchema":{"type":"object","properties":{
  "region":{"type":"string","x-mcp-header":"Region"},
  "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
  "loud":{"type":"boolean","x-mcp-header":"Loud"}}}},
 {"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}},
 {"name":"plain","inputSchema":{"type":"object"}}]}`

func paramHeader(n string) string { return "Mcp-Param-" + n }

// A13: arguments that a tool wants as headers are sent, encoded where necessary, if the call has them (2026-07-28, Custom
// Headers from Tool Parameters).
func TestParamHeaders(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsList, respond(toolsWithHeaders))
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsList, `{}`)
	for i, tt := range []struct {
		name, arguments string
		want            map[string]string
	}{
		{"query", `{"region":"us-west1","deep":{"n":42},"loud":true}`, map[string]string{"Region": "us-west1", "N": "42", "Loud": "true"}},
		{"query", `{"region":"Hello, 世界"}`, map[string]string{"Region": "=?base64?SGVsbG8sIOS4lueVjA==?="}},
		{"query", `{"region":" padded "}`, map[string]string{"Region": "=?base64?IHBhZGRlZCA=?="}},
		{"query", `{"region":"a\r\nX-Evil: 1"}`, map[string]string{"Region": "=?base64?YQ0KWC1FdmlsOiAx?="}},
		{"query", `{"region":null,"deep":{},"loud":false}`, map[string]string{"Loud": "false"}},
		{"query", `{"region":{"not":"a text"}}`, nil},
		{"plain", `{"region":"x"}`, nil},
		{"bad", `{"a":"x"}`, nil},
		{"unknown", `{"region":"x"}`, nil},
	} {
		n.mustCall(t, mcp.ToolsCall, `{"name":"b::x","arguments":`+tt.arguments+`}`, func(c *upstream.Call) {
			c.Changes = []jsonscan.Change{{Key: "name", Value: mcp.Quote(tt.name)}}
		})
		h := f.awaitRequest(t, mcp.ToolsCall, i+1)
		if got := sortedKeys(h.head, "Mcp-Param-"); len(got) != len(tt.want) {
			t.Errorf("%s: got %q", tt.arguments, got)
		}
		for name, want := range tt.want {
			if got := h.head.Get(paramHeader(name)); got != want {
				t.Errorf("%s: %s is %q, want %q", tt.arguments, name, got, want)
			}
		}
	}
}

// A13: the name of what a request is about is in a header, as the server knows it.
func TestNameHeader(t *testing.T) {
	f := newModernServer(t)
	n := connect(t, httpEntry(f), nil)
	for _, tt := range []struct{ method, key, sent, want string }{
		{mcp.ToolsCall, "name", "get weather", "get weather"},
		{mcp.ToolsCall, "name", "wetter-für", "=?base64?d2V0dGVyLWbDvHI=?="},
		{mcp.PromptsGet, "name", "=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		{mcp.ResourcesRead, "uri", "file:///a%20b", "file:///a%20b"},
		{mcp.PromptsList, "name", "no matter", ""},
	} {
		before := len(f.requests(tt.method))
		n.mustCall(t, tt.method, `{"`+tt.key+`":"prefixed"}`, func(c *upstream.Call) {
			c.Changes = []jsonscan.Change{{Key: tt.key, Value: mcp.Quote(tt.sent)}}
		})
		h := f.awaitRequest(t, tt.method, before+1)
		if got := h.head.Get(mcp.HeaderName); got != tt.want || h.head.Get(mcp.HeaderMethod) != tt.method {
			t.Errorf("%s %q: Mcp-Name is %q, want %q; Mcp-Method is %q", tt.method, tt.sent, got, tt.want, h.head.Get(mcp.HeaderMethod))
		}
	}
}

// A13: legacy servers get no such headers.
func TestNoParamHeadersForLegacyServers(t *testing.T) {
	f := newLegacyServer(t).on(mcp.ToolsList, respond(toolsWithHeaders))
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsList, `{}`)
	n.mustCall(t, mcp.ToolsCall, `{"name":"query","arguments":{"region":"x"}}`)
	if got := sortedKeys(f.awaitRequest(t, mcp.ToolsCall, 1).head, "Mcp-"); len(got) != 2 {
		t.Errorf("got %q, want the version and the session", got)
	}
}

// A13: after a header mismatch the tools are listed again, all pages, and the call is sent once more.
func TestHeaderMismatchRefreshesTools(t *testing.T) {
	f := newModernServer(t)
	f.on(mcp.ToolsList, func(w http.ResponseWriter, h httpRequest) {
		if strings.Contains(h.body, `"cursor":"2"`) {
			respond(toolsWithHeaders)(w, h)
			return
		}
		respond(`{"tools":[],"nextCursor":"2"}`)(w, h)
	})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		if h.head.Get(paramHeader("Region")) == "" {
			respondAs(400, "error", `{"code":-32020,"message":"Header mismatch"}`)(w, h)
			return
		}
		respond(`{"content":[]}`)(w, h)
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"query","arguments":{"region":"x"}}`)
	if calls, lists := len(f.requests(mcp.ToolsCall)), len(f.requests(mcp.ToolsList)); calls != 2 || lists != 2 {
		t.Errorf("%d calls and %d lists", calls, lists)
	}
	// If the headers stay wrong, the client gets the error after one list.
	m, err := n.call(t, mcp.ToolsCall, `{"name":"query","arguments":{}}`)
	if err != nil || !m.IsError || len(f.requests(mcp.ToolsCall)) != 3 || len(f.requests(mcp.ToolsList)) != 4 {
		t.Errorf("got %s, %v after %d calls and %d lists", m.Body, err, len(f.requests(mcp.ToolsCall)), len(f.requests(mcp.ToolsList)))
	}
}

// A13: the headers of tools are still known after a reconnect.
func TestParamHeadersAfterReconnect(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsList, respond(toolsWithHeaders))
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsList, `{}`)
	conn, err := n.SharedConn().AwaitConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	n.mustCall(t, mcp.ToolsCall, `{"name":"query","arguments":{"region":"x"}}`)
	if got := f.awaitRequest(t, mcp.ToolsCall, 1).head.Get(paramHeader("Region")); got != "x" {
		t.Errorf("got %q", got)
	}
	f.on(mcp.ToolsList, respond(strings.Replace(toolsWithHeaders, `"x-mcp-header":"Region"`, `"x":1`, 1)))
	n.mustCall(t, mcp.ToolsList, `{}`)
	n.mustCall(t, mcp.ToolsCall, `{"name":"query","arguments":{"region":"x"}}`)
	if got := f.awaitRequest(t, mcp.ToolsCall, 2).head.Get(paramHeader("Region")); got != "" {
		t.Errorf("got %q after the tool was changed", got)
	}
}

// A13: a tool with invalid headers is not offered.
func TestCheckToolHeaders(t *testing.T) {
	for name, tt := range map[string]struct {
		item string
		bad  bool
	}{
		"none":      {`{"name":"a"}`, false},
		"fine":      {`{"name":"a","inputSchema":{"properties":{"b":{"type":"string","x-mcp-header":"B"}}}}`, false},
		"an object": {`{"name":"a","inputSchema":{"properties":{"b":{"type":"object","x-mcp-header":"B"}}}}`, true},
		"no name":   {`{"name":"a","inputSchema":{"properties":{"b":{"type":"string","x-mcp-header":""}}}}`, true},
		"twice": {`{"name":"a","inputSchema":{"properties":{"b":{"type":"string","x-mcp-header":"B"},` +
			`"c":{"type":"string","x-mcp-header":"b"}}}}`, true},
	} {
		if err := wire.CheckToolHeaders([]byte(tt.item)); (err != nil) != tt.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}
