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
)

// load calls at a fixed rate, whatever becomes of the calls.
type load struct {
	rate    int
	servers []string
	tool    string                // default echo
	more    string                // further arguments
	token   string                // a progress token for every call
	peers   []peer                // asked in turn
	doors   map[string]peer       // or: each server's own door, where its tools have their own names
	fresh   func() (peer, func()) // a peer on a new connection, for a quarter of the calls
	limit   time.Duration         // a call without an answer for so long is lost; default 15 s

	stop    context.CancelFunc
	stopped chan struct{}
	mu      sync.Mutex
	calls   []*call
	flying  sync.WaitGroup
}

// start begins to call; end stops it.
func (l *load) start() {
	if l.tool == "" {
		l.tool = "echo"
	}
	if l.limit == 0 {
		l.limit = 15 * time.Second
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.stopped = make(chan struct{})
	go l.run(ctx, rand.Text()[:6])
}

func (l *load) run(ctx context.Context, name string) {
	defer close(l.stopped)
	begin := time.Now()
	for n := 0; ; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return
		}
		l.add(n, name, due)
	}
}

// add sends one call on its way.
func (l *load) add(n int, name string, due time.Time) {
	c := &call{
		id: idOf(n), nonce: fmt.Sprintf("%s-%d", name, n), tenant: fmt.Sprintf("t%d", n%7),
		server: l.servers[mrand.IntN(len(l.servers))], tool: l.tool, more: l.more, token: l.token, due: due,
	}
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.mu.Unlock()
	l.flying.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.limit)
		defer cancel()
		p, done := peer(nil), func() {}
		if len(l.peers) > 0 {
			p = l.peers[n%len(l.peers)]
		}
		if l.fresh != nil && n%4 == 0 {
			p, done = l.fresh()
		}
		if door := l.doors[c.server]; door != nil {
			c.makeAs(ctx, door, "")
		} else {
			c.make(ctx, p)
		}
		done()
	})
}

// idOf makes ids of both kinds.
func idOf(n int) string {
	if n%2 == 0 {
		return fmt.Sprint(n + 1)
	}
	return fmt.Sprintf(`"%d"`, n)
}

// end stops calling and waits for the answers.
func (l *load) end() calls {
	l.stop()
	<-l.stopped
	l.flying.Wait()
	return l.calls
}

// calls are judged calls.
type calls []*call

func (cs calls) where(want func(*call) bool) calls {
	var out calls
	for _, c := range cs {
		if want(c) {
			out = append(out, c)
		}
	}
	return out
}

func (cs calls) count(v verdict) int {
	return len(cs.where(func(c *call) bool { return c.verdict == v }))
}

// between are the calls that were due in a stretch of time.
func (cs calls) between(from, to time.Time) calls {
	return cs.where(func(c *call) bool { return !c.due.Before(from) && c.due.Before(to) })
}

// quantile is of the calls that went well.
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

// kinds are the reasons of the errors, each with how many gave it.
func (cs calls) kinds() string {
	reasons := map[string]int{}
	for _, c := range cs {
		if c.verdict == failed {
			reasons[c.why]++
		}
	}
	var why []string
	for r, n := range reasons {
		why = append(why, fmt.Sprintf("%s %d", r, n))
	}
	sort.Strings(why)
	return strings.Join(why, ", ")
}

// summary says what came of the calls, with the reasons of the errors.
func (cs calls) summary() string {
	return fmt.Sprintf("%d calls: %d ok, %d errors (%s), %d malformed, %d lost, %d corrupt, %d unsent; p50 %s p99 %s",
		len(cs), cs.count(ok), cs.count(failed), cs.kinds(), cs.count(malformed), cs.count(lost), cs.count(corrupt), cs.count(unsent),
		short(cs.quantile(0.5)), short(cs.quantile(0.99)))
}

func short(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

// sound fails the test unless the lines that every scenario holds were held: nothing lost,
// nothing corrupt, no ill-formed error, and no nonce executed twice or elsewhere.
func (cs calls) sound(t *testing.T, book *ledger) {
	t.Helper()
	for _, v := range []verdict{lost, corrupt, malformed, pending} {
		cs.complain(t, v)
	}
	for _, why := range cs.executed(book) {
		t.Error(why)
	}
}

// complain shows the first few calls with a verdict that should not be.
func (cs calls) complain(t *testing.T, v verdict) {
	t.Helper()
	bad := cs.where(func(c *call) bool { return c.verdict == v })
	for i, c := range bad {
		if i == 3 {
			t.Errorf("… and %d more %s", len(bad)-3, v)
			return
		}
		t.Errorf("%s: call %s (nonce %s, %s::%s, sent %s, took %s): %s", v, c.id, c.nonce, c.server, c.tool, c.due.Format("15:04:05.000"), short(c.took()), c.why)
	}
}

// executed compares the calls with what the fakes wrote down.
func (cs calls) executed(book *ledger) []string {
	runs := book.executions()
	var wrongs []string
	for _, c := range cs {
		ran := runs[c.nonce]
		switch {
		case len(ran) > 1:
			wrongs = append(wrongs, fmt.Sprintf("nonce %s was executed %d times", c.nonce, len(ran)))
		case len(ran) == 1 && ran[0].Server != c.server:
			wrongs = append(wrongs, fmt.Sprintf("nonce %s was meant for %s and ran on %s", c.nonce, c.server, ran[0].Server))
		case len(ran) == 0 && c.verdict == ok:
			wrongs = append(wrongs, fmt.Sprintf("nonce %s was answered and never executed", c.nonce))
		}
	}
	return wrongs[:min(len(wrongs), 5)]
}

// allOK fails the test when any call came to anything but its answer.
func (cs calls) allOK(t *testing.T) {
	t.Helper()
	cs.complain(t, failed)
	cs.complain(t, unsent)
}
