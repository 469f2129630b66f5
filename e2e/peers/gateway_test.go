package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// config is the part of ctxgate's configuration that these tests use.
type config struct {
	Listen  string   `json:"listen"`
	DataDir string   `json:"data_dir"`
	Level   string   `json:"log_level"`
	Servers []server `json:"servers"`
	Admin   listener `json:"admin"`
	Pruner  listener `json:"mcp_pruner"`
	State   driver   `json:"state"`
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
}

// site is a folder with a config: the home of one gateway and of all it starts.
type site struct{ home, config string }

func settle(home string, servers []server) (site, error) {
	s := site{home: home, config: filepath.Join(home, "ctxgate.json")}
	text, err := json.MarshalIndent(config{
		Listen:  "127.0.0.1:0",
		DataDir: filepath.Join(home, "data"),
		Level:   "DEBUG",
		Servers: servers,
		State:   driver{"memory"},
	}, "", "  ")
	if err != nil {
		return s, err
	}
	return s, os.WriteFile(s.config, text, 0o600)
}

// environ is all that a gateway gets to know of this machine.
func environ(home string) []string {
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CTXGATE_MCP_PRUNER_LISTEN="} // several run side by side
}

var mainListener = regexp.MustCompile(`listener"?[=:]"?main"?[ ,]"?address"?[=:]"?([0-9.:]+)`)

// launch starts `ctxgate serve` and waits until it is ready for calls.
func launch(binary, log string, s site) (*process, string, error) {
	cmd := exec.Command(binary, "serve", "--config", s.config)
	cmd.Env = environ(s.home)
	p, err := begin(log, cmd)
	if err != nil {
		return nil, "", err
	}
	address, err := p.match(mainListener)
	if err == nil {
		err = ready("http://" + address + "/readyz")
	}
	if err != nil {
		p.kill()
		return nil, "", fmt.Errorf("%w; it said:\n%s", err, tail(log, tellMost))
	}
	return p, "http://" + address + "/mcp", nil
}

func ready(url string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return within(startLimit, "ctxgate did not become ready", func() (bool, error) {
		resp, err := client.Get(url)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
}

// serve runs a gateway over HTTP for one test and gives the address of its MCP endpoint.
func serve(t *testing.T, servers ...server) string {
	t.Helper()
	s, err := settle(t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	p, url, err := launch(ctxgate.path(t), filepath.Join(t.ArtifactDir(), "ctxgate.log"), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.terminate(); err != nil {
			t.Errorf("ctxgate: %v", err)
		}
		alone(t, s.home)
		p.tell(t)
	})
	return url
}

// stdio is the command of a gateway that speaks over stdio.
func stdio(t *testing.T, servers ...server) (command []string, home string) {
	t.Helper()
	s, err := settle(t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alone(t, s.home) })
	return []string{ctxgate.path(t), "stdio", "--config", s.config}, s.home
}

// complete waits until tools/list names all of these: servers come when they are ready.
func complete(t *testing.T, url string, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	session, err := connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, legacy, nil)
	if err != nil {
		t.Fatalf("connecting to see the tools: %v", err)
	}
	defer session.Close()
	var got []string
	err = within(startLimit, "tools/list did not become complete", func() (bool, error) {
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

// connect makes a session of the Go SDK in one era, and in no other.
func connect(ctx context.Context, transport mcp.Transport, e era, options *mcp.ClientOptions) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "peers-go", Version: "1.0.0"}, options)
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: e.version()})
	if err != nil {
		return nil, err
	}
	if got := session.InitializeResult().ProtocolVersion; got != e.version() {
		_ = session.Close()
		return nil, fmt.Errorf("the session speaks %s, wanted %s", got, e.version())
	}
	return session, nil
}
