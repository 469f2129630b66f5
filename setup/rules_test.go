package setup

import (
	"maps"
	"strings"
	"testing"
)

// Rules for the tools of a server that moves follow it, and come back with undo. A project's shared file is only named.
func TestInitRenamesRulesForTools(t *testing.T) {
	h := newHome(t, map[string]string{
		".claude.json":                        `{"mcpServers": {"github": {"type": "stdio", "command": "gh-mcp"}}}`,
		".claude/settings.json":               `{"permissions": {"allow": ["mcp__github__get_issue"], "deny": ["mcp__github__delete_repo"]}}`,
		"project/.claude/settings.json":       `{"permissions": {"deny": ["mcp__github__push"]}}`,
		".cursor/permissions.json":            `{"mcpAllowlist": ["github:*"]}`,
		"project/.claude/settings.local.json": `{"permissions": {"allow": ["mcp__github__search"]}}`,
	})
	before := h.snapshot()
	p := h.plan(h.options())
	h.apply(p)
	if got, want := h.read(".claude/settings.json"), `{"permissions": {"allow": ["mcp__ctxgate__github__get_issue"], "deny": ["mcp__ctxgate__github__delete_repo"]}}`; got != want {
		t.Errorf("got %s", got)
	}
	if got := h.read("project/.claude/settings.local.json"); !strings.Contains(got, "mcp__ctxgate__github__search") {
		t.Errorf("got %s", got)
	}
	if got := h.read("project/.claude/settings.json"); strings.Contains(got, "ctxgate") {
		t.Errorf("a shared file was changed: %s", got)
	}
	if got := h.read(".cursor/permissions.json"); strings.Contains(got, "ctxgate") {
		t.Errorf("the rules of a client whose servers did not move were changed: %s", got)
	}
	if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, "project/.claude/settings.json") {
		t.Errorf("the shared file is not named:\n%s", notes)
	}
	h.undo()
	if !maps.Equal(h.snapshot(), before) {
		t.Errorf("not undone: %v", h.snapshot())
	}
}

// A server that knows only a registered client gets the same one from ctxgate.
func TestInitKeepsTheRegisteredOAuthClient(t *testing.T) {
	h := newHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"crm": {"url": "https://crm.example.com/mcp", "auth": {"CLIENT_ID": "ann-app", "CLIENT_SECRET": "very-s3cret-value", "scopes": ["read"]}}}}`,
	})
	h.apply(h.plan(h.options()))
	text := h.read(".config/ctxgate/ctxgate.toml")
	if !strings.Contains(text, "[servers.oauth]\nclient_id = \"ann-app\"\nclient_secret = \"file:") || !strings.Contains(text, "scopes = [\"read\"]") || strings.Contains(text, "very-s3cret-value") {
		t.Errorf("got\n%s", text)
	}
}
