package child

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pids reads so many lines, each a pid.
func pids(t *testing.T, r io.Reader, n int) []int {
	t.Helper()
	var all []int
	for lines := bufio.NewScanner(r); len(all) < n && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(lines.Text())
		}
		all = append(all, pid)
	}
	if len(all) < n {
		t.Fatalf("only the pids %v", all)
	}
	return all
}

// state is the letter /proc has for a process, or 0 if there is none.
func state(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])[0]
}

func alive(pid int) bool { return !strings.ContainsRune("\x00ZX", rune(state(pid))) }

func allAlive(all []int) bool {
	return !slices.ContainsFunc(all, func(p int) bool { return !alive(p) })
}

func allGone(t *testing.T, all []int, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); slices.ContainsFunc(all, alive); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %v live %v", all, slices.DeleteFunc(slices.Clone(all), func(p int) bool { return !alive(p) }))
		}
	}
}

// reaped says that not even zombies are left, of ours or of anyone.
func reaped(t *testing.T, all []int) {
	t.Helper()
	for _, pid := range all {
		if s := state(pid); s != 0 {
			t.Errorf("process %d is still there, in state %c", pid, s)
		}
	}
}

func children() (mine []int) {
	for _, p := range processes() {
		if p.parent == os.Getpid() {
			mine = append(mine, p.pid)
		}
	}
	return mine
}

func TestStopEndsTheWholeTree(t *testing.T) {
	for _, mode := range []string{"run:stubborn", "run:escape"} {
		c := start(t, self(mode))
		all := pids(t, c.Stdout(), 3)
		if !slices.Contains(all, c.Pid()) {
			t.Errorf("%s: Pid is %d, of %v", mode, c.Pid(), all)
		}
		c.Stop(10 * time.Millisecond)
		reaped(t, append(all, c.leash.shim.Pid))
		if got := ended(t, c); got != "signal: killed" {
			t.Errorf("%s ended: %s", mode, got)
		}
	}
}

func TestTermReachesWhatHasLeftTheGroup(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Fatal(err)
	}
	c := start(t, shell(`setsid sh -c 'trap "echo TERM; exit" TERM; echo ready; while :; do sleep 0.01; done' & trap "" TERM; wait; wait`))
	out := bufio.NewReader(c.Stdout())
	for _, want := range []string{"ready\n", "TERM\n"} {
		if got, err := out.ReadString('\n'); got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		c.leash.term()
	}
}

func TestLeftoversAreEnded(t *testing.T) {
	c := start(t, self("run:abandon"))
	all := pids(t, c.Stdout(), 2)
	if got := ended(t, c); got != "" {
		t.Errorf("ended: %s", got)
	}
	reaped(t, append(all, c.leash.shim.Pid))
}

// Only allowed variables, files 0, 1 and 2, and no ignored signals reach a program.
func TestNothingElseReachesTheProgram(t *testing.T) {
	leak, err := syscall.Dup(0) // without close-on-exec, as from a careless shell
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leak)
	t.Setenv("CTXGATE_SECRET", "x")
	dir := t.TempDir()
	spec := self("run:look")
	spec.Dir = dir
	spec.Env = Environment(append(os.Environ(), "PATH=/usr/bin"), map[string]string{"TOKEN": "t", "GORACE": "atexit_sleep_ms=0"})
	c := start(t, spec)
	got, _ := io.ReadAll(c.Stdout())
	var want []string
	for _, v := range spec.Env {
		want = append(want, "env "+v)
	}
	want = append(want, "fd 0 nonblocking false", "fd 1 nonblocking false", "fd 2 nonblocking false",
		"ignores terminated false", "ignores interrupt false", "ignores hangup false", "dir "+dir, "")
	if strings.Join(want, "\n") != string(got) {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if strings.Contains(string(got), "SECRET") {
		t.Error("a secret got through")
	}
}

