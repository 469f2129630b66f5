//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// sharedSite is a site whose clients share a gateway in the background.
type sharedSite struct {
	*site
	binary string
}

// newSharedSite returns a site with these servers. At the end of the test its gateway is stopped, and nothing may be left
// behind.
func newSharedSite(t *testing.T, events *mcpserver.EventLog, servers ...server) *sharedSite {
	t.Helper()
	path, err := ctxgate()
	if err != nil {
		t.Fatal(err)
	}
	s := &sharedSite{newSite(t, events, servers...), path}
	if err := s.writeConfig(s.configText()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out, err := s.command("stop", "--config", s.config).CombinedOutput()
		if err != nil {
			t.Errorf("ctxgate stop: %v\n%s", err, out)
		}
		if t.Failed() {
			requests, rest := splitLog(s.gatewayLog())
			t.Logf("the last failed requests in the log:\n%s\nthe end of the rest:\n%s", lastLines(requests, 15), lastLines(rest, 60))
		}
		if crashed(s.gatewayLog()) {
			t.Errorf("a gateway or a server crashed:\n%s", lastLines(s.gatewayLog(), 40))
		}
		if !wait.True(5*time.Second, func() bool { return len(events.Survivors()) == 0 }) {
			t.Errorf("survivors after the gateway was stopped: %+v", events.Survivors())
			events.KillSurvivors()
		}
	})
	return s
}

func (s *sharedSite) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir, cmd.Env = s.dir, s.environ()
	return cmd
}

// gatewayLog is what the gateways in the background have logged.
func (s *sharedSite) gatewayLog() string {
	files, _ := filepath.Glob(filepath.Join(s.dir, ".local/share/ctxgate/logs/*.log"))
	var text strings.Builder
	for _, f := range files {
		data, _ := os.ReadFile(f)
		text.Write(data)
	}
	return text.String()
}

var startLine = regexp.MustCompile(`msg="the gateway starts" .*pid=(\d+)`)

// gateways returns the pids of the gateways that were started in the background, oldest first.
func (s *sharedSite) gateways() (pids []int) {
	for _, m := range startLine.FindAllStringSubmatch(s.gatewayLog(), -1) {
		pid, _ := strconv.Atoi(m[1])
		pids = append(pids, pid)
	}
	return pids
}

// connectBridge returns a client of `ctxgate stdio`.
func (s *sharedSite) connectBridge(t *testing.T, e mcpwire.Revision, can string) *mcpclient.StdioClient {
	t.Helper()
	c, err := s.tryBridge(t, e, can)
	if err != nil {
		t.Fatalf("%v; its log:\n%s", err, lastLines(s.readLog(), 20))
	}
	t.Cleanup(c.Close)
	return c
}

func (s *sharedSite) tryBridge(t *testing.T, e mcpwire.Revision, can string) (*mcpclient.StdioClient, error) {
	t.Helper()
	stderr, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stderr.Close() })
	return mcpclient.StartStdio(t.Context(), e, can, stderr, s.environ(), s.binary, "stdio", "--client", "codex", "--config", s.config)
}

// Three clients share one gateway and one set of children; a client that can be asked has a child of its own. The socket
// is for the owner only. A reload is one for all.
func TestClientsShareOneGateway(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	var clients []mcpclient.Client
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern, mcpwire.Legacy} {
		clients = append(clients, s.connectBridge(t, e, mcpclient.NoCapabilities))
	}
	waitReady(t, clients[0], "up")
	all := burst(300, 9, clients, []string{"up"}, nil)
	all.requireSound(t, events)
	all.requireAllOK(t)
	if n := len(events.PIDs("up")); n != 1 {
		t.Errorf("%d processes of one server ran for three clients", n)
	}
	if n := len(s.gateways()); n != 1 {
		t.Errorf("%d gateways were started", n)
	}
	sockets, _ := filepath.Glob(filepath.Join(s.dir, "run/ctxgate/*.sock"))
	if len(sockets) != 1 {
		t.Fatalf("the sockets are %q", sockets)
	}
	for path, want := range map[string]os.FileMode{sockets[0]: 0o600, filepath.Dir(sockets[0]): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	s.servers = append(s.servers, stdioServer("more", events))
	if err := s.writeConfig(s.configText()); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		waitReady(t, c, "more")
	}
	if n := len(events.PIDs("up")); n != 1 {
		t.Errorf("the reload restarted a server: %d processes", n)
	}
}

