//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is one [[servers]] of the configuration.
type server struct {
	id      string
	command []string
	url     string
	more    string // further lines of TOML
}

// child is a fake on a pipe.
func child(id string, book *ledger, flags ...string) server {
	return server{id: id, command: fakeCommand(id, book, flags...)}
}

// far is a fake behind HTTP.
func far(id string, h *httpFake) server {
	return server{id: id, url: h.url("/mcp"), more: `transport = "http"`}
}

// site is a folder with a configuration, the data and the log of the gateway that runs there.
type site struct {
	dir, config, log string
	book             *ledger
	head             string // further keys of the top level
	tail             string // further sections
	state            string // keys of [state]; default: in memory
	servers          []server
}

func newSite(t *testing.T, book *ledger, servers ...server) *site {
	t.Helper()
	dir := t.TempDir()
	return &site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), log: filepath.Join(dir, "ctxgate.log"), book: book, servers: servers}
}

// text is the configuration.
func (s *site) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen = \"127.0.0.1:0\"\ndata_dir = %q\nlog_level = \"INFO\"\n%s\n", filepath.Join(s.dir, "data"), s.head)
	fmt.Fprintf(&b, "[admin]\nlisten = \"\"\n[mcp_pruner]\nlisten = \"\"\n[state]\n%s\n%s\n", cmp.Or(s.state, `driver = "memory"`), s.tail)
	for _, v := range s.servers {
		fmt.Fprintf(&b, "\n[[servers]]\nid = %q\n", v.id)
		if v.command != nil {
			name, value, _ := strings.Cut(quickExit, "=")
			fmt.Fprintf(&b, "command = %s\nenv = { %s = %q }\n", toJSON(v.command), name, value)
		}
		if v.url != "" {
			fmt.Fprintf(&b, "url = %q\n", v.url)
		}
		fmt.Fprintln(&b, v.more)
	}
	return b.String()
}

// write replaces the configuration in one step, as a careful editor does.
func (s *site) write(text string) error {
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.config+".new", s.config)
}

// environ is all that the gateway gets to know of this machine.
func (s *site) environ() []string {
	// Gateways run side by side, and lists hold what the ledger's servers offer, no more.
	return []string{"HOME=" + s.dir, "PATH=" + os.Getenv("PATH"), "CTXGATE_MCP_PRUNER_LISTEN=", "CTXGATE_MCP_PRUNER_BUILTIN=false"}
}

// gateway is a running ctxgate.
type gateway struct {
	*site
	url   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs `ctxgate serve` and waits until it is healthy. At the test's end it is killed, and
// whatever it leaves behind is a failure.
func (s *site) start(t *testing.T) *gateway {
	t.Helper()
	g, err := s.launch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.bury(t) })
	return g
}

func (s *site) launch() (*gateway, error) {
	path, err := ctxgate()
	if err != nil {
		return nil, err
	}
	if err := s.write(s.text()); err != nil {
		return nil, err
	}
	stderr, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	g := &gateway{site: s, ended: make(chan struct{}), cmd: exec.Command(path, "serve", "--config", s.config)}
	g.cmd.Dir, g.cmd.Env, g.cmd.Stderr = s.dir, s.environ(), stderr
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = g.cmd.Wait() // what came of it is in ProcessState
		close(g.ended)
	}()
	if !within(20*time.Second, func() bool { return g.hasEnded() || g.healthy() }) || g.hasEnded() {
		g.kill()
		return nil, fmt.Errorf("ctxgate did not become healthy; it said:\n%s", s.said())
	}
	return g, nil
}

var listening = regexp.MustCompile(`listener"?[=:]"?main"?[ ,]"?address"?[=:]"?([0-9.:]+)`)

func (g *gateway) healthy() bool {
	m := listening.FindStringSubmatch(g.said())
	if m == nil {
		return false
	}
	g.url = "http://" + m[1]
	return g.status("/healthz") == http.StatusOK
}

