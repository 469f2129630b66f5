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

// cursor returns the cursor of a list request.
func (c *serverCall) cursor() string {
	var p struct{ Cursor string }
	_ = json.Unmarshal(c.Params, &p)
	return p.Cursor
}

// pagedList lists n tools, so many at a time, with cursors of its own.
func pagedList(n, size int) handler {
	return func(c *serverCall) string {
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
		return `{"tools":[` + strings.Join(itemsNamed(names...), ",") + `]` + next + `}`
	}
}

// nextCursor returns the cursor of the next page.
func nextCursor(t testing.TB, result string) string {
	t.Helper()
	var p struct{ NextCursor string }
	if err := json.Unmarshal([]byte(result), &p); err != nil {
		t.Fatalf("%v in %s", err, result)
	}
	return p.NextCursor
}

// A6: every page of every server is read; only a server whose pages go in circles is left out.
func TestUpstreamPagesA6(t *testing.T) {
	t.Parallel()
	one := newFakeServer(t, "one", mcp.Legacy, true).handle(mcp.ToolsList, pagedList(20, 1))
	seven := newFakeServer(t, "seven", mcp.Modern, false).handle(mcp.ToolsList, pagedList(50, 7))
	fifty := newFakeServer(t, "fifty", mcp.Legacy, false).handle(mcp.ToolsList, pagedList(120, 50))
	circle := newFakeServer(t, "circle", mcp.Modern, true).handle(mcp.ToolsList, respond(`{"tools":[`+itemsNamed("x")[0]+`],"nextCursor":"again"}`))
	unnamed := newFakeServer(t, "odd", mcp.Modern, false).handle(mcp.ToolsList, respond(`{"tools":[{"name":""},{"title":"no name"},`+itemsNamed("x")[0]+`],"nextCursor":null}`))
	bad := newFakeServer(t, "bad", mcp.Modern, false).handle(mcp.ToolsList, respond(`{"tolls":[]}`))
	c := startGateway(t, nil, circle, one, seven, bad, fifty, unnamed).connect(t, "/mcp", mcp.Modern, "{}")
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
	if n := len(circle.messagesOf(mcp.ToolsList)); n > 4 { // two for each read; a server that has just come up may be read again
		t.Errorf("the server in circles was asked %d times", n)
	}
	if got := c.callResult(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `,"cacheScope":"private","ttlMs":0}`) {
		t.Errorf("a server is missing, and the list may be kept: %s", got[max(0, len(got)-80):])
	}
}

// A6: a list is answered in pages of at most limit and page_size; together they are the list, with recover_text
// once and last.
func TestClientPagesA6(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, pagedList(12, 5)).handle(mcp.PromptsList, listResult("prompts", itemsNamed("p1", "p2", "p3")...))
	b := newFakeServer(t, "b", mcp.Legacy, false).handle(mcp.ToolsList, pagedList(9, 9))
	gw := startGateway(t, func(s *setup) { s.hub.PageSize = 10 }, a, b)
	for _, protocol := range protocols {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			c := gw.connect(t, path, protocol, "{}")
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
					got := c.callResult(t, mcp.ToolsList, params)
					names := fieldOfItems(t, got, "tools", "name")
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
			if got := c.callResult(t, mcp.PromptsList, `{"limit":3}`); nextCursor(t, got) != "" {
				t.Errorf("got %s", got)
			}
			for _, bad := range []string{`{"limit":0}`, `{"cursor":"x"}`, `{"cursor":1}`} {
				if got := c.callResult(t, mcp.ToolsList, bad); !strings.HasPrefix(got, `!{"code":-32602,`) {
					t.Errorf("%s: got %s", bad, got)
				}
			}
		}
	}
}

// A6: a cursor from before the list changed continues after its item, or is refused.
func TestOldCursorA6(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("b", "c", "d", "e")...))
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Modern, "{}")
	defer c.listenFor(t, `{"toolsListChanged":true}`)()
	atB := nextCursor(t, c.callResult(t, mcp.ToolsList, `{"limit":1}`))
	atC := nextCursor(t, c.callResult(t, mcp.ToolsList, `{"limit":2}`))
	a.handle(mcp.ToolsList, listResult("tools", itemsNamed("a", "a2", "c", "d", "f")...))
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1@sub}}`)
	c.nextOfMethod(t, mcp.NotifyToolsChanged)
	if got := fieldOfItems(t, c.callResult(t, mcp.ToolsList, `{"cursor":"`+atC+`"}`), "tools", "name"); strings.Join(got, " ") != "a::d a::f recover_text" {
		t.Errorf("got %q", got)
	}
	if got := c.callResult(t, mcp.ToolsList, `{"cursor":"`+atB+`"}`); !strings.HasPrefix(got, `!{"code":-32602,"message":"the list has changed`) {
		t.Errorf("got %s", got)
	}
}

