package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const documentToken = "optional-shared-secret"

// startDocument002 starts `ctxgate stdio` with the document's configuration and its three servers. change
// overrides keys.
func startDocument002(t *testing.T, change params) *stdioClient {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "config.everything.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config params
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var servers []any
	for _, name := range []string{"alpha", "beta", "gamma"} {
		servers = append(servers, params{
			"id": name, "command": []string{self}, "env": map[string]string{documentServerVariable: name}, "startup_timeout": 20, "shutdown_grace": 3,
		})
	}
	config["servers"] = servers
	for key, value := range change {
		config[key] = value
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	if text, err = json.Marshal(config); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := startStdio(t, dir, file)
	c.token = documentToken
	return c
}

// startSession initializes a session as the document's test script does.
func (c *stdioClient) startSession() mcpwire.Message {
	c.t.Helper()
	m := c.initialize("2025-06-18")
	c.notify("notifications/initialized")
	return m
}

// notify sends a notification with the document's token.
func (c *stdioClient) notify(method string) {
	c.t.Helper()
	c.sendMessage(mcpwire.NewNotification(method, `{"proxy":{"authToken":"`+documentToken+`"}}`))
}

// listNames returns the names or URIs of a list.
func (c *stdioClient) listNames(method, key string, p params) (names []string, cursor string) {
	c.t.Helper()
	var all map[string]json.RawMessage
	answer := c.callMethod(method, p)
	if err := json.Unmarshal(answer.Result, &all); err != nil {
		c.t.Fatalf("%s: %s %v", method, answer.Error, err)
	}
	var list []params
	_ = json.Unmarshal(all[strings.TrimSuffix(method, "/list")], &list) // missing: an empty list
	for _, entry := range list {
		names = append(names, fmt.Sprint(entry[key]))
	}
	_ = json.Unmarshal(all["nextCursor"], &cursor) // missing: the last page
	return names, cursor
}

// waitForName lists until a name is there: servers need a moment to start.
func (c *stdioClient) waitForName(method, key, name string) []string {
	c.t.Helper()
	var names []string
	if err := wait.Until(startLimit, name+" is not listed", func() (bool, error) {
		names, _ = c.listNames(method, key, nil)
		return slices.Contains(names, name), nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return names
}

// A1–A6, 002 "测试建议", tests/run_proxy_test.py: two minimal servers and one that asks for roots/list on its
// own; tools, resources, prompts and the server-started request go where they should, under the document's
// names.
func TestDocument002ServerStartedFlow(t *testing.T) {
	t.Parallel()
	c := startDocument002(t, params{"rate_limit_per_minute": 6000})
	hello := c.startSession()
	for _, capability := range []string{`"tools"`, `"resources"`, `"prompts"`} {
		if !strings.Contains(string(hello.Result), capability) {
			t.Errorf("initialize has no %s: %s%s", capability, hello.Result, hello.Error)
		}
	}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		c.waitForName("tools/list", "name", name+"::"+name+"_tool")
		c.waitForName("prompts/list", "name", name+"::"+name+"_prompt")
		uri := "proxy://resource/" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"server":"%s","uri":"test://%s/1"}`, name, name))
		c.waitForName("resources/list", "uri", uri)
		if m := c.callMethod("resources/read", params{"uri": uri}); !strings.Contains(string(m.Result), "the resource of "+name) {
			t.Errorf("resources/read: %s%s", m.Result, m.Error)
		}
		if m := c.callMethod("prompts/get", params{"name": name + "::" + name + "_prompt"}); !strings.Contains(string(m.Result), "the prompt of "+name) {
			t.Errorf("prompts/get: %s%s", m.Result, m.Error)
		}
	}
	for _, name := range []string{"alpha", "beta"} {
		if m := c.callMethod("tools/call", params{"name": name + "::" + name + "_tool", "arguments": params{}}); !strings.Contains(string(m.Result), "the tool of "+name) {
			t.Errorf("tools/call: %s%s", m.Result, m.Error)
		}
	}
	c.received = nil
	m := c.callMethod("tools/call", params{"name": "gamma::gamma_tool", "arguments": params{}})
	if !strings.Contains(string(m.Result), "file:///work") {
		t.Errorf("gamma did not get the client's roots: %s%s", m.Result, m.Error)
	}
	asked := 0
	for _, h := range c.received {
		if h.Method == "roots/list" {
			asked++
			if !strings.Contains(string(h.Params), `"ctxgate/server":"gamma"`) {
				t.Errorf("the request does not name the server: %s", h.Params)
			}
		}
	}
	if asked != 1 {
		t.Errorf("%d requests, want 1", asked)
	}
}

// A3, A6, 002 "命名与游标策略": lists page by cursor and limit, and a cursor is base64 of an offset.
func TestDocument002Cursors(t *testing.T) {
	t.Parallel()
	c := startDocument002(t, params{"rate_limit_per_minute": 6000})
	c.startSession()
	for _, name := range []string{"alpha", "beta", "gamma"} {
		c.waitForName("tools/list", "name", name+"::"+name+"_tool")
	}
	all, _ := c.listNames("tools/list", "name", nil)
	var paged []string
	for next := (params{"limit": 2}); ; {
		page, cursor := c.listNames("tools/list", "name", next)
		paged = append(paged, page...)
		if cursor == "" {
			break
		}
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		var at struct{ Offset int }
		if err != nil || json.Unmarshal(raw, &at) != nil || at.Offset != len(paged) || len(page) != 2 {
			t.Fatalf("cursor %s (%s) after %d", cursor, raw, len(paged))
		}
		next = params{"limit": 2, "cursor": cursor}
	}
	if !slices.Equal(all, paged) || len(all) < 3 {
		t.Errorf("in one %v, in pages %v", all, paged)
	}
}

// A7, 002 "协议透传": an unknown notification of the client reaches all servers.
func TestDocument002UnknownNotification(t *testing.T) {
	t.Parallel()
	c := startDocument002(t, params{"rate_limit_per_minute": 6000})
	c.startSession()
	for _, name := range []string{"alpha", "beta", "gamma"} {
		c.waitForName("tools/list", "name", name+"::"+name+"_tool")
	}
	call := func(name string) string {
		m := c.callMethod("tools/call", params{"name": name + "::" + name + "_tool", "arguments": params{}})
		return string(m.Result) + string(m.Error)
	}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		if got := call(name); strings.Contains(got, "which was notified") {
			t.Errorf("before: %s", got)
		}
	}
	c.notify("notifications/document/unknown")
	for _, name := range []string{"alpha", "beta", "gamma"} {
		if err := wait.Until(startLimit, name+" was not notified", func() (bool, error) {
			return strings.Contains(call(name), "which was notified"), nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// A8, A9, 002 "安全配置": a wrong token is refused; over the limit the error is "Rate limit exceeded".
func TestDocument002Security(t *testing.T) {
	t.Parallel()
	c := startDocument002(t, params{"rate_limit_per_minute": 4})
	c.token = "guess"
	if m := c.callMethod("ping", nil); m.Error == nil {
		t.Errorf("a wrong token got %s", m.Result)
	}
	c.token = documentToken
	c.startSession()
	limited := false
	for range 6 {
		m := c.callMethod("tools/list", nil)
		limited = limited || strings.Contains(string(m.Error), "Rate limit exceeded")
	}
	if !limited {
		t.Error("six requests within a minute, of which four are allowed, were all answered")
	}
}
