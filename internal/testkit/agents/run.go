//go:build unix

package agents

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// RunLimit is how long an agent may run. They take a few seconds; a busy machine takes many times that.
const RunLimit = 2 * time.Minute

// Transcript is what a run of an agent left behind.
type Transcript struct {
	Args     []string
	Stdout   string
	Stderr   string
	ExitCode int
	TimedOut bool
	Took     time.Duration
}

// Ask runs the agent with one prompt until it has answered.
func (a Agent) Ask(s *Sandbox, w Wiring, prompt string) Transcript {
	s.tb.Helper()
	return s.runArgs(a, func() ([]string, error) { return a.headless(s, w, prompt) })
}

// Configure writes the agent's files as a person would have them. Runs with [Sandbox.KeepFiles] use them.
func (a Agent) Configure(s *Sandbox, w Wiring) {
	s.tb.Helper()
	write := a.list
	if write == nil {
		write = func(s *Sandbox, w Wiring) ([]string, error) { return a.headless(s, w, "") }
	}
	if _, err := write(s, w); err != nil {
		s.tb.Fatal(err)
	}
}

// ListServers runs the agent's own command that lists MCP servers. HasList says whether it has one.
func (a Agent) ListServers(s *Sandbox, w Wiring) Transcript {
	s.tb.Helper()
	return s.runArgs(a, func() ([]string, error) { return a.list(s, w) })
}

// HasList reports whether the agent has a command that lists MCP servers.
func (a Agent) HasList() bool { return a.list != nil }

// Run runs the agent with the given arguments and whatever configuration the home directory has.
func (a Agent) Run(s *Sandbox, args ...string) Transcript {
	s.tb.Helper()
	return s.runArgs(a, func() ([]string, error) { return args, nil })
}

func (s *Sandbox) runArgs(a Agent, configure func() ([]string, error)) Transcript {
	s.tb.Helper()
	program, err := a.program(s.install)
	if err != nil {
		s.tb.Fatal(err)
	}
	args, err := configure()
	if err != nil {
		s.tb.Fatal(err)
	}
	return s.Run(append(program, args...)...)
}

// Run runs a command in the sandbox until it ends, at most for [RunLimit], and then ends what it has left
// running in its process group.
func (s *Sandbox) Run(command ...string) Transcript {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), RunLimit)
	defer cancel()
	var stdout, stderr process.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = s.Work, s.Env
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = endGroup
	cmd.WaitDelay = 5 * time.Second // a left-over child may hold the pipes
	started := time.Now()
	err := cmd.Run()
	if cmd.Process == nil {
		s.tb.Fatal(err)
	}
	_ = endGroup()
	t := Transcript{
		Args: command, Stdout: stdout.String(), Stderr: stderr.String(),
		ExitCode: cmd.ProcessState.ExitCode(), TimedOut: ctx.Err() != nil, Took: time.Since(started),
	}
	if err != nil && !errors.As(err, new(*exec.ExitError)) && !errors.Is(err, exec.ErrWaitDelay) && !t.TimedOut {
		s.tb.Fatal(err)
	}
	return t
}

// endProcesses kills the processes that still run with this home directory: agents start some in groups of
// their own. Without /proc it finds none.
func endProcesses(tb testing.TB, home string) {
	tb.Helper()
	mark := []byte("HOME=" + home + "\x00")
	for range 5 {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		left := false
		for _, file := range files {
			environ, err := os.ReadFile(file)
			if err != nil || !bytes.Contains(environ, mark) {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil || pid == os.Getpid() {
				continue
			}
			left = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if !left {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
