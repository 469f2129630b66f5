//go:build unix

package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// This binary is the test, the shim, and the children of the tests.
func TestMain(m *testing.M) {
	RunIfShim()
	if len(os.Args) > 1 {
		if program, ok := programs[os.Args[1]]; ok {
			os.Exit(program())
		}
	}
	goleak.VerifyTestMain(m)
}

var programs = map[string]func() int{
	"run:print-env": printEnvironment, "run:on-eof": exitOnEOF, "run:on-term": exitOnTerm, "run:ignore-term": ignoreTerm,
	"run:escape": leaveGroup, "run:abandon": abandonChildren, "run:gateway": runGateway,
	"run:exit3":  func() int { return 3 },
	"run:killed": func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); return sleepLong() },
}

// ignoreSignals is a shell script that prints its pid and ends only by KILL.
const ignoreSignals = `trap "" TERM INT HUP; echo $$; while :; do sleep 1; done`

// printEnvironment prints what a child inherits: variables, files and their modes, signals, its directory.
func printEnvironment() int {
	for _, v := range os.Environ() {
		fmt.Println("env", v)
	}
	for fd := range uintptr(256) {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 { // so it was inherited
			mode, _, _ := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
			fmt.Println("fd", fd, "nonblocking", mode&syscall.O_NONBLOCK != 0)
		}
	}
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		fmt.Println("ignores", s, signal.Ignored(s))
	}
	dir, _ := os.Getwd()
	fmt.Println("dir", dir)
	return 0
}

func notifyTerm() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("ready")
	return c
}

// exitOnEOF ends at the end of its input, late enough to receive a TERM that should not come.
func exitOnEOF() int {
	term := notifyTerm()
	_, _ = io.Copy(io.Discard, os.Stdin)
	select {
	case <-term:
		fmt.Println("TERM")
	case <-time.After(200 * time.Millisecond):
		fmt.Println("EOF")
	}
	return 0
}

// exitOnTerm ends at TERM, late enough to be hit by a KILL that should not come.
func exitOnTerm() int {
	term := notifyTerm()
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("EOF")
	<-term
	time.Sleep(100 * time.Millisecond)
	fmt.Println("TERM")
	return 5
}

// ignoreTerm ignores the signals that can be ignored, and so do its descendants.
func ignoreTerm() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	spawnShell("sh -c '"+ignoreSignals+"' & "+ignoreSignals, false)
	fmt.Println(os.Getpid())
	return sleepLong()
}

// leaveGroup has a child in a session of its own, and a grandchild there.
func leaveGroup() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	spawnShell("sh -c '"+ignoreSignals+"' & "+ignoreSignals, true)
	fmt.Println(os.Getpid())
	return sleepLong()
}

// abandonChildren ends at once and leaves one child in its group, and one in a session of its own.
func abandonChildren() int {
	spawnShell(ignoreSignals, false)
	spawnShell(ignoreSignals, true)
	return 0
}

// sleepLong sleeps: the runtime would report an empty select as a deadlock.
func sleepLong() int {
	time.Sleep(time.Minute)
	return 0
}

func spawnShell(script string, newSession bool) {
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: newSession}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

// runGateway starts children, prints all their pids, and waits to be killed.
func runGateway() int {
	for _, mode := range slices.Repeat([]string{"run:ignore-term", "run:escape"}, 3)[:5] {
		c, err := Start(testProgram(mode))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(c.control.shim.Pid)
		lines := bufio.NewScanner(c.Stdout())
		for range 3 {
			lines.Scan()
			fmt.Println(lines.Text())
		}
	}
	return sleepLong()
}

// testProgram runs this binary as one of programs. Without GORACE, the race detector would sleep a second at exit.
func testProgram(mode string) Spec {
	return Spec{Command: []string{os.Args[0], mode}, Env: []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}}
}

func shell(script string) Spec {
	return Spec{Command: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}
