package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// canaries are secrets that must not leave the paths they are sent on. Each place has its own, so that a leak names its
// source.
type canaries struct{ list []string }

func (c *canaries) add(place string) string {
	text := fmt.Sprintf("canary-%02d-%s-4f9b61c7", len(c.list), place)
	c.list = append(c.list, text)
	return text
}

// require checks that a text has none of them.
func (c *canaries) require(t *testing.T, where string, text []byte) {
	t.Helper()
	for _, secret := range c.list {
		if i := bytes.Index(text, []byte(secret)); i >= 0 {
			t.Errorf("%s has %s: …%q…", where, secret, text[max(0, i-200):min(len(text), i+len(secret)+40)])
		}
	}
}

// S6: what is sent through every endpoint is in no log, metric, reply of the admin API or file.
func TestS6Canaries(t *testing.T) {
	c := &canaries{}
	long := func(place string) string {
		return strings.Repeat("line of text\n", 600) + c.add(place) + strings.Repeat("\nline of text", 600)
	}
	results := map[string]string{"text": long("result"), "short": c.add("short-result")}
	errorText, brokenReply, providerError := c.add("error-of-server"), c.add("reply-that-is-no-json"), c.add("error-of-provider")
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, call rpcCall) {
		mode := strings.Trim(string(call.Params.Arguments["mode"]), `"`)
		switch text, ok := results[mode]; {
		case ok:
			quoted, _ := json.Marshal(text)
			sendBody(w, "application/json", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"structuredContent":{"a":%[2]s}}}`, call.ID, quoted))
		case mode == "error":
			sendBody(w, "application/json", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%q,"data":{"x":%[2]q}}}`, call.ID, errorText))
		case mode == "broken":
			sendBody(w, "text/html", []byte("<html>"+brokenReply))
		default:
			http.Error(w, brokenReply, http.StatusInternalServerError)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("X-Fail") != "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":%q}}`, providerError)
			return
		}
		fmt.Fprint(w, `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`)
	}))
	defer provider.Close()

	s := newSite(t, up.url, "auth_token = \"env:GATE_TOKEN\"")
	s.replaceInConfig(t, `log_level = "INFO"`, `log_level = "DEBUG"`)
	config, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(config, `headers = { X-Key = "env:SERVER_KEY" }

[[servers]]
id = "child"
command = ["sh", "-c", "echo $LEAK >&2; echo $LEAK; exit 3"]
env = { LEAK = "env:CHILD_SECRET" }

[audit]
path = "audit.log"

