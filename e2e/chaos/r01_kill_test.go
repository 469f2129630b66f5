//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killing is one child that was killed.
type killing struct {
	server string
	pid    int
	at     time.Time
	back   time.Time // when the next process first answered
}

// TestR1KilledChildren: five children under load, one of them killed every second. Only calls on
// that child may fail, each in good form and soon; the others do not notice; the child is back
// within a second; nobody is told of a list that did not change; subscriptions go on.
func TestR1KilledChildren(t *testing.T) {
	book := newLedger(t)
	names := []string{"a", "b", "c", "d", "e"}
	s := newSite(t, book)
	for _, id := range names {
		s.servers = append(s.servers, child(id, book))
	}
	g := s.start(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], names...)
	settled(t, peers[1], len(names)*len(toolOrder))
	news := watchAll(t, g, names)

	l := load{rate: 100, servers: names, more: `"delay_ms":20`, peers: peers}
	l.start()
	time.Sleep(time.Duration(pick(3, 10)) * time.Second)
	files := descriptorsOf(g.pid())
	begin := time.Now()
	kills := killChildren(t, book, names, pick(10, 100), time.Second)
	time.Sleep(2 * time.Second)
	cs := l.end()
	cs.sound(t, book)
	found := judgeKills(t, cs, kills, begin)
	for _, n := range news {
		if got := n.count("notifications/tools/list_changed"); got != 0 {
			t.Errorf("%d list_changed, and no list changed", got)
		}
	}
	touchAll(t, g, names, news)
	g.noZombies(t)
	if now := descriptorsOf(g.pid()); now > files+4 {
		t.Errorf("%d open files, were %d", now, files)
	}
	book.obedient(t)
	report(t, "R1", fmt.Sprintf("SIGKILL of a child ×%d, 100 rps on 5", len(kills)), cs, "%s", found)
}

// TestR1OtherDoors is the same through the doors that lead to one server: /mcp/{server} in both
// eras, and the one that takes a single JSON-RPC message.
func TestR1OtherDoors(t *testing.T) {
	book := newLedger(t)
	names := []string{"a", "b", "c"}
	g := newSite(t, book, child("a", book), child("b", book), child("c", book)).start(t)
	ready(t, g.web(t, modern), names...)
	l := load{rate: 60, servers: names, more: `"delay_ms":20`, doors: map[string]peer{
		"a": g.door(t, "/mcp/a", legacy, answersNothing), "b": g.door(t, "/mcp/b", modern, answersNothing),
		"c": g.door(t, "/api/mcp-gateway/c/rpc", plain, answersNothing),
	}}
	l.start()
	time.Sleep(time.Second)
	begin := time.Now()
	kills := killChildren(t, book, names, pick(4, 30), time.Second)
	time.Sleep(time.Second)
	cs := l.end()
	cs.sound(t, book)
	found := judgeKills(t, cs, kills, begin)
	book.obedient(t)
	report(t, "R1", fmt.Sprintf("SIGKILL of a child ×%d, through the doors of one server", len(kills)), cs, "%s", found)
}

// killChildren kills the process of a random server at each interval.
func killChildren(t *testing.T, book *ledger, names []string, n int, every time.Duration) []*killing {
	t.Helper()
	var kills []*killing
	for range n {
		id := names[rand.IntN(len(names))]
		last := running(book, id)
		k := &killing{server: id, pid: last.PID, at: time.Now()}
		if err := syscall.Kill(k.pid, syscall.SIGKILL); err != nil {
			t.Logf("killing %s, %d: %v", id, k.pid, err)
		}
		kills = append(kills, k)
		time.Sleep(every)
	}
	return kills
}

// running is the newest process of a server, once there is one: what is dead cannot be killed.
func running(book *ledger, id string) event {
	var last event
	within(3*time.Second, func() bool {
		last, _ = book.latest(didListen, id)
		return syscall.Kill(last.PID, 0) == nil
	})
	return last
}

