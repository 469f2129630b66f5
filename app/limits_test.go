package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// S20: no spelling, prefix, endpoint, batch or session is a way around a limit. All of them together reach the server
// as often as the limit allows, and so does another tenant, as often as its own.
func TestLimitCannotBePassedByS20(t *testing.T) {
	var calls atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		result := `{"content":[{"type":"text","text":"done"}]}`
		switch text := string(body); {
		case strings.Contains(text, `"tools/call"`):
			calls.Add(1)
		case strings.Contains(text, `"initialize"`):
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case strings.Contains(text, `"tools/list"`):
			result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		}
		id := "1"
		if _, after, ok := strings.Cut(string(body), `"id":`); ok {
			id = strings.TrimRight(after[:strings.IndexAny(after, ",}")], " ")
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`)
	}))
	defer upstream.Close()
	const limit = 20
	r := start(t, load(t, t.TempDir(), fmt.Sprintf(`
[[tokens]]
name = "ann"
sha256 = "ef8f325eff7c832026631529492b0d612efe1fb2a27ad8f7ba26e31b10760997"
tenant = "acme"
[[tokens]]
name = "bob"
sha256 = "5f8658b51d41176c14e91c1b147620269920e7dc3c1b700139ce9c1343d0e47c"
tenant = "other"
[[limits]]
name = "echo"
tool = "echo"
rate = %d
every = "24h"
%s[state]
driver = 'memory'
`, limit, server("s", upstream.URL))))
	attempt := func(token string) {
		head := http.Header{"Authorization": {"Bearer " + token}, "Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}}
		send := func(path, session, body string) *http.Response {
			req, err := http.NewRequest(http.MethodPost, r.main+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = head.Clone()
			if session != "" {
				req.Header.Set("Mcp-Session-Id", session)
			}
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return resp
		}
		call := func(name string) string {
			return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`
		}
		for round := range 3 {
			for _, name := range []string{"echo", "ECHO", "Echo", "ｅcho", "\\u0065cho", "eChO"} {
				send("/api/mcp-gateway/s/rpc", "", call(name))
			}
			for _, revision := range []string{"2025-03-26", "2025-11-25"} {
				for path, names := range map[string][]string{"/mcp": {"s::echo", "s__echo"}, "/mcp/s": {"echo"}} {
					opened := send(path, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"c`+fmt.Sprint(round)+`","version":"1"}}}`)
					session := opened.Header.Get("Mcp-Session-Id")
					if session == "" {
						t.Fatalf("no session: %d", opened.StatusCode)
					}
					send(path, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
					for _, name := range names {
						send(path, session, call(name))
						send(path, session, "["+call(name)+","+strings.Replace(call(name), `"id":7`, `"id":8`, 1)+"]")
					}
				}
			}
		}
	}
	attempt("ann-has-a-secret-of-many-letters")
	if n := calls.Load(); n != limit {
		t.Errorf("%d calls reached the server, want %d", n, limit)
	}
	attempt("bob-has-a-secret-of-many-letters")
	if n := calls.Load(); n != 2*limit {
		t.Errorf("%d calls of both tenants reached the server, want %d", n, 2*limit)
	}
	r.end(t)
}
