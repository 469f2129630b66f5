package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/recall"
)

// matrixServer is a plain JSON-RPC server that counts what is used.
type matrixServer struct {
	*httptest.Server
	used atomic.Int64
}

func newMatrixServer(t *testing.T) *matrixServer {
	t.Helper()
	s := &matrixServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fs","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"write","inputSchema":{"type":"object"}},{"name":"search","inputSchema":{"type":"object"}},{"name":"people","inputSchema":{"type":"object"}}]}`
		case "prompts/list":
			result = `{"prompts":[{"name":"hello"}]}`
		case "resources/list":
			result = `{"resources":[{"uri":"file:///open","name":"o"},{"uri":"file:///private","name":"p"}]}`
		case "resources/templates/list":
			result = `{"resourceTemplates":[]}`
		case "tools/call":
			s.used.Add(1)
			result = `{"content":[{"type":"text","text":"ok"}],"task":{"taskId":"task-of-the-caller","status":"working"}}`
		case "prompts/get":
			s.used.Add(1)
			result = `{"messages":[]}`
		case "resources/read":
			s.used.Add(1)
			result = `{"contents":[{"uri":"file:///open","text":"ok"}]}`
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(s.Close)
	return s
}

const matrixRules = `
[[tokens]]
name = 'ann'
sha256 = 'e4c3aa3d8647cc076fc477e619b452721004cd4a932d0e1cb0b497bb058df575' # token-of-ann-0123456789
tenant = 'acme'
roles = ['dev']
[[tokens]]
name = 'bob'
sha256 = '52334763091e1317dab599b0ae187d3eef5d6a7bd1ad6ecf5f5379ce9f177ddd' # token-of-bob-0123456789
tenant = 'acme'
[[tokens]]
name = 'eve'
sha256 = 'df5da10a9164e0a3af31c5b62ec0958d79d6ccb85f187559845c34203bb08598' # token-of-eve-0123456789
tenant = 'beta'
[[access.rules]]
effect = 'deny'
when = 'tool == "write" && !("dev" in caller.roles)'
[[access.rules]]
effect = 'deny'
when = 'tool == "search" && has(arguments.path) && arguments.path.startsWith("/etc")'
[[access.rules]]
effect = 'redact'
when = 'tool == "people" && caller.tenant == "acme"'
redact = { results = ['/structuredContent/email'] }
[[access.rules]]
effect = 'deny'
when = 'tool == "people"'
[[access.rules]]
effect = 'deny'
when = 'caller.tenant == "beta" && (prompt == "hello" || resource == "file:///private" || model.startsWith("big-"))'
[[access.rules]]
effect = 'deny'
when = 'caller.subject == "bob" && tool != "" && !(has(annotations.readOnlyHint) && annotations.readOnlyHint) && tool == "search"'
`

// matrixTargets are what the cells use.
var matrixTargets = []access.Target{
	{Method: "tools/call", Server: "fs", Tool: "read", Arguments: []byte(`{}`), Annotations: []byte(`{"readOnlyHint":true}`)},
	{Method: "tools/call", Server: "fs", Tool: "write", Arguments: []byte(`{}`)},
	{Method: "tools/call", Server: "fs", Tool: "search", Arguments: []byte(`{"path":"/etc/passwd"}`)},
	{Method: "tools/call", Server: "fs", Tool: "search", Arguments: []byte(`{"path":"/home"}`)},
	{Method: "tools/call", Server: "fs", Tool: "people", Arguments: []byte(`{}`)},
	{Method: "prompts/get", Server: "fs", Prompt: "hello", Arguments: []byte(`{}`)},
	{Method: "resources/read", Server: "fs", Resource: "file:///open"},
	{Method: "resources/read", Server: "fs", Resource: "file:///private"},
}

var matrixRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

// message is the request for a target, under a client's name for it.
func message(revision string, t access.Target, isAggregated bool) (body, name string) {
	params := map[string]any{}
	if len(t.Arguments) > 0 {
		params["arguments"] = json.RawMessage(t.Arguments)
	}
	name = t.Tool + t.Prompt
	switch {
	case t.Resource != "":
		name = t.Resource
		if isAggregated {
			name = catalog.PrefixedURI("fs", t.Resource)
		}
		params["uri"] = name
	default:
		if isAggregated {
			name = "fs::" + name
		}
		params["name"] = name
	}
	if revision == "2026-07-28" {
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
	}
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 7, "method": t.Method, "params": params})
	return string(raw), name
}

// matrixClient sends the request for a target and says whether it was served.
type matrixClient func(t *testing.T, target access.Target) bool

func served(t *testing.T, reply string) bool {
	t.Helper()
	if at := strings.Index(reply, "data: {"); at >= 0 { // an event stream
		reply = reply[at+len("data: "):]
	}
	var m struct{ Result, Error json.RawMessage }
	if err := json.NewDecoder(strings.NewReader(reply)).Decode(&m); err != nil || (m.Result == nil) == (m.Error == nil) {
		t.Fatalf("no reply: %q, %v", reply, err)
	}
	return m.Result != nil
}

// overHTTP is a client at /mcp or /mcp/fs.
func overHTTP(t *testing.T, r *running, token, path, revision string) matrixClient {
	t.Helper()
	post := func(body string, headers map[string]string) (http.Header, string) {
		req, _ := http.NewRequest(http.MethodPost, r.main+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.Header, string(b)
	}
	session := map[string]string{}
	if revision != "2026-07-28" {
		head, _ := post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, nil)
		session["Mcp-Session-Id"] = head.Get("Mcp-Session-Id")
		if revision > "2025-03-26" {
			session["MCP-Protocol-Version"] = revision
		}
		post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session)
	}
	return func(t *testing.T, target access.Target) bool {
		t.Helper()
		body, name := message(revision, target, path == "/mcp")
		headers := session
		if revision == "2026-07-28" {
			headers = map[string]string{"MCP-Protocol-Version": revision, "Mcp-Method": target.Method, "Mcp-Name": name}
		}
		_, reply := post(body, headers)
		return served(t, reply)
	}
}

// overStdio is a client on byte streams.
func overStdio(t *testing.T, a *App, token, revision string) matrixClient {
	t.Helper()
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.hub.ServeStdio(ctx, serverIn, serverOut, hub.StdioOptions{Token: token})
	}()
	t.Cleanup(func() {
		_ = clientOut.Close()
		stop()
		_ = serverIn.Close()
		<-ended
	})
	lines := bufio.NewScanner(clientIn)
	lines.Buffer(nil, 1<<20)
	exchange := func(body string, id string) string {
		if _, err := io.WriteString(clientOut, body+"\n"); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"id":`+id) {
				return lines.Text()
			}
		}
		t.Fatal("the connection ended")
		return ""
	}
	if revision != "2026-07-28" {
		exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, "1")
	}
	return func(t *testing.T, target access.Target) bool {
		t.Helper()
		body, _ := message(revision, target, true)
		return served(t, exchange(body, "7"))
	}
}