// judgeKills looks for failures that no killing explains, and for children that came back late.
func judgeKills(t *testing.T, cs calls, kills []*killing, begin time.Time) string {
	t.Helper()
	var backs, lates []time.Duration
	for _, k := range kills {
		for _, c := range cs {
			if c.server == k.server && c.verdict == ok && c.echo.PID != k.pid && c.ended.After(k.at) && (k.back.IsZero() || c.ended.Before(k.back)) {
				k.back = c.ended
			}
		}
		if k.back.IsZero() {
			t.Errorf("%s never came back after %s", k.server, k.at.Format("15:04:05.000"))
			continue
		}
		backs = append(backs, k.back.Sub(k.at))
	}
	for _, c := range cs.where(func(c *call) bool { return c.verdict == failed }) {
		k := explained(c, kills)
		if k == nil {
			t.Errorf("%s::%s failed (%s) at %s, and no killing explains it", c.server, c.tool, c.why, c.ended.Format("15:04:05.000"))
			continue
		}
		if c.due.Before(k.at) {
			lates = append(lates, c.ended.Sub(k.at))
		}
	}
	// How long the machine makes a call wait that nothing happens to: not the gateway's doing.
	slack := cs.between(time.Time{}, begin).quantile(0.99)
	if p := quantile(lates, 1); p > 250*time.Millisecond+slack {
		t.Errorf("a call in flight on a killed child was answered only after %s", p)
	}
	if p := quantile(backs, 0.99); p > time.Second+childStart(t)+slack {
		t.Errorf("a killed child was back only after %s", p)
	}
	near, apart := neighbours(cs.between(begin, time.Now()), kills)
	noise := noisier(t, "p99 of the others in the 400 ms after a killing", apart.quantile(0.99), near.quantile(0.99), 1.2, 5*time.Millisecond)
	return fmt.Sprintf("errors after ≤ %s; back p50 %s max %s; %s", short(quantile(lates, 1)), short(quantile(backs, 0.5)), short(quantile(backs, 1)), noise)
}

// neighbours are the calls on children that were not killed: those soon after a killing, and those
// well after. Both are of the same minutes, so that whatever else the machine does is in both.
func neighbours(cs calls, kills []*killing) (near, apart calls) {
	for _, c := range cs {
		if explained(c, kills) != nil {
			continue
		}
		since := time.Hour
		for _, k := range kills {
			if d := c.due.Sub(k.at); d >= 0 {
				since = min(since, d)
			}
		}
		switch {
		case since < 400*time.Millisecond:
			near = append(near, c)
		case since > 500*time.Millisecond && since < 2*time.Second:
			apart = append(apart, c)
		}
	}
	return near, apart
}

// explained is the killing that a call met: under way on that child, or queued for it.
func explained(c *call, kills []*killing) *killing {
	for _, k := range kills {
		if c.server == k.server && c.ended.After(k.at) && (k.back.IsZero() || c.due.Before(k.back)) {
			return k
		}
	}
	return nil
}

// childStart is how long a child alone takes from its start to its first answer.
func childStart(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	c := directPipe(t, legacy, newLedger(t))
	_ = c // its handshake is done
	return time.Since(begin)
}

// watchAll opens a legacy stream and a modern subscription on every server's resource.
func watchAll(t *testing.T, g *gateway, names []string) []*stream {
	t.Helper()
	var uris []string
	for _, id := range names {
		uris = append(uris, proxied(id, resourceURI))
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	old := g.web(t, legacy)
	one, err := old.listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.close)
	for i, uri := range uris {
		got, err := old.ask(ctx, ask{id: fmt.Sprint(i + 1), method: "resources/subscribe", params: fmt.Sprintf(`{"uri":%q}`, uri)})
		if err != nil || got.Error != nil {
			t.Fatalf("resources/subscribe: %v %s", err, got.Error)
		}
	}
	two, err := subscribe(ctx, g.web(t, modern), "1", fmt.Sprintf(`{"toolsListChanged":true,"resourceSubscriptions":%s}`, toJSON(uris)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(two.close)
	return []*stream{one, two}
}

// touchAll touches each server's resource and expects every stream to hear of it.
func touchAll(t *testing.T, g *gateway, names []string, news []*stream) {
	t.Helper()
	const updated = "notifications/resources/updated"
	p := g.web(t, modern)
	for i, id := range names {
		before := make([]int, len(news))
		for j, n := range news {
			before[j] = n.count(updated)
		}
		got, err := p.ask(t.Context(), ask{id: fmt.Sprint(i + 1), method: "tools/call", params: fmt.Sprintf(`{"name":"%s::touch","arguments":{"uri":%q}}`, id, resourceURI)})
		if err != nil || !strings.Contains(string(got.Result), "touched") {
			t.Errorf("touching %s: %v %s", id, err, got.Error)
		}
		for j, n := range news {
			if !within(2*time.Second, func() bool { return n.count(updated) > before[j] }) {
				ended, _, err := n.state()
				t.Errorf("stream %d did not hear of %s's resource (ended %v: %v)", j, id, ended, err)
			}
		}
	}
}
