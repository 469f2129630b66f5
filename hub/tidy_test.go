package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// A session that nobody uses is let go with all it watched; its id stays good. One that listens is used.
func TestTidySessions(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, nil, a)
	c, listening := y.visit(t, "/mcp", mcp.EraLegacy, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	uri := shownURI("a", "mem://1")
	c.ask(t, mcp.Subscribe, `{"uri":"`+uri+`"}`)
	listening.listen(t)
	listening.ask(t, mcp.Subscribe, `{"uri":"`+shownURI("a", "mem://2")+`"}`)
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	listening.next(t) // its stream is open
	y.door.Tidy(time.Now().Add(29 * time.Minute))
	if n, _, _ := y.door.Held(); n != 2 {
		t.Errorf("%d sessions", n)
	}
	y.door.Tidy(time.Now().Add(31 * time.Minute))
	if n, _, _ := y.door.Held(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if got := string(a.await(t, mcp.Unsubscribe, 1).Params); got != `{"uri":"mem://1"}` {
		t.Errorf("got %s", got)
	}
	if got := c.ask(t, mcp.Ping, `{}`); got != `{}` {
		t.Errorf("got %s", got)
	}
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://2"}}`)
	listening.nextOf(t, mcp.ResourceUpdated)
}

// A5: a parked call whose client does not come back is taken back from its server.
func TestTidyParked(t *testing.T) {
	t.Parallel()
	a := asking(t, true)
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraModern, able)
	params := asks(mcp.Elicit + ` {}`)
	state, _ := interrupted(t, c.ask(t, mcp.ToolsCall, params))
	y.door.Tidy(time.Now().Add(9 * time.Minute))
	if _, _, n := y.door.Held(); n != 1 {
		t.Errorf("%d parked calls", n)
	}
	y.door.Tidy(time.Now().Add(11 * time.Minute))
	a.await(t, mcp.Cancelled, 1)
	if got := c.ask(t, mcp.ToolsCall, retried(params, `{"q1":{}}`, state)); got != staleState {
		t.Errorf("got %s", got)
	}
	if _, _, n := y.door.Held(); n != 0 {
		t.Errorf("%d parked calls", n)
	}
}

// A5: a question that no client answers in time is answered with an error; a state is good as long.
func TestAskTimeoutA5(t *testing.T) {
	t.Parallel()
	a := asking(t, true)
	y := start(t, func(s *setup) { s.hub.AskTimeout = seconds(0.3) }, a)
	old, newer := y.visit(t, "/mcp", mcp.EraLegacy, able), y.visit(t, "/mcp", mcp.EraModern, able)
	params := asks(mcp.Elicit + ` {}`)
	state, _ := interrupted(t, newer.ask(t, mcp.ToolsCall, params))
	began := time.Now()
	if got := said(t, old.ask(t, mcp.ToolsCall, params)); !strings.Contains(got, "the client did not answer in time") {
		t.Errorf("got %s", got)
	}
	time.Sleep(time.Until(began.Add(2 * time.Second))) // it is written in seconds
	if got := newer.ask(t, mcp.ToolsCall, retried(params, `{"q1":{}}`, state)); got != staleState {
		t.Errorf("got %s", got)
	}
}

// A6: lists are read again when they are older than their server lets them be.
func TestTidyLists(t *testing.T) {
	t.Parallel()
	list := func(ttl int, names ...string) act {
		return says(fmt.Sprintf(`{"tools":[%s],"resultType":"complete","ttlMs":%d,"cacheScope":"public"}`, strings.Join(named(names...), ","), ttl))
	}
	brief := newFar(t, "brief", mcp.EraModern, false).on(mcp.ToolsList, list(1, "x"))
	long := newFar(t, "long", mcp.EraModern, false).on(mcp.ToolsList, list(3_600_000, "x"))
	y := start(t, func(s *setup) { s.upstream.ListTTL = seconds(7200) }, brief, long)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	if got := c.ask(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `"ttlMs":1}`) {
		t.Errorf("got %s", got)
	}
	time.Sleep(1200 * time.Millisecond) // what was begun at the start is over, and no server is read more often
	brief.on(mcp.ToolsList, list(1, "x", "y"))
	long.on(mcp.ToolsList, list(3_600_000, "x", "y"))
	defer c.hear(t, `{"toolsListChanged":true}`)()
	y.door.Tidy(time.Now())
	c.nextOf(t, mcp.ToolsChanged)
	if got := c.tools(t); !slices.Equal(got, []string{"brief::x", "brief::y", "long::x"}) {
		t.Errorf("got %q", got)
	}
}

// Clients that can answer different questions are told apart, and not without end.
func TestClassesAreBounded(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, func(c *turn) string {
		tool := "plain"
		if strings.Contains(string(c.Params), `"roots"`) {
			tool = "rooted"
		}
		return page("tools", named(tool)...)(nil)
	})
	y := start(t, nil, a)
	for i := range 40 {
		c := y.visit(t, "/mcp", mcp.EraModern, fmt.Sprintf(`{"roots":{"n":%d}}`, i))
		if got := c.tools(t); !slices.Equal(got, []string{"a::rooted"}) {
			t.Errorf("got %q", got)
		}
	}
	if got := y.visit(t, "/mcp", mcp.EraModern, `{"n":1}`).tools(t); !slices.Equal(got, []string{"a::plain"}) {
		t.Errorf("got %q", got)
	}
	if _, n, _ := y.door.Held(); n > 33 {
		t.Errorf("%d classes", n)
	}
}

// A8, G4: on its way to a plain server a message loses the token, and nothing else.
func TestTokenToPlainServerA8(t *testing.T) {
	t.Parallel()
	p := replying(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	g := open(t, p.URL, guarded)
	for sent, want := range map[string]string{
		`{ "id":1,"params":{"a":1.0,"proxy":{"authToken":"right"},"b":"\/"} ,"method":"m","jsonrpc":"2.0","x":[]}`: `{ "id":1,"params":{"a":1.0,"b":"\/"} ,"method":"m","jsonrpc":"2.0","x":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"proxy":{"authToken":"right"}}}`:                           `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"proxy":{"authToken":"right"},"a":1.0}}`:                          `{"jsonrpc":"2.0","method":"m","params":{"a":1.0}}`,
	} {
		before := len(p.requests())
		a := g.post(t, "a", sent)
		if all := p.requests(); a.status/100 != 2 || len(all) != before+1 || all[before].body != want {
			t.Errorf("%s: got %d %s; the server got %q", sent, a.status, a.body, all[before:])
		}
	}
}
