package app

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/recall"
)

// routes are all patterns that are registered anywhere, as their code writes them, and requests that they serve. A new
// pattern must be added here with the requests that show whether it needs a credential.
var routes = map[string][]route{
	`"POST /api/mcp-gateway/{server}/rpc"`: {{"main", "POST", "/api/mcp-gateway/fs/rpc", false}},
	`"/api/mcp-gateway/{server}/rpc"`:      {{"main", "GET", "/api/mcp-gateway/fs/rpc", false}},
	`path`:                                 {{"main", "POST", "/mcp", false}, {"main", "GET", "/mcp", false}, {"main", "DELETE", "/mcp", false}, {"main", "POST", "/mcp/fs", false}},
	`"/"`:                                  {{"main", "GET", "/nothing", false}, {"admin", "GET", "/nothing", false}},
	`"POST " + path`:                       {{"main", "POST", "/v1/chat/completions", false}, {"main", "POST", "/v1/messages", false}, {"main", "POST", "/v1/responses", false}},
	`"GET " + list`:                        {{"main", "GET", "/v1/models", false}},
	`"GET " + list + "/{id...}"`:           {{"main", "GET", "/v1/models/m", false}},
	`"POST " + prefix + "{call...}"`:       {{"main", "POST", "/v1beta/models/m:generateContent", false}},
	`StartPath`:                            {{"main", "GET", "/oauth/start", true}, {"main", "POST", "/oauth/start", true}},
	`"GET " + CallbackPath`:                {{"main", "GET", "/oauth/callback", true}},
	`"GET /metrics"`:                       {{"admin", "GET", "/metrics", false}},
	`"GET /api/v1/status"`:                 {{"admin", "GET", "/api/v1/status", false}},
	`"GET /savings"`:                       {{"admin", "GET", "/savings", false}},
	`"GET /api/v1/pins"`:                   {{"admin", "GET", "/api/v1/pins", false}},
	`"POST /api/v1/pins/approve"`:          {{"admin", "POST", "/api/v1/pins/approve", false}},
	`"POST /api/v1/reload"`:                {{"admin", "POST", "/api/v1/reload", false}},
	`"POST /api/v1/stop"`:                  {{"admin", "POST", "/api/v1/stop", false}}, // only on the socket
	`"POST /rpc"`:                          nil,                                        // the pruner's listener, tested there
	`"/rpc"`:                               nil,
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

type route struct {
	listener, method, path string
	open                   bool // needs no credential
}

// openPaths are served without a credential before any route.
var openPaths = []route{{"main", "GET", "/healthz", true}, {"main", "GET", "/readyz", true}, {"main", "HEAD", "/healthz", true}}

// registeredPatterns finds the patterns of all routes in the code.
func registeredPatterns(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "testkit" || name == "tools" || name == "e2e" || name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".") && len(name) > 2 {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "HandleFunc" || sel.Sel.Name == "Handle") {
				var text bytes.Buffer
				_ = printer.Fprint(&text, set, call.Args[0])
				if text.String() != "ctx" { // a log handler
					found = append(found, text.String())
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// S16: every route but health, readiness and the return from an authorization server needs a credential; a credential
// of another listener is none. A route that the table does not know fails.
func TestS16EveryRouteNeedsACredential(t *testing.T) {
	found := registeredPatterns(t)
	for _, pattern := range found {
		if _, known := routes[pattern]; !known {
			t.Errorf("the route %s is not in the table: add it, and whether it needs a credential", pattern)
		}
	}
	for pattern := range routes {
		if !slices.Contains(found, pattern) {
			t.Errorf("there is no route %s any more", pattern)
		}
	}
	up := newMatrixServer(t)
	cfg := load(t, t.TempDir(), server("fs", up.URL)+providerOf(t, `{}`)+inMemory+matrixRules)
	r, a := startApp(t, cfg)
	adminText, err := AdminToken(cfg)
	if err != nil {
		t.Fatal(err)
	}
	right := map[string]string{"main": "token-of-ann-0123456789", "admin": adminText.Reveal()}
	base := map[string]string{"main": r.main, "admin": r.admin}
	all := slices.Clone(openPaths)
	for _, some := range routes {
		all = append(all, some...)
	}
	for _, one := range all {
		wrong := []string{"", "wrong", right["admin"]}
		if one.listener == "admin" {
			wrong = []string{"", "wrong", right["main"]}
		}
		for _, credential := range wrong {
			status, body := r.do(t, one.method, base[one.listener]+one.path, credential, ping)
			if refused := status == http.StatusUnauthorized; refused == one.open {
				t.Errorf("%s %s %s with %q: %d %s", one.listener, one.method, one.path, credential, status, body)
			}
		}
		if status, body := r.do(t, one.method, base[one.listener]+one.path, right[one.listener], ping); status == http.StatusUnauthorized {
			t.Errorf("%s %s %s with the right token: %d %s", one.listener, one.method, one.path, status, body)
		}
	}
	if n := a.gate.Decisions(); n > 20 {
		t.Errorf("%d decisions: requests without a credential were decided", n)
	}
}

// S13: the operator's listener refuses web pages, other hosts and everybody without its token, whatever the method; no
// request that it serves starts a program.
func TestS13AdminListener(t *testing.T) {
	cfg := load(t, t.TempDir(), inMemory)
	r, _ := startApp(t, cfg)
	adminText, err := AdminToken(cfg)
	if err != nil {
		t.Fatal(err)
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"}
	for _, path := range []string{"/", "/metrics", "/savings", "/api/v1/status", "/api/v1/pins", "/api/v1/pins/approve", "/api/v1/stop", "/api/v1/reload", "/debug/pprof/", "/api/v1/servers"} {
		for _, method := range methods {
			for name, head := range map[string]map[string]string{
				"no token":         {},
				"a wrong token":    {"Authorization": "Bearer wrong"},
				"a foreign page":   {"Origin": "https://evil.example", "Content-Type": "text/plain", "Authorization": "Bearer " + adminText.Reveal()},
				"an opaque origin": {"Origin": "null", "Content-Type": "application/x-www-form-urlencoded", "Authorization": "Bearer " + adminText.Reveal()},
				"another site":     {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Authorization": "Bearer " + adminText.Reveal()},
				"another host":     {"Host": "evil.example", "Authorization": "Bearer " + adminText.Reveal()},
				"rebinding":        {"Host": "evil.example:80", "Origin": "http://evil.example:80", "Content-Type": "application/json", "Authorization": "Bearer " + adminText.Reveal()},
			} {
				req, err := http.NewRequest(method, r.admin+path, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range head {
					req.Header.Set(k, v)
					if k == "Host" {
						req.Host = v
					}
				}
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s, %s: %d", method, path, name, resp.StatusCode)
				}
			}
		}
	}
}

// S10: requests that two HTTP parsers may read differently are refused, or read in one way; none of the headers that
// proxies set changes who calls.
func TestS10AmbiguousRequests(t *testing.T) {
	up := newMatrixServer(t)
	cfg := load(t, t.TempDir(), server("fs", up.URL)+inMemory+matrixRules)
	r, a := startApp(t, cfg)
	host := strings.TrimPrefix(r.main, "http://")
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{}}}`
	auth := "Authorization: Bearer token-of-bob-0123456789\r\n" // may not call write
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for name, head := range map[string]string{
		"two lengths":              length + "Content-Length: 3\r\n" + auth,
		"length and chunks":        length + "Transfer-Encoding: chunked\r\n" + auth,
		"an unknown coding":        "Transfer-Encoding: xchunked\r\n" + auth,
		"a folded header":          length + "X-A: b\r\n folded\r\n" + auth,
		"a space before the colon": length + "Authorization : Bearer token-of-ann-0123456789\r\n" + auth,
		"two tokens":               length + auth + "Authorization: Bearer token-of-ann-0123456789\r\n",
		"an underscore":            length + auth + "X_Forwarded_User: ann\r\nAuthorization_: Bearer token-of-ann-0123456789\r\n",
		"forwarded for":            length + auth + "X-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n",
		"forwarded user":           length + auth + "X-Forwarded-User: ann\r\nX-Auth-Request-User: ann\r\nX-Remote-User: ann\r\nX-Tenant: beta\r\n",
		"forwarded uri":            length + auth + "X-Forwarded-Uri: /healthz\r\nX-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n",
		"a health probe":           length + auth + "User-Agent: GoogleHC/1.0\r\n",
		"hop by hop":               length + auth + "Connection: Authorization, close\r\n",
		"another method":           length + auth + "X-HTTP-Method-Override: GET\r\n",
	} {
		before := up.used.Load()
		reply := exchange(t, host, "POST /api/mcp-gateway/fs/rpc HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+head+"\r\n"+body)
		if up.used.Load() != before || strings.Contains(reply, `"result"`) {
			t.Errorf("%s: the call was made: %q", name, reply)
		}
	}
	for name, target := range map[string]string{
		"a fragment": "/healthz#/../api/mcp-gateway/fs/rpc", "dots": "/healthz/../api/mcp-gateway/fs/rpc", "encoded dots": "/healthz/%2e%2e/api/mcp-gateway/fs/rpc", "an encoded slash": "/healthz%2f..%2fapi/mcp-gateway/fs/rpc",
		"two slashes": "//api/mcp-gateway/fs/rpc", "a full URL": "http://evil.example/api/mcp-gateway/fs/rpc", "userinfo": "http://ann@" + host + "/api/mcp-gateway/fs/rpc", "a semicolon": "/healthz;/api/mcp-gateway/fs/rpc",
	} {
		before := up.used.Load()
		reply := exchange(t, host, "POST "+target+" HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\n"+length+"\r\n"+body)
		if up.used.Load() != before || strings.Contains(reply, `"result"`) {
			t.Errorf("%s: %q", name, reply)
		}
	}
	for name, hostLine := range map[string]string{
		"two hosts": "Host: " + host + "\r\nHost: evil.example\r\n", "no host": "", "a host with #@": "Host: evil.example/#@" + host + "\r\n",
		"a host with a slash": "Host: " + host + "/healthz\r\n",
	} {
		reply := exchange(t, host, "POST /api/mcp-gateway/fs/rpc HTTP/1.1\r\n"+hostLine+"Content-Type: application/json\r\n"+auth+length+"\r\n"+body)
		if !strings.HasPrefix(reply, "HTTP/1.1 4") {
			t.Errorf("%s: %q", name, reply)
		}
	}
	plain := strings.Replace(body, `"write"`, `"read"`, 1)
	if reply := exchange(t, host, "POST /api/mcp-gateway/fs/rpc HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\nConnection: close\r\n"+auth+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(plain))+plain); !strings.Contains(reply, `"result"`) {
		t.Errorf("a plain request: %q", reply)
	}
	if n := a.gate.Decisions(); n < 5 {
		t.Error("no request reached the rules: the test shows nothing")
	}
}

// exchange sends bytes and returns the first reply.
func exchange(t *testing.T, host, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // for a server that waits for more
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.Proto + " " + resp.Status + " " + string(b)
}

// S5: a marker in tool output gives nothing that its id does not give anyway, and reading back follows the rules of today:
// once a tool is denied, what it gave is as unknown as an id that never was.
func TestS5ReadingBackFollowsTheRulesOfToday(t *testing.T) {
	dir := t.TempDir()
	up := newMatrixServer(t)
	text := server("fs", up.URL) + inMemory + matrixRules
	r, a := startApp(t, load(t, dir, text))
	store := func(tenant, content, tool string) string {
		id, err := a.storage.Recall.StoreText(t.Context(), tenant, content, recall.Origin{Server: "fs", Tool: tool})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	read := func(subject, id string) string {
		return callRecover(t, r, "/mcp", "token-of-"+subject+"-0123456789", `{"prune_id":"`+id+`"}`)
	}
	const secretText = "what only acme may read"
	id := store("acme", secretText, "read")
	if got := read("ann", id); !strings.Contains(got, secretText) {
		t.Fatalf("ann cannot read it: %s", got)
	}
	unknown := read("ann", "prn_00000000000000000000000000")
	// Markers in the output of another tenant's tool name ids: the id alone opens nothing.
	for _, forged := range []string{
		id, strings.ToUpper(id), " " + id + " ", strings.ReplaceAll(id, "0", "o"), "ctxgate://" + id, id + "\u200b", "[recover: prune_id=" + id + " chars=1-9]",
	} {
		if got := read("eve", forged); strings.Contains(got, secretText) || got != unknown {
			t.Errorf("eve with %q got %s", forged, got)
		}
	}
	if report := a.Reload(load(t, dir, text+"[[access.rules]]\neffect = 'deny'\nwhen = 'tool == \"read\"'\n")); report.Failed != "" {
		t.Fatal(report)
	}
	if got := read("ann", id); got != unknown {
		t.Errorf("after the tool was denied: %s, want %s", got, unknown)
	}
	if report := a.Reload(load(t, dir, text)); report.Failed != "" {
		t.Fatal(report)
	}
	if got := read("ann", id); !strings.Contains(got, secretText) {
		t.Errorf("after the rule was removed: %s", got)
	}
}

// callRecover calls recover_text as a modern client and returns the whole reply.
func callRecover(t *testing.T, r *running, path, token, arguments string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"recover_text","arguments":` + arguments +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, _ := http.NewRequest(http.MethodPost, r.main+path, strings.NewReader(body))
	for k, v := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "recover_text"} {
		req.Header.Set(k, v)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