// Many clients that start at once on a cold machine start one gateway.
func TestClientsAtOnceStartOneGateway(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			c, err := s.tryBridge(t, mcpwire.Legacy, mcpclient.NoCapabilities)
			if err != nil {
				t.Errorf("%v; its log:\n%s", err, lastLines(s.readLog(), 20))
				return
			}
			defer c.Close()
			if got := callOnce(c, "up", "echo", "", 20*time.Second); got.verdict != ok {
				t.Errorf("%s: %s", got.verdict, got.reason)
			}
		})
	}
	wg.Wait()
	if n := len(s.gateways()); n != 1 {
		t.Errorf("%d gateways were started", n)
	}
	if n := len(events.PIDs("up")); n != 1 {
		t.Errorf("%d processes of one server were started", n)
	}
}

// When the gateway is killed, calls in flight are answered with an error that says they may have been executed, none is
// repeated, and the next calls work through the same bridges.
func TestBridgesSurviveAKilledGateway(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	clients := []mcpclient.Client{s.connectBridge(t, mcpwire.Legacy, mcpclient.NoCapabilities), s.connectBridge(t, mcpwire.Modern, mcpclient.NoCapabilities)}
	for _, c := range clients {
		waitReady(t, c, "up")
	}
	for round := range 2 {
		results := make(chan *call, len(clients))
		before := len(events.Executions())
		for _, c := range clients {
			go func() { results <- callOnce(c, "up", "slow", `"delay_ms":60000`, 30*time.Second) }()
		}
		if !wait.True(20*time.Second, func() bool { return len(events.Executions()) == before+len(clients) }) {
			t.Fatal("the calls did not begin")
		}
		pids := s.gateways()
		if err := syscall.Kill(pids[len(pids)-1], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		var all calls
		for range clients {
			all = append(all, <-results)
		}
		for _, c := range all {
			if c.verdict != failed || !strings.Contains(string(c.got.Error), "may have been executed") {
				t.Errorf("round %d: %s, %s: %s", round, c.verdict, c.reason, c.got.Error)
			}
		}
		all.requireSound(t, events)
		for _, c := range clients {
			waitReady(t, c, "up")
		}
	}
	if n := len(s.gateways()); n != 3 {
		t.Errorf("%d gateways were started, want one after each kill", n)
	}
}

// A gateway in the background stays while a client is connected, ends when nobody uses it, and is started again.
func TestIdleGatewayEnds(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	s.sections = "[background]\nidle_timeout = \"1s\""
	if err := s.writeConfig(s.configText()); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		c, err := s.tryBridge(t, mcpwire.Legacy, mcpclient.NoCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		waitReady(t, c, "up")
		time.Sleep(2 * time.Second) // idle, but connected
		if got := callOnce(c, "up", "echo", "", 20*time.Second); got.verdict != ok || len(s.gateways()) != round+1 {
			t.Errorf("%s %s after idle time with a client; %d gateways", got.verdict, got.reason, len(s.gateways()))
		}
		c.Close()
		pid := s.gateways()[round]
		if !wait.True(20*time.Second, func() bool { _, err := process.StartTime(pid); return err != nil }) {
			t.Fatalf("the gateway did not end")
		}
		if len(events.Survivors()) > 0 {
			t.Errorf("survivors: %+v", events.Survivors())
		}
	}
}

// An upgrade of the executable replaces the gateway: under continuous calls of three bridges and of clients over HTTP every
// call is answered, and executed once.
func TestUpgradeLosesNoCall(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("a", events), stdioServer("b", events))
	s.binary = filepath.Join(s.dir, "ctxgate")
	upgrade := func() {
		t.Helper()
		path, _ := ctxgate()
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(s.binary+".new", data, 0o700)
		}
		if err == nil {
			err = os.Rename(s.binary+".new", s.binary)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	upgrade()
	var clients []mcpclient.Client
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern, mcpwire.Legacy} {
		clients = append(clients, s.connectBridge(t, e, mcpclient.NoCapabilities))
	}
	waitReady(t, clients[0], "a", "b")
	address := regexp.MustCompile(`listener=main address=(\S+)`).FindStringSubmatch(s.gatewayLog())[1]
	load := &loadGenerator{rate: 60, servers: []string{"a", "b"}, clients: clients, tool: "slow", extraArgs: `"delay_ms":300`, limit: time.Minute}
	web := &loadGenerator{rate: 20, servers: []string{"a", "b"}, limit: time.Minute, newConnection: func() (mcpclient.Client, func()) {
		client, done := freshHTTP()
		return &mcpclient.HTTPClient{URL: "http://" + address + "/mcp", Revision: mcpwire.Modern, HTTP: client, Capabilities: mcpclient.NoCapabilities, AnswerRequest: mcpclient.AcceptElicitation}, done
	}}
	web.clients = []mcpclient.Client{onEachConnection{web.newConnection}}
	load.startLoad()
	web.startLoad()
	for round := 1; round <= 3; round++ {
		old := s.gateways()[round-1]
		upgrade()
		if !wait.True(time.Minute, func() bool { return len(s.gateways()) > round }) {
			t.Fatalf("the gateway was not replaced; its log:\n%s", lastLines(s.gatewayLog(), 10))
		}
		if !wait.True(time.Minute, func() bool { _, err := process.StartTime(old); return err != nil }) {
			t.Fatalf("the old gateway did not end; its log:\n%s", lastLines(s.gatewayLog(), 10))
		}
	}
	all, overHTTP := load.stopLoad(), web.stopLoad()
	t.Logf("bridges: %s; HTTP: %s", all.summary(), overHTTP.summary())
	for _, cs := range []calls{all, overHTTP} {
		cs.requireSound(t, events)
		cs.requireAllOK(t)
		executions, wrong := events.Executions(), 0
		for _, c := range cs {
			if len(executions[c.nonce]) != 1 {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%d calls were not executed exactly once", wrong)
		}
	}
	if n := len(s.gateways()); n != 4 {
		t.Errorf("%d gateways ran, want 4", n)
	}
	for _, c := range clients {
		for _, what := range c.(*mcpclient.StdioClient).Unexpected() {
			t.Errorf("a client got what it did not ask for: %s", what)
		}
	}
}

// onEachConnection makes each call on a new connection.
type onEachConnection struct {
	connect func() (mcpclient.Client, func())
}

func (o onEachConnection) Call(ctx context.Context, a mcpclient.Request) (mcpclient.Reply, error) {
	c, done := o.connect()
	defer done()
	return c.Call(ctx, a)
}

func (o onEachConnection) Notify(context.Context, string, string) error { return nil }

// `ctxgate stop` lets the call in flight finish, says what it stopped, and leaves nothing; the client's next call starts
// another gateway.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	c := s.connectBridge(t, mcpwire.Legacy, mcpclient.NoCapabilities)
	modern := s.connectBridge(t, mcpwire.Modern, mcpclient.NoCapabilities)
	waitReady(t, c, "up")
	go func() {
		_, _ = modern.Call(t.Context(), mcpclient.Request{ID: `"stream"`, Method: "subscriptions/listen", Params: `{"notifications":{"toolsListChanged":true}}`})
	}()
	before := len(events.Executions())
	result := make(chan *call, 1)
	go func() { result <- callOnce(c, "up", "slow", `"delay_ms":1500`, 30*time.Second) }()
	if !wait.True(20*time.Second, func() bool { return len(events.Executions()) > before }) {
		t.Fatal("the call did not begin")
	}
	begin := time.Now()
	out, err := s.command("stop", "--config", s.config).CombinedOutput()
	pid := s.gateways()[0]
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("stopped the gateway of %s (pid %d", s.config, pid)) {
		t.Errorf("%v: %s", err, out)
	}
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("it took %s", took)
	}
	if got := <-result; got.verdict != ok {
		t.Errorf("the call in flight: %s, %s", got.verdict, got.reason)
	}
	if len(events.Survivors()) > 0 {
		t.Errorf("survivors: %+v", events.Survivors())
	}
	if out, err := s.command("stop", "--config", s.config).CombinedOutput(); err != nil || !strings.Contains(string(out), "no gateway runs") {
		t.Errorf("a second stop: %v %s", err, out)
	}
	waitReady(t, c, "up")
	waitReady(t, modern, "up")
	if n := len(s.gateways()); n != 2 {
		t.Errorf("%d gateways were started", n)
	}
	out, err = s.command("logs", "-n", "5", "--config", s.config).CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n")) != 5 || !bytes.HasSuffix([]byte(s.gatewayLog()), out[len(out)/2:]) && !strings.Contains(s.gatewayLog(), string(out)) {
		t.Errorf("ctxgate logs: %v\n%s", err, out)
	}
}

