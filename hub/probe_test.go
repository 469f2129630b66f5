package hub_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

// probe returns what a probe finds.
func (gw *mcpGateway) probe(t testing.TB) (found []hub.ProbeResult, clashes []string) {
	t.Helper()
	return probeServers(t, gw.hub)
}

func probeServers(t testing.TB, h *hub.Hub) (found []hub.ProbeResult, clashes []string) {
	t.Helper()
	clashes = h.Probe(t.Context(), hub.ProbeWatcher{
		Found:    func(r hub.ProbeResult) { found = append(found, r) },
		Progress: func([]fmt.Stringer) {},
	})
	return found, clashes
}

// A probe counts in the right plural forms. A server whose list fails is a failure, not a server without tools; one that
// offers nothing is said to offer nothing.
func TestProbeTellsEmptyFromFailed(t *testing.T) {
	t.Parallel()
	one := newFakeServer(t, "one", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	two := newFakeServer(t, "two", mcp.Modern, true).handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...))
	none := newFakeServer(t, "none", mcp.Legacy, true).handle(mcp.ToolsList, listResult("tools"))
	bad := newFakeServer(t, "bad", mcp.Legacy, true).handle(mcp.ToolsList, func(*serverCall) string { return `!{"code":-32603,"message":"the database is locked"}` })
	found, clashes := startGateway(t, nil, one, two, none, bad).probe(t)
	if len(found) != 4 || len(clashes) > 0 {
		t.Fatalf("found %+v, clashes %q", found, clashes)
	}
	for _, r := range found {
		want := map[string]string{"one": "1 tool", "two": "2 tools", "none": "0 tools"}[r.Server]
		switch {
		case r.Server == "bad" && (r.Err == nil || !strings.Contains(r.Err.Error(), "its lists cannot be read: the server refused tools/list") || r.Summary != ""):
			t.Errorf("bad: %q, %v", r.Summary, r.Err)
		case r.Server != "bad" && (r.Err != nil || !strings.HasSuffix(r.Summary, ", "+want)):
			t.Errorf("%s: %q, %v, want %s", r.Server, r.Summary, r.Err, want)
		}
	}
}
