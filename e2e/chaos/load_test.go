//go:build linux

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
)

// loadGenerator calls at a fixed rate, independent of the replies.
type loadGenerator struct {
	rate          int
	servers       []string
	tool          string                            // default echo
	extraArgs     string                            // more arguments
	progressToken string                            // for every call
	clients       []mcpclient.Client                // used in turn
	endpoints     map[string]mcpclient.Client       // or: clients of each server's own endpoint, with unprefixed tool names
	newConnection func() (mcpclient.Client, func()) // a client on a new connection, for a quarter of the calls
	limit         time.Duration                     // after which a call counts as lost; default 15 s

	stop     context.CancelFunc
	stopped  chan struct{}
	mu       sync.Mutex
	calls    []*call
	inFlight sync.WaitGroup
}

// startLoad starts to call until stopLoad.
func (l *loadGenerator) startLoad() {
	if l.tool == "" {
		l.tool = "echo"
	}
	if l.limit == 0 {
		l.limit = 15 * time.Second
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.stopped = make(chan struct{})
	go l.sendCalls(ctx, rand.Text()[:6])
}

func (l *loadGenerator) sendCalls(ctx context.Context, name string) {
	defer close(l.stopped)
	begin := time.Now()
	for n := 0; ; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return
		}
		l.sendCall(n, name, due)
	}
}

// sendCall starts one call.
func (l *loadGenerator) sendCall(n int, name string, due time.Time) {
	c := &call{
		id: idOf(n), nonce: fmt.Sprintf("%s-%d", name, n), tenant: fmt.Sprintf("t%d", n%7),
		server: l.servers[mrand.IntN(len(l.servers))], tool: l.tool, extraArgs: l.extraArgs, progressToken: l.progressToken, scheduled: due,
	}
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.mu.Unlock()
	l.inFlight.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.limit)
		defer cancel()
		p, done := mcpclient.Client(nil), func() {}
		if len(l.clients) > 0 {
			p = l.clients[n%len(l.clients)]
		}
		if l.newConnection != nil && n%4 == 0 {
			p, done = l.newConnection()
		}
		if client := l.endpoints[c.server]; client != nil {
			c.sendAs(ctx, client, "")
		} else {
			c.send(ctx, p)
		}
		done()
	})
}

// idOf alternates between numbers and strings.
func idOf(n int) string {
	if n%2 == 0 {
		return fmt.Sprint(n + 1)
	}
	return fmt.Sprintf(`"%d"`, n)
}

// stopLoad stops and waits for the replies.
func (l *loadGenerator) stopLoad() calls {
	l.stop()
	<-l.stopped
	l.inFlight.Wait()
	return l.calls
}

// calls are judged calls.
type calls []*call

func (cs calls) filter(want func(*call) bool) calls {
	var out calls
	for _, c := range cs {
		if want(c) {
			out = append(out, c)
		}
	}
	return out
}

func (cs calls) count(v verdict) int {
	return len(cs.filter(func(c *call) bool { return c.verdict == v }))
}

// between returns the calls scheduled in a period.
func (cs calls) between(from, to time.Time) calls {
	return cs.filter(func(c *call) bool { return !c.scheduled.Before(from) && c.scheduled.Before(to) })
}

// quantile is a quantile of the successful calls' times.
func (cs calls) quantile(q float64) time.Duration {
	var took []time.Duration
	for _, c := range cs {
		if c.verdict == ok {
			took = append(took, c.took())
		}
	}
	return quantile(took, q)
}

func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(math.Ceil(q*float64(len(took))))-1)]
}

// errorReasons lists the reasons of the errors with their counts.
func (cs calls) errorReasons() string {
	reasons := map[string]int{}
	for _, c := range cs {
		if c.verdict == failed {
			reasons[c.reason]++
		}
	}
	var why []string
	for r, n := range reasons {
		why = append(why, fmt.Sprintf("%s %d", r, n))
	}
	sort.Strings(why)
	return strings.Join(why, ", ")
}

