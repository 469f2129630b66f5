package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	drainDuration = 3 * time.Second
	drainInterval = 20 * time.Millisecond // 50 calls a second
	slowCalls     = 20
	slowCallTime  = 500 * time.Millisecond
)

// callOutcome is the result of a call of TestDrainUnderLoad.
type callOutcome struct {
	begun  time.Time
	status int
	err    error
}

// TestDrainUnderLoad sends SIGTERM under load. Every call that reached a server is answered, later ones are
// refused at once, and the exit code is 0.
func TestDrainUnderLoad(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs SIGTERM")
	}
	var reached sync.Map // numbers of the calls that reached the server
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, r *http.Request, c rpcCall) {
		reached.Store(c.intArg("n"), true)
		select {
		case <-time.After(time.Duration(c.intArg("ms")) * time.Millisecond):
		case <-r.Context().Done():
		}
		replyText(w, c, []byte(`"done"`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	s := newSite(t, up.url, "")
	g := s.start(t)
	one, done := newClient()
	defer done()
	streams := &http.Protocols{}
	streams.SetUnencryptedHTTP2(true)
	two := &http.Client{Transport: &http.Transport{Protocols: streams}, Timeout: time.Minute}
	defer two.CloseIdleConnections()

	paced := int(drainDuration / drainInterval)
	outcomes := make([]callOutcome, paced+slowCalls)
	var calls sync.WaitGroup
	start := func(n, ms int) {
		client := one
		if n%2 == 1 {
			client = two
		}
		calls.Go(func() {
			o := &outcomes[n]
			o.begun = time.Now()
			o.status, _, o.err = post(client, g.RPC("up"),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"arguments":{"n":%d,"ms":%d}}}`, n, n, ms), nil)
		})
	}
	var signalled time.Time
	pace := time.NewTicker(drainInterval)
	defer pace.Stop()
	for n := range paced {
		<-pace.C
		start(n, 10)
		switch n {
		case paced/2 - 5:
			for slow := range slowCalls {
				start(paced+slow, int(slowCallTime/time.Millisecond))
			}
		case paced / 2:
			signalled = time.Now()
			if err := g.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls.Wait()
	code, err := g.ExitCode(exitLimit)
	if err != nil {
		t.Fatal(err)
	}
	good, refused, dropped := 0, 0, 0
	for n, o := range outcomes {
		_, seen := reached.Load(n)
		switch {
		case o.err == nil && o.status == http.StatusOK:
			good++
		case seen:
			t.Errorf("call %d reached the server and was not answered: HTTP %d, %v", n, o.status, o.err)
		case o.begun.Before(signalled.Add(-2 * drainInterval)):
			t.Errorf("call %d began before the signal and was not answered: HTTP %d, %v", n, o.status, o.err)
		case errors.Is(o.err, syscall.ECONNREFUSED):
			refused++
		default:
			// In flight when the listener closed: dropped by the kernel, not by the gateway.
			t.Logf("call %d, begun %s after the signal: HTTP %d, %v", n, o.begun.Sub(signalled), o.status, o.err)
			dropped++
		}
	}
	for n := range slowCalls {
		if o := outcomes[paced+n]; o.err != nil || o.begun.After(signalled) {
			t.Errorf("slow call %d was not in flight at the signal, or was lost: %v", n, o.err)
		}
	}
	t.Logf("drain under load: %d calls answered 200 (%d of %s in flight at SIGTERM among them), %d later ones refused, %d dropped unseen, exit code %d",
		good, slowCalls, slowCallTime, refused, dropped, code)
	if dropped > 2 {
		t.Errorf("%d calls were dropped when the listener closed", dropped)
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}
