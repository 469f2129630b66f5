package clientfile

import (
	"path/filepath"
	"testing"
)

// A rule that denies a tool must go on denying it under its new name.
func TestRulesFollowTheToolsOfServersThatMove(t *testing.T) {
	move := []Move{{Server: Server{Name: "github"}}, {Server: Server{Name: "my docs"}, ID: "docs"}}
	for _, c := range []struct{ client, name, in, want string }{
		{"claude-code", "settings.json",
			`{
  "permissions": {
    "allow": ["Bash(ls:*)", "mcp__github__get_issue", "mcp__my_docs", "mcp__githubx__a"],
    "deny": [
      "mcp__github__delete_*",
      "mcp__other"
    ]
  },
  "hooks": {"PreToolUse": [{"matcher": "Bash|mcp__github__.*", "hooks": []}]}
}
`,
			`{
  "permissions": {
    "allow": ["Bash(ls:*)", "mcp__ctxgate__github__get_issue", "mcp__ctxgate__docs__*", "mcp__githubx__a"],
    "deny": [
      "mcp__ctxgate__github__delete_*",
      "mcp__other"
    ]
  },
  "hooks": {"PreToolUse": [{"matcher": "Bash|mcp__ctxgate__github__.*", "hooks": []}]}
}
`},
		{"cursor", "permissions.json", "{\n  // mine\n  \"mcpAllowlist\": [\"github:*\", \"x:y\"],\n}", "{\n  // mine\n  \"mcpAllowlist\": [\"ctxgate:github__*\", \"x:y\"],\n}"},
		{"cursor", "cli-config.json", `{"permissions": {"allow": ["Shell(ls)", "Mcp(github:get)"], "deny": ["Mcp(my docs, drop)"]}}`, `{"permissions": {"allow": ["Shell(ls)", "Mcp(ctxgate:github__get)"], "deny": ["Mcp(ctxgate, docs__drop)"]}}`},
		{"claude-code", "settings.json", "{ \"model\" : 1 }\r\n", "{ \"model\" : 1 }\r\n"},
	} {
		f := At(testEnv("/home/ann"), c.client, filepath.Join("/home/ann/x", c.name), User)
		got, err := f.RenameRules([]byte(c.in), "ctxgate", move)
		if err != nil || string(got) != c.want {
			t.Errorf("%s %s: %v\ngot\n%s\nwant\n%s", c.client, c.name, err, got, c.want)
		}
		// Taken back, also after another change.
		now, left, err := f.Revert([]byte(c.in), got, got)
		if err != nil || len(left) > 0 || string(now) != c.in {
			t.Errorf("reverted: %v %v\n%s", err, left, now)
		}
		if f.ReadOnly() == "" {
			t.Error("a file of rules can be rewired")
		}
	}
}

// Approvals given in a project are in its own file, which Claude Code's state leads to.
func TestRulesAreFoundInTheProjectsOfClaudeCode(t *testing.T) {
	home := writeFiles(t, ".claude/settings.json", "web/.claude/settings.local.json", "web/.claude/settings.json", ".cursor/permissions.json")
	state := `{"projects": {"` + filepath.ToSlash(filepath.Join(home, "web")) + `": {}, "/nowhere": {}}}`
	writeText(t, filepath.Join(home, ".claude.json"), state)
	var got []string
	for _, f := range FindRules(Env{GOOS: "linux", Home: home}) {
		rel, _ := filepath.Rel(home, f.Path)
		got = append(got, f.Client+" "+string(f.Scope)+" "+filepath.ToSlash(rel))
	}
	checkFound(t, got, "claude-code user .claude/settings.json", "claude-code user web/.claude/settings.local.json", "cursor user .cursor/permissions.json")
}

// Copilot CLI and Gemini CLI keep what is turned off in a file beside the servers.
func TestServersThatAreTurnedOffElsewhere(t *testing.T) {
	home := writeFiles(t, ".copilot/mcp-config.json", ".gemini/settings.json")
	writeText(t, filepath.Join(home, ".copilot", "settings.json"), `{"disabledMcpServers": ["b"]}`)
	writeText(t, filepath.Join(home, ".gemini", "mcp-server-enablement.json"), `{"b": {"enabled": false}}`)
	for _, f := range Find(Env{GOOS: "linux", Home: home}) {
		content, err := f.Read([]byte(`{"mcpServers": {"A": {"command": "x"}, "b": {"command": "y"}}}`))
		if err != nil || content.Servers[0].Disabled || !content.Servers[1].Disabled {
			t.Errorf("%s: %v %+v", f.Client, err, content.Servers)
		}
	}
}

// A server that is turned off in one project would be on there again.
func TestAServerThatIsTurnedOffInAProjectIsNoted(t *testing.T) {
	f := At(testEnv("/home/ann"), "claude-code", "/home/ann/.claude.json", User)
	content, err := f.Read([]byte(`{"mcpServers": {"a": {"command": "x"}}, "projects": {"/web": {"disabledMcpServers": ["a"], "allowedTools": ["mcp__a__t"]}}}`))
	if err != nil || len(content.Servers[0].Notes) != 1 {
		t.Errorf("%v: %+v", err, content)
	}
}

// A file of an administrator takes the place of the user's servers: nothing is moved that Claude Code does not start.
func TestServersStayWhereAnAdministratorDecides(t *testing.T) {
	env := testEnv("/home/ann")
	for _, c := range []struct {
		system string
		keeps  bool
	}{{writeFiles(t, "etc/claude-code/managed-mcp.json"), true}, {t.TempDir(), false}} {
		env.System = c.system
		content, err := At(env, "claude-code", "/home/ann/.claude.json", User).Read([]byte(`{"mcpServers": {"a": {"command": "x"}}}`))
		if err != nil || (content.Servers[0].Keep != "") != c.keeps {
			t.Errorf("%v: %+v", err, content.Servers)
		}
	}
}
