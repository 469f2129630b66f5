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

func start(t *testing.T, spec Spec) *Child {
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

func ended(t *testing.T, c *Child) string {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it did not end")
	}
	if c.Err() == nil {
		return ""
	}
	return c.Err().Error()
}

func TestEcho(t *testing.T) {
	c := start(t, Spec{Command: []string{"cat"}, Env: []string{"PATH=/usr/bin:/bin"}})
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
	if got := ended(t, c); got != "" {
		t.Errorf("ended: %s", got)
	}
	c.Stop(time.Hour)
	c.Kill()
}

func TestHowItEnded(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{self("run:exit3"), "exit status 3"},
		{self("run:killed"), "signal: killed"},
		{shell("exit 0"), ""},
		{shell("kill -TERM $$"), "signal: terminated"},
	} {
		if got := ended(t, start(t, c.spec)); got != c.want {
			t.Errorf("%s: %q, want %q", c.spec.Command, got, c.want)
		}
	}
}

func TestWhatCannotStart(t *testing.T) {
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
		{Spec{Command: []string{"/bin/sh"}, Env: []string{"A=b\x00C=d"}}, "a NUL in the environment or directory of a program"},
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

func TestMainWithoutLifeline(t *testing.T) {
	inMain.Store(false)
	defer inMain.Store(true)
	if _, err := Start(shell("true")); err == nil || !strings.Contains(err.Error(), "Lifeline") {
		t.Errorf("got %v", err)
	}
}

func TestStopAsksBeforeItForces(t *testing.T) {
	for _, c := range []struct {
		mode      string
		grace     time.Duration
		said, err string
	}{
		{"run:on-eof", 5 * time.Second, "EOF\n", ""},
		{"run:on-term", 500 * time.Millisecond, "EOF\nTERM\n", "exit status 5"},
		{"run:stubborn", 50 * time.Millisecond, "", "signal: killed"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			p := start(t, self(c.mode))
			out := bufio.NewReader(p.Stdout())
			_, _ = out.ReadString('\n') // it is ready
			began := time.Now()
			p.Stop(c.grace)
			if got := ended(t, p); got != c.err {
				t.Errorf("ended: %q, want %q", got, c.err)
			}
			rest, _ := io.ReadAll(out)
			if c.said != "" && string(rest) != c.said {
				t.Errorf("it heard %q, want %q", rest, c.said)
			}
			if took := time.Since(began); c.mode == "run:stubborn" && took < 2*c.grace {
				t.Errorf("it was killed after %v", took)
			}
		})
	}
}

func TestManyStopAtOnce(t *testing.T) {
	p := start(t, shell(deaf))
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { p.Stop(20 * time.Millisecond) })
		all.Go(p.Kill)
	}
	all.Wait()
	if got := ended(t, p); got != "signal: killed" {
		t.Errorf("ended: %s", got)
	}
}

// What was said last is there after the end, on both pipes.
func TestLastWords(t *testing.T) {
	var said []string
	spec := shell("echo out; echo one >&2; printf two >&2; exit 1")
	spec.Stderr = func(line string) { said = append(said, line) }
	p := start(t, spec)
	if got := ended(t, p); got != "exit status 1" {
		t.Errorf("ended: %s", got)
	}
	if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "out\n" {
		t.Errorf("stdout %q, %v", out, err)
	}
	if got := strings.Join(said, "|"); got != "one|two" {
		t.Errorf("stderr %q", got)
	}
}

func TestHugeStderr(t *testing.T) {
	var said []string
	spec := shell(`echo before >&2; head -c 3000000 /dev/zero | tr '\0' x >&2; printf '\r\nafter\r\n' >&2`)
	spec.Stderr = func(line string) { said = append(said, line) }
	ended(t, start(t, spec))
	if len(said) != 3 || said[0] != "before" || len(said[1]) != MaxLine || said[2] != "after" {
		t.Errorf("%d lines: %.300q", len(said), said)
	}
}

// A reader that went away is the program's to notice; one that never reads must not keep us.
func TestStdoutNobodyReads(t *testing.T) {
	p := start(t, shell("yes"))
	time.Sleep(20 * time.Millisecond)
	p.Stop(20 * time.Millisecond)
	if got := ended(t, p); got != "signal: terminated" {
		t.Errorf("ended: %s", got)
	}
}

// More than a pipe holds at once.
func TestLargeEnvironment(t *testing.T) {
	spec := shell(`printf %s "$LAST"`)
	for i := range 100 {
		spec.Env = append(spec.Env, fmt.Sprintf("V%d=%s", i, strings.Repeat("x", 4000)))
	}
	spec.Env = append(spec.Env, "LAST=it is here")
	c := start(t, spec)
	if got, err := io.ReadAll(c.Stdout()); err != nil || string(got) != "it is here" {
		t.Errorf("got %q, %v", got, err)
	}
}
