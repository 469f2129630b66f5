package hub_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// elsewhere gives a client connections of its own.
func (c *client) elsewhere(t testing.TB) *client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c.own = &http.Client{Transport: transport}
	return c
}

// A5: two clients of the newer era that say nothing by which they differ never get the same process of
// a server: what one has done in it is nothing to the other, and a late question of the server reaches nobody
// else. One client that calls again meets its own process again.
func TestTwoClientsNeverShareAProcess(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true)
	y := start(t, nil, a)
	one, two := y.visit(t, "/mcp", mcp.EraModern, able).elsewhere(t), y.visit(t, "/mcp", mcp.EraModern, able).elsewhere(t)
	one.tools(t)  // what is offered to such clients has been read, on a process of the first of them
	for range 3 { // one after the other, so that each could be lent the process of the other
		for _, c := range []*client{one, two} {
			if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' {
				t.Fatalf("got %s", got)
			}
		}
	}
	if n := len(a.programs()); n != 3 {
		t.Errorf("there are %d processes, want one that is shared and one for each client", n)
	}
}

// A client's own process is not ended while its session lives: others that come are refused, and told
// by which setting.
func TestProcessOfASessionIsKept(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true)
	y := start(t, func(s *setup) { s.upstream.MaxLanes = 4 }, a)
	first := y.visit(t, "/mcp", mcp.EraLegacy, able)
	first.tools(t)
	first.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
	eventually(t, "process of the client", func() bool { return len(a.programs()) == 2 })
	mine := a.programs()[1]
	refused := 0
	for range 6 {
		got := y.visit(t, "/mcp", mcp.EraLegacy, able).ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
		if strings.HasPrefix(got, "!") {
			refused++
			if !strings.Contains(got, "max_client_connections = 4") {
				t.Errorf("got %s", got)
			}
		}
	}
	if got := first.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' || !alive(mine) {
		t.Errorf("the process of the first client was ended: %s", got)
	}
	// All clients here are one caller, which may have half of the processes.
	if want := fmt.Sprint(5, 3); fmt.Sprint(refused, len(a.programs())) != want {
		t.Errorf("%d clients were refused and %d processes started, want %s", refused, len(a.programs()), want)
	}
}
