package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// documentClient is a client of `ctxgate stdio`. It answers roots/list, as the document's test script does, and
// keeps every request and notification that the gateway sends it.
type documentClient struct {
	t     *testing.T
	in    io.WriteCloser
	out   chan wireMessage
	token string
	next  int
	heard []wireMessage
}

const documentToken = "optional-shared-secret"

// document002 starts `ctxgate stdio` with the document's configuration, whose servers are the two minimal
// ones and the one that asks. change may change keys of it.
func document002(t *testing.T, change map[string]any) *documentClient {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "config.everything.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var servers []any
	for _, name := range []string{"alpha", "beta", "gamma"} {
		servers = append(servers, map[string]any{
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
	return startDocument(t, dir, file)
}

func startDocument(t *testing.T, dir, file string) *documentClient {
	t.Helper()
	cmd := exec.Command(binary, "stdio", "--config", file)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	var log strings.Builder
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &documentClient{t: t, in: in, out: make(chan wireMessage, 64), token: documentToken}
	go func() {
		defer close(c.out)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var m wireMessage
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				t.Errorf("on stdout: %s", lines.Bytes())
			}
			c.out <- m
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		kill := time.AfterFunc(endLimit, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		for range c.out { // to its end
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("ctxgate stdio, after its stdin ended: %v", err)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", log.String())
		}
	})
	return c
}

func (c *documentClient) say(m wireMessage) {
	c.t.Helper()
	m.JSONRPC = "2.0"
	line, err := json.Marshal(m)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// ask makes a request with the token where the document wants it, and answers what comes before its answer.
func (c *documentClient) ask(method string, params map[string]any) wireMessage {
	c.t.Helper()
	c.next++
	id := fmt.Sprint(c.next)
	all := map[string]any{}
	for k, v := range params {
		all[k] = v
	}
	if c.token != "" {
		all["proxy"] = map[string]any{"authToken": c.token}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		c.t.Fatal(err)
	}
	c.say(wireMessage{ID: json.RawMessage(id), Method: method, Params: raw})
	return c.await(method, func(m wireMessage) bool { return m.Method == "" && string(m.ID) == id })
}

// await waits for a message, and answers requests for roots meanwhile.
func (c *documentClient) await(what string, is func(wireMessage) bool) wireMessage {
	c.t.Helper()
	limit := time.After(startLimit)
	for {
		select {
		case m, ok := <-c.out:
			if !ok {
				c.t.Fatalf("%s: ctxgate ended", what)
			}
			if m.Method != "" {
				c.heard = append(c.heard, m)
			}
			if m.Method == "roots/list" {
				c.say(wireMessage{ID: m.ID, Result: json.RawMessage(`{"roots":[{"uri":"file:///work","name":"w"}]}`)})
			}
			if is(m) {
				return m
			}
		case <-limit:
			c.t.Fatalf("%s: no answer within %s", what, startLimit)
		}
	}
}

func (c *documentClient) hello() wireMessage {
	c.t.Helper()
	m := c.ask("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{"roots": map[string]any{}}, "clientInfo": map[string]any{"name": "run_proxy_test", "version": "1"},
	})
	c.say(wireMessage{Method: "notifications/initialized", Params: json.RawMessage(`{"proxy":{"authToken":"` + documentToken + `"}}`)})
	return m
}

// names are the names, or the URIs, of a list.
func (c *documentClient) names(method, key string, params map[string]any) (names []string, cursor string) {
	c.t.Helper()
	var all map[string]json.RawMessage
	answer := c.ask(method, params)
	if err := json.Unmarshal(answer.Result, &all); err != nil {
		c.t.Fatalf("%s: %s %v", method, answer.Error, err)
	}
	var list []map[string]any
	_ = json.Unmarshal(all[strings.TrimSuffix(method, "/list")], &list) // none is an empty list
	for _, entry := range list {
		names = append(names, fmt.Sprint(entry[key]))
	}
	_ = json.Unmarshal(all["nextCursor"], &cursor) // none is the end
	return names, cursor
}

// waitFor asks for a list until it has a name: servers need a moment to start.
func (c *documentClient) waitFor(method, key, name string) []string {
	c.t.Helper()
	var names []string
	if err := within(startLimit, name+" is not listed", func() (bool, error) {
		names, _ = c.names(method, key, nil)
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
	c := document002(t, map[string]any{"rate_limit_per_minute": 6000})
	hello := c.hello()
	for _, capability := range []string{`"tools"`, `"resources"`, `"prompts"`} {
		if !strings.Contains(string(hello.Result), capability) {
			t.Errorf("initialize has no %s: %s%s", capability, hello.Result, hello.Error)
		}
	}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		c.waitFor("tools/list", "name", name+"::"+name+"_tool")
		c.waitFor("prompts/list", "name", name+"::"+name+"_prompt")
		uri := "proxy://resource/" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"server":"%s","uri":"test://%s/1"}`, name, name))
		c.waitFor("resources/list", "uri", uri)
		if m := c.ask("resources/read", map[string]any{"uri": uri}); !strings.Contains(string(m.Result), "the resource of "+name) {
			t.Errorf("resources/read: %s%s", m.Result, m.Error)
		}
		if m := c.ask("prompts/get", map[string]any{"name": name + "::" + name + "_prompt"}); !strings.Contains(string(m.Result), "the prompt of "+name) {
			t.Errorf("prompts/get: %s%s", m.Result, m.Error)
		}
	}
	for _, name := range []string{"alpha", "beta"} {
		if m := c.ask("tools/call", map[string]any{"name": name + "::" + name + "_tool", "arguments": map[string]any{}}); !strings.Contains(string(m.Result), "the tool of "+name) {
			t.Errorf("tools/call: %s%s", m.Result, m.Error)
		}
	}
	c.heard = nil
	m := c.ask("tools/call", map[string]any{"name": "gamma::gamma_tool", "arguments": map[string]any{}})
	if !strings.Contains(string(m.Result), "file:///work") {
		t.Errorf("gamma did not get the client's roots: %s%s", m.Result, m.Error)
	}
	asked := 0
	for _, h := range c.heard {
		if h.Method == "roots/list" {
			asked++
			if !strings.Contains(string(h.Params), `"ctxgate/server":"gamma"`) {
				t.Errorf("the request does not say who asks: %s", h.Params)
			}
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A3, A6, 002 "命名与游标策略": lists page by cursor and limit, and a cursor is base64 of an offset.
func TestDocument002Cursors(t *testing.T) {
	t.Parallel()
	c := document002(t, map[string]any{"rate_limit_per_minute": 6000})
	c.hello()
	for _, name := range []string{"alpha", "beta", "gamma"} {
		c.waitFor("tools/list", "name", name+"::"+name+"_tool")
	}
	all, _ := c.names("tools/list", "name", nil)
	var paged []string
	for params := map[string]any{"limit": 2}; ; {
		page, cursor := c.names("tools/list", "name", params)
		paged = append(paged, page...)
		if cursor == "" {
			break
		}
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		var at struct{ Offset int }
		if err != nil || json.Unmarshal(raw, &at) != nil || at.Offset != len(paged) || len(page) != 2 {
			t.Fatalf("cursor %s (%s) after %d", cursor, raw, len(paged))
		}
		params = map[string]any{"limit": 2, "cursor": cursor}
	}
	if !slices.Equal(all, paged) || len(all) < 3 {
		t.Errorf("in one %v, in pages %v", all, paged)
	}
}

// A7, 002 "协议透传": an unknown notification of the client reaches all servers.
func TestDocument002UnknownNotification(t *testing.T) {
	t.Parallel()
	c := document002(t, map[string]any{"rate_limit_per_minute": 6000})
	c.hello()
	for _, name := range []string{"alpha", "beta", "gamma"} {
		c.waitFor("tools/list", "name", name+"::"+name+"_tool")
	}
	call := func(name string) string {
		m := c.ask("tools/call", map[string]any{"name": name + "::" + name + "_tool", "arguments": map[string]any{}})
		return string(m.Result) + string(m.Error)
	}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		if got := call(name); strings.Contains(got, "which was notified") {
			t.Errorf("before: %s", got)
		}
	}
	c.say(wireMessage{Method: "notifications/document/unknown", Params: json.RawMessage(`{"proxy":{"authToken":"` + documentToken + `"}}`)})
	for _, name := range []string{"alpha", "beta", "gamma"} {
		if err := within(startLimit, name+" was not notified", func() (bool, error) {
			return strings.Contains(call(name), "which was notified"), nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// A8, A9, 002 "安全配置": a wrong token is refused; over the limit the error is "Rate limit exceeded".
func TestDocument002Security(t *testing.T) {
	t.Parallel()
	c := document002(t, map[string]any{"rate_limit_per_minute": 4})
	c.token = "guess"
	if m := c.ask("ping", nil); m.Error == nil {
		t.Errorf("a wrong token got %s", m.Result)
	}
	c.token = documentToken
	c.hello()
	limited := false
	for range 6 {
		m := c.ask("tools/list", nil)
		limited = limited || strings.Contains(string(m.Error), "Rate limit exceeded")
	}
	if !limited {
		t.Error("six requests within a minute, of which four are allowed, were all answered")
	}
}
