// Package gateway builds the ctxgate binary and runs it for tests and benchmarks.
package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// Build compiles ctxgate into dir and returns its path.
func Build(dir string) (string, error) {
	return BuildCommand(dir, "github.com/ctxgate/ctxgate/cmd/ctxgate")
}

// BuildCommand compiles a command as it is released: without cgo, and without the race detector, whose
// memory and time would be measured as the command's.
func BuildCommand(dir, pkg string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path := filepath.Join(dir, filepath.Base(pkg))
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, pkg)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// NoPruner closes the pruner's listener, whose default port is fixed: gateways under test run side by side.
const NoPruner = "CTXGATE_MCP_PRUNER_LISTEN="

// Environment is a gateway's whole environment: a home directory, with the runtime directory in it, the search path, and
// more variables.
func Environment(home string, more ...string) []string {
	run := filepath.Join(home, "run")
	_ = os.MkdirAll(run, 0o700) // without it, the user's own would be used
	return append([]string{"HOME=" + home, "XDG_RUNTIME_DIR=" + run, "PATH=" + os.Getenv("PATH")}, more...)
}

// Gateway is a running `ctxgate serve`.
type Gateway struct {
	*process.Process
	URL      string // of the main listener
	AdminURL string // empty without an admin listener
}

var listening = regexp.MustCompile(`listener"?[=:]"?(main|admin)"?[ ,]"?address"?[=:]"?([0-9.:]+)`)

// Start runs a `ctxgate serve` command and waits until it is healthy. The configuration asks for port 0, so
// that gateways never collide; the log says which ports they got.
func Start(cmd *exec.Cmd, log string) (*Gateway, error) {
	p, err := process.Start(cmd, log)
	if err != nil {
		return nil, err
	}
	g := &Gateway{Process: p}
	err = p.WaitFor("ctxgate did not become healthy", func() bool {
		g.readAddresses()
		if g.URL == "" || process.Status(g.URL+"/healthz") != http.StatusOK {
			return false
		}
		g.readAddresses() // once healthy, all addresses are in the log
		return true
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return g, nil
}

func (g *Gateway) readAddresses() {
	for _, m := range listening.FindAllStringSubmatch(g.Output(), -1) {
		if url := "http://" + m[2]; m[1] == "main" {
			g.URL = url
		} else {
			g.AdminURL = url
		}
	}
}

// RPC is the URL of a server behind the plain JSON-RPC gateway.
func (g *Gateway) RPC(server string) string { return g.URL + "/api/mcp-gateway/" + server + "/rpc" }
