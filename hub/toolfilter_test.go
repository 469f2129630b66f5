package hub_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// A tool that enabled_tools or disabled_tools hides is neither listed nor called, whichever way it is named; a disabled
// server is not there.
func TestHiddenToolsAreNeitherListedNorCalled(t *testing.T) {
	t.Parallel()
	tools := listResult("tools", itemsNamed("read_file", "read_all", "write_file")...)
	files := newFakeServer(t, "files", mcp.Modern, false).handle(mcp.ToolsList, tools)
	off := newFakeServer(t, "off", mcp.Modern, false).handle(mcp.ToolsList, tools)
	gw := startGateway(t, func(s *setup) {
		s.upstream.Servers[0].EnabledTools = []string{"read_*"}
		s.upstream.Servers[0].DisabledTools = []string{"read_all"}
		s.upstream.Servers[1].Disabled = true
	}, files, off)
	for endpoint, want := range map[string]string{"/mcp": "files::read_file", "/mcp/files": "read_file"} {
		c := gw.connect(t, endpoint, mcp.Modern, "{}")
		if got := strings.Join(c.tools(t), " "); got != want {
			t.Errorf("%s lists %s, want %s", endpoint, got, want)
		}
		for _, tool := range []string{"read_file", "read_all", "write_file"} {
			shown := strings.TrimSuffix(want, "read_file") + tool
			got := c.callResult(t, mcp.ToolsCall, `{"name":"`+shown+`"}`)
			server, _ := receivedBy(t, mcp.ToolsCall, files, off)
			if isOffered := tool == "read_file"; isOffered != (server == "files") || isOffered == (got[0] == '!') {
				t.Errorf("%s: %s reached %q: %s", endpoint, shown, server, got)
			}
		}
	}
}