// status asks for a page on a connection of its own; 0 when nobody answers.
func (g *gateway) status(path string) int {
	client, done := freshHTTP()
	defer done()
	client.Timeout = 5 * time.Second
	resp, err := client.Get(g.url + path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// said is the gateway's log.
func (s *site) said() string {
	data, _ := os.ReadFile(s.log)
	return string(data)
}

func (g *gateway) pid() int { return g.cmd.Process.Pid }

func (g *gateway) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

func (g *gateway) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end and gives the exit code; -1 for a process that a signal ended.
func (g *gateway) exit(limit time.Duration) (int, error) {
	select {
	case <-g.ended:
		return g.cmd.ProcessState.ExitCode(), nil
	case <-time.After(limit):
		return 0, fmt.Errorf("ctxgate did not end within %s", limit)
	}
}

// kill ends the process whatever it does; one that has ended already is left in peace.
func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// bury kills the gateway and counts what it leaves behind.
func (g *gateway) bury(t *testing.T) {
	t.Helper()
	g.kill()
	if t.Failed() {
		requests, rest := notable(g.said())
		t.Logf("its log: the last requests that failed\n%s\nand the end of the rest\n%s", lastLines(requests, 15), lastLines(rest, 15))
	}
	if crashed(g.said()) {
		t.Errorf("the log tells that the gateway or a fake crashed:\n%s", lastLines(g.said(), 40))
	}
	if !within(2*time.Second, func() bool { return len(g.book.survivors()) == 0 }) {
		t.Errorf("survivors 2s after the gateway was killed: %+v", g.book.survivors())
		g.book.reap()
	}
}

// crashed says whether a log tells of a Go program that fell over its own fault. The fakes' stderr is
// in the gateway's log, and one that died where it was to hang has tested something else.
func crashed(log string) bool {
	return strings.Contains(log, "panic") || strings.Contains(log, "fatal error: ")
}

// notable takes a log apart: the requests that failed, and what is about no request.
func notable(log string) (requests, rest string) {
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

// web is a client of the gateway with connections of its own, that cannot be asked anything.
func (g *gateway) web(t *testing.T, e era) *webClient {
	t.Helper()
	return g.webWho(t, e, answersNothing)
}

func (g *gateway) webWho(t *testing.T, e era, can string) *webClient {
	t.Helper()
	return g.door(t, "/mcp", e, can)
}

// door is a client of one of the gateway's doors.
func (g *gateway) door(t *testing.T, path string, e era, can string) *webClient {
	t.Helper()
	client, done := newHTTP()
	t.Cleanup(done)
	c, err := dial(t.Context(), client, g.url+path, e, can)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// webs is n clients, of both eras in turn.
func (g *gateway) webs(t *testing.T, n int) []peer {
	t.Helper()
	var out []peer
	for i := range n {
		out = append(out, g.web(t, []era{legacy, modern}[i%2]))
	}
	return out
}

// fresh is a modern client on a connection that is used once.
func (g *gateway) fresh() (peer, func()) {
	client, done := freshHTTP()
	return &webClient{url: g.url + "/mcp", era: modern, http: client, can: answersNothing, answers: obliging}, done
}

// pipe is a client on the other end of `ctxgate stdio` with the site's configuration.
func (s *site) pipe(t *testing.T, e era) *pipeClient {
	t.Helper()
	path, err := ctxgate()
	if err == nil {
		err = s.write(s.text())
	}
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stderr.Close() })
	c, err := spawn(t.Context(), e, answersNothing, stderr, s.environ(), path, "stdio", "--config", s.config)
	if err != nil {
		t.Fatalf("%v; it said:\n%s", err, lastLines(s.said(), 20))
	}
	t.Cleanup(c.close)
	return c
}

// ready waits until each server answers a call through p, and gives how long that took.
func ready(t *testing.T, p peer, servers ...string) time.Duration {
	t.Helper()
	begin := time.Now()
	for _, id := range servers {
		c := &call{}
		if !within(20*time.Second, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			n := time.Now().UnixNano()
			c = &call{id: fmt.Sprint(n), nonce: fmt.Sprintf("ready-%d", n), tenant: "t", server: id, tool: "echo"}
			c.make(ctx, p)
			return c.verdict == ok
		}) {
			t.Fatalf("%s does not answer: %s, %s", id, c.verdict, c.why)
		}
	}
	return time.Since(begin)
}

// proxied is the gateway's name for a resource of a server.
func proxied(server, uri string) string {
	return "proxy://resource/" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"server":%q,"uri":%q}`, server, uri))
}

// noZombies fails the test when a process below the gateway is dead and not waited for.
func (g *gateway) noZombies(t *testing.T) {
	t.Helper()
	if !within(2*time.Second, func() bool { return len(zombiesUnder(g.pid())) == 0 }) {
		t.Errorf("zombies: %v", zombiesUnder(g.pid()))
	}
}

func zombiesUnder(pid int) []int {
	pids, zombies := childrenOf(pid)
	for _, p := range pids {
		zombies = append(zombies, zombiesUnder(p)...)
	}
	return zombies
}

// errorsOf joins what went wrong in several places.
func errorsOf(errs []error) error { return errors.Join(errs...) }
