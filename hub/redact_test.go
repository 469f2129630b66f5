package hub_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/redact"
)

// What a rule takes out of a call appears nowhere: not at the server, not in the reply at any endpoint and in any
// revision, and not in what can be read back.
func TestRedactedEverywhere(t *testing.T) {
	t.Parallel()
	const key, mail = "AKIA0123456789ABCDEF", "ann@example.com"
	long := strings.Repeat("before ", 9) + key + strings.Repeat(" after", 9)
	result := `{"content":[{"type":"text","text":"{\"user\":{\"email\":\"` + mail + `\",\"age\":41}}"},{"type":"text","text":"` + long + `"},{"type":"text","text":"Write to ` + mail + `, please, if you can."}],` +
		`"structuredContent":{"user":{"email":"` + mail + `","age":41}}}`
	answer := func(c *serverCall) string {
		if strings.Contains(c.raw, "fail") {
			return `!{"code":-32000,"message":"no ` + key + `","data":["` + key + `"]}`
		}
		return result
	}
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, answer).handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "fail")...))
	b := newFakeServer(t, "b", mcp.Legacy, false).handle(mcp.ToolsCall, answer).handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "fail")...))
	gw := startGateway(t, func(s *setup) {
		maskSmall(s)
		s.access = access.Config{Default: "allow", Rules: []access.Rule{{Effect: access.Redact, When: `method == "tools/call"`, Redact: redact.Config{
			Arguments: []string{"/password"}, Results: []string{"/structuredContent/user/email"}, Patterns: []string{`AKIA[0-9A-Z]{16}`},
		}}}}
	}, a, b)
	check := func(what, got string) {
		t.Helper()
		for _, secret := range []string{key, key[4:16], mail, "example.com"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s shows %s: %s", what, secret, got)
			}
		}
		if !strings.Contains(got, "[redacted]") {
			t.Errorf("%s shows nothing redacted: %s", what, got)
		}
	}
	arguments := `"arguments":{"user":"ann","password":"secret1","note":"` + key + `"}`
	for _, server := range []string{"a", "b"} {
		for _, protocol := range []mcp.Protocol{mcp.Modern, mcp.Legacy} {
			for _, endpoint := range []string{"/mcp", "/mcp/" + server} {
				c := gw.connect(t, endpoint, protocol, "{}")
				name := server + "::"
				if endpoint != "/mcp" {
					name = ""
				}
				got := c.call(t, mcp.ToolsCall, `{"name":"`+name+`x",`+arguments+`}`).body
				check(endpoint, got)
				check(endpoint+", an error", c.call(t, mcp.ToolsCall, `{"name":"`+name+`fail",`+arguments+`}`).body)
				for _, found := range lineOfRecovery.FindAllStringSubmatch(got, -1) {
					for _, how := range []string{"", `,"ranges":[{"start":1,"end":9}]`, `,"pattern":"after"`} {
						original := gw.connect(t, "/mcp", protocol, "{}").call(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+found[1]+`"`+how+`}}`).body
						if strings.Contains(original, key) || strings.Contains(original, mail) {
							t.Errorf("read back: %s", original)
						}
					}
				}
			}
		}
		for _, tool := range []string{"x", "fail"} {
			resp, err := http.Post(gw.URL+rpcPath(server), "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`",`+arguments+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			check("the raw route", string(body))
		}
	}
	for _, f := range []*fakeServer{a, b} {
		f.mu.Lock()
		calls := 0
		for _, m := range f.messages {
			if m.Method != mcp.ToolsCall {
				continue
			}
			calls++
			if strings.Contains(m.raw, "secret1") || strings.Contains(m.raw, key) || strings.Count(m.raw, "[redacted]") != 2 || !strings.Contains(m.raw, `"user":"ann"`) {
				t.Errorf("%s got %s", f.id, m.raw)
			}
		}
		f.mu.Unlock()
		if calls < 10 {
			t.Errorf("%s got %d calls", f.id, calls)
		}
	}
}

// Rules about annotations hold for reading back too: what a tool with other annotations may be asked for, may be read.
func TestAnnotationsDecideReadingBack(t *testing.T) {
	t.Parallel()
	long := respond(`{"content":[{"type":"text","text":"` + strings.Repeat("some text ", 9) + `"}]}`)
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, long).handle(mcp.ToolsList, listResult("tools",
		`{"name":"safe","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, itemsNamed("other")[0]))
	gw := startGateway(t, func(s *setup) {
		maskSmall(s)
		s.access = access.Config{Default: "deny", Rules: []access.Rule{{Effect: access.Allow, When: `annotations.?readOnlyHint.orValue(false) == true`}}}
	}, a)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	found := lineOfRecovery.FindStringSubmatch(c.callResult(t, mcp.ToolsCall, `{"name":"a::safe"}`))
	if found == nil || !gw.canRead(t, "/mcp", found[1]) {
		t.Errorf("the text of a tool that may be called cannot be read back: %v", found)
	}
	if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::other"}`); !strings.HasPrefix(got, "!") {
		t.Errorf("a tool that is denied: %s", got)
	}
	gw.reload(func(s *setup) { s.access.Rules[0].When = `annotations.?readOnlyHint.orValue(false) == false` })
	if found != nil && gw.canRead(t, "/mcp", found[1]) {
		t.Error("the text of a tool that may no longer be called can be read back")
	}
}
