//go:build linux

package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// reloader changes the configuration in several ways; every fifth change is invalid.
type reloader struct {
	t       *testing.T
	g       *testGateway
	n       int
	invalid int
	took    []time.Duration
}

// reloadOnce changes the configuration and waits until the gateway has noticed.
func (r *reloader) reloadOnce() {
	r.t.Helper()
	r.n++
	if r.n%5 == 0 {
		r.invalid++
		r.writeConfig(invalidConfig(r.g.configText(), r.invalid))
		time.Sleep(250 * time.Millisecond)
		return
	}
	gen := fmt.Sprintf("g%d", r.n)
	last := len(r.g.servers) - 1
	r.g.servers[last] = stdioServer("e", r.g.events, "-generation", gen)
	begin := time.Now()
	r.writeConfig(r.g.configText())
	if !wait.True(5*time.Second, func() bool { e, _ := r.g.events.Latest(mcpserver.Listening, "e"); return e.At > begin.UnixNano() }) {
		r.t.Errorf("reload %d was not noticed within 5s", r.n)
	}
	r.took = append(r.took, time.Since(begin))
	time.Sleep(50 * time.Millisecond)
}

// writeConfig writes the file by rename, by rename and SIGHUP, or in place.
func (r *reloader) writeConfig(text string) {
	r.t.Helper()
	err := error(nil)
	switch r.n % 3 {
	case 0:
		err = r.g.writeConfig(text)
	case 1:
		if err = r.g.writeConfig(text); err == nil {
			r.g.sendSignal(r.t, syscall.SIGHUP)
		}
	case 2:
		err = os.WriteFile(r.g.config, []byte(text), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// invalidConfig makes a configuration invalid in one of several ways.
func invalidConfig(text string, n int) string {
	switch n % 4 {
	case 0:
		return text[:len(text)/2] + "\n[["
	case 1:
		return text + "\n[[servers]]\nid = \"a\"\ncommand = [\"true\"]\n" // duplicate id
	case 2:
		return strings.Replace(text, "log_level", "log_levels", 1)
	}
	return text + "\nlisten = 7\n"
}

// TestR8Reload: the configuration changes repeatedly under load, every fifth time into an invalid one. No
// call fails, no stream is cut, and children that did not change keep their processes.
func TestR8Reload(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	names := []string{"a", "b", "c", "d", "e"}
	s := newSite(t, events)
	for _, id := range names {
		s.servers = append(s.servers, stdioServer(id, events))
	}
	g := s.start(t)
	clients := g.connectMany(t, 6)
	waitReady(t, clients[0], names...)
	news := openStreams(t, g, 10)
	kept := firstPids(events, names[:4])

	l := loadGenerator{rate: shortOrFull(100, 200), servers: names, extraArgs: `"delay_ms":5`, clients: clients, newConnection: g.newConnection}
	l.startLoad()
	time.Sleep(time.Second)
	r := &reloader{t: t, g: g}
	for range shortOrFull(10, 100) {
		r.reloadOnce()
	}
	time.Sleep(time.Second)
	cs := l.stopLoad()
	cs.requireSound(t, events)
	cs.requireAllOK(t)
	for i, id := range names[:4] {
		if pids := events.PIDs(id); !slices.Equal(pids, kept[i:i+1]) {
			t.Errorf("%s did not change, but its processes are %v, before %v", id, pids, kept[i])
		}
	}
	cut := requireOpenStreams(t, news)
	notified := addServer(t, g, news)
	events.RequireNoViolations(t)
	g.requireNoZombies(t)
	report(t, "R8", fmt.Sprintf("%d reloads (%d of them invalid) under %d rps, 25 %% new connections, 10 streams, 10 subscriptions", r.n, r.invalid, l.rate), cs,
		"%d cut; noticed after p50 %s max %s; %d of %d streams were notified of a new server", cut, short(quantile(r.took, 0.5)), short(quantile(r.took, 1)), notified, len(news))
}

// TestR8SlowStart: the changed server takes a second to start. Meanwhile its calls succeed: the old process
// serves until the new one can.
func TestR8SlowStart(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("e", events, "-generation", "g0", "-start-delay", "1s"))
	g := s.start(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], "a", "e")
	l := loadGenerator{rate: 150, servers: []string{"e"}, extraArgs: `"delay_ms":5`, clients: clients}
	l.startLoad()
	time.Sleep(500 * time.Millisecond)
	rounds := shortOrFull(2, 10)
	var probes calls
	for n := range rounds {
		generation := fmt.Sprintf("g%d", n+1)
		s.servers[1] = stdioServer("e", events, "-generation", generation, "-start-delay", "1s")
		if err := s.writeConfig(s.configText()); err != nil {
			t.Fatal(err)
		}
		g.sendSignal(t, syscall.SIGHUP)
		wait.For(t, "an answer of generation "+generation, func() bool {
			probe := callOnce(clients[0], "e", "echo", "", 15*time.Second)
			probes = append(probes, probe)
			return probe.echo.Gen == generation
		})
		replaced := time.Now()
		wait.For(t, "a call of the load after that", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.calls[len(l.calls)-1].scheduled.After(replaced)
		})
	}
	cs := l.stopLoad()
	for _, all := range []calls{cs, probes} {
		all.requireSound(t, events)
		all.requireAllOK(t)
	}
	if last := cs[len(cs)-1]; last.verdict == ok && last.echo.Gen != fmt.Sprintf("g%d", rounds) {
		t.Errorf("the last call was answered by generation %s", last.echo.Gen)
	}
	report(t, "R8", fmt.Sprintf("%d reloads that change a server which takes 1 s to start, 150 rps on it", rounds), cs, "slowest call %s", short(slowestOf(cs)))
}

