package peers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = 20 * time.Second
	endLimit   = 15 * time.Second
	poll       = 20 * time.Millisecond
)

// process is a program under way, its output in a file.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// begin starts a program whose stdout and stderr go to a file.
func begin(log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // what came of it is in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// start is begin for a test: the process ends with it, and is heard when it failed.
func start(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p, err := begin(filepath.Join(t.ArtifactDir(), name+".log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		p.tell(t)
	})
	return p
}

// tell shows the last of what the process said, if the test failed.
func (p *process) tell(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.Logf("%s said (last %d bytes):\n%s", filepath.Base(p.cmd.Path), tellMost, tail(p.log, tellMost))
	}
}

const tellMost = 6000

func tail(file string, most int) []byte {
	said, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	return said[max(0, len(said)-most):]
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process whatever it does; one that has ended is left in peace.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// terminate ends it politely, and says when it did not obey.
func (p *process) terminate() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(endLimit):
		p.kill()
		return fmt.Errorf("it did not end within %s of SIGTERM", endLimit)
	}
}

// within asks again and again until the answer is yes, an error, or too late.
func within(limit time.Duration, otherwise string, ask func() (bool, error)) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(poll) {
		if yes, err := ask(); yes || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s within %s", otherwise, limit)
}

// match waits until the process has said something, and gives the first group.
func (p *process) match(what *regexp.Regexp) (string, error) {
	var found string
	err := within(startLimit, fmt.Sprintf("%s did not say %s", filepath.Base(p.cmd.Path), what), func() (bool, error) {
		said, err := os.ReadFile(p.log)
		if m := what.FindSubmatch(said); m != nil {
			found = string(m[1])
			return true, nil
		}
		if p.hasEnded() {
			return false, fmt.Errorf("%s ended: %s; it said:\n%s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, said)
		}
		return false, err
	})
	return found, err
}

// freePort is a port that nobody uses now, for programs that cannot choose one themselves.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// listening waits until somebody answers at an address, whatever the answer.
func listening(t *testing.T, p *process, url string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	err := within(startLimit, "nobody listens at "+url, func() (bool, error) {
		if p.hasEnded() {
			return false, errors.New("it ended: " + p.cmd.ProcessState.String())
		}
		resp, err := client.Head(url)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return true, resp.Body.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// survivors are the processes that were started with this home directory and still run. Only
// Linux tells; elsewhere there are none.
func survivors(home string) []int {
	var pids []int
	mark := []byte("HOME=" + home + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alone holds A2 to its end: what the gateway started, it also ended. It waits a little, because
// a process that was told to go may still be going.
func alone(t *testing.T, home string) {
	t.Helper()
	err := within(5*time.Second, "the servers did not end with the gateway", func() (bool, error) {
		return len(survivors(home)) == 0, nil
	})
	if err == nil {
		return
	}
	for _, pid := range survivors(home) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		t.Errorf("%v: %d %s", err, pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
