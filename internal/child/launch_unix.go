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

// The commands that the gateway writes to the lifeline. End of file means commandKill too.
const (
	commandTerm = 'T'
	commandKill = 'K'
)

// The lines that the shim writes to its report pipe start with these.
const (
	reportPid   = "pid "   // of the child
	reportError = "error " // why the child could not be started
	reportEnded = "ended " // the child's wait status
)

// File descriptors of the shim, besides those of the child.
const (
	fdLifeline = 3
	fdReport   = 4
)

// shimName is the shim's argv[0], by which it knows that it is one.
const shimName = "ctxgate-lifeline"

// shimEnv is the whole environment of a shim. The child's comes through the lifeline, where it cannot change how the
// shim runs and is not visible in the shim's /proc.
var shimEnv = []string{"GOMAXPROCS=1"}

// shimReady is set by RunIfShim. A binary whose main does not call it would not become a shim but run main again.
var shimReady atomic.Bool

// control ends a running child.
type control struct {
	lifeline *os.File
	shim     *os.Process
}

func (c control) terminate() bool { return c.command(commandTerm) }

func (c control) kill() { c.command(commandKill) }

// command fails only when the shim is gone, and the child with it.
func (c control) command(b byte) bool {
	_, err := c.lifeline.Write([]byte{b})
	return err == nil
}

// abandon kills a shim that did not obey. The kernel kills the child then.
func (c control) abandon() { _ = c.shim.Kill() }

func launch(path string, spec Spec) (*Child, error) {
	if !shimReady.Load() {
		return nil, errors.New("child.RunIfShim was not called at the start of main")
	}
	p, err := openPipes(toChild, fromChild, fromChild, toChild, fromChild)
	if err != nil {
		return nil, err
	}
	shim, err := startShim(path, spec.Command, p.theirs)
	closeAll(p.theirs)
	if err != nil {
		closeAll(p.ours)
		return nil, fmt.Errorf("lifeline: %w", err)
	}
	stdin, stdout, stderr, lifeline, report := p.ours[0], p.ours[1], p.ours[2], p.ours[3], p.ours[4]
	reports := bufio.NewReader(report)
	pid, err := startChild(spec, lifeline, report, reports)
	if err != nil {
		_ = shim.Kill()
		_, _ = shim.Wait()
		closeAll(p.ours)
		return nil, err
	}
	c := &Child{stdin: stdin, stdout: stdout, pid: pid, control: control{lifeline, shim}, done: make(chan struct{})}
	lines := readStderr(stderr, spec.OnStderrLine)
	go func() {
		err := c.awaitEnd(reports)
		closeAll([]*os.File{lifeline, report})
		c.setEnded(err, lines)
	}()
	return c, nil
}

// startShim starts the shim in a session of its own, so that Ctrl-C on the gateway's terminal does not end children that
// still finish their calls. The child's command is among its arguments so that ps shows it.
func startShim(path string, command []string, files []*os.File) (*os.Process, error) {
	exe := "/proc/self/exe" // works even after an upgrade replaced the file
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

// startChild tells the shim what to start, and returns the child's pid.
func startChild(spec Spec, lifeline, report *os.File, reports *bufio.Reader) (pid int, err error) {
	encoded, err := encodeSpec(spec)
	if err != nil {
		return 0, err
	}
	deadline := time.Now().Add(maxStart)
	if err := errors.Join(lifeline.SetWriteDeadline(deadline), report.SetReadDeadline(deadline)); err != nil {
		return 0, err
	}
	if _, err := lifeline.Write(encoded); err != nil {
		return 0, fmt.Errorf("lifeline: %w", err)
	}
	line, err := reports.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("lifeline: the shim reported nothing: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if text, ok := strings.CutPrefix(line, reportError); ok {
		return 0, errors.New(text)
	}
	if pid, err = strconv.Atoi(strings.TrimPrefix(line, reportPid)); err != nil || pid <= 1 {
		return 0, fmt.Errorf("lifeline: unexpected %q", line)
	}
	return pid, errors.Join(lifeline.SetWriteDeadline(time.Time{}), report.SetReadDeadline(time.Time{}))
}

// encodeSpec is the first thing on the lifeline: a size, then directory and environment.
func encodeSpec(spec Spec) ([]byte, error) {
	dir := spec.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	fields := append([]string{dir}, spec.Env...)
	for _, w := range fields {
		if strings.Contains(w, "\x00") {
			return nil, errors.New("the environment or directory of a child contains a NUL byte")
		}
	}
	text := strings.Join(fields, "\x00")
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), nil
}

// awaitEnd waits for the shim's end. It reads first, since a blocked read needs no thread.
func (c *Child) awaitEnd(reports *bufio.Reader) error {
	line, _ := reports.ReadString('\n')
	status, ended := strings.CutPrefix(strings.TrimSuffix(line, "\n"), reportEnded)
	if ended {
		_, _ = reports.ReadByte() // end of file is the shim's end
	}
	state, err := c.control.shim.Wait()
	if err != nil {
		return fmt.Errorf("lifeline: %w", err)
	}
	code, err := strconv.ParseUint(status, 10, 32)
	if !ended || err != nil {
		// The kernel has killed the child. Its process group is killed here, as long as any of it lives.
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		return fmt.Errorf("the child was killed because its shim ended (%s); processes that had left its process group may live on", state)
	}
	if !state.Success() {
		return fmt.Errorf("%w; its shim ended (%s), and processes it left behind may live on", exitError(syscall.WaitStatus(code)), state)
	}
	return exitError(syscall.WaitStatus(code))
}

// exitError is worded as in os/exec.
func exitError(s syscall.WaitStatus) error {
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
