package clientfile

import (
	"path/filepath"

	"github.com/ctxgate/ctxgate/internal/jsonedit"
)

// format is how a file is written.
type format int

const (
	formatJSON format = iota
	formatTOML
	formatYAML
)

// form is how a client's file lists servers.
type form struct {
	format format
	syntax jsonedit.Syntax // what the client reads, of JSON
	path   []string        // of the map (or list) of servers
	isList bool            // a list of entries with a name, not a map
	isBare bool            // path may be missing: the whole document is the map
	old    string          // why entries of this file stay: the file is of an old version
}

// ReadOnly says why Rewire does not write a file; empty if it does.
func (f File) ReadOnly() string {
	if old := f.form().old; old != "" {
		return "is not written: " + old
	}
	return ""
}

// form returns the form of a file.
func (f File) form() form {
	mcpServers := []string{"mcpServers"}
	name := filepath.Base(f.Path)
	if f.isRules() {
		return form{syntax: jsonc, old: "it has no servers"}
	}
	switch f.Client {
	case "claude-code":
		if f.Scope == Project { // Claude Code is strict; Copilot also reads a bare map
			return form{syntax: strictJSON, path: mcpServers, isBare: true}
		}
		return form{syntax: strictJSON, path: mcpServers}
	case "claude-desktop", "cline":
		return form{syntax: strictJSON, path: mcpServers}
	case "cursor", "windsurf":
		return form{syntax: jsonc, path: mcpServers}
	case "vscode":
		if name == "settings.json" {
			return form{syntax: jsonc, path: []string{"mcp", "servers"}, old: "VS Code moves it to its mcp.json; start VS Code once, then run this again"}
		}
		return form{syntax: jsonc, path: []string{"servers"}}
	case "continue":
		if filepath.Ext(name) == ".json" {
			return form{syntax: strictJSON, path: mcpServers}
		}
		return form{format: formatYAML, path: mcpServers, isList: true}
	case "codex":
		return form{format: formatTOML, path: []string{"mcp_servers"}}
	case "gemini", "qwen": // a trailing comma is fatal for the whole client
		return form{syntax: jsonComments, path: mcpServers}
	case "opencode":
		return form{syntax: jsonc, path: []string{"mcp"}}
	case "zed":
		return form{syntax: jsonc, path: []string{"context_servers"}}
	case "copilot":
		return form{syntax: jsonc, path: mcpServers, isBare: f.Scope == Project}
	case "goose":
		return form{format: formatYAML, path: []string{"extensions"}}
	}
	return form{syntax: strictJSON, path: mcpServers}
}