// `ctxgate serve` takes over from the gateway in the background without a lost call, and hands its clients back when it
// stops.
func TestServeTakesOver(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	c := s.connectBridge(t, mcpwire.Legacy, mcpclient.NoCapabilities)
	waitReady(t, c, "up")
	load := &loadGenerator{rate: 40, servers: []string{"up"}, clients: []mcpclient.Client{c}, tool: "slow", extraArgs: `"delay_ms":200`, limit: time.Minute}
	load.startLoad()
	background := s.gateways()[0]
	log := filepath.Join(s.dir, "serve.log")
	g, err := process.Start(s.command("serve", "--config", s.config), log)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Kill()
	if !wait.True(time.Minute, func() bool { _, err := process.StartTime(background); return err != nil }) {
		t.Fatalf("the gateway in the background did not end:\n%s\n%s", g.Output(), lastLines(s.gatewayLog(), 10))
	}
	if !wait.True(20*time.Second, func() bool { return strings.Count(g.Output(), "rpc=tools/call") > 10 }) {
		t.Fatalf("the new gateway serves no calls:\n%s", g.Output())
	}
	if err := g.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := g.ExitCode(30 * time.Second); code != 0 || err != nil {
		t.Errorf("serve: %d %v\n%s", code, err, g.Output())
	}
	waitReady(t, c, "up")
	all := load.stopLoad()
	all.requireSound(t, events)
	all.requireAllOK(t)
	if n := len(s.gateways()); n != 2 {
		t.Errorf("%d gateways were started in the background", n)
	}
}

