//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// server is an entry of [[servers]].
type server struct {
	id        string
	command   []string
	url       string
	extraTOML string // more lines of the entry
}

// stdioServer is a test server over stdio.
func stdioServer(id string, events *mcpserver.EventLog, flags ...string) server {
	return server{id: id, command: serverCommand(id, events, flags...)}
}

// httpServer is a test server over HTTP.
func httpServer(id string, h *mcpserver.HTTPServer) server {
	return server{id: id, url: h.URL("/mcp"), extraTOML: `transport = "http"`}
}

// site is a folder with the configuration, data and log of a gateway.
type site struct {
	dir, config, log string
	events           *mcpserver.EventLog
	topLevel         string // more top-level keys
	sections         string // more sections
	state            string // keys of [state]; default: memory
	servers          []server
}

func newSite(t *testing.T, events *mcpserver.EventLog, servers ...server) *site {
	t.Helper()
	dir := t.TempDir()
	return &site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), log: filepath.Join(dir, "ctxgate.log"), events: events, servers: servers}
}

func (s *site) configText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen = \"127.0.0.1:0\"\ndata_dir = %q\nlog_level = \"INFO\"\n%s\n", filepath.Join(s.dir, "data"), s.topLevel)
	fmt.Fprintf(&b, "[admin]\nlisten = \"\"\n[mcp_pruner]\nlisten = \"\"\n[state]\n%s\n%s\n", cmp.Or(s.state, `driver = "memory"`), s.sections)
	for _, v := range s.servers {
		fmt.Fprintf(&b, "\n[[servers]]\nid = %q\n", v.id)
		if v.command != nil {
			name, value, _ := strings.Cut(quickExit, "=")
			fmt.Fprintf(&b, "command = %s\nenv = { %s = %q }\n", mcpwire.EncodeJSON(v.command), name, value)
		}
		if v.url != "" {
			fmt.Fprintf(&b, "url = %q\n", v.url)
		}
		fmt.Fprintln(&b, v.extraTOML)
	}
	return b.String()
}

// writeConfig replaces the configuration atomically.
func (s *site) writeConfig(text string) error {
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.config+".new", s.config)
}

func (s *site) environ() []string {
	// Without the built-in pruner, lists contain only the test servers' tools.
	return gateway.Environment(s.dir, gateway.NoPruner, "CTXGATE_MCP_PRUNER_BUILTIN=false")
}

// testGateway is a running `ctxgate serve`.
type testGateway struct {
	*site
	*gateway.Gateway
}

// start runs `ctxgate serve` and waits until it is healthy. At the end of the test it is killed, and must
// leave no process behind.
func (s *site) start(t *testing.T) *testGateway {
	t.Helper()
	g, err := s.startGateway()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.cleanUp(t) })
	return g
}

func (s *site) startGateway() (*testGateway, error) {
	path, err := ctxgate()
	if err != nil {
		return nil, err
	}
	if err := s.writeConfig(s.configText()); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "serve", "--config", s.config)
	cmd.Dir, cmd.Env = s.dir, s.environ()
	g, err := gateway.Start(cmd, s.log)
	return &testGateway{s, g}, err
}

// readLog is everything that the gateways of this site have logged.
func (s *site) readLog() string {
	data, _ := os.ReadFile(s.log)
	return string(data)
}

func (g *testGateway) sendSignal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := g.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// cleanUp kills the gateway and checks its log and its children.
func (g *testGateway) cleanUp(t *testing.T) {
	t.Helper()
	g.Kill()
	if t.Failed() {
		requests, rest := splitLog(g.readLog())
		t.Logf("the last failed requests in the log:\n%s\nthe end of the rest:\n%s", lastLines(requests, 15), lastLines(rest, 15))
	}
	if crashed(g.readLog()) {
		t.Errorf("the gateway or a server crashed:\n%s", lastLines(g.readLog(), 40))
	}
	if !wait.True(2*time.Second, func() bool { return len(g.events.Survivors()) == 0 }) {
		t.Errorf("survivors 2s after the gateway was killed: %+v", g.events.Survivors())
		g.events.KillSurvivors()
	}
}

// crashed reports whether the log contains a crash of a Go program: the gateway, or a test server, whose
// stderr is in the gateway's log. A server that crashed instead of hanging would have tested something else.
func crashed(log string) bool {
	return strings.Contains(log, "panic") || strings.Contains(log, "fatal error: ")
}

