package hub_test

import (
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// The status of the servers has their state and how much each offers.
func TestServerStatuses(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, pagedList(3, 10))
	gw := startGateway(t, nil, a)
	gw.connect(t, "/mcp", mcp.Legacy, "{}").tools(t)
	got := gw.hub.ServerStatuses()
	if len(got) != 1 || got[0].ID != "a" || got[0].State != upstream.StateUp || got[0].Tools != 3 {
		t.Errorf("got %+v", got)
	}
}
