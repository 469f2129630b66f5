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

// holdServerVariable makes the test binary a server that holds calls. It is a separate process because both
// ends of ten thousand connections would exceed the open files limit of one.
const holdServerVariable = "CTXGATE_E2E_HOLD"

// runHoldServer prints its URL on stdout, releases the calls at the first line of stdin, and exits when stdin
// ends. A call with the argument pass is not held.
func runHoldServer() int {
	u, err := startFakeServer(func(u *fakeServer, w http.ResponseWriter, r *http.Request, c rpcCall) {
		if c.intArg("pass") == 0 {
			u.waitForRelease(r)
		}
		replyText(w, c, []byte(`"done"`))
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

// holdServer is a running hold server.
type holdServer struct {
	url       string
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	isStopped bool
}

func startHoldServer(t *testing.T) *holdServer {
	t.Helper()
	h := &holdServer{cmd: exec.Command(os.Args[0])}
	h.cmd.Env = append(os.Environ(), holdServerVariable+"=1")
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
	t.Cleanup(h.stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the hold server did not start: %v", err)
	}
	h.url = strings.TrimSpace(line)
	return h
}

func (h *holdServer) release() error {
	_, err := io.WriteString(h.stdin, "go\n")
	return err
}

// stop closes stdin and kills the process if it does not exit.
func (h *holdServer) stop() {
	if h.isStopped {
		return
	}
	h.isStopped = true
	_ = h.stdin.Close()
	late := time.AfterFunc(5*time.Second, func() { _ = h.cmd.Process.Kill() })
	defer late.Stop()
	_ = h.cmd.Wait()
}
