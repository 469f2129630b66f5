//go:build linux

// Package chaos breaks things around ctxgate and counts what its clients notice: children that die, lie,
// stall and flood, servers that lose their sessions and restart, reloads and shutdowns under load. It uses
// only the real binary, its configuration file and its protocols.
//
// Files: gateway_test.go runs ctxgate with servers of testkit/mcpserver; load_test.go calls at a fixed rate
// or in bursts, through clients of testkit/mcpclient; oracle_test.go judges each reply; lists_test.go reads
// tool lists and calls tools that elicit; report_test.go prints the results. serverselftest_test.go and
// oracleselftest_test.go test the suite itself: the servers with a plain client, the oracle with a proxy that
// loses, swaps and repeats replies. The r…_test.go files are the scenarios, named for the ids of the
// reliability plan; flood_test.go (with floodserver_test.go) and store_test.go test the memory budget and the
// store. keeping_test.go is the load of r11_outage_test.go, r12_failover_test.go and r12_power_test.go, which break a Redis
// store; CTXGATE_FAILOVERS=full runs R12 in full.
//
// Every scenario requires that no call is lost and no reply corrupt. Errors are allowed only where the
// scenario says so, and must be well formed. The short form is the default; CTXGATE_CHAOS=full runs the full
// scenarios and needs the machine for itself. CTXGATE_BINARY names a ctxgate binary to test instead of
// building one.
package chaos

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
)

const (
	fullVariable   = "CTXGATE_CHAOS"  // "full" for the full scenarios
	binaryVariable = "CTXGATE_BINARY" // path of an existing binary
)

// self is the test binary, which also runs as a server; workDir is this run's folder.
var self, workDir string

// fullRun selects the full scenarios.
var fullRun bool

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if runRole, ok := roles[os.Args[1]]; ok {
			os.Exit(runRole(os.Args[2:]))
		}
	}
	os.Exit(runTests(m))
}

// roles are the commands that the test binary implements.
var roles = map[string]func(args []string) int{
	"mcp-server":      mcpserver.RunStdio,
	"mcp-server-tree": mcpserver.RunTree,
}

func runTests(m *testing.M) int {
	fullRun = os.Getenv(fullVariable) == "full"
	dir, err := os.MkdirTemp("", "ctxgate-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	if self, err = os.Executable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	results.print(os.Stdout)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// ctxgate is the binary under test, built once.
var ctxgate = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return path, nil
	}
	return gateway.Build(workDir)
})

// shortOrFull returns the number for the selected form.
func shortOrFull(short, full int) int {
	if fullRun {
		return full
	}
	return short
}