// A6: the same offers give the same bytes, whichever server answers first.
func TestOrderA6(t *testing.T) {
	t.Parallel()
	var lists []string
	for round := range 3 {
		var servers []*fakeServer
		for i, id := range []string{"c", "a", "b"} {
			names := itemsNamed("z", "y", "x")
			slices.Reverse(names[:round+1])
			servers = append(servers, newFakeServer(t, id, protocols[i%2], false).handle(mcp.ToolsList, func(*serverCall) string {
				time.Sleep(time.Duration((i+round)%3) * 40 * time.Millisecond)
				return listResult("tools", names...)(nil)
			}))
		}
		lists = append(lists, startGateway(t, nil, servers...).connect(t, "/mcp", mcp.Modern, "{}").callResult(t, mcp.ToolsList, `{}`))
	}
	want := []string{"c::x", "c::y", "c::z", "a::x", "a::y", "a::z", "b::x", "b::y", "b::z", "recover_text"}
	if got := fieldOfItems(t, lists[0], "tools", "name"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if lists[0] != lists[1] || lists[0] != lists[2] {
		t.Errorf("got %s\nand %s\nand %s", lists[0], lists[1], lists[2])
	}
}

// A2, A6: lists wait for a hanging server once, for list_wait, for all clients together; when the server comes up,
// it is listed and every client is notified once.
func TestHungServerA6(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	hang := func(a handler) handler {
		return func(c *serverCall) string {
			select {
			case <-free:
				return a(c)
			case <-c.done:
				return ""
			}
		}
	}
	good := newFakeServer(t, "good", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	hung := newFakeServer(t, "hung", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("y")...))
	hung.handle(mcp.ServerDiscover, hang(hung.handlers[mcp.ServerDiscover]))
	const listWait = 500 * time.Millisecond
	gw := startGateway(t, func(s *setup) { s.hub.ListWait = seconds(listWait.Seconds()) }, hung, good)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
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
	old := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	asker := gw.connect(t, "/mcp", mcp.Modern, `{"elicitation":{}}`)
	for _, one := range []*client{c, old, asker, c} {
		if d := took(one, "good::x"); d > listWait/2 {
			t.Errorf("a later list took %v", d)
		}
	}
	if got := c.callResult(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `"ttlMs":0}`) {
		t.Errorf("a server is missing, and the list may be kept: %s", got)
	}
	defer c.listenFor(t, `{"toolsListChanged":true}`)()
	defer asker.listenFor(t, `{"toolsListChanged":true}`)()
	stop, _ := old.openStream(t)
	defer stop()
	close(free)
	for _, one := range []*client{c, old, asker} {
		one.nextOfMethod(t, mcp.NotifyToolsChanged)
		one.expectSilence(t, 300*time.Millisecond)
		took(one, "hung::y", "good::x")
	}
	if got := c.callResult(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `"ttlMs":60000}`) {
		t.Errorf("got %s", got)
	}
}

// A2: a server that is down does not hide others; if it is the only one, the list is empty, and clients are
// notified when it comes up.
func TestDownServerA2(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	hello := a.handlers[mcp.Initialize]
	a.handle(mcp.Initialize, func(c *serverCall) string {
		if !up.Load() {
			return `!{"code":-32000,"message":"not yet"}`
		}
		return hello(c)
	})
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Legacy, "{}")
	stop, _ := c.openStream(t)
	defer stop()
	if got := c.tools(t); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	up.Store(true)
	c.nextOfMethod(t, mcp.NotifyToolsChanged)
	if got := c.tools(t); !slices.Equal(got, []string{"a::x"}) {
		t.Errorf("got %q", got)
	}
	c.expectSilence(t, 200*time.Millisecond)
}

// A6: only the lists that a server declares are read; a server that does not know templates has none; over HTTP, a
// tool whose header parameters are invalid is left out.
func TestOnlyDeclaredListsAreRead(t *testing.T) {
	t.Parallel()
	annotated := `{"name":"bad","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}`
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", annotated, itemsNamed("x")[0])).
		handle(mcp.ServerDiscover, respond(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`))
	b := newFakeServer(t, "b", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", annotated)).handle(mcp.ResourcesList, listResult("resources", resourcesAt("mem://1")...)).
		handle(mcp.ResourceTemplatesList, nil)
	c := startGateway(t, nil, a, b).connect(t, "/mcp", mcp.Modern, "{}")
	if got := c.tools(t); !slices.Equal(got, []string{"a::x", "b::bad"}) {
		t.Errorf("got %q", got)
	}
	if n := len(a.messagesOf(mcp.PromptsList)) + len(a.messagesOf(mcp.ResourcesList)); n > 0 {
		t.Error("the server was asked for what it does not have")
	}
	if got := c.callResult(t, mcp.ResourcesList, `{}`); !strings.Contains(got, shownURI("b", "mem://1")) {
		t.Errorf("got %s", got)
	}
	if got := fieldOfItems(t, c.callResult(t, mcp.ResourceTemplatesList, `{}`), "resourceTemplates", "uriTemplate"); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// A plain JSON-RPC server, which has no handshake, is listed with the others.
func TestPlainServerInTheList(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	gw := startGateway(t, func(s *setup) {
		s.upstream.Servers = []upstream.ServerConfig{{ID: "a", RPC: secret.URL(a.address), StartupTimeout: seconds(5)}}
	})
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	if got := c.tools(t); !slices.Equal(got, []string{"a::x"}) {
		t.Errorf("got %q", got)
	}
	if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); got != `{"content":[],"resultType":"complete"}` {
		t.Errorf("got %s", got)
	}
}
