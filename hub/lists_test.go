package hub_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// cursorOf is the cursor that a request came with.
func (c *turn) cursor() string {
	var p struct{ Cursor string }
	_ = json.Unmarshal(c.Params, &p)
	return p.Cursor
}

// paged lists n tools, so many at a time. Its cursors are the server's own affair.
func paged(n, size int) act {
	return func(c *turn) string {
		from := 0
		_, _ = fmt.Sscanf(c.cursor(), `at "%d`, &from)
		end := min(from+size, n)
		var names []string
		for i := from; i < end; i++ {
			names = append(names, fmt.Sprintf("t%03d", i))
		}
		next := ""
		if end < n {
			next = fmt.Sprintf(`,"nextCursor":"at \"%d\u00e9"`, end)
		}
		return `{"tools":[` + strings.Join(named(names...), ",") + `]` + next + `}`
	}
}

// nextCursor is what a page says about the next.
func nextCursor(t testing.TB, result string) string {
	t.Helper()
	var p struct{ NextCursor string }
	if err := json.Unmarshal([]byte(result), &p); err != nil {
		t.Fatalf("%v in %s", err, result)
	}
	return p.NextCursor
}

// A6: every page of every server is walked; one that goes in circles is left out, and only it.
func TestUpstreamPagesA6(t *testing.T) {
	t.Parallel()
	one := newFar(t, "one", mcp.EraLegacy, true).on(mcp.ToolsList, paged(20, 1))
	seven := newFar(t, "seven", mcp.EraModern, false).on(mcp.ToolsList, paged(50, 7))
	fifty := newFar(t, "fifty", mcp.EraLegacy, false).on(mcp.ToolsList, paged(120, 50))
	circle := newFar(t, "circle", mcp.EraModern, true).on(mcp.ToolsList, says(`{"tools":[`+named("x")[0]+`],"nextCursor":"again"}`))
	odd := newFar(t, "odd", mcp.EraModern, false).on(mcp.ToolsList, says(`{"tools":[{"name":""},{"title":"no name"},`+named("x")[0]+`],"nextCursor":null}`))
	bad := newFar(t, "bad", mcp.EraModern, false).on(mcp.ToolsList, says(`{"tolls":[]}`))
	c := start(t, nil, circle, one, seven, bad, fifty, odd).visit(t, "/mcp", mcp.EraModern, "{}")
	var want []string
	for _, s := range []struct {
		id string
		n  int
	}{{"one", 20}, {"seven", 50}, {"fifty", 120}} {
		for i := range s.n {
			want = append(want, fmt.Sprintf("%s::t%03d", s.id, i))
		}
	}
	want = append(want, "odd::x")
	if got := c.tools(t); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if n := len(circle.got(mcp.ToolsList)); n > 4 { // twice for each time it is read; a server that has just come up may be read again
		t.Errorf("the server in circles was asked %d times", n)
	}
	if got := c.ask(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `,"cacheScope":"private","ttlMs":0}`) {
		t.Errorf("a server is missing, and the list may be kept: %s", got[max(0, len(got)-80):])
	}
}

