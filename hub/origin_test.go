package hub_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
)

// canRead reports whether an original can be read back at an endpoint. If not, the answer is that of an unknown
// id.
func (gw *mcpGateway) canRead(t *testing.T, endpoint, id string) bool {
	t.Helper()
	ask := func(id string) string {
		return resultOrError(t, gw.connect(t, endpoint, mcp.Modern, "{}").call(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+id+`"}}`).body)
	}
	got, never := ask(id), ask("prn_00000000000000000000000000")
	if strings.HasPrefix(got, "!") && got != never {
		t.Errorf("%s at %s: got %s, an unknown id gives %s", id, endpoint, got, never)
	}
	return !strings.HasPrefix(got, "!")
}

// At the endpoint of one server only originals of that server's results can be read back.
func TestServerEndpointReadsBackItsOwnOnly(t *testing.T) {
	t.Parallel()
	answer := func(text string) handler { return respond(`{"content":[{"type":"text","text":"` + text + `"}]}`) }
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, answer(strings.Repeat("text of a ", 9)))
	b := newFakeServer(t, "b", mcp.Legacy, false).handle(mcp.ToolsCall, answer(strings.Repeat("text of b ", 9)))
	gw := startGateway(t, maskSmall, a, b)
	cut := func(server string) string {
		got := gw.connect(t, "/mcp", mcp.Modern, "{}").callResult(t, mcp.ToolsCall, `{"name":"`+server+`::x"}`)
		return lineOfRecovery.FindStringSubmatch(got)[1]
	}
	ofA, ofB := cut("a"), cut("b")
	keep := func(o recall.Origin) string {
		id, err := gw.recall.StoreText(t.Context(), auth.DefaultTenant, "text of "+o.Server, o)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ofPruner, ofModel := keep(recall.Origin{Server: recall.BuiltinOrigin("pruner"), Tool: "prune_text"}), keep(recall.Origin{Server: "llm:p", Tool: "a"})
	for endpoint, may := range map[string]map[string]bool{
		"/mcp":   {ofA: true, ofB: true},
		"/mcp/a": {ofA: true},
		"/mcp/b": {ofB: true},
	} {
		for _, id := range []string{ofA, ofB, ofPruner, ofModel} {
			if got := gw.canRead(t, endpoint, id); got != may[id] {
				t.Errorf("%s read at %s: %v", id, endpoint, got)
			}
		}
	}
}

// Originals of a server that is no longer configured cannot be read back, until it is configured again.
func TestOriginsAreWhatCanBeCalledToday(t *testing.T) {
	t.Parallel()
	gw, id := newGatewayWithRecoverable(t, strings.Repeat("a text to keep ", 10))
	if !gw.canRead(t, "/mcp", id) {
		t.Error("not read while its server is there")
	}
	servers := gw.setup.upstream.Servers
	gw.reload(func(s *setup) { s.removeServer("a") })
	if gw.canRead(t, "/mcp", id) {
		t.Error("read when its server is gone")
	}
	gw.reload(func(s *setup) { s.upstream.Servers = servers })
	if !gw.canRead(t, "/mcp", id) || !gw.canRead(t, "/mcp/a", id) {
		t.Error("not read when its server is back")
	}
}