// splitLog returns the failed requests of a log, and the lines that are about no request.
func splitLog(log string) (requests, rest string) {
	var failed, other strings.Builder
	for line := range strings.Lines(log) {
		switch {
		case strings.Contains(line, "fault="):
			failed.WriteString(line)
		case !strings.Contains(line, "msg=request"):
			other.WriteString(line)
		}
	}
	return failed.String(), other.String()
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// connect returns a client with its own connections and without capabilities.
func (g *testGateway) connect(t *testing.T, e mcpwire.Revision) *mcpclient.HTTPClient {
	t.Helper()
	return g.connectWith(t, e, mcpclient.NoCapabilities)
}

func (g *testGateway) connectWith(t *testing.T, e mcpwire.Revision, can string) *mcpclient.HTTPClient {
	t.Helper()
	return g.connectTo(t, "/mcp", e, can)
}

// connectTo returns a client of one of the gateway's endpoints.
func (g *testGateway) connectTo(t *testing.T, path string, e mcpwire.Revision, can string) *mcpclient.HTTPClient {
	t.Helper()
	client, done := newHTTP()
	t.Cleanup(done)
	c, err := mcpclient.ConnectHTTP(t.Context(), client, g.URL+path, e, can)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connectMany returns n clients, alternating between the revisions.
func (g *testGateway) connectMany(t *testing.T, n int) []mcpclient.Client {
	t.Helper()
	var out []mcpclient.Client
	for i := range n {
		out = append(out, g.connect(t, []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern}[i%2]))
	}
	return out
}

// newConnection returns a modern client whose connections are used once.
func (g *testGateway) newConnection() (mcpclient.Client, func()) {
	client, done := freshHTTP()
	return &mcpclient.HTTPClient{URL: g.URL + "/mcp", Revision: mcpwire.Modern, HTTP: client, Capabilities: mcpclient.NoCapabilities, AnswerRequest: mcpclient.AcceptElicitation}, done
}

// connectStdio returns a client of `ctxgate stdio --alone` with the site's configuration.
func (s *site) connectStdio(t *testing.T, e mcpwire.Revision) *mcpclient.StdioClient {
	t.Helper()
	path, err := ctxgate()
	if err == nil {
		err = s.writeConfig(s.configText())
	}
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stderr.Close() })
	c, err := mcpclient.StartStdio(t.Context(), e, mcpclient.NoCapabilities, stderr, s.environ(), path, "stdio", "--alone", "--config", s.config)
	if err != nil {
		t.Fatalf("%v; its log:\n%s", err, lastLines(s.readLog(), 20))
	}
	t.Cleanup(c.Close)
	return c
}

// waitReady waits until each server serves a call through p, and returns how long that took.
func waitReady(t *testing.T, p mcpclient.Client, servers ...string) time.Duration {
	t.Helper()
	begin := time.Now()
	for _, id := range servers {
		c := &call{}
		if !wait.True(20*time.Second, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			n := time.Now().UnixNano()
			c = &call{id: fmt.Sprint(n), nonce: fmt.Sprintf("ready-%d", n), tenant: "t", server: id, tool: "echo"}
			c.send(ctx, p)
			return c.verdict == ok
		}) {
			t.Fatalf("%s does not answer: %s, %s", id, c.verdict, c.reason)
		}
	}
	return time.Since(begin)
}

// proxiedURI is the gateway's URI for a resource of a server.
func proxiedURI(server, uri string) string {
	return "proxy://resource/" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"server":%q,"uri":%q}`, server, uri))
}

// requireNoZombies fails the test if the gateway has zombies below it.
func (g *testGateway) requireNoZombies(t *testing.T) {
	t.Helper()
	if !wait.True(2*time.Second, func() bool { return len(zombiesUnder(g.PID())) == 0 }) {
		t.Errorf("zombies: %v", zombiesUnder(g.PID()))
	}
}

func zombiesUnder(pid int) []int {
	pids, zombies := process.Children(pid)
	for _, p := range pids {
		zombies = append(zombies, zombiesUnder(p)...)
	}
	return zombies
}

// memoryOf is a size from /proc/<pid>/status, such as VmRSS or VmHWM; 0 if the process is gone.
func memoryOf(pid int, field string) int64 {
	n, _ := process.Memory(pid, field)
	return n
}

// quickExit is for test servers built with the race detector, which sleeps for a second at exit by default.
const quickExit = "GORACE=atexit_sleep_ms=0"

// serverCommand is the command line of a test server over stdio.
func serverCommand(server string, events *mcpserver.EventLog, flags ...string) []string {
	return append([]string{self, "mcp-server", "-server", server, "-events", events.Path}, flags...)
}
