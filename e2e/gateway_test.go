package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

const (
	startLimit = process.StartLimit
	exitLimit  = 30 * time.Second
)

// testGateway is a running `ctxgate serve` or `ctxgate pruner`.
type testGateway struct{ *gateway.Gateway }

// startGateway starts `ctxgate serve` in dir and waits until it is healthy.
func startGateway(dir, log string, env []string, args ...string) (*testGateway, error) {
	cmd := exec.Command(binary, append([]string{"serve"}, args...)...)
	cmd.Dir, cmd.Env = dir, append([]string{gateway.NoPruner}, env...)
	g, err := gateway.Start(cmd, log)
	return &testGateway{g}, err
}

// stop sends SIGTERM and requires exit code 0.
func (g *testGateway) stop(t *testing.T) {
	t.Helper()
	if err := g.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := g.ExitCode(exitLimit); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// site is a folder with a configuration and the data of its gateways.
type site struct{ dir, config, data string }

// newSite writes a configuration with the server "up" and more top-level lines.
func newSite(t *testing.T, rpc, more string) site {
	t.Helper()
	dir := t.TempDir()
	s := site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), data: filepath.Join(dir, "data")}
	text := fmt.Sprintf("listen = \"127.0.0.1:0\"\ndata_dir = %q\nlog_level = \"INFO\"\n%s\n[admin]\nlisten = \"127.0.0.1:0\"\n[[servers]]\nid = \"up\"\nrpc = %q\n", s.data, more, rpc)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// replaceInConfig changes the configuration file.
func (s site) replaceInConfig(t *testing.T, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(s.config)
	if err == nil && !bytes.Contains(text, []byte(old)) {
		err = fmt.Errorf("the configuration has no %q", old)
	}
	if err == nil {
		err = os.WriteFile(s.config, bytes.ReplaceAll(text, []byte(old), []byte(replacement)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s site) environ() []string { return gateway.Environment(s.dir) }

func (s site) start(t *testing.T) *testGateway {
	t.Helper()
	g, err := startGateway(s.dir, filepath.Join(s.dir, "ctxgate.log"), s.environ(), "--config", s.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Kill)
	return g
}

// recoverText writes what `ctxgate recover` prints.
func (s site) recoverText(t *testing.T, w io.Writer, id string) {
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

// metrics returns the metrics by name and labels.
func (g *testGateway) metrics(s site) (map[string]float64, error) {
	token, err := os.ReadFile(filepath.Join(s.data, "admin-token"))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodGet, g.AdminURL+"/metrics", nil)
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
		return nil, fmt.Errorf("no metrics in the reply: HTTP %d", resp.StatusCode)
	}
	return series, nil
}

// newClient returns a client and a function that closes its connections.
func newClient() (*http.Client, func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	return &http.Client{Transport: transport, Timeout: time.Minute}, transport.CloseIdleConnections
}

// post sends a body and returns the status and body of the reply.
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
