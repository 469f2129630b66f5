//go:build unix

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func startTestChild(t *testing.T, spec Spec) *Child {
	t.Helper()
	c, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop(0)
		c.Stdout().Close()
	})
	return c
}

func awaitChild(t *testing.T, c *Child) string {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the child did not end")
	}
	if c.Err() == nil {
		return ""
	}
	return c.Err().Error()
}

func TestEcho(t *testing.T) {
	c := startTestChild(t, Spec{Command: []string{"cat"}, Env: []string{"PATH=/usr/bin:/bin"}})
	if c.Err() != nil || c.Pid() <= 1 {
		t.Errorf("running: %v, pid %d", c.Err(), c.Pid())
	}
	if _, err := io.WriteString(c.Stdin(), "hello\n"); err != nil {
		t.Error(err)
	}
	line, err := bufio.NewReader(c.Stdout()).ReadString('\n')
	if err != nil || line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	c.Stdin().Close()
	if got := awaitChild(t, c); got != "" {
		t.Errorf("ended: %s", got)
	}
	c.Stop(time.Hour)
	c.Kill()
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{testProgram("run:exit3"), "exit status 3"},
		{testProgram("run:killed"), "signal: killed"},
		{shell("exit 0"), ""},
		{shell("kill -TERM $$"), "signal: terminated"},
	} {
		if got := awaitChild(t, startTestChild(t, c.spec)); got != c.want {
			t.Errorf("%s: %q, want %q", c.spec.Command, got, c.want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	garbage := filepath.Join(dir, "garbage")
	if err := errors.Join(os.WriteFile(text, []byte("hello"), 0o600), os.WriteFile(garbage, []byte("\x7fELF?"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{}, "no command"},
		{Spec{Command: []string{"nosuch"}, Env: []string{"PATH=/usr/bin:/bin"}}, `exec: "nosuch": executable file not found in $PATH`},
		{Spec{Command: []string{"sh"}}, `exec: "sh": executable file not found in $PATH`},
		{Spec{Command: []string{"garbage"}, Env: []string{"PATH=."}, Dir: dir}, `exec: "garbage": executable file not found in $PATH`},
		{Spec{Command: []string{"/no/such"}}, `exec: "/no/such": stat /no/such: no such file or directory`},
		{Spec{Command: []string{text}}, `exec: "` + text + `": permission denied`},
		{Spec{Command: []string{garbage}}, "fork/exec " + garbage + ": exec format error"},
		{Spec{Command: []string{"./garbage"}, Dir: dir}, "fork/exec " + garbage + ": exec format error"},
		{Spec{Command: []string{"/bin/sh"}, Dir: "/no/such"}, "working directory: stat /no/such: no such file or directory"},
		{Spec{Command: []string{"/bin/sh"}, Dir: text}, "working directory: " + text + " is not a directory"},
		{Spec{Command: []string{"/bin/sh"}, Env: []string{"A=b\x00C=d"}}, "the environment or directory of a child contains a NUL byte"},
	} {
		_, err := Start(c.spec)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.spec.Command, err, c.want)
		}
	}
	if _, err := Start(Spec{Command: []string{"nosuch"}}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestMainWithoutRunIfShim(t *testing.T) {
	shimReady.Store(false)
	defer shimReady.Store(true)
	if _, err := Start(shell("true")); err == nil || !strings.Contains(err.Error(), "RunIfShim") {
		t.Errorf("got %v", err)
	}
}

func TestStopAsksBeforeItForces(t *testing.T) {
	for _, c := range []struct {
		mode            string
		grace           time.Duration
		wantOutput, err string
	}{
		{"run:on-eof", 5 * time.Second, "EOF\n", ""},
		{"run:on-term", 500 * time.Millisecond, "EOF\nTERM\n", "exit status 5"},
		{"run:ignore-term", 50 * time.Millisecond, "", "signal: killed"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			p := startTestChild(t, testProgram(c.mode))
			out := bufio.NewReader(p.Stdout())
			_, _ = out.ReadString('\n') // the child is ready
			started := time.Now()
			p.Stop(c.grace)
			if got := awaitChild(t, p); got != c.err {
				t.Errorf("ended: %q, want %q", got, c.err)
			}
			rest, _ := io.ReadAll(out)
			if c.wantOutput != "" && string(rest) != c.wantOutput {
				t.Errorf("output %q, want %q", rest, c.wantOutput)
			}
			if took := time.Since(started); c.mode == "run:ignore-term" && took < 2*c.grace {
				t.Errorf("killed after %v", took)
			}
		})
	}
}

func TestConcurrentStop(t *testing.T) {
	p := startTestChild(t, shell(ignoreSignals))
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { p.Stop(20 * time.Millisecond) })
		all.Go(p.Kill)
	}
	all.Wait()
	if got := awaitChild(t, p); got != "signal: killed" {
		t.Errorf("ended: %s", got)
	}
}

// The last output can be read after the end, from both pipes.
func TestOutputAfterEnd(t *testing.T) {
	var lines []string
	spec := shell("echo out; echo one >&2; printf two >&2; exit 1")
	spec.OnStderrLine = func(line string) { lines = append(lines, line) }
	p := startTestChild(t, spec)
	if got := awaitChild(t, p); got != "exit status 1" {
		t.Errorf("ended: %s", got)
	}
	if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "out\n" {
		t.Errorf("stdout %q, %v", out, err)
	}
	if got := strings.Join(lines, "|"); got != "one|two" {
		t.Errorf("stderr %q", got)
	}
}

func TestLongStderrLine(t *testing.T) {
	var lines []string
	spec := shell(`echo before >&2; head -c 3000000 /dev/zero | tr '\0' x >&2; printf '\r\nafter\r\n' >&2`)
	spec.OnStderrLine = func(line string) { lines = append(lines, line) }
	awaitChild(t, startTestChild(t, spec))
	if len(lines) != 3 || lines[0] != "before" || len(lines[1]) != MaxStderrLine || lines[2] != "after" {
		t.Errorf("%d lines: %.300q", len(lines), lines)
	}
}

// A child blocked on its stdout does not block Stop.
func TestStopWithUnreadStdout(t *testing.T) {
	p := startTestChild(t, shell("yes"))
	time.Sleep(20 * time.Millisecond)
	p.Stop(20 * time.Millisecond)
	if got := awaitChild(t, p); got != "signal: terminated" {
		t.Errorf("ended: %s", got)
	}
}

// An environment larger than a pipe's buffer arrives complete.
func TestLargeEnvironment(t *testing.T) {
	spec := shell(`printf %s "$LAST"`)
	for i := range 100 {
		spec.Env = append(spec.Env, fmt.Sprintf("V%d=%s", i, strings.Repeat("x", 4000)))
	}
	spec.Env = append(spec.Env, "LAST=it is here")
	c := startTestChild(t, spec)
	if got, err := io.ReadAll(c.Stdout()); err != nil || string(got) != "it is here" {
		t.Errorf("got %q, %v", got, err)
	}
}
