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

// This binary is the test, the shim, and the programs of the tests.
func TestMain(m *testing.M) {
	Lifeline()
	if len(os.Args) > 1 {
		if program, ok := programs[os.Args[1]]; ok {
			os.Exit(program())
		}
	}
	goleak.VerifyTestMain(m)
}

var programs = map[string]func() int{
	"run:look": look, "run:on-eof": onEOF, "run:on-term": onTerm, "run:stubborn": stubborn,
	"run:escape": escape, "run:abandon": abandon, "run:gateway": gateway,
	"run:exit3":  func() int { return 3 },
	"run:killed": func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); return forever() },
}

// deaf is a shell that says its pid and ends only by KILL.
const deaf = `trap "" TERM INT HUP; echo $$; while :; do sleep 1; done`

// look says what a program can see: variables, files and their modes, signals, its directory.
func look() int {
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

func terms() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("ready")
	return c
}

// onEOF ends at the end of its input, late enough to hear a TERM that should not come.
func onEOF() int {
	term := terms()
	_, _ = io.Copy(io.Discard, os.Stdin)
	select {
	case <-term:
		fmt.Println("TERM")
	case <-time.After(200 * time.Millisecond):
		fmt.Println("EOF")
	}
	return 0
}

// onTerm ends at TERM, late enough to be hit by a KILL that should not come.
func onTerm() int {
	term := terms()
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("EOF")
	<-term
	time.Sleep(100 * time.Millisecond)
	fmt.Println("TERM")
	return 5
}

// stubborn ignores all it can, and so does the child of its shell.
func stubborn() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	spawn("sh -c '"+deaf+"' & "+deaf, false)
	fmt.Println(os.Getpid())
	return forever()
}

// escape has a child in a session of its own, whose child is another generation.
func escape() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	spawn("sh -c '"+deaf+"' & "+deaf, true)
	fmt.Println(os.Getpid())
	return forever()
}

// abandon ends at once and leaves one child in its group, and one in a session of its own.
func abandon() int {
	spawn(deaf, false)
	spawn(deaf, true)
	return 0
}

// forever is long enough for a test, and not the deadlock that the runtime would see in a select.
func forever() int {
	time.Sleep(time.Minute)
	return 0
}

func spawn(script string, away bool) {
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: away}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

// gateway starts programs, says all their pids, and waits to be killed.
func gateway() int {
	for _, mode := range slices.Repeat([]string{"run:stubborn", "run:escape"}, 3)[:5] {
		c, err := Start(self(mode))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(c.leash.shim.Pid)
		lines := bufio.NewScanner(c.Stdout())
		for range 3 {
			lines.Scan()
			fmt.Println(lines.Text())
		}
	}
	return forever()
}

// self is a program of this binary. The race detector would have it sleep a second at its exit.
func self(mode string) Spec {
	return Spec{Command: []string{os.Args[0], mode}, Env: []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}}
}

func shell(script string) Spec {
	return Spec{Command: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}
