// Package e2e tests the real ctxgate binary with real sockets, signals and files. Only recovery_test.go
// reads the store from inside.
//
// Files: main_test.go builds the binary; gateway_test.go runs it; fakeserver_test.go is a JSON-RPC server for
// it to call; script_test.go runs the scripts in testdata, each of which says in its first lines what it
// proves. The other files test what a script cannot: recovery_test.go kills the gateway under load,
// drain_test.go stops it under load, document000_test.go to document003_test.go run the examples of the
// user's documents (with documentserver_test.go), compat_test.go loads what earlier versions wrote, memory_linux_test.go and concurrency_linux_test.go (with
// holdserver_test.go) measure memory.
//
// Every process is ended by its pid, every wait has a limit, and nothing leaves loopback.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

var update = flag.Bool("update", false, "update the expected output in the scripts of testdata")

// binary is the ctxgate under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if os.Getenv(holdServerVariable) != "" {
		return runHoldServer()
	}
	if name := os.Getenv(documentServerVariable); name != "" {
		return runDocumentServer(name)
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "ctxgate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = gateway.Build(dir); err != nil {
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
