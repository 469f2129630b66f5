package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const (
	heldHTTP1    = 5000
	heldHTTP2    = 5000
	heldCalls    = heldHTTP1 + heldHTTP2
	transports   = 12 // 1000 streams per connection
	perCallLimit = 64 << 10
	filesWanted  = heldHTTP1 + heldCalls + 500 // in the gateway
)

// TestTenThousandConcurrentCalls holds ten thousand calls in the gateway, half of them on connections of
// their own and half as HTTP/2 streams. Each may cost 64 KiB; all are answered; afterwards memory and
// goroutines return to their idle level.
func TestTenThousandConcurrentCalls(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < filesWanted {
		t.Skipf("the limit is %d open files, %d are needed", files.Max, filesWanted)
	}
	h := startHoldServer(t)
	s := newSite(t, h.url, "response_timeout = \"5m\"")
	g := s.start(t)
	callers := newHoldClients(t)
	for _, c := range callers {
		if err := callHoldServer(c, g, true); err != nil {
			t.Fatal(err)
		}
	}
	idle := measureUsage(t, g, s)

	var answered, failed atomic.Int64
	var calls sync.WaitGroup
	var err error
	for n := range heldCalls {
		c := callers[0]
		if n >= heldHTTP1 {
			c = callers[1+n%transports]
		}
		calls.Go(func() {
			if err := callHoldServer(c, g, false); err != nil {
				if failed.Add(1) <= 5 {
					t.Error(err)
				}
				return
			}
			answered.Add(1)
		})
		// A burst that the machine cannot keep up with would run into the time limits of dials and headers.
		if err == nil && n%200 == 199 {
			err = waitInFlight(g, s, n-199, &failed)
		}
	}
	if err == nil {
		err = waitInFlight(g, s, heldCalls, &failed)
	}
	if err != nil {
		_ = h.release()
		calls.Wait()
		t.Fatal(err)
	}
	held := measureUsage(t, g, s)
	if err := h.release(); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	perCall := (held.rss - idle.rss) / heldCalls
	t.Logf("%d calls held at once (%d HTTP/1.1 connections, %d HTTP/2 streams): %.1f KiB each (at most %d), %d answered 200; memory idle %d MiB, held %d MiB",
		heldCalls, heldHTTP1, heldHTTP2, float64(perCall)/1024, perCallLimit>>10, answered.Load(), idle.rss/mib, held.rss/mib)
	t.Logf("of the held memory: %s", held.breakdown(idle))
	if perCall > perCallLimit {
		t.Errorf("%d bytes a call, want at most %d", perCall, perCallLimit)
	}
	if answered.Load() != heldCalls {
		t.Errorf("%d of %d calls were answered", answered.Load(), heldCalls)
	}
	for _, c := range callers {
		c.CloseIdleConnections()
	}
	h.stop()
	waitAtRest(t, g, s, idle, held)
}

// waitInFlight waits until the gateway has that many calls in flight.
func waitInFlight(g *testGateway, s site, want int, failed *atomic.Int64) error {
	return wait.Until(time.Minute, fmt.Sprintf("ctxgate_calls_in_flight did not become %d", want), func() (bool, error) {
		now, err := g.metrics(s)
		if n := failed.Load(); n > 0 {
			return false, fmt.Errorf("%d calls failed", n)
		}
		return now["ctxgate_calls_in_flight"] >= float64(want), err
	})
}

// newHoldClients returns a client with a connection per call, and clients whose calls share one.
func newHoldClients(t *testing.T) []*http.Client {
	list := []*http.Client{{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: 5 * time.Minute}}
	for range transports {
		streams := &http.Protocols{}
		streams.SetUnencryptedHTTP2(true)
		list = append(list, &http.Client{Transport: &http.Transport{Protocols: streams}, Timeout: 5 * time.Minute})
	}
	t.Cleanup(func() {
		for _, c := range list {
			c.CloseIdleConnections()
		}
	})
	return list
}

func callHoldServer(c *http.Client, g *testGateway, pass bool) error {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"pass":0}}}`
	if pass {
		body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"pass":1}}}`
	}
	status, answer, err := post(c, g.RPC("up"), body, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("HTTP %d, %.200s", status, answer)
	}
	return err
}

// usage is the gateway's resource usage.
type usage struct {
	rss                  int64
	goroutines           float64
	heap, stacks, system float64
}

func measureUsage(t *testing.T, g *testGateway, s site) usage {
	t.Helper()
	rss := memory(t, g, "VmRSS") // before the scrape, which uses memory too
	now, err := g.metrics(s)
	if err != nil {
		t.Fatal(err)
	}
	return usage{
		rss: rss, goroutines: now["go_goroutines"],
		heap: now["go_memstats_heap_inuse_bytes"], stacks: now["go_memstats_stack_inuse_bytes"], system: now["go_memstats_sys_bytes"],
	}
}

func (r usage) breakdown(idle usage) string {
	kib := func(v float64) float64 { return v / heldCalls / 1024 }
	return fmt.Sprintf("heap in use %.1f KiB a call, stacks %.1f, asked of the system %.1f; %.2f goroutines a call",
		kib(r.heap-idle.heap), kib(r.stacks-idle.stacks), kib(r.system-idle.system), (r.goroutines-idle.goroutines)/heldCalls)
}

// waitAtRest waits until the goroutines are gone and four fifths of the memory are returned. Go keeps the
// descriptors of goroutines, returns memory slowly, and collects only when there is work: scrapes are some.
func waitAtRest(t *testing.T, g *testGateway, s site, idle, held usage) {
	t.Helper()
	var now usage
	start := time.Now()
	err := wait.Until(time.Minute, "the gateway did not come to rest", func() (bool, error) {
		for range 50 {
			now = measureUsage(t, g, s)
		}
		return now.goroutines <= idle.goroutines && now.rss-idle.rss <= (held.rss-idle.rss)/5, nil
	})
	t.Logf("%s after the last of %d calls: %.0f goroutines (idle %.0f), memory %d MiB (idle %d, held %d)",
		time.Since(start).Round(100*time.Millisecond), heldCalls, now.goroutines, idle.goroutines, now.rss/mib, idle.rss/mib, held.rss/mib)
	if err != nil {
		t.Error(err)
	}
}
