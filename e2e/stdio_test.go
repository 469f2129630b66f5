//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// shellServerScript is an MCP server in shell: the tool env returns its environment, the tool roots first
// requests the client's roots.
const shellServerScript = `while read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
	case "$line" in
	*'"method":"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
	*'"method":"tools/list"'*) result='{"tools":[{"name":"env","inputSchema":{"type":"object"}},{"name":"roots","inputSchema":{"type":"object"}}]}' ;;
	*'"name":"env"'*) result='{"content":[{"type":"text","text":"'$(env | tr -d '"\\' | tr '\n' ' ')'"}]}' ;;
	*'"name":"roots"'*)
		printf '%s\n' '{"jsonrpc":"2.0","id":"r1","method":"roots/list"}'
		read -r answer
		result='{"content":[{"type":"text","text":"asked"}]}' ;;
	*) [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"; continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done`

// newStdioSite writes a configuration with shell servers of these ids.
func newStdioSite(t *testing.T, top string, ids ...string) site {
	t.Helper()
	dir := t.TempDir()
	s := site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), data: filepath.Join(dir, "data")}
	if err := os.WriteFile(filepath.Join(dir, "server.sh"), []byte(shellServerScript), 0o600); err != nil {
		t.Fatal(err)
	}
	s.writeServers(t, top, ids...)
	return s
}

func (s site) writeServers(t *testing.T, top string, ids ...string) {
	t.Helper()
	text := fmt.Sprintf("data_dir = %q\n%s\n", s.data, top)
	for _, id := range ids {
		text += fmt.Sprintf("[[servers]]\nid = %q\ncommand = [\"sh\", %q]\n", id, filepath.Join(s.dir, "server.sh"))
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A8 on stdio: with the right token in its environment ctxgate serves its client without one and does not
// pass it on to its children. Without it, requests without a token are refused.
func TestA8StdioTokenInEnvironment(t *testing.T) {
	s := newStdioSite(t, `auth_token = "hush-hush"`, "sh")
	for name, tt := range map[string]struct {
		env []string
		ok  bool
	}{
		"CTXGATE_TOKEN":                     {[]string{"CTXGATE_TOKEN=hush-hush"}, true},
		"AUTH_TOKEN":                        {[]string{"AUTH_TOKEN=hush-hush"}, true},
		"CTXGATE_TOKEN before AUTH_TOKEN":   {[]string{"AUTH_TOKEN=of something else", "CTXGATE_TOKEN=hush-hush"}, true},
		"none":                              {nil, false},
		"empty":                             {[]string{"CTXGATE_TOKEN="}, false},
		"the variable of the configuration": {[]string{"CTXGATE_AUTH_TOKEN=another", "CTXGATE_TOKEN=another"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := startStdio(t, s.dir, s.config, tt.env...)
			m := c.initialize("2025-11-25")
			if !tt.ok {
				if !strings.Contains(string(m.Error), `"code":-31401`) {
					t.Fatalf("initialize: %s%s", m.Result, m.Error)
				}
				if m = c.callMethod("tools/list", params{"proxy": params{"authToken": "hush-hush"}}); m.Error != nil {
					t.Errorf("with the token in the request: %s", m.Error)
				}
				return
			}
			if m.Error != nil {
				t.Fatalf("initialize: %s", m.Error)
			}
			m = c.callMethod("tools/call", params{"name": "sh::env"})
			if text := string(m.Result); m.Error != nil || !strings.Contains(text, "PATH=") || strings.Contains(text, "hush") || strings.Contains(text, "TOKEN") {
				t.Errorf("the child's environment: %s %s", m.Error, text)
			}
			if strings.Contains(c.stderr.String(), "unknown variable") || strings.Contains(c.stderr.String(), "hush-hush") {
				t.Errorf("stderr: %s", &c.stderr)
			}
		})
	}
}

// A8 on stdio: a wrong token in the environment is a startup error that names the variable.
func TestA8StdioWrongTokenInEnvironment(t *testing.T) {
	s := newStdioSite(t, `auth_token = "hush-hush"`, "sh")
	for _, name := range []string{"CTXGATE_TOKEN", "AUTH_TOKEN"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, binary, "stdio", "--alone", "--config", s.config)
		cmd.Dir, cmd.Env = s.dir, append(s.environ(), name+"=guess-guess")
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), "the token in the variable "+name+" is not the auth_token") || strings.Contains(string(out), "guess-guess") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

// `ctxgate stdio` logs each call and each server request on stderr.
func TestStdioLogsCallsOnStderr(t *testing.T) {
	s := newStdioSite(t, "", "sh")
	c := startStdio(t, s.dir, s.config)
	c.initialize("2025-11-25")
	if m := c.callMethod("tools/call", params{"name": "sh::roots"}); m.Error != nil {
		t.Fatalf("%s", m.Error)
	}
	c.callMethod("tools/call", params{"name": "sh::none"})
	c.waitForLog("msg=request", "transport=stdio", "rpc=tools/call", "server=sh", "name=roots", "took=", "code=0")
	c.waitForLog("msg=request", "rpc=tools/call", "server=sh", "name=none", "code=-32601")
	c.waitForLog("msg=request", "rpc=initialize", "code=0")
	c.waitForLog(`msg="server request"`, "rpc=roots/list", "server=sh", "took=", "code=0")
}

// `ctxgate stdio` reloads its configuration when the file changes and on SIGHUP, and logs what it applied.
func TestStdioReloads(t *testing.T) {
	s := newStdioSite(t, "", "one")
	c := startStdio(t, s.dir, s.config)
	c.initialize("2025-11-25")
	lists := func(id string) bool {
		m := c.callMethod("tools/list", nil)
		return strings.Contains(string(m.Result), `"`+id+`::env"`)
	}
	if !lists("one") {
		t.Fatal("the first server is not listed")
	}
	s.writeServers(t, "", "one", "two")
	c.waitForLog(`msg="configuration reloaded"`, `applied=[servers.two]`, "needs_restart=[]")
	if err := wait.Until(startLimit, "the new server was not listed", func() (bool, error) { return lists("two"), nil }); err != nil {
		t.Fatal(err)
	}
	s.writeServers(t, "no_such_key = 1", "one", "two")
	c.waitForLog("level=ERROR", "configuration not reloaded", "failed=load", "no_such_key")

	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("first-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.writeServers(t, fmt.Sprintf("auth_token = \"file:%s\"\nlisten = \"127.0.0.1:1\"", secret), "one", "two")
	c.waitForLog(`msg="configuration reloaded"`, "applied=[auth_token]", "needs_restart=[listen]")
	if m := c.callMethod("tools/list", nil); m.Error == nil {
		t.Error("a request without the new token was served")
	}
	if m := c.callMethod("tools/list", params{"proxy": params{"authToken": "first-token"}}); m.Error != nil {
		t.Errorf("with the new token: %s", m.Error)
	}

	// SIGHUP reloads even if nothing changed.
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.waitForLog(`msg="configuration reloaded"`, "applied=[]", "needs_restart=[listen]")
	if strings.Contains(c.stderr.String(), "-token") {
		t.Errorf("stderr prints a secret: %s", &c.stderr)
	}
}
