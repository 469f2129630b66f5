package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	heldHTTP1    = 5000
	heldHTTP2    = 5000
	heldCalls    = heldHTTP1 + heldHTTP2
	transports   = 12 // a connection takes 1000 streams
	perCallLimit = 64 << 10
	filesWanted  = heldHTTP1 + heldCalls + 500 // in the gateway
)

// TestTenThousandSlowCalls holds ten thousand calls in the gateway at once, half of them each on
// a connection of its own and half as streams of a few. Each may cost 64 KiB; all are answered;
// and afterwards the gateway is as it was.
func TestTenThousandSlowCalls(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < filesWanted {
		t.Skipf("a process may have only %d open files here, %d are needed", files.Max, filesWanted)
	}
	h := startHolder(t)
	s := settle(t, h.url, "response_timeout = \"2m\"")
	g := s.start(t)
	callers := heldCallers(t)
	for _, c := range callers {
		if err := heldCall(c, g, true); err != nil {
			t.Fatal(err)
		}
	}
	idle := gauge(t, g, s)

	var answered, failed atomic.Int64
	var calls sync.WaitGroup
	for n := range heldCalls {
		c := callers[0]
		if n >= heldHTTP1 {
			c = callers[1+n%transports]
		}
		calls.Go(func() {
			if err := heldCall(c, g, false); err != nil {
				if failed.Add(1) <= 5 {
					t.Error(err)
				}
				return
			}
			answered.Add(1)
		})
		if n%100 == 99 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	err := within(40*time.Second, "ctxgate_calls_in_flight did not become 10000", func() (bool, error) {
		time.Sleep(20 * poll)
		now, err := g.metrics(s)
		if failed.Load() > 0 {
			return false, fmt.Errorf("%d calls failed", failed.Load())
		}
		return now["ctxgate_calls_in_flight"] == heldCalls, err
	})
	if err != nil {
		_ = h.release()
		calls.Wait()
		t.Fatal(err)
	}
	held := gauge(t, g, s)
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
	h.end()
	atRest(t, g, s, idle, held)
}

// heldCallers are a client whose every call has a connection of its own, and those whose calls
// share one.
func heldCallers(t *testing.T) []*http.Client {
	list := []*http.Client{{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: 2 * time.Minute}}
	for range transports {
		streams := &http.Protocols{}
		streams.SetUnencryptedHTTP2(true)
		list = append(list, &http.Client{Transport: &http.Transport{Protocols: streams}, Timeout: 2 * time.Minute})
	}
	t.Cleanup(func() {
		for _, c := range list {
			c.CloseIdleConnections()
		}
	})
	return list
}

func heldCall(c *http.Client, g *gateway, pass bool) error {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"pass":0}}}`
	if pass {
		body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"pass":1}}}`
	}
	status, answer, err := post(c, g.rpc("up"), body, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("HTTP %d, %.200s", status, answer)
	}
	return err
}

// reading is what the gateway uses at one moment.
type reading struct {
	rss                  int64
	goroutines           float64
	heap, stacks, system float64
}

func gauge(t *testing.T, g *gateway, s site) reading {
	t.Helper()
	rss := memory(t, g, "VmRSS") // before the scrape adds to it
	now, err := g.metrics(s)
	if err != nil {
		t.Fatal(err)
	}
	return reading{
		rss: rss, goroutines: now["go_goroutines"],
		heap: now["go_memstats_heap_inuse_bytes"], stacks: now["go_memstats_stack_inuse_bytes"], system: now["go_memstats_sys_bytes"],
	}
}

func (r reading) breakdown(idle reading) string {
	kib := func(v float64) float64 { return v / heldCalls / 1024 }
	return fmt.Sprintf("heap in use %.1f KiB a call, stacks %.1f, asked of the system %.1f; %.2f goroutines a call",
		kib(r.heap-idle.heap), kib(r.stacks-idle.stacks), kib(r.system-idle.system), (r.goroutines-idle.goroutines)/heldCalls)
}

// atRest waits until the gateway is as it was: no goroutine more, and four fifths of the memory
// given back. Go keeps the descriptors of goroutines that were, gives the rest back in its own
// time, and only collects when there is work, so scrapes give it some.
func atRest(t *testing.T, g *gateway, s site, idle, held reading) {
	t.Helper()
	var now reading
	start := time.Now()
	err := within(25*time.Second, "the gateway did not come to rest", func() (bool, error) {
		for range 50 {
			now = gauge(t, g, s)
		}
		return now.goroutines <= idle.goroutines && now.rss-idle.rss <= (held.rss-idle.rss)/5, nil
	})
	t.Logf("%s after the last of %d calls: %.0f goroutines (idle %.0f), memory %d MiB (idle %d, held %d)",
		time.Since(start).Round(100*time.Millisecond), heldCalls, now.goroutines, idle.goroutines, now.rss/mib, idle.rss/mib, held.rss/mib)
	if err != nil {
		t.Error(err)
	}
}
