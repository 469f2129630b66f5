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

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// childKill is the killing of a child.
type childKill struct {
	server    string
	pid       int
	at        time.Time
	recovered time.Time // when the next process first replied
}

// TestR1KilledChildren: five children under load, one of them killed every second. Only calls of that child
// may fail, with a well-formed error and soon; the other servers are not affected; the child is back within a
// second; there is no list_changed; subscriptions survive.
func TestR1KilledChildren(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	names := []string{"a", "b", "c", "d", "e"}
	s := newSite(t, events)
	for _, id := range names {
		s.servers = append(s.servers, stdioServer(id, events))
	}
	g := s.start(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], names...)
	waitForTools(t, clients[1], len(names)*len(mcpserver.ToolNames))
	news := subscribeAll(t, g, names)

	l := loadGenerator{rate: 100, servers: names, extraArgs: `"delay_ms":20`, clients: clients}
	l.startLoad()
	time.Sleep(time.Duration(shortOrFull(3, 10)) * time.Second)
	files := process.OpenFiles(g.PID())
	begin := time.Now()
	kills := killChildren(t, events, names, shortOrFull(10, 100), time.Second)
	time.Sleep(2 * time.Second)
	cs := l.stopLoad()
	cs.requireSound(t, events)
	found := checkKills(t, cs, kills, begin)
	for _, n := range news {
		if got := n.Count("notifications/tools/list_changed"); got != 0 {
			t.Errorf("%d list_changed although no list changed", got)
		}
	}
	touchResources(t, g, names, news)
	g.requireNoZombies(t)
	if now := process.OpenFiles(g.PID()); now > files+4 {
		t.Errorf("%d open files, before %d", now, files)
	}
	events.RequireNoViolations(t)
	report(t, "R1", fmt.Sprintf("SIGKILL of a child ×%d, 100 rps on 5", len(kills)), cs, "%s", found)
}

// TestR1OtherEndpoints: the same through the endpoints of one server: /mcp/{server} in both revisions, and
// plain JSON-RPC.
func TestR1OtherEndpoints(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	names := []string{"a", "b", "c"}
	g := newSite(t, events, stdioServer("a", events), stdioServer("b", events), stdioServer("c", events)).start(t)
	waitReady(t, g.connect(t, mcpwire.Modern), names...)
	l := loadGenerator{rate: 60, servers: names, extraArgs: `"delay_ms":20`, endpoints: map[string]mcpclient.Client{
		"a": g.connectTo(t, "/mcp/a", mcpwire.Legacy, mcpclient.NoCapabilities), "b": g.connectTo(t, "/mcp/b", mcpwire.Modern, mcpclient.NoCapabilities),
		"c": g.connectTo(t, "/api/mcp-gateway/c/rpc", mcpwire.NoRevision, mcpclient.NoCapabilities),
	}}
	l.startLoad()
	time.Sleep(time.Second)
	begin := time.Now()
	kills := killChildren(t, events, names, shortOrFull(4, 30), time.Second)
	time.Sleep(time.Second)
	cs := l.stopLoad()
	cs.requireSound(t, events)
	found := checkKills(t, cs, kills, begin)
	events.RequireNoViolations(t)
	report(t, "R1", fmt.Sprintf("SIGKILL of a child ×%d, through the endpoints of one server", len(kills)), cs, "%s", found)
}

// killChildren kills the process of a random server at each interval.
func killChildren(t *testing.T, events *mcpserver.EventLog, names []string, n int, every time.Duration) []*childKill {
	t.Helper()
	var kills []*childKill
	for range n {
		id := names[rand.IntN(len(names))]
		last := latestProcess(events, id)
		k := &childKill{server: id, pid: last.PID, at: time.Now()}
		if err := syscall.Kill(k.pid, syscall.SIGKILL); err != nil {
			t.Logf("killing %s, %d: %v", id, k.pid, err)
		}
		kills = append(kills, k)
		time.Sleep(every)
	}
	return kills
}

// latestProcess returns the newest running process of a server and waits until there is one.
func latestProcess(events *mcpserver.EventLog, id string) mcpserver.Event {
	var last mcpserver.Event
	wait.True(3*time.Second, func() bool {
		last, _ = events.Latest(mcpserver.Listening, id)
		return syscall.Kill(last.PID, 0) == nil
	})
	return last
}

