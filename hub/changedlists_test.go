package hub_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// A server tells one of two replicas that its list changed: the clients of both are notified and see the new list. The second does
// not announce what it was told, and lists that it has already are not read again.
func TestListsChangedAtAnotherReplica(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	var second atomic.Pointer[mcpGateway]
	var announced, announcedBySecond atomic.Int64
	var lastHash atomic.Value
	one := startGateway(t, func(s *setup) {
		s.announce = func(server, hash string) {
			announced.Add(1)
			lastHash.Store(hash)
			second.Load().hub.ReadListsAgain(server, hash)
		}
	}, server)
	atOne := one.connect(t, "/mcp", mcp.Modern, "{}")
	atOne.tools(t)
	toFirst := map[int]func(string) bool{}
	wait.For(t, "the first replica listens", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		for n, send := range server.senders {
			toFirst[n] = send
		}
		return len(toFirst) > 0
	})
	two := startGateway(t, func(s *setup) {
		s.announce = func(string, string) { announcedBySecond.Add(1) }
	}, server)
	second.Store(two)
	atTwo := two.connect(t, "/mcp", mcp.Modern, "{}")
	atTwo.tools(t)
	t.Cleanup(atTwo.listenFor(t, `{"toolsListChanged":true}`))

	server.handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...))
	for _, send := range toFirst {
		send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1@sub}}`)
	}
	atTwo.nextOfMethod(t, mcp.NotifyToolsChanged)
	if got := atTwo.tools(t); !slices.Contains(got, "a::y") {
		t.Errorf("the second replica lists %q", got)
	}
	if announced.Load() != 1 || announcedBySecond.Load() != 0 {
		t.Errorf("announced %d times, and %d times by the one that was told", announced.Load(), announcedBySecond.Load())
	}
	reads := len(server.messagesOf(mcp.ToolsList))
	hash, _ := lastHash.Load().(string)
	two.hub.ReadListsAgain("a", hash)
	two.hub.ReadListsAgain("unknown", "")
	if n := len(server.messagesOf(mcp.ToolsList)); n != reads {
		t.Errorf("the same lists were read again: %d reads, then %d", reads, n)
	}
	two.hub.ReadListsAgain("a", "") // a signal was missed: nobody knows to what they changed
	wait.For(t, "the lists are read again", func() bool { return len(server.messagesOf(mcp.ToolsList)) > reads })
}
