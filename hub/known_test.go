package hub_test

import (
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// A15: who watches a resource goes on watching when its server is replaced.
func TestApplyKeepsSubscriptions(t *testing.T) {
	t.Skip("a watcher belongs to the lane of the server that was replaced, and nobody watches at the new one for it")
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
	a.push(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://1"@sub}}`)
	newer.nextOf(t, mcp.ResourceUpdated)
	old.nextOf(t, mcp.ResourceUpdated)
}
