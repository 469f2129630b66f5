// Package process starts child processes for tests and benchmarks, keeps their output, ends them by their
// pid, and reads their figures from /proc (proc.go).
package process

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// StartLimit is the time that a process has to become ready.
const StartLimit = 20 * time.Second

// Process is a started process whose output goes to a file.
type Process struct {
	Cmd    *exec.Cmd
	Log    string
	exited chan struct{}
}

// Start starts a command and writes its stdout and stderr to the log file.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	p := &Process{Cmd: cmd, Log: log, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(p.exited)
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// HasExited reports whether the process has ended.
func (p *Process) HasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.Cmd.Process.Signal(s) }

// ExitCode waits for the end and returns the exit code, or -1 if a signal ended the process.
func (p *Process) ExitCode(limit time.Duration) (int, error) {
	select {
	case <-p.exited:
		return p.Cmd.ProcessState.ExitCode(), nil
	case <-time.After(limit):
		return 0, fmt.Errorf("%s did not exit within %s", p.name(), limit)
	}
}

// Kill kills the process, if it still runs, and waits for its end.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.exited
}

// Terminate sends SIGTERM. If the process does not exit within the limit, it is killed and an error is
// returned.
func (p *Process) Terminate(limit time.Duration) error {
	_ = p.Signal(syscall.SIGTERM)
	_, err := p.ExitCode(limit)
	if err != nil {
		p.Kill()
	}
	return err
}

// Output is everything that the process has written.
func (p *Process) Output() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tail is the end of the output.
func (p *Process) Tail(maxBytes int) string {
	out := p.Output()
	return out[max(0, len(out)-maxBytes):]
}

func (p *Process) name() string { return filepath.Base(p.Cmd.Path) }

// WaitFor polls until cond is true. It returns an error with the output if the process exits first or the
// condition does not become true within [StartLimit].
func (p *Process) WaitFor(problem string, cond func() bool) error {
	err := wait.Until(StartLimit, problem, func() (bool, error) {
		if p.HasExited() {
			return false, fmt.Errorf("%s exited: %s", p.name(), p.Cmd.ProcessState)
		}
		return cond(), nil
	})
	if err != nil {
		return fmt.Errorf("%w; its output:\n%s", err, p.Tail(20_000))
	}
	return nil
}

// FindOutput waits until the output matches, and returns the first group.
func (p *Process) FindOutput(pattern *regexp.Regexp) (found string, err error) {
	err = p.WaitFor(fmt.Sprintf("%s did not print %s", p.name(), pattern), func() bool {
		m := pattern.FindStringSubmatch(p.Output())
		if m != nil {
			found = m[1]
		}
		return m != nil
	})
	return found, err
}

// WaitStatus waits until a GET of the URL returns the status.
func (p *Process) WaitStatus(url string, status int) error {
	return p.WaitFor(fmt.Sprintf("%s did not return %d", url, status), func() bool { return Status(url) == status })
}

// WaitListening waits until the process accepts connections at the address.
func (p *Process) WaitListening(address string) error {
	return p.WaitFor("nothing listens at "+address, func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", address)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

// Status GETs a URL on a connection of its own and returns the status, or 0 if there is no reply.
func Status(url string) int {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// FreeAddress returns a loopback address with an unused port, for processes that cannot choose one.
func FreeAddress() (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Buffer is a bytes.Buffer that may be written and read concurrently.
type Buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

// String is everything written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
