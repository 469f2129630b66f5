package hub_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// withOwnConnections gives a client TCP connections of its own.
func (c *client) withOwnConnections(t testing.TB) *client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c.httpClient = &http.Client{Transport: transport}
	return c
}

// ownProcesses gives every client of the first server a process of its own, from the start.
func ownProcesses(s *setup) { s.upstream.Servers[0].Shared = new(bool) }

// A5: two modern clients that cannot be distinguished by what they send never share a child process: one does not see
// the other's state, and a late request of the server reaches no other client. A client that calls again gets its own
// process again.
func TestTwoClientsNeverShareAProcess(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true)
	gw := startGateway(t, ownProcesses, a)
	one, two := gw.connect(t, "/mcp", mcp.Modern, allCapabilities).withOwnConnections(t), gw.connect(t, "/mcp", mcp.Modern, allCapabilities).withOwnConnections(t)
	one.tools(t)  // the lists for such clients have been read, from a process of the first of them
	for range 3 { // one after the other, so that each could get the process of the other
		for _, c := range []*client{one, two} {
			if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' {
				t.Fatalf("got %s", got)
			}
		}
	}
	if n := len(a.childPIDs()); n != 3 {
		t.Errorf("there are %d processes, want one that is shared and one for each client", n)
	}
}

// A client's own child process is not ended while its session lives: further clients are refused, by a message
// that names the setting.
func TestProcessOfASessionIsKept(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true)
	gw := startGateway(t, func(s *setup) { ownProcesses(s); s.upstream.MaxClientConns = 4 }, a)
	first := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities)
	first.tools(t)
	first.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	wait.For(t, "process of the client", func() bool { return len(a.childPIDs()) == 2 })
	mine := a.childPIDs()[1]
	refused := 0
	for range 6 {
		got := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities).callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
		if strings.HasPrefix(got, "!") {
			refused++
			if !strings.Contains(got, "max_client_connections = 4") {
				t.Errorf("got %s", got)
			}
		}
	}
	if got := first.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' || !alive(mine) {
		t.Errorf("the process of the first client was ended: %s", got)
	}
	// All clients here are one caller, which may have half of the processes.
	if want := fmt.Sprint(5, 3); fmt.Sprint(refused, len(a.childPIDs())) != want {
		t.Errorf("%d clients were refused and %d processes started, want %s", refused, len(a.childPIDs()), want)
	}
}
