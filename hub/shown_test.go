package hub_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// A client at the door of one server is told when that server's list changed, and not when another's did.
func TestListChangedAtTheDoorOfItsServer(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...))
			b := newFar(t, "b", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...))
			y := start(t, nil, a, b)
			listening := func(path string) *client {
				c := y.visit(t, path, era, "{}")
				c.tools(t)
				if era == mcp.EraLegacy {
					stop, _ := c.listen(t)
					t.Cleanup(stop)
				} else {
					t.Cleanup(c.hear(t, `{"toolsListChanged":true}`))
				}
				return c
			}
			all, atA, atB := listening("/mcp"), listening("/mcp/a"), listening("/mcp/b")
			change := func(f *far) {
				f.on(mcp.ToolsList, page("tools", named("x", "y")...))
				f.push(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1@sub}}`)
				all.nextOf(t, mcp.ToolsChanged)
			}
			change(b)
			atB.nextOf(t, mcp.ToolsChanged)
			change(a)
			atA.nextOf(t, mcp.ToolsChanged)
			if got := atA.tools(t); !slices.Equal(got, []string{"x", "y"}) {
				t.Errorf("it was told before its list changed: %q", got)
			}
			for _, c := range []*client{all, atA, atB} {
				c.quiet(t, 50*time.Millisecond)
			}
		})
	}
}
