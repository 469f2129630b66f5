//go:build linux

// Package chaos breaks things around ctxgate and counts what its clients notice: children that
// die, lie, stall and flood, upstreams that forget and restart, reloads and shutdowns under load.
// It knows only the real binary, its configuration file and the wires.
//
// Path through the files: frame_test.go is one message; fake_test.go, fakelists_test.go and
// faketools_test.go are a server that can misbehave, carried by fakestdio_test.go (with
// hostile_test.go and tree_test.go), fakehttp_test.go and fakesse_test.go; ledger_test.go is what
// the fakes write down. client_test.go and stdioclient_test.go speak to whatever is under test,
// load_test.go calls at a fixed rate, oracle_test.go judges each answer. gateway_test.go runs
// ctxgate, proc_test.go looks at processes from outside, table_test.go prints what came of it.
// proof…_test.go prove the harness itself: the fakes against a plain client, the oracle against a
// proxy that loses, swaps and repeats answers on purpose. The r…_test.go files are the scenarios,
// named for the ids of the reliability plan; burst_test.go and talk_test.go are what they share.
//
// Every scenario holds the same two lines: no call is lost, no answer is corrupt. Errors are
// allowed only where the scenario says so, and only well formed. The short form runs by default;
// CTXGATE_CHAOS=full runs the whole bars, and wants the machine for itself. CTXGATE_BINARY names a
// ctxgate that is there already, instead of building one.
package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	fullVariable   = "CTXGATE_CHAOS"  // "full" for the whole bars
	binaryVariable = "CTXGATE_BINARY" // a binary that is there already
)

// self is this test's own binary, which plays the fakes too; workshop is a folder of this run.
var self, workshop string

// full says whether the whole bars are wanted.
var full bool

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if play, ok := roles[os.Args[1]]; ok {
			os.Exit(play(os.Args[2:]))
		}
	}
	os.Exit(run(m))
}

// roles are what this binary can be besides a test.
var roles = map[string]func(args []string) int{
	"fake-stdio": playStdio,
	"fake-tree":  playTree,
}

func run(m *testing.M) int {
	full = os.Getenv(fullVariable) == "full"
	dir, err := os.MkdirTemp("", "ctxgate-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workshop = dir
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

// ctxgate is the binary under test, built once and as it is released: without cgo and without
// the race detector, whose memory and time would be measured as the gateway's.
var ctxgate = sync.OnceValues(func() (string, error) {
	if there := os.Getenv(binaryVariable); there != "" {
		return there, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path := filepath.Join(workshop, "ctxgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/ctxgate/ctxgate/cmd/ctxgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building ctxgate: %w\n%s", err, out)
	}
	return path, nil
})

// pick is the short form's number, or the whole bar's.
func pick(short, whole int) int {
	if full {
		return whole
	}
	return short
}

// within asks again and again until the answer is yes or it is too late.
func within(limit time.Duration, ask func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		if ask() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
