package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// config is the part of the configuration that these tests use.
type config struct {
	Listen  string   `json:"listen"`
	DataDir string   `json:"data_dir"`
	Level   string   `json:"log_level"`
	Servers []server `json:"servers"`
	Admin   listener `json:"admin"`
	Pruner  listener `json:"mcp_pruner"`
	State   driver   `json:"state"`
	Tokens  []token  `json:"tokens,omitempty"`
}

// token is a named caller.
type token struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Tenant string `json:"tenant"`
}

type listener struct {
	Listen string `json:"listen"`
}

type driver struct {
	Driver string `json:"driver"`
}

// server is one server behind the gateway.
type server struct {
	ID        string            `json:"id"`
	Command   []string          `json:"command,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	URL       string            `json:"url,omitempty"`
	Transport string            `json:"transport,omitempty"`
	Prefix    string            `json:"prefix,omitempty"`
	OAuth     map[string]string `json:"oauth,omitempty"`

	Credentials string `json:"credentials,omitempty"`
}

// site is the home directory of a gateway and its servers, with the configuration.
type site struct{ home, config string }

func newSite(home string, servers []server) (site, error) {
	s := site{home: home, config: filepath.Join(home, "ctxgate.json")}
	text, err := json.MarshalIndent(config{
		Listen:  "127.0.0.1:0",
		DataDir: filepath.Join(home, "data"),
		Level:   "DEBUG",
		Servers: servers,
		State:   driver{"memory"},
		Tokens:  tokens(subjects()),
	}, "", "  ")
	if err != nil {
		return s, err
	}
	return s, os.WriteFile(s.config, text, 0o600)
}

// environ is the whole environment of a gateway.
func environ(home string) []string { return gateway.Environment(home, gateway.NoPruner) }

// startGateway starts `ctxgate serve` and waits until its servers are ready.
func startGateway(binary, log string, s site) (*gateway.Gateway, error) {
	cmd := exec.Command(binary, "serve", "--config", s.config)
	cmd.Env = environ(s.home)
	g, err := gateway.Start(cmd, log)
	if err != nil {
		return nil, err
	}
	if err := g.WaitStatus(g.URL+"/readyz", http.StatusOK); err != nil {
		g.Kill()
		return nil, err
	}
	return g, nil
}

// serveSite runs a gateway for one test.
func serveSite(t *testing.T, s site) *gateway.Gateway {
	t.Helper()
	g, err := startGateway(ctxgate.path(t), filepath.Join(t.ArtifactDir(), "ctxgate.log"), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Terminate(exitLimit); err != nil {
			t.Error(err)
		}
		requireNoSurvivors(t, s.home)
		logOutput(t, g.Process)
	})
	return g
}

// serve runs a gateway with these servers for one test and returns the URL of its MCP endpoint.
func serve(t *testing.T, servers ...server) string {
	t.Helper()
	s, err := newSite(t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	return serveSite(t, s).URL + "/mcp"
}

// stdioCommand returns the command of a `ctxgate stdio --alone` with these servers.
func stdioCommand(t *testing.T, servers ...server) (command []string, home string) {
	t.Helper()
	s, err := newSite(t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { requireNoSurvivors(t, s.home) })
	return []string{ctxgate.path(t), "stdio", "--alone", "--config", s.config}, s.home
}

// bridgeCommand returns the command of a `ctxgate stdio` with these servers, which starts a gateway in the background.
func bridgeCommand(t *testing.T, servers ...server) (command []string, home string) {
	t.Helper()
	s, err := newSite(t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := exec.Command(ctxgate.path(t), "stop", "--config", s.config)
		stop.Env = environ(s.home)
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("ctxgate stop: %v\n%s", err, out)
		}
		requireNoSurvivors(t, s.home)
		if text := backgroundLog(s.home); t.Failed() {
			t.Logf("log of the gateway in the background (last %d bytes):\n%s", logTail, text[max(0, len(text)-logTail):])
		}
	})
	return []string{ctxgate.path(t), "stdio", "--config", s.config}, s.home
}

// backgroundLog is what the gateways that bridges started in the background have logged.
func backgroundLog(home string) string {
	files, _ := filepath.Glob(filepath.Join(home, ".local/share/ctxgate/logs/*.log"))
	var text strings.Builder
	for _, f := range files {
		data, _ := os.ReadFile(f)
		text.Write(data)
	}
	return text.String()
}

// waitForTools waits until tools/list contains all of these names.
func waitForTools(t *testing.T, url string, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	session, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, modern, nil)
	if err != nil {
		t.Fatalf("connecting to list the tools: %v", err)
	}
	defer session.Close()
	var got []string
	err = wait.Until(startLimit, "tools/list did not contain all tools", func() (bool, error) {
		got = nil
		for tool, err := range session.Tools(ctx, nil) {
			if err != nil {
				return false, err
			}
			got = append(got, tool.Name)
		}
		return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(got, n) }), nil
	})
	if err != nil {
		t.Fatalf("%v: wanted %s, got %s", err, strings.Join(names, ", "), strings.Join(got, ", "))
	}
}

// connect opens a session of the Go SDK in the given revision and no other.
func connect(ctx context.Context, transport mcp.Transport, e revision, options *mcp.ClientOptions) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "peers-go", Version: "1.0.0"}, options)
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: e.version()})
	if err != nil {
		return nil, err
	}
	if got := session.InitializeResult().ProtocolVersion; got != e.version() {
		_ = session.Close()
		return nil, fmt.Errorf("the session has revision %s, want %s", got, e.version())
	}
	return session, nil
}
