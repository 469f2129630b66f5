//go:build unix

package child

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// What the gateway writes to the lifeline. Its end of file is a kill as well.
const (
	orderTerm = 'T'
	orderKill = 'K'
)

// The first words of what the shim reports, a line each.
const (
	saysPid   = "pid "   // of the program
	saysError = "error " // why it could not be started
	saysEnded = "ended " // its wait status
)

// Files of the shim, beside those of the program.
const (
	fdLifeline = 3
	fdReport   = 4
)

// shimName is the shim's argv[0], which tells it from the gateway.
const shimName = "ctxgate-lifeline"

// shimEnv is all the environment of a shim, and keeps it small. The program's comes by pipe,
// where it cannot change how the shim runs and nobody reads it in the shim's /proc.
var shimEnv = []string{"GOMAXPROCS=1"}

// inMain is set by Lifeline. A binary whose main does not call it would not become a shim but
// run all over again.
var inMain atomic.Bool

// leash is how a running program is held.
type leash struct {
	lifeline *os.File
	shim     *os.Process
}

func (l leash) term() bool { return l.order(orderTerm) }

func (l leash) kill() { l.order(orderKill) }

// order fails only when the shim is gone, and the program with it.
func (l leash) order(o byte) bool {
	_, err := l.lifeline.Write([]byte{o})
	return err == nil
}

// cut kills the shim, which did not do as it was told. The watcher does what can still be done.
func (l leash) cut() { _ = l.shim.Kill() }

func launch(path string, spec Spec) (*Child, error) {
	if !inMain.Load() {
		return nil, errors.New("child.Lifeline was not called at the start of main")
	}
	pipes, err := plumb(out, in, in, out, in)
	if err != nil {
		return nil, err
	}
	shim, err := startShim(path, spec.Command, pipes.far)
	closeAll(pipes.far)
	if err != nil {
		closeAll(pipes.near)
		return nil, fmt.Errorf("lifeline: %w", err)
	}
	stdin, stdout, stderr, lifeline, report := pipes.near[0], pipes.near[1], pipes.near[2], pipes.near[3], pipes.near[4]
	heard := bufio.NewReader(report)
	pid, err := introduce(spec, lifeline, report, heard)
	if err != nil {
		_ = shim.Kill()
		_, _ = shim.Wait()
		closeAll(pipes.near)
		return nil, err
	}
	c := &Child{stdin: stdin, stdout: stdout, pid: pid, leash: leash{lifeline, shim}, done: make(chan struct{})}
	complaints := listen(stderr, spec.Stderr)
	go func() {
		err := c.watch(heard)
		closeAll([]*os.File{lifeline, report})
		c.finish(err, complaints)
	}()
	return c, nil
}

// startShim gives the shim a session of its own, so that Ctrl-C on our terminal does not end
// programs that the gateway is still draining. The program's command is there for ps to show.
func startShim(path string, command []string, files []*os.File) (*os.Process, error) {
	exe := "/proc/self/exe" // still there after an upgrade replaced the file
	if runtime.GOOS != "linux" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return os.StartProcess(exe, slices.Concat([]string{shimName, path}, command), &os.ProcAttr{
		Dir: "/", Env: shimEnv, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// introduce tells the shim what to start and hears how that went.
func introduce(spec Spec, lifeline, report *os.File, heard *bufio.Reader) (pid int, err error) {
	order, err := encode(spec)
	if err != nil {
		return 0, err
	}
	deadline := time.Now().Add(maxStart)
	if err := errors.Join(lifeline.SetWriteDeadline(deadline), report.SetReadDeadline(deadline)); err != nil {
		return 0, err
	}
	if _, err := lifeline.Write(order); err != nil {
		return 0, fmt.Errorf("lifeline: %w", err)
	}
	line, err := heard.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("lifeline: no word of the program: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if text, ok := strings.CutPrefix(line, saysError); ok {
		return 0, errors.New(text)
	}
	if pid, err = strconv.Atoi(strings.TrimPrefix(line, saysPid)); err != nil || pid <= 1 {
		return 0, fmt.Errorf("lifeline: unexpected %q", line)
	}
	return pid, errors.Join(lifeline.SetWriteDeadline(time.Time{}), report.SetReadDeadline(time.Time{}))
}

// encode is the first thing on the lifeline: a size, then directory and environment.
func encode(spec Spec) ([]byte, error) {
	dir := spec.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	words := append([]string{dir}, spec.Env...)
	for _, w := range words {
		if strings.Contains(w, "\x00") {
			return nil, errors.New("a NUL in the environment or directory of a program")
		}
	}
	text := strings.Join(words, "\x00")
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), nil
}

// watch waits for the shim's end. The read comes first: it costs no thread while it waits.
func (c *Child) watch(heard *bufio.Reader) error {
	line, _ := heard.ReadString('\n')
	status, ended := strings.CutPrefix(strings.TrimSuffix(line, "\n"), saysEnded)
	if ended {
		_, _ = heard.ReadByte() // its end of file is the shim's end
	}
	state, err := c.leash.shim.Wait()
	if err != nil {
		return fmt.Errorf("lifeline: %w", err)
	}
	code, err := strconv.ParseUint(status, 10, 32)
	if !ended || err != nil {
		// The kernel has killed the program; its group is ours to kill while any of it lives.
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		return fmt.Errorf("the program was killed because its lifeline ended (%s); what had left its process group may live on", state)
	}
	if !state.Success() {
		return fmt.Errorf("%w; its lifeline ended (%s), and what it left behind may live on", outcome(syscall.WaitStatus(code)), state)
	}
	return outcome(syscall.WaitStatus(code))
}

// outcome says it as os/exec does.
func outcome(s syscall.WaitStatus) error {
	switch {
	case s.Signaled() && s.CoreDump():
		return fmt.Errorf("signal: %s (core dumped)", s.Signal())
	case s.Signaled():
		return fmt.Errorf("signal: %s", s.Signal())
	case s.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", s.ExitStatus())
	}
	return nil
}
