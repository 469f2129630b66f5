//go:build unix

package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	leftoverTerm  = 200 * time.Millisecond // how long processes that a child leaves behind may take to clean up
	leftoverCheck = 5 * time.Millisecond   // within this the reaper sees whether there are any
	maxKillPause  = 50 * time.Millisecond  // between two rounds of KILL
)

// RunIfShim must be the first call of main. In the gateway it returns at once. In a process that Start made a shim, it
// starts the child, watches it, and never returns.
func RunIfShim() {
	if len(os.Args) < 3 || os.Args[0] != shimName {
		shimReady.Store(true)
		return
	}
	// The kernel kills the child when the thread that started it ends (PDEATHSIG), so this thread must stay.
	runtime.LockOSThread()
	// Not os.Exit: under the race detector it would wait a second.
	syscall.Exit(runShim(os.Args[1], os.Args[2:]))
}

// shim is the state of a shim.
type shim struct {
	pid      int // of the child and its process group
	report   *os.File
	commands chan byte
	ended    chan struct{} // closed when the child is reaped
	allEnded chan struct{} // closed when all its descendants are
}

// runShim starts the child and returns when nothing of it is left.
func runShim(path string, command []string) (code int) {
	isolate()
	lifeline, report := os.NewFile(fdLifeline, "lifeline"), os.NewFile(fdReport, "report")
	if lifeline == nil || report == nil {
		return 2
	}
	dir, env, err := decodeSpec(lifeline)
	if err != nil {
		return 2 // the gateway died before the child was started
	}
	becomeSubreaper()
	pid, err := syscall.ForkExec(path, command, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: []uintptr{0, 1, 2}, Sys: childAttr(),
	})
	if err != nil {
		text := (&os.PathError{Op: "fork/exec", Path: path, Err: err}).Error()
		fmt.Fprintf(report, reportError+"%s\n", strings.ReplaceAll(text, "\n", " "))
		return 1
	}
	releaseStdio()
	fmt.Fprintf(report, reportPid+"%d\n", pid)

	s := &shim{
		pid: pid, report: report,
		commands: make(chan byte), ended: make(chan struct{}), allEnded: make(chan struct{}),
	}
	go s.readCommands(lifeline)
	go s.reapChildren()
	s.watch()
	return 0
}

// isolate protects the shim from signals to a whole group or service, and the child from inherited files. Signals are
// caught and not ignored, because the child would inherit that.
func isolate() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if closeOnExecFrom(fdLifeline) == nil {
		return
	}
	for fd := fdLifeline; fd < 4096; fd++ {
		syscall.CloseOnExec(fd)
	}
}

// decodeSpec reads what encodeSpec wrote.
func decodeSpec(lifeline io.Reader) (dir string, env []string, err error) {
	var size [4]byte
	if _, err := io.ReadFull(lifeline, size[:]); err != nil {
		return "", nil, err
	}
	text := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(lifeline, text); err != nil {
		return "", nil, err
	}
	fields := strings.Split(string(text), "\x00")
	return fields[0], fields[1:], nil
}

// releaseStdio closes the shim's copies of the child's pipes, so that their other ends see the child close them. Each
// /dev/null takes the lowest free number, which is the one just closed.
func releaseStdio() {
	for fd := range 3 {
		_ = syscall.Close(fd)
		_, _ = syscall.Open(os.DevNull, syscall.O_RDWR, 0)
	}
}

// readCommands passes on the gateway's commands. The gateway's death is commandKill.
func (s *shim) readCommands(lifeline io.Reader) {
	var command [1]byte
	for {
		if _, err := io.ReadFull(lifeline, command[:]); err != nil {
			command[0] = commandKill
		}
		s.commands <- command[0]
		if command[0] == commandKill {
			return
		}
	}
}

// reapChildren waits for every child process: the child, and descendants whose parents died. Having none is final, since
// only a descendant could leave another.
func (s *shim) reapChildren() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if pid == s.pid {
			fmt.Fprintf(s.report, reportEnded+"%d\n", uint32(status))
			close(s.ended)
		}
		if errors.Is(err, syscall.ECHILD) {
			break
		}
	}
	// Without a subreaper, only the process group tells whether any descendant is left.
	for !isSubreaper && syscall.Kill(-s.pid, 0) == nil {
		time.Sleep(leftoverCheck)
	}
	close(s.allEnded)
}

// watch obeys commands, and returns when nothing of the child is left.
func (s *shim) watch() {
	for {
		select {
		case <-s.allEnded:
			return
		case <-s.ended:
			s.endLeftovers()
			return
		case command := <-s.commands:
			if command == commandKill {
				s.killAll()
				return
			}
			signalTree(s.pid, syscall.SIGTERM)
		}
	}
}

// endLeftovers ends the processes that the child left behind.
func (s *shim) endLeftovers() {
	if s.allEndWithin(leftoverCheck) {
		return
	}
	signalTree(s.pid, syscall.SIGTERM)
	deadline := time.After(leftoverTerm)
	for {
		select {
		case <-s.allEnded:
			return
		case command := <-s.commands:
			if command != commandKill {
				continue
			}
		case <-deadline:
		}
		s.killAll()
		return
	}
}

// killAll sends KILL until nothing is left. One round is enough for a process group; processes that have left it, or are
// just being started, take more.
func (s *shim) killAll() {
	for pause := time.Millisecond; ; pause = min(2*pause, maxKillPause) {
		signalTree(s.pid, syscall.SIGKILL)
		if s.allEndWithin(pause) {
			return
		}
	}
}

func (s *shim) allEndWithin(d time.Duration) bool {
	select {
	case <-s.allEnded:
		return true
	case <-time.After(d):
		return false
	}
}
