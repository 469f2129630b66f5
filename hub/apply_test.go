package hub_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// withEnv gives a server's program another environment: it is another server now.
func withEnv(id, value string) func(*setup) {
	return func(s *setup) {
		for i, e := range s.upstream.Servers {
			if e.ID == id {
				s.upstream.Servers[i].Env = map[string]secret.Text{"X": secret.Literal(value)}
			}
		}
	}
}

// A15: a reload leaves alone what did not change, replaces what did, ends what is gone and begins
// what is new; clients are told.
func TestApplyServers(t *testing.T) {
	t.Parallel()
	same := newFar(t, "same", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", named("s")...))
	changed := newFar(t, "changed", mcp.EraModern, true).on(mcp.ToolsList, page("tools", named("c")...))
	gone := newFar(t, "gone", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", named("g")...))
	added := newFar(t, "added", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("a")...))
	y := start(t, nil, same, changed, gone)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	c.tools(t)
	defer c.hear(t, `{"toolsListChanged":true}`)()
	before := []int{same.programs()[0], changed.programs()[0], gone.programs()[0]}
	y.apply(func(s *setup) {
		withEnv("changed", "1")(s)
		s.remove("gone")
		s.upstream.Servers = append(s.upstream.Servers, added.entry())
	})
	c.nextOf(t, mcp.ToolsChanged)
	want := []string{"same::s", "changed::c", "added::a"}
	eventually(t, "new list", func() bool { return slices.Equal(c.tools(t), want) })
	if got := c.ask(t, mcp.ToolsCall, `{"name":"gone::g"}`); !strings.HasPrefix(got, `!{"code":-32602,"message":"unknown tool`) {
		t.Errorf("got %s", got)
	}
	c.ask(t, mcp.ToolsCall, `{"name":"changed::c"}`)
	eventually(t, "end of the old programs", func() bool { return !alive(before[1]) && !alive(before[2]) })
	if now := same.programs(); len(now) != 1 || !alive(before[0]) {
		t.Errorf("what did not change was started again: %v", now)
	}
	if now := changed.programs(); len(now) != 2 || now[1] == before[1] || !alive(now[1]) {
		t.Errorf("what changed was not: %v", now)
	}
}

// A15: what a reload changes of the gateway itself holds at once: masking, names, limits, routes.
func TestApplySettings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 5)
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", named("x")...)).on(mcp.ToolsCall, says(`{"content":[{"type":"text","text":"`+long+`"}]}`))
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	c.tools(t)
	call := func(name string) string { return c.ask(t, mcp.ToolsCall, `{"name":"`+name+`"}`) }
	if got := call("a::x"); !strings.Contains(got, long) {
		t.Errorf("got %s", got)
	}
	y.apply(small)
	if got := call("a::x"); strings.Contains(got, long) {
		t.Errorf("got %s", got)
	}
	y.apply(func(s *setup) { s.hub.Naming.Prefix = "never" })
	if got := c.tools(t); !slices.Equal(got, []string{"x"}) {
		t.Errorf("got %q", got)
	}
	call("x")
	y.apply(func(s *setup) { s.upstream.Servers[0].Prefix = "always" })
	if got := c.tools(t); !slices.Equal(got, []string{"a::x"}) {
		t.Errorf("got %q", got)
	}
	y.apply(func(s *setup) { s.limit.PerMinute = 1 })
	call("a::x")
	if got := call("a::x"); !strings.Contains(got, "Rate limit exceeded") {
		t.Errorf("got %s", got)
	}
	if got := a.programs(); len(got) != 1 {
		t.Errorf("the server was started again: %v", got)
	}
}