// overRelay is a client of /api/mcp-gateway/fs/rpc.
func overRelay(r *running, token string) matrixClient {
	return func(t *testing.T, target access.Target) bool {
		t.Helper()
		body, _ := message("", target, false)
		_, reply := r.do(t, http.MethodPost, r.main+"/api/mcp-gateway/fs/rpc", token, body)
		return served(t, reply)
	}
}

// S3: every caller, rule, revision and endpoint gives the decision that the rules give, once; a call that is denied
// reaches no server. Reading back follows the rules of where a text came from.
func TestS3DecisionMatrix(t *testing.T) {
	up := newMatrixServer(t)
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ok":1}`) }))
	t.Cleanup(models.Close)
	providers := ""
	for _, kind := range []string{"openai", "anthropic", "gemini"} {
		providers += "[[providers]]\nname = '" + kind + "'\nkind = '" + kind + "'\nbase_url = '" + models.URL + "'\n"
	}
	cfg := load(t, t.TempDir(), server("fs", up.URL)+providers+inMemory+matrixRules)
	r, a := startApp(t, cfg)
	a.hub.AwaitServers(t.Context())
	cells := 0
	check := func(t *testing.T, name string, who auth.Caller, target access.Target, want bool, use func() bool) {
		t.Helper()
		cells++
		used, decided := up.used.Load(), a.gate.Decisions()
		got := use()
		if got != want {
			t.Errorf("%s, %s, %+v: served %v, want %v", name, who.Subject(), target, got, want)
		}
		if n := a.gate.Decisions() - decided; n != 1 {
			t.Errorf("%s, %s, %+v: %d decisions", name, who.Subject(), target, n)
		}
		if n := up.used.Load() - used; !want && n != 0 {
			t.Errorf("%s, %s, %+v: the server was called", name, who.Subject(), target)
		}
	}
	rules, err := access.New(cfg.Access)
	if err != nil {
		t.Fatal(err)
	}
	allowed, denied := 0, 0
	for _, name := range []string{"ann", "bob", "eve"} {
		token := "token-of-" + name + "-0123456789"
		who, err := a.gate.AuthenticateToken(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		clients := map[string]matrixClient{"relay": overRelay(r, token)}
		for _, revision := range matrixRevisions {
			clients["/mcp "+revision] = overHTTP(t, r, token, "/mcp", revision)
			clients["/mcp/fs "+revision] = overHTTP(t, r, token, "/mcp/fs", revision)
			clients["stdio "+revision] = overStdio(t, a, token, revision)
		}
		for _, target := range matrixTargets {
			want := rules.Decide(who, target).IsAllowed()
			if want {
				allowed++
			} else {
				denied++
			}
			for endpoint, use := range clients {
				check(t, endpoint, who, target, want, func() bool { return use(t, target) })
			}
			if target.Tool == "" {
				continue
			}
			id, err := a.storage.Recall.StoreText(t.Context(), who.Tenant(), "text of "+name+" "+string(target.Arguments)+target.Tool, recall.Origin{Server: "fs", Tool: target.Tool})
			if err != nil {
				t.Fatal(err)
			}
			mayRead := rules.MayRead(who, access.Target{Method: "tools/call", Server: "fs", Tool: target.Tool}, "")
			for _, path := range []string{"/mcp", "/mcp/fs"} {
				check(t, "recover "+path, who, target, mayRead, func() bool {
					return served(t, callRecover(t, r, path, token, `{"prune_id":"`+id+`"}`))
				})
			}
		}
		for _, model := range []string{"big-1", "small-1"} {
			target := access.Target{Method: access.MethodModel, Model: model}
			want := rules.Decide(who, target).IsAllowed()
			for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/" + model + ":generateContent"} {
				check(t, path, who, target, want, func() bool {
					status, body := r.do(t, http.MethodPost, r.main+path, token, `{"model":"`+model+`","messages":[],"contents":[]}`)
					if status != http.StatusOK && status != http.StatusNotFound {
						t.Errorf("%s: %d %s", path, status, body)
					}
					return status == http.StatusOK
				})
			}
		}
	}
	if allowed == 0 || denied == 0 {
		t.Errorf("%d targets allowed, %d denied: the matrix shows nothing", allowed, denied)
	}
	t.Logf("%d cells, %d decisions", cells, a.gate.Decisions())
}
