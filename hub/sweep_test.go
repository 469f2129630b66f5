package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// An idle session is forgotten with all its subscriptions; its id stays valid. A session with an open stream is
// not idle.
func TestSweepSessions(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, nil, a)
	c, listening := gw.connect(t, "/mcp", mcp.Legacy, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}")
	uri := shownURI("a", "mem://1")
	c.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+uri+`"}`)
	listening.openStream(t)
	listening.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+shownURI("a", "mem://2")+`"}`)
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`)
	listening.nextMessage(t) // its stream is open
	gw.hub.Sweep(time.Now().Add(29 * time.Minute))
	if n, _, _ := gw.hub.Counts(); n != 2 {
		t.Errorf("%d sessions", n)
	}
	gw.hub.Sweep(time.Now().Add(31 * time.Minute))
	if n, _, _ := gw.hub.Counts(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if got := string(a.awaitMessage(t, mcp.ResourcesUnsubscribe, 1).Params); got != `{"uri":"mem://1"}` {
		t.Errorf("got %s", got)
	}
	if got := c.callResult(t, mcp.Ping, `{}`); got != `{}` {
		t.Errorf("got %s", got)
	}
	a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://2"}}`)
	listening.nextOfMethod(t, mcp.NotifyResourceUpdated)
}

// A5: a pending call whose client does not come back is cancelled at its server.
func TestSweepPendingCalls(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, true)
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Modern, allCapabilities)
	params := askParams(mcp.ElicitationCreate + ` {}`)
	state, _ := parseInputRequired(t, c.callResult(t, mcp.ToolsCall, params))
	gw.hub.Sweep(time.Now().Add(9 * time.Minute))
	if _, _, n := gw.hub.Counts(); n != 1 {
		t.Errorf("%d pending calls", n)
	}
	gw.hub.Sweep(time.Now().Add(11 * time.Minute))
	a.awaitMessage(t, mcp.NotifyCancelled, 1)
	if got := c.callResult(t, mcp.ToolsCall, withInput(params, `{"q1":{}}`, state)); got != staleState {
		t.Errorf("got %s", got)
	}
	if _, _, n := gw.hub.Counts(); n != 0 {
		t.Errorf("%d pending calls", n)
	}
}

// A5: a request that no client answers in time is answered with an error; a state is valid for the same time.
func TestAskTimeoutA5(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, true)
	gw := startGateway(t, func(s *setup) { s.hub.AskTimeout = seconds(0.3) }, a)
	legacy, modern := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities), gw.connect(t, "/mcp", mcp.Modern, allCapabilities)
	params := askParams(mcp.ElicitationCreate + ` {}`)
	state, _ := parseInputRequired(t, modern.callResult(t, mcp.ToolsCall, params))
	began := time.Now()
	if got := textOfResult(t, legacy.callResult(t, mcp.ToolsCall, params)); !strings.Contains(got, "the client did not answer in time") {
		t.Errorf("got %s", got)
	}
	time.Sleep(time.Until(began.Add(2 * time.Second))) // the expiry is in seconds
	if got := modern.callResult(t, mcp.ToolsCall, withInput(params, `{"q1":{}}`, state)); got != staleState {
		t.Errorf("got %s", got)
	}
}

// A6: lists are read again when they are older than their server's TTL.
func TestSweepRefreshesLists(t *testing.T) {
	t.Parallel()
	list := func(ttl int, names ...string) handler {
		return respond(fmt.Sprintf(`{"tools":[%s],"resultType":"complete","ttlMs":%d,"cacheScope":"public"}`, strings.Join(itemsNamed(names...), ","), ttl))
	}
	brief := newFakeServer(t, "brief", mcp.Modern, false).handle(mcp.ToolsList, list(1, "x"))
	long := newFakeServer(t, "long", mcp.Modern, false).handle(mcp.ToolsList, list(3_600_000, "x"))
	gw := startGateway(t, func(s *setup) { s.upstream.ListTTL = seconds(7200) }, brief, long)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	if got := c.callResult(t, mcp.ToolsList, `{}`); !strings.HasSuffix(got, `"ttlMs":1}`) {
		t.Errorf("got %s", got)
	}
	time.Sleep(1200 * time.Millisecond) // the read of the start is over, and no server is read more often
	brief.handle(mcp.ToolsList, list(1, "x", "y"))
	long.handle(mcp.ToolsList, list(3_600_000, "x", "y"))
	defer c.listenFor(t, `{"toolsListChanged":true}`)()
	gw.hub.Sweep(time.Now())
	c.nextOfMethod(t, mcp.NotifyToolsChanged)
	if got := c.tools(t); !slices.Equal(got, []string{"brief::x", "brief::y", "long::x"}) {
		t.Errorf("got %q", got)
	}
}

// Clients with different capabilities are distinguished, up to a number of classes.
func TestClassesAreBounded(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, func(c *serverCall) string {
		tool := "plain"
		if strings.Contains(string(c.Params), `"roots"`) {
			tool = "rooted"
		}
		return listResult("tools", itemsNamed(tool)...)(nil)
	})
	gw := startGateway(t, nil, a)
	for i := range 40 {
		c := gw.connect(t, "/mcp", mcp.Modern, fmt.Sprintf(`{"roots":{"n":%d}}`, i))
		if got := c.tools(t); !slices.Equal(got, []string{"a::rooted"}) {
			t.Errorf("got %q", got)
		}
	}
	if got := gw.connect(t, "/mcp", mcp.Modern, `{"n":1}`).tools(t); !slices.Equal(got, []string{"a::plain"}) {
		t.Errorf("got %q", got)
	}
	if _, n, _ := gw.hub.Counts(); n > 33 {
		t.Errorf("%d classes", n)
	}
}

// A8, G4: a message that is relayed to a plain JSON-RPC server loses the token, and nothing else.
func TestTokenToPlainServerA8(t *testing.T) {
	t.Parallel()
	p := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	g := startRPCGateway(t, p.URL, requireToken)
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
