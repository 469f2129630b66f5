//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/faultproxy"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// outage is a way in which the store fails.
type outage struct {
	name       string
	begin, end func(o *outageTest) error
	isReadable bool // originals can be read back meanwhile
	isEmptied  bool // originals from before are gone
}

var outages = []outage{
	{"killed", func(o *outageTest) error { o.node.Kill(); return nil }, func(o *outageTest) error { return o.node.Restart() }, false, false},
	{"stopped", func(o *outageTest) error { return o.node.Pause() }, func(o *outageTest) error { return o.node.Resume() }, false, false},
	{"full", func(o *outageTest) error { return o.redis.ConfigSet("maxmemory", "1") }, func(o *outageTest) error { return o.redis.ConfigSet("maxmemory", "0") }, true, false},
	{"read-only", func(o *outageTest) error { return o.redis.ConfigSet("min-replicas-to-write", "1") }, func(o *outageTest) error { return o.redis.ConfigSet("min-replicas-to-write", "0") }, true, false},
	{"flushed", func(o *outageTest) error { return o.redis.FlushAll() }, func(*outageTest) error { return nil }, true, true},
	{"200 ms slower", func(o *outageTest) error { o.proxy.Delay(200 * time.Millisecond); return nil }, func(o *outageTest) error { o.proxy.Heal(); return nil }, true, false},
}

type outageTest struct {
	*keeping
	redis *redisserver.Server
	node  *redisserver.Node
	proxy *faultproxy.Proxy

	reader     *testGateway
	shownSince time.Time // all ids of calls since then must be readable
	before     []time.Duration
	during     map[string][]time.Duration
	slowBack   time.Duration // the longest time until results were kept again
}

// TestR11StoreOutages: whatever happens to the store, no call fails, no id is shown whose original is gone, and once the
// breaker is open calls are as fast as before. At the end the gateways need no more memory.
func TestR11StoreOutages(t *testing.T) {
	runsTogether(t)
	rounds, length := shortOrFull(1, 20), time.Duration(shortOrFull(2000, 3000))*time.Millisecond
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{})
	proxy := faultproxy.Start(t, s.Nodes[0].Address())
	k := startKeeping(t, fmt.Sprintf("driver = \"redis\"\nurl = \"redis://%s\"", proxy.Address()), keepingRate(), keepingRate())
	o := &outageTest{keeping: k, redis: s, node: s.Nodes[0], proxy: proxy, reader: k.startReplica(t), during: map[string][]time.Duration{}}
	var memory []int64
	for round := range rounds {
		for i := range outages {
			o.runOutage(t, &outages[i], length)
		}
		k.forgetCalls(time.Now().Add(-5 * time.Second))
		if round == 0 || round == rounds-1 {
			memory = append(memory, k.memoryUsed())
		}
	}
	k.stopLoad()
	for _, f := range k.failed[:min(5, len(k.failed))] {
		t.Errorf("a call failed: %s", f)
	}
	base := quantile(o.before, 0.99)
	found := fmt.Sprintf("p99 before %s", short(base))
	for _, out := range outages {
		p99 := quantile(o.during[out.name], 0.99)
		found += fmt.Sprintf(", %s %s", out.name, short(p99))
		// In a store that was emptied everything is stored anew, and no breaker opens.
		if fullRun && !out.isEmptied && p99 > base+5*time.Millisecond {
			t.Errorf("%s: p99 is %s, before it was %s", out.name, p99, base)
		}
	}
	found += fmt.Sprintf("; kept again after at most %s; memory %d MiB after the first round, %d MiB after %d", short(o.slowBack), memory[0]>>20, memory[len(memory)-1]>>20, rounds)
	if fullRun && memory[1]*100 > memory[0]*105 {
		t.Errorf("memory grew from %d to %d bytes", memory[0], memory[1])
	}
	report(t, "R11", fmt.Sprintf("%d outages of each kind", rounds), nil, "%s; %s", found, k.progress())
}

// runOutage runs one outage and waits until results are kept again.
func (o *outageTest) runOutage(t *testing.T, out *outage, length time.Duration) {
	t.Helper()
	calm := time.Now()
	o.waitKept(t, keepingRate())
	known := o.lastShown()
	start := time.Now()
	o.before = append(o.before, o.tookBetween(calm, start)...)
	if out.isEmptied {
		o.checkShown(t, out.name)
	}
	if err := out.begin(o); err != nil {
		t.Fatal(err)
	}
	if out.isEmptied {
		o.shownSince = time.Now()
	} else if out.isReadable {
		time.Sleep(length / 2)
		if problem := o.readOne(o.reader, known); problem != "" {
			t.Errorf("%s: an original cannot be read back: %s", out.name, problem)
		}
	}
	time.Sleep(time.Until(start.Add(length)))
	over := time.Now()
	// First the breaker has to notice.
	o.during[out.name] = append(o.during[out.name], o.tookBetween(start.Add(1500*time.Millisecond), over)...)
	if err := out.end(o); err != nil {
		t.Fatal(err)
	}
	over = time.Now()
	if !wait.True(20*time.Second, func() bool { return o.lastShown().due.After(over) }) {
		t.Fatalf("%s: nothing is kept again; %s", out.name, o.progress())
	}
	o.slowBack = max(o.slowBack, time.Since(over))
	o.checkShown(t, out.name)
}

// checkShown reads all texts back whose ids were shown since the store was emptied.
func (o *outageTest) checkShown(t *testing.T, name string) {
	t.Helper()
	o.mu.Lock()
	var shown []shownText
	seen := map[string]bool{}
	for _, s := range o.shown {
		if s.due.After(o.shownSince) && !seen[s.id] {
			seen[s.id] = true
			shown = append(shown, s)
		}
	}
	o.mu.Unlock()
	for i, l := range o.readBack(o.reader, shown) {
		if i < 5 {
			t.Errorf("%s: of %d ids that were shown: %s", name, len(shown), l)
		}
	}
}

func (k *keeping) lastShown() shownText {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.shown) == 0 {
		return shownText{}
	}
	return k.shown[len(k.shown)-1]
}

// tookBetween returns how long the calls took that were due then.
func (k *keeping) tookBetween(from, to time.Time) []time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []time.Duration
	for _, c := range k.took {
		if c.due.After(from) && c.due.Before(to) {
			out = append(out, c.took)
		}
	}
	return out
}

// forgetCalls forgets how long earlier calls took.
func (k *keeping) forgetCalls(before time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.took = slices.DeleteFunc(k.took, func(c tookAt) bool { return c.due.Before(before) })
}

// memoryUsed is the memory of the gateways, at its lowest within some seconds.
func (k *keeping) memoryUsed() int64 {
	var lowest int64
	for range shortOrFull(1, 20) {
		var sum int64
		for _, g := range k.gateways {
			sum += memoryOf(g.PID(), "VmRSS")
		}
		if lowest == 0 || sum < lowest {
			lowest = sum
		}
		time.Sleep(250 * time.Millisecond)
	}
	return lowest
}
