package clientfile

import (
	"strings"
	"testing"
)

// A server that moves later adds to ctxgate's entry: the approvals, variables and limits of those that moved before stay.
func TestRewireAgainKeepsTheFormerEntry(t *testing.T) {
	for name, tt := range map[string]struct {
		client, path, text, more string
		want                     []string
	}{
		"codex": {
			"codex", "/h/.codex/config.toml",
			"[mcp_servers.a]\ncommand = \"a\"\ntool_timeout_sec = 900\n[mcp_servers.a.tools.x]\napproval_mode = \"approve\"\n",
			"\n[mcp_servers.b]\ncommand = \"b\"\ntool_timeout_sec = 60\n[mcp_servers.b.tools.y]\napproval_mode = \"approve\"\n",
			[]string{"a__x", "b__y", "900", `"A"`, `"B"`},
		},
		"cline": {
			"cline", "/h/.cline/data/settings/cline_mcp_settings.json",
			`{"mcpServers": {"a": {"command": "a", "autoApprove": ["x"]}}}`, "",
			[]string{"a__x", "b__y"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := At(Env{GOOS: "linux", Home: "/h"}, tt.client, tt.path, User)
			entry := Entry{Name: "ctxgate", Command: "/usr/bin/ctxgate", Args: []string{"stdio"}, PassEnv: []string{"A"}}
			rewire := func(text string) string {
				t.Helper()
				content, err := f.Read([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				var moves []Move
				for _, s := range content.Servers {
					if !s.Gateway {
						moves = append(moves, Move{Server: s})
					}
				}
				out, err := f.Rewire([]byte(text), entry, moves)
				if err != nil {
					t.Fatal(err)
				}
				return string(out.Data)
			}
			text := rewire(tt.text)
			entry.PassEnv = []string{"B"}
			if tt.more == "" {
				text = strings.Replace(text, `"mcpServers": {`, `"mcpServers": {"b": {"command": "b", "autoApprove": ["y"]},`, 1)
			}
			text = rewire(text + tt.more)
			for _, want := range tt.want {
				if again := rewire(text); !strings.Contains(text, want) || !strings.Contains(again, want) {
					t.Errorf("%s is missing in\n%s\nor\n%s", want, text, again)
				}
			}
		})
	}
}