func TestShimIsNotEndedByTheTerminal(t *testing.T) {
	c := start(t, shell("cat"))
	shim := c.leash.shim.Pid
	if ours, err := syscall.Getpgid(0); err != nil {
		t.Error(err)
	} else if group, _ := syscall.Getpgid(shim); group != shim || group == ours {
		t.Errorf("the shim is in group %d, we are in %d", group, ours)
	}
	if group, _ := syscall.Getpgid(c.Pid()); group != c.Pid() {
		t.Errorf("the program is in group %d", group)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		_ = syscall.Kill(shim, s)
	}
	_, _ = io.WriteString(c.Stdin(), "still here\n")
	if line, err := bufio.NewReader(c.Stdout()).ReadString('\n'); line != "still here\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestShimKilled(t *testing.T) {
	c := start(t, self("run:stubborn"))
	all := pids(t, c.Stdout(), 3)
	_ = c.leash.shim.Kill()
	if got := ended(t, c); !strings.Contains(got, "its lifeline ended (signal: killed)") {
		t.Errorf("ended: %s", got)
	}
	allGone(t, all, 2*time.Second)
}

// A shim that does nothing any more, stopped here, does not keep Stop from returning.
func TestShimThatHangs(t *testing.T) {
	c := start(t, shell(deaf))
	all := pids(t, c.Stdout(), 1)
	_ = syscall.Kill(c.leash.shim.Pid, syscall.SIGSTOP)
	c.leash.kill()
	if c.endsWithin(50 * time.Millisecond) {
		t.Fatal("it was not stopped")
	}
	c.leash.cut()
	ended(t, c)
	allGone(t, all, 2*time.Second)
}

// The promise of this package: the gateway is killed with SIGKILL, and nothing survives it.
func TestGatewayKilled(t *testing.T) {
	for i := range 5 {
		t.Run(strconv.Itoa(i), killGateway)
	}
}

func killGateway(t *testing.T) {
	gateway := exec.CommandContext(t.Context(), os.Args[0], "run:gateway")
	out, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gateway.Wait() }) // the context kills it if we do not
	all := pids(t, out, 5*4)
	if n := len(slices.Compact(slices.Sorted(slices.Values(all)))); n != len(all) || !allAlive(all) {
		t.Fatalf("%v: %d are different, all alive is %t", all, n, allAlive(all))
	}
	_ = gateway.Process.Kill()
	began := time.Now()
	allGone(t, all, 2*time.Second)
	took := time.Since(began)
	// A shim's zombie is the system's to reap: its parent, the gateway, is gone.
	zombies := slices.DeleteFunc(all, func(p int) bool { return state(p) != 'Z' })
	t.Logf("all gone after %v; zombies that init has yet to reap: %v", took, zombies)
}

func TestFiftyAtOnce(t *testing.T) {
	before := files(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			c, err := Start(shell("cat & cat; wait"))
			if err != nil {
				t.Error(err)
				return
			}
			if i%2 == 0 {
				c.Kill()
			}
			c.Stop(time.Duration(i%5) * 10 * time.Millisecond)
			c.Stdout().Close()
		})
	}
	all.Wait()
	if after := files(t); after != before {
		t.Errorf("%d open files, before %d", after, before)
	}
	if mine := children(); len(mine) > 0 {
		t.Errorf("children are left: %v", mine)
	}
}

func TestFailedStartsLeaveNothing(t *testing.T) {
	garbage := t.TempDir() + "/garbage"
	if err := os.WriteFile(garbage, []byte("\x7fELF?"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := files(t)
	for range 5 {
		if _, err := Start(Spec{Command: []string{garbage}}); err == nil {
			t.Fatal("it started")
		}
	}
	if after := files(t); after != before {
		t.Errorf("%d open files, before %d", after, before)
	}
	if mine := children(); len(mine) > 0 {
		t.Errorf("children are left: %v", mine)
	}
}

// files counts our open files, after a first child, which opens the runtime's own.
func files(t *testing.T) int {
	t.Helper()
	first := start(t, shell("true"))
	ended(t, first)
	first.Stdout().Close()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func BenchmarkStartStop(b *testing.B) {
	for b.Loop() {
		c, err := Start(shell("exec cat"))
		if err != nil {
			b.Fatal(err)
		}
		c.Stop(time.Second)
		c.Stdout().Close()
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		c, err := Start(Spec{Command: []string{"/bin/cat"}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Stop(time.Second)
		c.Stdout().Close()
		b.StartTimer()
	}
}
