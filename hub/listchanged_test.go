package hub_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// A client at the endpoint of one server is notified when that server's list changes, not when another's does.
func TestListChangedAtServerEndpoint(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
			b := newFakeServer(t, "b", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
			gw := startGateway(t, nil, a, b)
			listening := func(path string) *client {
				c := gw.connect(t, path, protocol, "{}")
				c.tools(t)
				if protocol == mcp.Legacy {
					stop, _ := c.openStream(t)
					t.Cleanup(stop)
				} else {
					t.Cleanup(c.listenFor(t, `{"toolsListChanged":true}`))
				}
				return c
			}
			all, atA, atB := listening("/mcp"), listening("/mcp/a"), listening("/mcp/b")
			change := func(f *fakeServer) {
				f.handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...))
				f.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1@sub}}`)
				all.nextOfMethod(t, mcp.NotifyToolsChanged)
			}
			change(b)
			atB.nextOfMethod(t, mcp.NotifyToolsChanged)
			change(a)
			atA.nextOfMethod(t, mcp.NotifyToolsChanged)
			if got := atA.tools(t); !slices.Equal(got, []string{"x", "y"}) {
				t.Errorf("it was notified before its list changed: %q", got)
			}
			for _, c := range []*client{all, atA, atB} {
				c.expectSilence(t, 50*time.Millisecond)
			}
		})
	}
}