[[providers]]
name = "p"
kind = "openai"
base_url = %q
api_key = "env:PROVIDER_KEY"
models = ["*"]
`, provider.URL+"/v1")
	config.Close()
	token := c.add("gateway-token")
	env := append(s.environ(), "GATE_TOKEN="+token, "SERVER_KEY="+c.add("header-for-server"), "CHILD_SECRET="+c.add("env-of-child"), "PROVIDER_KEY="+c.add("key-of-provider"), "UNUSED="+c.add("environment"))
	logPath := filepath.Join(s.dir, "gateway.log")
	g, err := startGateway(s.dir, logPath, env, "--config", s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Kill()

	// send posts a body with a header, to the main listener where the path is not absolute.
	session := "" // of the MCP endpoint
	send := func(path, credential, body string, header ...string) []byte {
		t.Helper()
		url := path
		if !strings.HasPrefix(path, "http") {
			url = g.URL + path
		}
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if body == "" {
			req, err = http.NewRequest(http.MethodGet, url, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if credential != "" {
			req.Header.Set("Authorization", credential)
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("Mcp-Protocol-Version", "2025-06-18")
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		reply, _ := io.ReadAll(resp.Body)
		if session == "" {
			session = resp.Header.Get("Mcp-Session-Id")
		}
		return reply
	}
	call := func(name, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"x":%q}}}`, c.add("id"), name, args, c.add("meta"))
	}
	good := "Bearer " + token
	raw, mcp := "/api/mcp-gateway/up/rpc", "/mcp"
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	send(mcp, good, initialize)
	send(mcp, good, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, mode := range []string{"text", "short", "error", "broken", "fails"} {
		reply := send(raw, good, call("read", fmt.Sprintf(`{"mode":%q,"secret":%q}`, mode, c.add("argument-"+mode))), "X-Custom", c.add("header"))
		if mode == "short" && !bytes.Contains(reply, []byte(results["short"])) {
			t.Errorf("the result does not reach the client: %s", reply)
		}
	}
	send(mcp+"?key="+c.add("query"), good, call("up::read", fmt.Sprintf(`{"mode":"text","x":%q}`, c.add("argument"))))
	send(mcp, good, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"https://u:%s@h/x?key=%s#%s"}}`, c.add("uri-password"), c.add("uri-query"), c.add("uri-fragment")))
	send(mcp, good, call("pruner::prune_text", fmt.Sprintf(`{"text":%q,"goal_hint":%q,"source_type":"logs"}`, long("pruned-text"), c.add("goal"))))
	send(mcp, good, call("recover_text", fmt.Sprintf(`{"prune_id":%q}`, c.add("prune-id"))))
	send(mcp, good, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up::read","proxy":{"authToken":"`+c.add("token-in-body")+`"}}}`)
	send(mcp, good, `{"jsonrpc":"2.0","id":1,"broken":"`+c.add("broken-body"))
	// Credentials that are refused.
	jwt := "eyJhbGciOiJub25lIn0." + c.add("jwt") + ".x"
	for _, credential := range []string{"Bearer " + c.add("wrong-token"), "Basic " + c.add("basic"), "Bearer " + jwt, c.add("no-scheme"), "HMAC " + c.add("hmac")} {
		for _, path := range []string{raw, mcp, "/v1/chat/completions", g.AdminURL + "/metrics", g.AdminURL + "/api/v1/status"} {
			body := initialize
			if strings.HasPrefix(path, "http") {
				body = ""
			}
			send(path, credential, body, "X-Signature", c.add("signature"))
		}
	}
	// The model's endpoint.
	chat := func() string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, c.add("system-prompt"), c.add("user-message"))
	}
	for _, header := range [][]string{nil, {"X-Fail", "1"}, {"X-Custom", c.add("header-of-model-request")}, {"X-Ctxgate-Token", c.add("wrong-gateway-token")}} {
		send("/v1/chat/completions", good, chat(), header...)
	}
	send("/v1/files?key="+c.add("file-query"), good, `{"x":"`+c.add("file")+`"}`)

	if len(c.list) < 40 {
		t.Errorf("only %d canaries were sent", len(c.list))
	}
	adminToken, err := os.ReadFile(filepath.Join(s.data, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/savings", "/savings?format=csv&by=tool", "/api/v1/status"} {
		c.require(t, path, send(g.AdminURL+path, "Bearer "+strings.TrimSpace(string(adminToken)), ""))
	}
	run := func(args ...string) []byte {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = s.dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return out
	}
	c.require(t, "ctxgate status", run("status", "--config", s.config))
	g.stop(t)
	c.require(t, "ctxgate audit verify", run("audit", "verify", "--config", s.config))
	log, err := os.ReadFile(logPath)
	if err != nil {
		t.Fatal(err)
	}
	c.require(t, "the log", log)
	lines, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil || bytes.Count(lines, []byte("\n")) < 10 {
		t.Errorf("the audit log has %d lines: %v", bytes.Count(lines, []byte("\n")), err)
	}
	c.require(t, "the audit log", lines)
	for _, want := range []string{`"event":"call"`, `"event":"auth"`, `"event":"read"`, `"model":"m"`, `"ids":["prn_`, `"outcome":"error"`, `"count":`} {
		if !bytes.Contains(lines, []byte(want)) {
			t.Errorf("the audit log has no line with %s", want)
		}
	}
	files := 0
	err = filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		c.require(t, path, data)
		return err
	})
	if err != nil || files < 2 {
		t.Errorf("%d files in the data directory: %v", files, err)
	}
	t.Logf("%d canaries, %d bytes of log, %d bytes of audit log", len(c.list), len(log), len(lines))
}