// A6: a list is given in pages of at most limit and page_size; together they are the list, with
// recover_text once and last.
func TestClientPagesA6(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, paged(12, 5)).on(mcp.PromptsList, page("prompts", named("p1", "p2", "p3")...))
	b := newFar(t, "b", mcp.EraLegacy, false).on(mcp.ToolsList, paged(9, 9))
	y := start(t, func(s *setup) { s.hub.PageSize = 10 }, a, b)
	for _, era := range both {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			c := y.visit(t, path, era, "{}")
			for _, limit := range []int{0, 1, 7, 10, 100} {
				size := limit
				if limit == 0 || limit > 10 {
					size = 10
				}
				var all []string
				params, pages := `{"x":1}`, 0
				if limit > 0 {
					params = fmt.Sprintf(`{"limit":%d}`, limit)
				}
				for ; ; pages++ {
					got := c.ask(t, mcp.ToolsList, params)
					names := field(t, got, "tools", "name")
					all = append(all, names...)
					next := nextCursor(t, got)
					if next == "" {
						break
					}
					plain, _ := base64.RawURLEncoding.DecodeString(next)
					if len(names) != size || !strings.HasPrefix(string(plain), fmt.Sprintf(`{"offset":%d,`, len(all))) {
						t.Fatalf("%d of %d, then %s", len(names), size, plain)
					}
					params = fmt.Sprintf(`{"limit":%d,"cursor":"%s"}`, size, next)
				}
				want := map[string]int{"/mcp": 22, "/mcp/a": 13}[path]
				if len(all) != want || slices.Index(all, "recover_text") != want-1 || !slices.IsSorted(all[:want-1]) || pages != (want-1)/size {
					t.Errorf("%s by %d: %d pages: %q", path, limit, pages+1, all)
				}
			}
			if got := c.ask(t, mcp.PromptsList, `{"limit":3}`); nextCursor(t, got) != "" {
				t.Errorf("got %s", got)
			}
			for _, bad := range []string{`{"limit":0}`, `{"cursor":"x"}`, `{"cursor":1}`} {
				if got := c.ask(t, mcp.ToolsList, bad); !strings.HasPrefix(got, `!{"code":-32602,`) {
					t.Errorf("%s: got %s", bad, got)
				}
			}
		}
	}
}

// A6: a cursor from before the list changed goes on after its item, or says that it cannot.
func TestOldCursorA6(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("b", "c", "d", "e")...))
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraModern, "{}")
	defer c.hear(t, `{"toolsListChanged":true}`)()
	atB := nextCursor(t, c.ask(t, mcp.ToolsList, `{"limit":1}`))
	atC := nextCursor(t, c.ask(t, mcp.ToolsList, `{"limit":2}`))
	a.on(mcp.ToolsList, page("tools", named("a", "a2", "c", "d", "f")...))
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1@sub}}`)
	c.nextOf(t, mcp.ToolsChanged)
	if got := field(t, c.ask(t, mcp.ToolsList, `{"cursor":"`+atC+`"}`), "tools", "name"); strings.Join(got, " ") != "a::d a::f recover_text" {
		t.Errorf("got %q", got)
	}
	if got := c.ask(t, mcp.ToolsList, `{"cursor":"`+atB+`"}`); !strings.HasPrefix(got, `!{"code":-32602,"message":"the list has changed`) {
		t.Errorf("got %s", got)
	}
}

// A6: the same offers give the same bytes, whichever server answers first.
func TestOrderA6(t *testing.T) {
	t.Parallel()
	var lists []string
	for round := range 3 {
		var fars []*far
		for i, id := range []string{"c", "a", "b"} {
			names := named("z", "y", "x")
			slices.Reverse(names[:round+1])
			fars = append(fars, newFar(t, id, both[i%2], false).on(mcp.ToolsList, func(*turn) string {
				time.Sleep(time.Duration((i+round)%3) * 40 * time.Millisecond)
				return page("tools", names...)(nil)
			}))
		}
		lists = append(lists, start(t, nil, fars...).visit(t, "/mcp", mcp.EraModern, "{}").ask(t, mcp.ToolsList, `{}`))
	}
	want := []string{"c::x", "c::y", "c::z", "a::x", "a::y", "a::z", "b::x", "b::y", "b::z", "recover_text"}
	if got := field(t, lists[0], "tools", "name"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if lists[0] != lists[1] || lists[0] != lists[2] {
		t.Errorf("got %s\nand %s\nand %s", lists[0], lists[1], lists[2])
	}
}

// A2, A6: a list waits for a server that hangs as long as list_wait once, for all clients, and
// never again; when the server comes, it is in the list and everybody is told, once.
func TestHungServerA6(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	hang := func(a act) act {
		return func(c *turn) string {
			select {
			case <-free:
				return a(c)
			case <-c.over:
				return ""
			}
		}
	}
	good := newFar(t, "good", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...))
	hung := newFar(t, "hung", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("y")...))
	hung.on(mcp.Discover, hang(hung.acts[mcp.Discover]))
	const listWait = 500 * time.Millisecond
	y := start(t, func(s *setup) { s.hub.ListWait = seconds(listWait.Seconds()) }, hung, good)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	took := func(c *client, want ...string) time.Duration {
		began := time.Now()
		if got := c.tools(t); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		return time.Since(began)
	}
	first := took(c, "good::x")
	if first < listWait*8/10 || first > listWait+2*time.Second {
		t.Errorf("the first list took %v", first)
	}
	old := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	asker := y.visit(t, "/mcp", mcp.EraModern, `{"elicitation":{}}`)
	for _, one := range []*client{c, old, asker, c} {
		if d := took(one, "good::x"); d > listWait/2 {
			t.Errorf("a later list took %v", d)
		}
	}
	if got := c.ask(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `"ttlMs":0}`) {
		t.Errorf("a server is missing, and the list may be kept: %s", got)
	}
	defer c.hear(t, `{"toolsListChanged":true}`)()
	defer asker.hear(t, `{"toolsListChanged":true}`)()
	stop, _ := old.listen(t)
	defer stop()
	close(free)
	for _, one := range []*client{c, old, asker} {
		one.nextOf(t, mcp.ToolsChanged)
		one.quiet(t, 300*time.Millisecond)
		took(one, "hung::y", "good::x")
	}
	if got := c.ask(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `"ttlMs":60000}`) {
		t.Errorf("got %s", got)
	}
}