// TestR8WrittenInPlace: the file is truncated and filled a moment later, with a reload in between. An empty
// file must not remove all servers.
func TestR8WrittenInPlace(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("b", events))
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a", "b")
	l := loadGenerator{rate: 100, servers: []string{"a", "b"}, clients: clients}
	l.startLoad()
	rounds := shortOrFull(5, 30)
	for range rounds {
		if err := os.Truncate(s.config, 0); err != nil {
			t.Fatal(err)
		}
		g.sendSignal(t, syscall.SIGHUP)
		time.Sleep(30 * time.Millisecond)
		if err := os.WriteFile(s.config, []byte(s.configText()), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	cs := l.stopLoad()
	cs.requireSound(t, events)
	cs.requireAllOK(t)
	if n := len(events.PIDs("a")) + len(events.PIDs("b")); n != 2 {
		t.Errorf("nothing changed, but there were %d processes of 2 servers", n)
	}
	report(t, "R8", fmt.Sprintf("the file is emptied, reloaded and filled again ×%d", rounds), cs, "%d processes", len(events.PIDs("a"))+len(events.PIDs("b")))
}

// TestR8RemovedServer: calls of a removed server are refused soon, and its whole process tree ends although
// it ignores signals.
func TestR8RemovedServer(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events), stdioServer("x", events, "-tree", "-ignore-signals"))
	s.servers[1].extraTOML = "shutdown_grace = 1"
	g := s.start(t)
	p := g.connect(t, mcpwire.Modern)
	waitReady(t, p, "a", "x")
	wait.True(5*time.Second, func() bool { return len(events.Events(mcpserver.Started)) >= mcpserver.TreeSize+1 })
	s.servers = s.servers[:1]
	if err := s.writeConfig(s.configText()); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	g.sendSignal(t, syscall.SIGHUP)
	var last *call
	if !wait.True(2*time.Second, func() bool { last = callOnce(p, "x", "echo", "", 5*time.Second); return last.verdict != ok }) {
		t.Error("a removed server still replies")
	}
	refused := time.Since(begin)
	calls{last}.requireSound(t, events)
	if !wait.True(8*time.Second, func() bool { return len(events.Survivors()) == 1 }) {
		t.Errorf("survivors of a removed server: %+v", events.Survivors())
	}
	gone := time.Since(begin)
	if c := callOnce(p, "a", "echo", "", 5*time.Second); c.verdict != ok || len(events.PIDs("a")) != 1 {
		t.Errorf("the other server: %s %s, processes %v", c.verdict, c.reason, events.PIDs("a"))
	}
	report(t, "R8", "a server is removed, with a tree that ignores TERM and EOF", calls{last}, "refused (%s) after %s; its 8 processes gone after %s", last.reason, short(refused), short(gone))
}

// TestR8StreamsOutliveTimeouts: the timeouts for receiving a request do not limit its reply: streams,
// subscriptions and calls last longer.
func TestR8StreamsOutliveTimeouts(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("a", events))
	s.sections = "[http]\nheader_timeout = \"1s\"\nbody_timeout = \"1s\"\nidle_timeout = \"1s\""
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "a")
	waitForTools(t, clients[1], len(mcpserver.ToolNames))
	news := openStreams(t, g, 1)
	cs := burst(4, 4, clients, []string{"a"}, func(_ int, c *call) { c.extraArgs = `"delay_ms":3000` })
	cs.requireSound(t, events)
	cs.requireAllOK(t)
	cut := requireOpenStreams(t, news)
	notified := addServer(t, g, news)
	report(t, "R8", "streams and calls of 3 s with HTTP timeouts of 1 s", cs, "%d cut; %d of %d streams were notified of a new server", cut, notified, len(news))
}

func firstPids(events *mcpserver.EventLog, names []string) []int {
	var out []int
	for _, id := range names {
		out = append(out, events.PIDs(id)...)
	}
	return out
}

// openStreams opens n legacy streams and n modern subscriptions.
func openStreams(t *testing.T, g *testGateway, n int) []*mcpclient.Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var out []*mcpclient.Stream
	for i := range n {
		one, err := g.connect(t, mcpwire.Legacy).OpenStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Close)
		two, err := mcpclient.Subscribe(ctx, g.connect(t, mcpwire.Modern), fmt.Sprint(i+1), `{"toolsListChanged":true}`)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(two.Close)
		out = append(out, one, two)
	}
	return out
}

func requireOpenStreams(t *testing.T, news []*mcpclient.Stream) int {
	t.Helper()
	cut := 0
	for i, s := range news {
		if ended, _, err := s.State(); ended {
			cut++
			t.Errorf("stream %d was cut: %v", i, err)
		}
	}
	return cut
}

// addServer adds a server and requires a notification on every stream: they are not only open, they work.
func addServer(t *testing.T, g *testGateway, news []*mcpclient.Stream) int {
	t.Helper()
	const changed = "notifications/tools/list_changed"
	before := make([]int, len(news))
	for i, s := range news {
		before[i] = s.Count(changed)
	}
	g.servers = append(g.servers, stdioServer("f", g.events))
	if err := g.writeConfig(g.configText()); err != nil {
		t.Fatal(err)
	}
	g.sendSignal(t, syscall.SIGHUP)
	notified := 0
	for i, s := range news {
		if wait.True(5*time.Second, func() bool { return s.Count(changed) > before[i] }) {
			notified++
		} else {
			t.Errorf("stream %d was not notified of a new server", i)
		}
	}
	waitReady(t, g.connect(t, mcpwire.Modern), "f")
	return notified
}
