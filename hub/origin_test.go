package hub_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
)

// reads asks for an original at a door, and says whether it was given. One that is not given is
// answered as an id that never was.
func (y *yard) reads(t *testing.T, door, id string) bool {
	t.Helper()
	ask := func(id string) string {
		return outcome(t, y.visit(t, door, mcp.EraModern, "{}").call(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+id+`"}}`).body)
	}
	got, never := ask(id), ask("prn_00000000000000000000000000")
	if strings.HasPrefix(got, "!") && got != never {
		t.Errorf("%s at %s: got %s, an id that never was gives %s", id, door, got, never)
	}
	return !strings.HasPrefix(got, "!")
}

// The door of one server reads back what that server's results made, and nothing of others.
func TestOneServersDoorReadsBackItsOwnOnly(t *testing.T) {
	t.Parallel()
	answer := func(text string) act { return says(`{"content":[{"type":"text","text":"` + text + `"}]}`) }
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsCall, answer(strings.Repeat("text of a ", 9)))
	b := newFar(t, "b", mcp.EraLegacy, false).on(mcp.ToolsCall, answer(strings.Repeat("text of b ", 9)))
	y := start(t, small, a, b)
	cut := func(server string) string {
		got := y.visit(t, "/mcp", mcp.EraModern, "{}").ask(t, mcp.ToolsCall, `{"name":"`+server+`::x"}`)
		return lineOfRecovery.FindStringSubmatch(got)[1]
	}
	ofA, ofB := cut("a"), cut("b")
	keep := func(o recall.Origin) string {
		id, err := y.recall.Keep(t.Context(), auth.DefaultTenant, "text of "+o.Server, o)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ofPruner, ofModel := keep(recall.Origin{Server: recall.OwnOrigin("pruner"), Tool: "prune_text"}), keep(recall.Origin{Server: "llm:p", Tool: "a"})
	for door, may := range map[string]map[string]bool{
		"/mcp":   {ofA: true, ofB: true},
		"/mcp/a": {ofA: true},
		"/mcp/b": {ofB: true},
	} {
		for _, id := range []string{ofA, ofB, ofPruner, ofModel} {
			if got := y.reads(t, door, id); got != may[id] {
				t.Errorf("%s read at %s: %v", id, door, got)
			}
		}
	}
}

// What came from a server that the configuration no longer has cannot be read back, and can again
// when the server is back.
func TestOriginsAreWhatCanBeCalledToday(t *testing.T) {
	t.Parallel()
	y, id := kept(t, strings.Repeat("a text to keep ", 10))
	if !y.reads(t, "/mcp", id) {
		t.Error("not read while its server is there")
	}
	servers := y.set.upstream.Servers
	y.apply(func(s *setup) { s.remove("a") })
	if y.reads(t, "/mcp", id) {
		t.Error("read when its server is gone")
	}
	y.apply(func(s *setup) { s.upstream.Servers = servers })
	if !y.reads(t, "/mcp", id) || !y.reads(t, "/mcp/a", id) {
		t.Error("not read when its server is back")
	}
}
