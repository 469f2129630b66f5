// Package e2e tests ctxgate as its users meet it: the real binary, real sockets, real signals,
// real files. Nothing here knows the inside of the gateway but for one reader of its store.
//
// Path through the files: main_test.go builds the binary, gateway_test.go runs it,
// upstream_test.go is the server behind it, script_test.go gives both to the scripts in
// testdata, each of which says in its first lines what it proves. The other files are what a
// script cannot say: recovery_test.go kills the gateway under load, drain_test.go ends it
// politely, document000_test.go to document003_test.go run what the user's documents say
// (documentserver_test.go are their servers), memory_linux_test.go and held_linux_test.go (with hold_test.go) measure it.
//
// Every process is ended by its id, every wait has an end, and nothing leaves loopback.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write what was found into the scripts of testdata")

// binary is the ctxgate under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(holdVariable) != "" {
		return holdProcess()
	}
	if name := os.Getenv(documentServerVariable); name != "" {
		return documentServer(name)
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "ctxgate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// build compiles the command as it is released: without cgo, and without the race detector,
// whose memory would be measured as the gateway's.
func build(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	binary = filepath.Join(dir, "ctxgate")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/ctxgate/ctxgate/cmd/ctxgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building ctxgate: %w\n%s", err, out)
	}
	return nil
}
