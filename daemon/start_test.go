//go:build unix

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// programVariable makes the test binary a gateway in the background. Its value is the gateway's version, or what goes wrong.
const programVariable = "CTXGATE_DAEMON_TEST"

func TestMain(m *testing.M) {
	if kind := os.Getenv(programVariable); kind != "" && len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(runProgram(kind))
	}
	os.Exit(m.Run())
}

// runProgram is the gateway that spawn starts: "serve DIR --started-by CLIENT [--take-over]".
func runProgram(kind string) int {
	switch kind {
	case "refuses":
		ReportError(os.Stdout, "ctxgate.toml:3: this is wrong")
		return 1
	case "dies":
		fmt.Fprintln(os.Stderr, "fatal: it cannot be")
		return 2
	case "hangs":
		time.Sleep(time.Hour)
	}
	e, err := Locate("", Places{RuntimeDir: os.Args[2]})
	if err != nil {
		return 3
	}
	var h *Handover
	if slices.Contains(os.Args, "--take-over") {
		if h, err = BeginHandover(context.Background(), e, kind); err != nil {
			ReportError(os.Stdout, err.Error())
			return 4
		}
	}
	ended := make(chan error, 1)
	s, err := NewServer(ServerOptions{
		Endpoint: e,
		Info: func() Gateway {
			return Gateway{Version: kind, PID: os.Getpid(), Background: true, StartedBy: os.Args[4]}
		},
		ServeMCP: func(ctx context.Context, _ *Conn, _ Hello, _ func() ([]byte, time.Duration)) error {
			<-ctx.Done()
			return nil
		},
		Listeners: func() map[string]net.Listener { return nil },
		End:       func(cause error) { ended <- cause }, DrainGrace: func() time.Duration { return time.Second },
	})
	if err != nil {
		ReportError(os.Stdout, err.Error())
		return 5
	}
	go func() { _ = s.Serve() }()
	if h != nil {
		_ = h.Finish()
	}
	ReportReady(os.Stdout)
	select {
	case cause := <-ended:
		s.Close(cause)
	case <-time.After(time.Minute): // the test has ended
		s.Close(ErrIdle)
	}
	return 0
}

// newProgram returns a program of this version at an endpoint of its own.
func newProgram(t *testing.T) func(version string) Program {
	t.Helper()
	dir := shortTempDir(t)
	e := locate(t, "", Places{RuntimeDir: dir})
	e.Log = filepath.Join(dir, "logs", "gateway.log")
	t.Cleanup(func() {
		if g, err := Running(context.Background(), e, ""); err == nil {
			p, _ := os.FindProcess(g.PID)
			_ = p.Kill()
			_ = AwaitExit(context.Background(), g.PID)
		}
	})
	return func(version string) Program {
		return Program{Endpoint: e, Path: os.Args[0], Args: []string{"serve", dir}, Env: append(os.Environ(), programVariable+"="+version), Version: version}
	}
}

// Clients that start at once start one gateway. A newer release replaces it, an older one uses it, and builds that are no
// releases replace nothing.
func TestConnectStartsAndReplaces(t *testing.T) {
	program := newProgram(t)
	connect := func(version, want string) int {
		t.Helper()
		g, err := program(version).Ensure(t.Context(), "codex")
		if err != nil || g.Version != want || g.StartedBy != "codex" {
			t.Fatalf("%s: %+v %v, want %s", version, g, err, want)
		}
		return g.PID
	}
	var wg sync.WaitGroup
	pids := make([]int, 6)
	for i := range pids {
		wg.Go(func() { pids[i] = connect("v1.0.0", "v1.0.0") })
	}
	wg.Wait()
	if slices.Min(pids) != slices.Max(pids) {
		t.Errorf("several gateways were started: %v", pids)
	}
	for _, step := range []struct{ version, want string }{
		{"dev", "v1.0.0"}, {"v0.9.0", "v1.0.0"}, {"v1.0.0", "v1.0.0"}, {"v1.0.1", "v1.0.1"}, {"v1.0.0", "v1.0.1"}, {"v2.0.0-rc.1", "v1.0.1"}, {"v2.0.0", "v2.0.0"},
	} {
		connect(step.version, step.want)
	}
	if err := AwaitExit(t.Context(), pids[0]); err != nil {
		t.Error(err)
	}
}

// Why a gateway did not start is said in its own words; one that dies is quoted from its log.
func TestStartErrors(t *testing.T) {
	program := newProgram(t)
	var start *StartError
	if _, err := program("refuses").Ensure(t.Context(), "codex"); !errors.As(err, &start) || start.Text != "ctxgate.toml:3: this is wrong" {
		t.Errorf("got %v", err)
	}
	if _, err := program("dies").Ensure(t.Context(), "codex"); !errors.As(err, &start) || !strings.HasSuffix(start.Text, "fatal: it cannot be") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := program("hangs").Ensure(ctx, "codex"); err == nil || !strings.Contains(err.Error(), "did not start in time") {
		t.Errorf("got %v", err)
	}
	if _, err := program("v1.0.0").Ensure(t.Context(), "codex"); err != nil { // the lock is free
		t.Error(err)
	}
	if _, _, err := program("v1.0.0").ConnectMCP(t.Context(), "codex", ""); err != nil {
		t.Error(err)
	}
}

// A replacement that does not start leaves the running gateway, which is used as it is.
func TestFailedReplacementIsHarmless(t *testing.T) {
	program := newProgram(t)
	before, err := program("v1.0.0").Ensure(t.Context(), "codex")
	if err != nil {
		t.Fatal(err)
	}
	broken := program("refuses")
	broken.Version = "v2.0.0"
	after, err := broken.Ensure(t.Context(), "codex")
	if err != nil || after.PID != before.PID {
		t.Errorf("%+v %v", after, err)
	}
}