// checkKills finds failures that no kill explains, and children that came back late.
func checkKills(t *testing.T, cs calls, kills []*childKill, begin time.Time) string {
	t.Helper()
	var backs, lates []time.Duration
	for _, k := range kills {
		for _, c := range cs {
			if c.server == k.server && c.verdict == ok && c.echo.PID != k.pid && c.ended.After(k.at) && (k.recovered.IsZero() || c.ended.Before(k.recovered)) {
				k.recovered = c.ended
			}
		}
		if k.recovered.IsZero() {
			t.Errorf("%s never came back after %s", k.server, k.at.Format("15:04:05.000"))
			continue
		}
		backs = append(backs, k.recovered.Sub(k.at))
	}
	for _, c := range cs.filter(func(c *call) bool { return c.verdict == failed }) {
		k := explainingKill(c, kills)
		if k == nil {
			t.Errorf("%s::%s failed (%s) at %s, and no kill explains it", c.server, c.tool, c.reason, c.ended.Format("15:04:05.000"))
			continue
		}
		if c.scheduled.Before(k.at) {
			lates = append(lates, c.ended.Sub(k.at))
		}
	}
	// The delay of calls that nothing happened to is the machine's, not the gateway's.
	slack := cs.between(time.Time{}, begin).quantile(0.99)
	if p := quantile(lates, 1); p > 250*time.Millisecond+slack {
		t.Errorf("a call in flight on a killed child was answered after %s", p)
	}
	if p := quantile(backs, 0.99); p > time.Duration(shortOrFull(2, 1))*time.Second+childStartTime(t)+slack {
		t.Errorf("a killed child was back after %s", p)
	}
	near, apart := otherServers(cs.between(begin, time.Now()), kills)
	noise := checkSlowdown(t, "p99 of the others in the 400 ms after a killing", apart.quantile(0.99), near.quantile(0.99), 1.2, 5*time.Millisecond)
	return fmt.Sprintf("errors after ≤ %s; back p50 %s max %s; %s", short(quantile(lates, 1)), short(quantile(backs, 0.5)), short(quantile(backs, 1)), noise)
}

// otherServers returns the calls of children that were not killed: those soon after a kill, and those well
// after. Both are from the same minutes, so that other load of the machine affects both.
func otherServers(cs calls, kills []*childKill) (near, apart calls) {
	for _, c := range cs {
		if explainingKill(c, kills) != nil {
			continue
		}
		since := time.Hour
		for _, k := range kills {
			if d := c.scheduled.Sub(k.at); d >= 0 {
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

// explainingKill returns the kill that a call met, in flight on that child or queued for it.
func explainingKill(c *call, kills []*childKill) *childKill {
	for _, k := range kills {
		if c.server == k.server && c.ended.After(k.at) && (k.recovered.IsZero() || c.scheduled.Before(k.recovered)) {
			return k
		}
	}
	return nil
}

// childStartTime measures a child without a gateway from its start to its first reply.
func childStartTime(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	c := connectDirectStdio(t, mcpwire.Legacy, mcpserver.NewEventLog(t))
	_ = c // the handshake is done
	return time.Since(begin)
}

// subscribeAll opens a legacy stream and a modern subscription to every server's resource.
func subscribeAll(t *testing.T, g *testGateway, names []string) []*mcpclient.Stream {
	t.Helper()
	var uris []string
	for _, id := range names {
		uris = append(uris, proxiedURI(id, mcpserver.ResourceURI))
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	old := g.connect(t, mcpwire.Legacy)
	one, err := old.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	for i, uri := range uris {
		got, err := old.Call(ctx, mcpclient.Request{ID: fmt.Sprint(i + 1), Method: "resources/subscribe", Params: fmt.Sprintf(`{"uri":%q}`, uri)})
		if err != nil || got.Error != nil {
			t.Fatalf("resources/subscribe: %v %s", err, got.Error)
		}
	}
	two, err := mcpclient.Subscribe(ctx, g.connect(t, mcpwire.Modern), "1", fmt.Sprintf(`{"toolsListChanged":true,"resourceSubscriptions":%s}`, mcpwire.EncodeJSON(uris)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(two.Close)
	return []*mcpclient.Stream{one, two}
}

// touchResources touches each server's resource and requires a notification on every stream.
func touchResources(t *testing.T, g *testGateway, names []string, news []*mcpclient.Stream) {
	t.Helper()
	const updated = "notifications/resources/updated"
	p := g.connect(t, mcpwire.Modern)
	for i, id := range names {
		before := make([]int, len(news))
		for j, n := range news {
			before[j] = n.Count(updated)
		}
		got, err := p.Call(t.Context(), mcpclient.Request{ID: fmt.Sprint(i + 1), Method: "tools/call", Params: fmt.Sprintf(`{"name":"%s::touch","arguments":{"uri":%q}}`, id, mcpserver.ResourceURI)})
		if err != nil || !strings.Contains(string(got.Result), "touched") {
			t.Errorf("touching %s: %v %s", id, err, got.Error)
		}
		for j, n := range news {
			if !wait.True(2*time.Second, func() bool { return n.Count(updated) > before[j] }) {
				ended, _, err := n.State()
				t.Errorf("stream %d was not notified of %s's resource (ended %v: %v)", j, id, ended, err)
			}
		}
	}
}