// A15: streams outlive reloads, in both eras, and go on telling.
func TestApplyKeepsStreams(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", named("x")...))
	b := newFar(t, "b", mcp.EraModern, false)
	y := start(t, nil, a, b)
	newer, old := y.visit(t, "/mcp", mcp.EraModern, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	old.listen(t)
	old.tools(t)
	uri := shownURI("a", "mem://1")
	defer newer.hear(t, `{"toolsListChanged":true,"resourceSubscriptions":["`+uri+`"]}`)()
	old.ask(t, mcp.Subscribe, `{"uri":"`+uri+`"}`)
	for range 10 {
		y.apply(func(s *setup) { s.upstream.Servers = s.upstream.Servers[:1] })
		y.apply(func(s *setup) { s.upstream.Servers = []upstream.Server{a.entry(), b.entry()} })
	}
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://1"@sub}}`)
	newer.nextOf(t, mcp.ResourceUpdated)
	old.nextOf(t, mcp.ResourceUpdated)
	a.on(mcp.ToolsList, page("tools", named("x", "y")...))
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	newer.nextOf(t, mcp.ToolsChanged)
	old.nextOf(t, mcp.ToolsChanged)
	if got := old.tools(t); !slices.Equal(got, []string{"a::x", "a::y"}) {
		t.Errorf("got %q", got)
	}
	if n := len(a.programs()); n != 1 {
		t.Errorf("%d programs", n)
	}
}

// A15: a call that is under way when its server is taken out, or replaced, is answered.
func TestApplyFinishesCalls(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		release := make(chan struct{})
		slow := func(*turn) string {
			<-release
			return `{"content":[{"type":"text","text":"late"}]}`
		}
		gone := newFar(t, "gone", mcp.EraLegacy, stdio).on(mcp.ToolsCall, slow)
		other := newFar(t, "other", mcp.EraModern, stdio).on(mcp.ToolsCall, slow)
		y := start(t, nil, gone, other)
		c := y.visit(t, "/mcp", mcp.EraModern, "{}")
		_, first := c.begin(t, mcp.ToolsCall, `{"name":"gone::x"}`)
		_, second := c.begin(t, mcp.ToolsCall, `{"name":"other::x"}`)
		gone.await(t, mcp.ToolsCall, 1)
		other.await(t, mcp.ToolsCall, 1)
		y.apply(func(s *setup) {
			s.remove("gone")
			withEnv("other", "1")(s)
		})
		if got := c.ask(t, mcp.ToolsCall, `{"name":"gone::x"}`); !strings.Contains(got, "unknown tool") {
			t.Errorf("got %s", got)
		}
		time.Sleep(100 * time.Millisecond)
		close(release)
		for _, reply := range []<-chan got{first, second} {
			if got := wait(t, reply, "the call that was under way").body; !strings.Contains(got, "late") {
				t.Errorf("got %s", got)
			}
		}
	}
}

// A15: on stdio too, a reload begins what is new for the one client, and ends what is gone.
func TestApplyOnStdio(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", named("x")...))
	b := asking(t, true)
	b.id = "b"
	b.on(mcp.ToolsList, page("tools", named("ask")...))
	c := onStdio(t, nil, mcp.EraLegacy, able, a)
	c.tools(t)
	c.yard.apply(func(s *setup) { s.upstream.Servers = []upstream.Server{b.entry()} })
	c.nextOf(t, mcp.ToolsChanged)
	eventually(t, "new list", func() bool { return slices.Equal(c.tools(t), []string{"b::ask"}) })
	eventually(t, "end of the old program", func() bool { return !alive(a.programs()[0]) })
	got := c.converse(t, strings.Replace(asks(mcp.Elicit+` {}`), "a::ask", "b::ask", 1), func(string) string { return `{"action":"cancel"}` })
	if !strings.Contains(got, `cancel`) {
		t.Errorf("got %s", got)
	}
}

// A15: who watches a resource goes on watching when its server is replaced.
func TestApplyKeepsSubscriptions(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true)
	y := start(t, nil, a)
	uri := shownURI("a", "mem://1")
	newer, old := y.visit(t, "/mcp", mcp.EraModern, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	old.listen(t)
	defer newer.hear(t, `{"resourceSubscriptions":["`+uri+`"]}`)()
	old.ask(t, mcp.Subscribe, `{"uri":"`+uri+`"}`)
	y.apply(withEnv("a", "1"))
	eventually(t, "new program alone", func() bool { p := a.programs(); return len(p) == 2 && !alive(p[0]) })
	old.ask(t, mcp.ToolsList, `{}`)
	old.ask(t, mcp.Subscribe, `{"uri":"`+uri+`"}`) // it does no harm to say it again
	for _, c := range []*client{newer, old} {      // the new server is asked in its own time
		eventually(t, "news", func() bool {
			a.push(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://1"@sub}}`)
			time.Sleep(20 * time.Millisecond)
			select {
			case n := <-c.notes:
				return strings.Contains(n.text, mcp.ResourceUpdated) && strings.Contains(n.text, uri)
			default:
				return false
			}
		})
	}
}
