package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const (
	startLimit = process.StartLimit
	exitLimit  = 15 * time.Second
	logTail    = 6000 // bytes of output shown when a test fails
)

// startProcess starts a command, kills it at the end of the test, and logs its output if the test failed.
func startProcess(t *testing.T, name string, cmd *exec.Cmd) *process.Process {
	t.Helper()
	p, err := process.Start(cmd, filepath.Join(t.ArtifactDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		logOutput(t, p)
	})
	return p
}

// logOutput logs the end of a process's output if the test failed.
func logOutput(t *testing.T, p *process.Process) {
	t.Helper()
	if t.Failed() {
		t.Logf("output of %s (last %d bytes):\n%s", filepath.Base(p.Cmd.Path), logTail, p.Tail(logTail))
	}
}

// freeAddress is an unused loopback address, for programs that cannot choose a port themselves.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// survivors returns the running processes that were started with this home directory. Without /proc there
// are none.
func survivors(home string) []int {
	var pids []int
	mark := []byte("HOME=" + home + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// requireNoSurvivors checks that the gateway has ended every process that it started (A2), and kills what is
// left.
func requireNoSurvivors(t *testing.T, home string) {
	t.Helper()
	err := wait.Until(5*time.Second, "the servers did not end with the gateway", func() (bool, error) {
		return len(survivors(home)) == 0, nil
	})
	if err == nil {
		return
	}
	for _, pid := range survivors(home) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		t.Errorf("%v: %d %s", err, pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
