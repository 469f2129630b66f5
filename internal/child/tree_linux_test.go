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

// readPids reads n lines, each a pid.
func readPids(t *testing.T, r io.Reader, n int) []int {
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
		t.Fatalf("got only the pids %v", all)
	}
	return all
}

// processState is the state letter of a process in /proc; 0 if there is none.
func processState(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])[0]
}

func isAlive(pid int) bool { return !strings.ContainsRune("\x00ZX", rune(processState(pid))) }

func areAlive(all []int) bool {
	return !slices.ContainsFunc(all, func(p int) bool { return !isAlive(p) })
}

func awaitAllDead(t *testing.T, all []int, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); slices.ContainsFunc(all, isAlive); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %v these are alive: %v", all, slices.DeleteFunc(slices.Clone(all), func(p int) bool { return !isAlive(p) }))
		}
	}
}

// checkReaped checks that not even zombies are left.
func checkReaped(t *testing.T, all []int) {
	t.Helper()
	for _, pid := range all {
		if s := processState(pid); s != 0 {
			t.Errorf("process %d is still there, in state %c", pid, s)
		}
	}
}

func ownChildren() (mine []int) {
	for _, p := range listProcesses() {
		if p.parent == os.Getpid() {
			mine = append(mine, p.pid)
		}
	}
	return mine
}

func TestStopEndsTheWholeTree(t *testing.T) {
	for _, mode := range []string{"run:ignore-term", "run:escape"} {
		c := startTestChild(t, testProgram(mode))
		all := readPids(t, c.Stdout(), 3)
		if !slices.Contains(all, c.Pid()) {
			t.Errorf("%s: Pid is %d, of %v", mode, c.Pid(), all)
		}
		c.Stop(10 * time.Millisecond)
		checkReaped(t, append(all, c.control.shim.Pid))
		if got := awaitChild(t, c); got != "signal: killed" {
			t.Errorf("%s ended: %s", mode, got)
		}
	}
}

func TestTermReachesProcessesOutsideTheGroup(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Fatal(err)
	}
	c := startTestChild(t, shell(`setsid sh -c 'trap "echo TERM; exit" TERM; echo ready; while :; do sleep 0.01; done' & trap "" TERM; wait; wait`))
	out := bufio.NewReader(c.Stdout())
	for _, want := range []string{"ready\n", "TERM\n"} {
		if got, err := out.ReadString('\n'); got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		c.control.terminate()
	}
}

func TestLeftoversAreEnded(t *testing.T) {
	c := startTestChild(t, testProgram("run:abandon"))
	all := readPids(t, c.Stdout(), 2)
	if got := awaitChild(t, c); got != "" {
		t.Errorf("ended: %s", got)
	}
	checkReaped(t, append(all, c.control.shim.Pid))
}

// Only allowed variables, files 0, 1 and 2, and no ignored signals reach a child.
func TestChildInheritsNothingElse(t *testing.T) {
	leak, err := syscall.Dup(0) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leak)
	t.Setenv("CTXGATE_SECRET", "x")
	dir := t.TempDir()
	spec := testProgram("run:print-env")
	spec.Dir = dir
	spec.Env = Environment(append(os.Environ(), "PATH=/usr/bin"), map[string]string{"TOKEN": "t", "GORACE": "atexit_sleep_ms=0"})
	c := startTestChild(t, spec)
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
		t.Error("the child got a secret of the gateway")
	}
}

func TestShimSurvivesTerminalSignals(t *testing.T) {
	c := startTestChild(t, shell("cat"))
	shim := c.control.shim.Pid
	if ours, err := syscall.Getpgid(0); err != nil {
		t.Error(err)
	} else if group, _ := syscall.Getpgid(shim); group != shim || group == ours {
		t.Errorf("the shim is in group %d, the test in %d", group, ours)
	}
	if group, _ := syscall.Getpgid(c.Pid()); group != c.Pid() {
		t.Errorf("the child is in group %d", group)
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
	c := startTestChild(t, testProgram("run:ignore-term"))
	all := readPids(t, c.Stdout(), 3)
	_ = c.control.shim.Kill()
	if got := awaitChild(t, c); !strings.Contains(got, "its shim ended (signal: killed)") {
		t.Errorf("ended: %s", got)
	}
	awaitAllDead(t, all, 2*time.Second)
}

// A shim that hangs does not keep Stop from returning.
func TestShimThatHangs(t *testing.T) {
	c := startTestChild(t, shell(ignoreSignals))
	all := readPids(t, c.Stdout(), 1)
	_ = syscall.Kill(c.control.shim.Pid, syscall.SIGSTOP)
	c.control.kill()
	if c.endsWithin(50 * time.Millisecond) {
		t.Fatal("the shim was not stopped")
	}
	c.control.abandon()
	awaitChild(t, c)
	awaitAllDead(t, all, 2*time.Second)
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
	t.Cleanup(func() { _ = gateway.Wait() }) // the context kills it if the test does not
	all := readPids(t, out, 5*4)
	if n := len(slices.Compact(slices.Sorted(slices.Values(all)))); n != len(all) || !areAlive(all) {
		t.Fatalf("%v: %d are distinct, all alive: %t", all, n, areAlive(all))
	}
	_ = gateway.Process.Kill()
	started := time.Now()
	awaitAllDead(t, all, 2*time.Second)
	took := time.Since(started)
	// A shim's zombie is reaped by init: its parent, the gateway, is gone.
	zombies := slices.DeleteFunc(all, func(p int) bool { return processState(p) != 'Z' })
	t.Logf("all dead after %v; zombies that init has yet to reap: %v", took, zombies)
}

func TestConcurrentChildren(t *testing.T) {
	before := openFiles(t)
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
	if after := openFiles(t); after != before {
		t.Errorf("%d open files, before %d", after, before)
	}
	if mine := ownChildren(); len(mine) > 0 {
		t.Errorf("children are left: %v", mine)
	}
}

func TestFailedStartLeaksNothing(t *testing.T) {
	garbage := t.TempDir() + "/garbage"
	if err := os.WriteFile(garbage, []byte("\x7fELF?"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	for range 5 {
		if _, err := Start(Spec{Command: []string{garbage}}); err == nil {
			t.Fatal("garbage was started")
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files, before %d", after, before)
	}
	if mine := ownChildren(); len(mine) > 0 {
		t.Errorf("children are left: %v", mine)
	}
}

// S14: a child has its three streams and no other file of the gateway, not even one that the gateway's own parent left open
// for all programs.
func TestS14OpenFiles(t *testing.T) {
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	inherited, err := syscall.Dup(int(secret.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	c := startTestChild(t, shell("i=0; while [ $i -lt 64 ]; do [ -e /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done"))
	out, err := io.ReadAll(c.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("the child has the files %s; one was left open as %d", got, inherited)
	}
}

// openFiles counts the open files of this process, after a first child, for which the runtime opens some.
func openFiles(t *testing.T) int {
	t.Helper()
	first := startTestChild(t, shell("true"))
	awaitChild(t, first)
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