// A2: a server that is down hides nobody; when it is the only one, the list is empty, and clients
// are told when it comes.
func TestDownServerA2(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", named("x")...))
	hello := a.acts[mcp.Initialize]
	a.on(mcp.Initialize, func(c *turn) string {
		if !up.Load() {
			return `!{"code":-32000,"message":"not yet"}`
		}
		return hello(c)
	})
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraLegacy, "{}")
	stop, _ := c.listen(t)
	defer stop()
	if got := c.tools(t); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	up.Store(true)
	c.nextOf(t, mcp.ToolsChanged)
	if got := c.tools(t); !slices.Equal(got, []string{"a::x"}) {
		t.Errorf("got %q", got)
	}
	c.quiet(t, 200*time.Millisecond)
}

// A6: a server is asked for what it declares; one that knows no templates has none; a tool whose
// headers no client may send is left out where it would need them.
func TestWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	annotated := `{"name":"bad","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}`
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", annotated, named("x")[0])).
		on(mcp.Discover, says(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`))
	b := newFar(t, "b", mcp.EraLegacy, true).on(mcp.ToolsList, page("tools", annotated)).on(mcp.ResourcesList, page("resources", located("mem://1")...)).
		on(mcp.TemplatesList, nil)
	c := start(t, nil, a, b).visit(t, "/mcp", mcp.EraModern, "{}")
	if got := c.tools(t); !slices.Equal(got, []string{"a::x", "b::bad"}) {
		t.Errorf("got %q", got)
	}
	if n := len(a.got(mcp.PromptsList)) + len(a.got(mcp.ResourcesList)); n > 0 {
		t.Error("the server was asked for what it does not have")
	}
	if got := c.ask(t, mcp.ResourcesList, `{}`); !strings.Contains(got, shownURI("b", "mem://1")) {
		t.Errorf("got %s", got)
	}
	if got := field(t, c.ask(t, mcp.TemplatesList, `{}`), "resourceTemplates", "uriTemplate"); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// A plain JSON-RPC server, which knows no greeting, is one of many too.
func TestPlainServerInTheList(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false).on(mcp.ToolsList, page("tools", named("x")...))
	y := start(t, func(s *setup) {
		s.upstream.Servers = []upstream.Server{{ID: "a", RPC: secret.URL(a.at), StartupTimeout: seconds(5)}}
	})
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	if got := c.tools(t); !slices.Equal(got, []string{"a::x"}) {
		t.Errorf("got %q", got)
	}
	if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); got != `{"content":[],"resultType":"complete"}` {
		t.Errorf("got %s", got)
	}
}
