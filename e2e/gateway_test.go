package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	startLimit = 20 * time.Second
	endLimit   = 30 * time.Second
	poll       = 5 * time.Millisecond
)

// gateway is a running ctxgate.
type gateway struct {
	url, admin string // base URLs, as its log tells them
	log        string // the file of its stderr
	cmd        *exec.Cmd
	ended      chan struct{}
}

// launch starts `ctxgate serve` and waits until it is healthy. The configuration asks for port 0,
// so that no two tests can want the same.
func launch(dir, log string, env []string, args ...string) (*gateway, error) {
	stderr, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	g := &gateway{log: log, ended: make(chan struct{})}
	g.cmd = exec.Command(binary, append([]string{"serve"}, args...)...)
	// The pruner has an address of its own, which is open only where a test asks for it.
	g.cmd.Dir, g.cmd.Env, g.cmd.Stderr = dir, append([]string{"CTXGATE_MCP_PRUNER_LISTEN="}, env...), stderr
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = g.cmd.Wait() // what came of it is in ProcessState
		close(g.ended)
	}()
	if err := g.healthy(); err != nil {
		g.kill()
		said, _ := os.ReadFile(log)
		return nil, fmt.Errorf("%w; it said:\n%s", err, said)
	}
	return g, nil
}

var listening = regexp.MustCompile(`listener"?[=:]"?(main|admin)"?[ ,]"?address"?[=:]"?([0-9.:]+)`)

func (g *gateway) healthy() error {
	client, done := newClient()
	defer done()
	return within(startLimit, "ctxgate did not become healthy", func() (bool, error) {
		if g.hasEnded() {
			return false, fmt.Errorf("ctxgate ended at once: %s", g.cmd.ProcessState)
		}
		if err := g.readAddresses(); err != nil || g.url == "" {
			return false, err
		}
		resp, err := client.Get(g.url + "/healthz")
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		// By now all addresses are in the log.
		return resp.StatusCode == http.StatusOK, errors.Join(resp.Body.Close(), g.readAddresses())
	})
}

func (g *gateway) readAddresses() error {
	said, err := os.ReadFile(g.log)
	for _, m := range listening.FindAllSubmatch(said, -1) {
		if url := "http://" + string(m[2]); string(m[1]) == "main" {
			g.url = url
		} else {
			g.admin = url
		}
	}
	return err
}

// within asks again and again until the answer is yes, an error, or too late.
func within(limit time.Duration, otherwise string, ask func() (bool, error)) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(poll) {
		if yes, err := ask(); yes || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s within %s", otherwise, limit)
}

func (g *gateway) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// exit waits for the end and gives the exit code; -1 for a process that a signal ended.
func (g *gateway) exit() (int, error) {
	select {
	case <-g.ended:
		return g.cmd.ProcessState.ExitCode(), nil
	case <-time.After(endLimit):
		return 0, fmt.Errorf("ctxgate did not end within %s", endLimit)
	}
}

// kill ends the process whatever it does; one that has ended already is left in peace.
func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// rpc is the address of a server behind the gateway.
func (g *gateway) rpc(server string) string { return g.url + "/api/mcp-gateway/" + server + "/rpc" }

// site is a folder with a config and the data of the gateways that run there.
type site struct{ dir, config, data string }

// settle writes a config for one server, "up", and whatever else the test wants to say.
func settle(t *testing.T, rpc, more string) site {
	t.Helper()
	dir := t.TempDir()
	s := site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), data: filepath.Join(dir, "data")}
	text := fmt.Sprintf("listen = \"127.0.0.1:0\"\ndata_dir = %q\nlog_level = \"INFO\"\n%s\n[admin]\nlisten = \"127.0.0.1:0\"\n[[servers]]\nid = \"up\"\nrpc = %q\n", s.data, more, rpc)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// environ is all that a gateway of a site gets to know of this machine.
func (s site) environ() []string { return []string{"HOME=" + s.dir, "PATH=" + os.Getenv("PATH")} }

func (s site) start(t *testing.T) *gateway {
	t.Helper()
	g, err := launch(s.dir, filepath.Join(s.dir, "ctxgate.log"), s.environ(), "--config", s.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.kill)
	return g
}

// recover runs `ctxgate recover`.
func (s site) recover(t *testing.T, w io.Writer, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "recover", id, "--config", s.config)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.environ(), w, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("recover %s: %v\n%s", id, err, &stderr)
	}
}

// metrics scrapes the series that have no labels.
func (g *gateway) metrics(s site) (map[string]float64, error) {
	token, err := os.ReadFile(filepath.Join(s.data, "admin-token"))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodGet, g.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client, done := newClient()
	defer done()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	series := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			series[name] = v
		}
	}
	if len(series) == 0 {
		return nil, fmt.Errorf("no metrics: HTTP %d", resp.StatusCode)
	}
	return series, nil
}

// newClient makes a client and what gives its connections back.
func newClient() (*http.Client, func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	return &http.Client{Transport: transport, Timeout: time.Minute}, transport.CloseIdleConnections
}

// post sends a body and reads all of the answer.
func post(client *http.Client, url, body string, header http.Header) (int, []byte, error) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