// summary counts the verdicts.
func (cs calls) summary() string {
	return fmt.Sprintf("%d calls: %d ok, %d errors (%s), %d malformed, %d lost, %d corrupt, %d unsent; p50 %s p99 %s",
		len(cs), cs.count(ok), cs.count(failed), cs.errorReasons(), cs.count(malformed), cs.count(lost), cs.count(corrupt), cs.count(unsent),
		short(cs.quantile(0.5)), short(cs.quantile(0.99)))
}

func short(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

// requireSound checks what every scenario requires: nothing lost, nothing corrupt, no malformed error, and no
// nonce executed twice or by another server.
func (cs calls) requireSound(t *testing.T, events *mcpserver.EventLog) {
	t.Helper()
	for _, v := range []verdict{lost, corrupt, malformed, pending} {
		cs.reportCalls(t, v)
	}
	for _, why := range cs.findMisexecuted(events) {
		t.Error(why)
	}
}

// reportCalls reports the first few calls with a verdict as errors.
func (cs calls) reportCalls(t *testing.T, v verdict) {
	t.Helper()
	bad := cs.filter(func(c *call) bool { return c.verdict == v })
	for i, c := range bad {
		if i == 3 {
			t.Errorf("… and %d more %s", len(bad)-3, v)
			return
		}
		t.Errorf("%s: call %s (nonce %s, %s::%s, sent %s, took %s): %s", v, c.id, c.nonce, c.server, c.tool, c.scheduled.Format("15:04:05.000"), short(c.took()), c.reason)
	}
}

// findMisexecuted compares the calls with the servers' event log.
func (cs calls) findMisexecuted(events *mcpserver.EventLog) []string {
	runs := events.Executions()
	var wrongs []string
	for _, c := range cs {
		ran := runs[c.nonce]
		switch {
		case len(ran) > 1:
			wrongs = append(wrongs, fmt.Sprintf("nonce %s was executed %d times", c.nonce, len(ran)))
		case len(ran) == 1 && ran[0].Server != c.server:
			wrongs = append(wrongs, fmt.Sprintf("nonce %s was sent to %s and executed by %s", c.nonce, c.server, ran[0].Server))
		case len(ran) == 0 && c.verdict == ok:
			wrongs = append(wrongs, fmt.Sprintf("nonce %s was answered but not executed", c.nonce))
		}
	}
	return wrongs[:min(len(wrongs), 5)]
}

// requireAllOK fails the test if any call failed.
func (cs calls) requireAllOK(t *testing.T) {
	t.Helper()
	cs.reportCalls(t, failed)
	cs.reportCalls(t, unsent)
}

// burst makes n calls with the given concurrency.
func burst(n, atOnce int, clients []mcpclient.Client, servers []string, shape func(i int, c *call)) calls {
	name := rand.Text()[:6]
	all := make(calls, n)
	var next sync.Mutex
	i := 0
	nextIndex := func() int {
		next.Lock()
		defer next.Unlock()
		i++
		return i - 1
	}
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for k := nextIndex(); k < n; k = nextIndex() {
				c := &call{id: idOf(k), nonce: fmt.Sprintf("%s-%d", name, k), tenant: fmt.Sprintf("t%d", k%7), server: servers[k%len(servers)], tool: "echo"}
				if shape != nil {
					shape(k, c)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				c.send(ctx, clients[k%len(clients)])
				cancel()
				all[k] = c
			}
		})
	}
	workers.Wait()
	return all
}

// callOnce calls a tool once.
func callOnce(p mcpclient.Client, server, tool, more string, limit time.Duration) *call {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := &call{id: fmt.Sprint(time.Now().UnixNano()), nonce: rand.Text()[:10], tenant: "t", server: server, tool: tool, extraArgs: more}
	c.send(ctx, p)
	return c
}
