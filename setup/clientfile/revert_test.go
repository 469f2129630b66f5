package clientfile

import (
	"strings"
	"testing"
)

// Claude Code's file is also its state: after ctxgate's edit it has new state, which stays when the edit is taken back.
func TestRevertKeepsWhatTheClientWroteSince(t *testing.T) {
	const before = `{
  "numStartups": 3,
  "mcpServers": {
    "github": {"type": "stdio", "command": "npx", "args": ["gh"], "timeout": 1.50},
    "docs": {"type": "http", "url": "https://docs.example.com/mcp"}
  }
}
`
	f := At(Env{GOOS: "linux", Home: "/home/ann"}, "claude-code", "/home/ann/.claude.json", User)
	content, err := f.Read([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	entry := Entry{Name: "ctxgate", Command: "/usr/bin/ctxgate", Args: []string{"stdio", "--client", "claude-code"}}
	rewired, err := f.Rewire([]byte(before), entry, []Move{{Server: content.Servers[0]}, {Server: content.Servers[1]}})
	if err != nil {
		t.Fatal(err)
	}
	after := string(rewired.Data)

	now := strings.Replace(after, `"numStartups": 3`, `"numStartups": 4, "tips": {"x": 1}`, 1)
	now = strings.Replace(now, `"type": "stdio"`, `"type": "stdio", "env": {}`, 1) // the client adds defaults
	data, left, err := f.Revert([]byte(before), rewired.Data, []byte(now))
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	for _, want := range []string{`"numStartups": 4`, `"tips": {"x": 1}`, `{"type": "stdio", "command": "npx", "args": ["gh"], "timeout": 1.50}`, `"url": "https://docs.example.com/mcp"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is missing in\n%s", want, data)
		}
	}
	if strings.Contains(string(data), "ctxgate") {
		t.Errorf("ctxgate is still there:\n%s", data)
	}

	// A server of the same name that the user added since stays as it is, and is named.
	now = strings.Replace(after, `"ctxgate"`, `"github": {"type": "stdio", "command": "other"}, "ctxgate"`, 1)
	data, left, err = f.Revert([]byte(before), rewired.Data, []byte(now))
	if err != nil || len(left) != 1 || left[0] != "mcpServers.github" || !strings.Contains(string(data), `"command": "other"`) {
		t.Fatal(err, left, string(data))
	}

	// Without a change since, nothing of before is missing.
	data, left, err = f.Revert([]byte(before), rewired.Data, rewired.Data)
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	again, err := f.Read(data)
	if err != nil || len(again.Servers) != 2 {
		t.Fatal(err, string(data))
	}
}
