//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shellServer is an MCP server in a shell: the tool env says what its environment is, the tool roots
// asks its client for its roots first.
const shellServer = `while read -r line; do
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

// stdioSite writes a config with a shell server of each of these ids.
func stdioSite(t *testing.T, top string, ids ...string) site {
	t.Helper()
	dir := t.TempDir()
	s := site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), data: filepath.Join(dir, "data")}
	if err := os.WriteFile(filepath.Join(dir, "server.sh"), []byte(shellServer), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(t, top, ids...)
	return s
}

func (s site) write(t *testing.T, top string, ids ...string) {
	t.Helper()
	text := fmt.Sprintf("data_dir = %q\n%s\n", s.data, top)
	for _, id := range ids {
		text += fmt.Sprintf("[[servers]]\nid = %q\ncommand = [\"sh\", %q]\n", id, filepath.Join(s.dir, "server.sh"))
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stdioClient is a client that starts `ctxgate stdio` itself.
type stdioClient struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *logBuffer
	id     int
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (s site) stdio(t *testing.T, env ...string) *stdioClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c := &stdioClient{cmd: exec.CommandContext(ctx, binary, "stdio", "--config", s.config), stderr: &logBuffer{}}
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = s.dir, append(s.environ(), env...), c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.cmd.Wait()
		cancel()
	})
	return c
}

// message is anything that comes on stdout: what is no JSON-RPC message fails the test.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (c *stdioClient) next(t *testing.T) message {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, c.stderr)
	}
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("on stdout: %v in %q", err, line)
	}
	return m
}

func (c *stdioClient) send(t *testing.T, msg string) {
	t.Helper()
	if _, err := io.WriteString(c.in, msg+"\n"); err != nil {
		t.Fatal(err)
	}
}

// ask makes a request and gives its answer. Requests for the client's roots are answered on the way.
func (c *stdioClient) ask(t *testing.T, method, params string) message {
	t.Helper()
	c.id++
	c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.id, method, params))
	for {
		m := c.next(t)
		switch {
		case m.Method == "roots/list":
			c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, m.ID))
		case m.Method == "" && string(m.ID) == fmt.Sprint(c.id):
			return m
		}
	}
}

func (c *stdioClient) initialize(t *testing.T) message {
	t.Helper()
	return c.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"x","version":"1"}}`)
}

// says waits for a line on stderr that has all of these.
func (c *stdioClient) says(t *testing.T, all ...string) {
	t.Helper()
	err := within(startLimit, "stderr does not say "+strings.Join(all, " "), func() (bool, error) {
		for line := range strings.SplitSeq(c.stderr.String(), "\n") {
			found := true
			for _, part := range all {
				found = found && strings.Contains(line, part)
			}
			if found {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.stderr)
	}
}

// A8 on stdio: a process that was started with the right token in its environment serves its client
// without one, and the token does not reach the programs it starts. One that was started without
// refuses requests that have none.
func TestA8StdioTokenInEnvironment(t *testing.T) {
	s := stdioSite(t, `auth_token = "hush-hush"`, "sh")
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
			c := s.stdio(t, tt.env...)
			m := c.initialize(t)
			if !tt.ok {
				if m.Error == nil || m.Error.Code != -31401 {
					t.Fatalf("initialize: %+v", m)
				}
				if m = c.ask(t, "tools/list", `{"proxy":{"authToken":"hush-hush"}}`); m.Error != nil {
					t.Errorf("with the token in the request: %+v", m.Error)
				}
				return
			}
			if m.Error != nil {
				t.Fatalf("initialize: %+v", m.Error)
			}
			m = c.ask(t, "tools/call", `{"name":"sh::env"}`)
			if text := string(m.Result); m.Error != nil || !strings.Contains(text, "PATH=") || strings.Contains(text, "hush") || strings.Contains(text, "TOKEN") {
				t.Errorf("the program's environment: %+v %s", m.Error, text)
			}
			if strings.Contains(c.stderr.String(), "unknown variable") || strings.Contains(c.stderr.String(), "hush-hush") {
				t.Errorf("stderr: %s", c.stderr)
			}
		})
	}
}

// A8 on stdio: a wrong token in the environment is an error at start that names the variable.
func TestA8StdioWrongTokenInEnvironment(t *testing.T) {
	s := stdioSite(t, `auth_token = "hush-hush"`, "sh")
	for _, name := range []string{"CTXGATE_TOKEN", "AUTH_TOKEN"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, binary, "stdio", "--config", s.config)
		cmd.Dir, cmd.Env = s.dir, append(s.environ(), name+"=guess-guess")
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), "the token in the variable "+name+" is not the auth_token") || strings.Contains(string(out), "guess-guess") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

// `ctxgate stdio` logs each call and each request of a server on stderr, and nothing on stdout.
func TestStdioLogsCallsOnStderr(t *testing.T) {
	c := stdioSite(t, "", "sh").stdio(t)
	c.initialize(t)
	if m := c.ask(t, "tools/call", `{"name":"sh::roots"}`); m.Error != nil {
		t.Fatalf("%+v", m.Error)
	}
	c.ask(t, "tools/call", `{"name":"sh::none"}`)
	c.says(t, "msg=request", "transport=stdio", "rpc=tools/call", "server=sh", "name=roots", "took=", "code=0")
	c.says(t, "msg=request", "rpc=tools/call", "server=sh", "name=none", "code=-32601")
	c.says(t, "msg=request", "rpc=initialize", "code=0")
	c.says(t, `msg="server request"`, "rpc=roots/list", "server=sh", "took=", "code=0")
}

// `ctxgate stdio` reloads its config when the file changes and on SIGHUP, and says what it applied.
func TestStdioReloads(t *testing.T) {
	s := stdioSite(t, "", "one")
	c := s.stdio(t)
	c.initialize(t)
	lists := func(id string) bool {
		m := c.ask(t, "tools/list", `{}`)
		return strings.Contains(string(m.Result), `"`+id+`::env"`)
	}
	if !lists("one") {
		t.Fatal("the first server is not listed")
	}
	s.write(t, "", "one", "two")
	c.says(t, `msg="configuration reloaded"`, `applied=[servers.two]`, "needs_restart=[]")
	if err := within(startLimit, "the new server was not listed", func() (bool, error) { return lists("two"), nil }); err != nil {
		t.Fatal(err)
	}
	s.write(t, "no_such_key = 1", "one", "two")
	c.says(t, "level=ERROR", "configuration not reloaded", "failed=load", "no_such_key")

	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("first-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write(t, fmt.Sprintf("auth_token = \"file:%s\"\nlisten = \"127.0.0.1:1\"", secret), "one", "two")
	c.says(t, `msg="configuration reloaded"`, "applied=[auth_token]", "needs_restart=[listen]")
	if m := c.ask(t, "tools/list", `{}`); m.Error == nil {
		t.Error("a request without the new token was served")
	}
	if m := c.ask(t, "tools/list", `{"proxy":{"authToken":"first-token"}}`); m.Error != nil {
		t.Errorf("with the new token: %+v", m.Error)
	}

	// SIGHUP has the file read though nothing changed.
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.says(t, `msg="configuration reloaded"`, "applied=[]", "needs_restart=[listen]")
	if strings.Contains(c.stderr.String(), "-token") {
		t.Errorf("stderr prints a secret: %s", c.stderr)
	}
}