// Why a gateway does not start is shown where a person and an agent look: on the bridge's stderr, and in the reply to
// initialize. A gateway whose variables a client did not pass on names that client.
func TestStartErrorIsShown(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	for name, tt := range map[string]struct{ top, want string }{
		"a key that does not exist":      {`no_such_key = 1`, `ctxgate.toml:4: no_such_key: unknown key`},
		"a variable that was not passed": {`auth_token = "env:NOT_PASSED_ON"`, `NOT_PASSED_ON`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSharedSite(t, events)
			s.topLevel = tt.top
			if err := s.writeConfig(s.configText()); err != nil {
				t.Fatal(err)
			}
			cmd := s.command("stdio", "--client", "codex", "--config", s.config)
			var stdout, stderr bytes.Buffer
			cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}` + "\n")
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err == nil {
				t.Error("it exited with 0")
			}
			var reply struct {
				ID    int
				Error struct{ Message string }
			}
			if err := json.Unmarshal(stdout.Bytes(), &reply); err != nil || reply.ID != 7 || !strings.Contains(reply.Error.Message, tt.want) {
				t.Errorf("%v: the reply is %s", err, &stdout)
			}
			if got := strings.TrimSpace(stderr.String()); got != strings.TrimSpace(reply.Error.Message) {
				t.Errorf("stderr is %q, the reply says %q", got, reply.Error.Message)
			}
			if strings.Contains(tt.want, "PASSED") && !strings.Contains(stderr.String(), "here codex") {
				t.Errorf("the client is not named: %s", &stderr)
			}
			_ = os.WriteFile(s.config, []byte("listen = \"127.0.0.1:0\"\n"), 0o600) // so that stop reads it
		})
	}
}

// A gateway in the background whose address is in use takes a free port, and says which.
func TestBackgroundGatewayTakesAFreePort(t *testing.T) {
	t.Parallel()
	events := mcpserver.NewEventLog(t)
	s := newSharedSite(t, events, stdioServer("up", events))
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	text := strings.Replace(s.configText(), `listen = "127.0.0.1:0"`, fmt.Sprintf(`listen = %q`, busy.Addr()), 1)
	if err := s.writeConfig(text); err != nil {
		t.Fatal(err)
	}
	out, err := s.command("serve", "--background", "--config", s.config).CombinedOutput()
	m := regexp.MustCompile(`MCP: http://(\S+)/mcp`).FindSubmatch(out)
	if err != nil || m == nil || string(m[1]) == busy.Addr().String() {
		t.Fatalf("%v: %s", err, out)
	}
	if got := process.Status("http://" + string(m[1]) + "/healthz"); got != 200 {
		t.Errorf("the free port answers %d", got)
	}
}
