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
	leftoverTerm  = 200 * time.Millisecond // what a program leaves behind may clean up so long
	leftoverCheck = 5 * time.Millisecond   // the reaper sees within this whether there is any
	maxPause      = 50 * time.Millisecond  // between two rounds of a hunt
)

// Lifeline must be the first call of main. In the gateway it returns at once; in a process that
// Start made a shim of, it starts the program, guards it, and never returns.
func Lifeline() {
	if len(os.Args) < 3 || os.Args[0] != shimName {
		inMain.Store(true)
		return
	}
	// The program is killed when the thread that started it ends, so this one must not.
	runtime.LockOSThread()
	// Not os.Exit: nothing is to be done at exit, and the race detector would wait a second there.
	syscall.Exit(serve(os.Args[1], os.Args[2:]))
}

// shim is what a lifeline knows.
type shim struct {
	pid      int // the program's, and its process group's
	report   *os.File
	orders   chan byte
	ended    chan struct{} // closed when the program is reaped
	deserted chan struct{} // closed when nothing of it is left
}

// serve is the shim from its start to its end.
func serve(path string, command []string) (code int) {
	shield()
	lifeline, report := os.NewFile(fdLifeline, "lifeline"), os.NewFile(fdReport, "report")
	if lifeline == nil || report == nil {
		return 2
	}
	dir, env, err := decode(lifeline)
	if err != nil {
		return 2 // the gateway is gone before anything was started
	}
	adopt()
	pid, err := syscall.ForkExec(path, command, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: []uintptr{0, 1, 2}, Sys: programAttr(),
	})
	if err != nil {
		text := (&os.PathError{Op: "fork/exec", Path: path, Err: err}).Error()
		fmt.Fprintf(report, saysError+"%s\n", strings.ReplaceAll(text, "\n", " "))
		return 1
	}
	letGo()
	fmt.Fprintf(report, saysPid+"%d\n", pid)

	s := &shim{
		pid: pid, report: report,
		orders: make(chan byte), ended: make(chan struct{}), deserted: make(chan struct{}),
	}
	go s.hear(lifeline)
	go s.reap()
	s.guard()
	return 0
}

// shield keeps out what was meant for others: signals to a whole group or service, and files
// that somebody let us inherit. Signals are caught, not ignored, because the program would
// inherit that.
func shield() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if closeOnExecFrom(fdLifeline) == nil {
		return
	}
	for fd := fdLifeline; fd < 4096; fd++ {
		syscall.CloseOnExec(fd)
	}
}

// decode reads what encode wrote.
func decode(lifeline io.Reader) (dir string, env []string, err error) {
	var size [4]byte
	if _, err := io.ReadFull(lifeline, size[:]); err != nil {
		return "", nil, err
	}
	text := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(lifeline, text); err != nil {
		return "", nil, err
	}
	words := strings.Split(string(text), "\x00")
	return words[0], words[1:], nil
}

// letGo gives up the program's pipes: their other ends must see it close them. What is opened
// takes the lowest number that is free, which is the one just closed.
func letGo() {
	for fd := range 3 {
		_ = syscall.Close(fd)
		_, _ = syscall.Open(os.DevNull, syscall.O_RDWR, 0)
	}
}

// hear passes on what the gateway orders. When it is gone, that is an order too.
func (s *shim) hear(lifeline io.Reader) {
	var order [1]byte
	for {
		if _, err := io.ReadFull(lifeline, order[:]); err != nil {
			order[0] = orderKill
		}
		s.orders <- order[0]
		if order[0] == orderKill {
			return
		}
	}
}

// reap waits for every child: the program, and what was left to us by parents that died. Having
// none is final, since only a descendant could leave us another.
func (s *shim) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if pid == s.pid {
			fmt.Fprintf(s.report, saysEnded+"%d\n", uint32(status))
			close(s.ended)
		}
		if errors.Is(err, syscall.ECHILD) {
			break
		}
	}
	// Where orphans are not left to us, the group tells whether there are any.
	for !adopts && syscall.Kill(-s.pid, 0) == nil {
		time.Sleep(leftoverCheck)
	}
	close(s.deserted)
}

// guard returns when nothing of the program is left.
func (s *shim) guard() {
	for {
		select {
		case <-s.deserted:
			return
		case <-s.ended:
			s.sweep()
			return
		case order := <-s.orders:
			if order == orderKill {
				s.hunt()
				return
			}
			signalTree(s.pid, syscall.SIGTERM)
		}
	}
}

// sweep ends what the program left behind.
func (s *shim) sweep() {
	if s.desertedWithin(leftoverCheck) {
		return
	}
	signalTree(s.pid, syscall.SIGTERM)
	deadline := time.After(leftoverTerm)
	for {
		select {
		case <-s.deserted:
			return
		case order := <-s.orders:
			if order != orderKill {
				continue
			}
		case <-deadline:
		}
		s.hunt()
		return
	}
}

// hunt kills until nothing is left. One round is enough for a process group; what has left it,
// or is being started while we look, takes more.
func (s *shim) hunt() {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		signalTree(s.pid, syscall.SIGKILL)
		if s.desertedWithin(pause) {
			return
		}
	}
}

func (s *shim) desertedWithin(d time.Duration) bool {
	select {
	case <-s.deserted:
		return true
	case <-time.After(d):
		return false
	}
}
