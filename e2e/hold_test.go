package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// holdVariable makes the test binary the server that holds calls. It is a process of its own
// because ten thousand connections at both ends are more than one may have open.
const holdVariable = "CTXGATE_E2E_HOLD"

// holdProcess tells its URL on stdout, lets the calls go at the first line of stdin, and ends
// when stdin does. A call with the argument pass is not held.
func holdProcess() int {
	u, err := startUpstream(func(u *upstream, w http.ResponseWriter, r *http.Request, c call) {
		if c.int("pass") == 0 {
			u.hold(r)
		}
		reply(w, c, []byte(`"done"`))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer u.close()
	fmt.Println(u.url)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		u.release()
	}
	return 0
}

// holder is a running hold process.
type holder struct {
	url   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended bool
}

func startHolder(t *testing.T) *holder {
	t.Helper()
	h := &holder{cmd: exec.Command(os.Args[0])}
	h.cmd.Env = append(os.Environ(), holdVariable+"=1")
	h.cmd.Stderr = os.Stderr
	stdin, err := h.cmd.StdinPipe()
	stdout, err2 := h.cmd.StdoutPipe()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.stdin = stdin
	t.Cleanup(h.end)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the holding server did not start: %v", err)
	}
	h.url = strings.TrimSpace(line)
	return h
}

func (h *holder) release() error {
	_, err := io.WriteString(h.stdin, "go\n")
	return err
}

// end lets the process end by itself, and ends it if it does not.
func (h *holder) end() {
	if h.ended {
		return
	}
	h.ended = true
	_ = h.stdin.Close()
	late := time.AfterFunc(5*time.Second, func() { _ = h.cmd.Process.Kill() })
	defer late.Stop()
	_ = h.cmd.Wait()
}
