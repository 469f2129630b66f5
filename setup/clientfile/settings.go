package clientfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// fieldNames are the names that differ between clients.
type fieldNames struct {
	command, env string
	url          []string // the first that is set counts
}

func (f File) names() fieldNames {
	n := fieldNames{command: "command", env: "env", url: []string{"url"}}
	switch f.Client {
	case "opencode":
		n.env = "environment"
	case "goose":
		n.command, n.env, n.url = "cmd", "envs", []string{"uri"}
	case "gemini", "qwen":
		n.url = []string{"httpUrl", "url"}
	case "windsurf":
		n.url = []string{"serverUrl", "url"}
	}
	return n
}

// readSettings reads what is about the use of a server: whether, how long, which tools.
func (f File) readSettings(s *Server, e map[string]any) {
	s.Disabled = e["disabled"] == true || e["enabled"] == false
	unit := time.Second
	switch f.Client {
	case "claude-code", "gemini", "qwen", "opencode", "copilot", "continue":
		unit = time.Millisecond
	}
	s.Timeout = duration(e["timeout"], unit)
	switch f.Client {
	case "codex":
		s.Timeout = duration(e["tool_timeout_sec"], time.Second)
		s.StartupTimeout = max(duration(e["startup_timeout_sec"], time.Second), duration(e["startup_timeout_ms"], time.Millisecond))
		s.EnabledTools, s.DisabledTools = toolList(e["enabled_tools"]), texts(e["disabled_tools"])
		if e["default_tools_approval_mode"] == "approve" {
			s.ApprovedTools = []string{"*"}
		}
		tools, _ := e["tools"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(tools)) {
			if t, _ := tools[name].(map[string]any); t["approval_mode"] == "approve" {
				s.ApprovedTools = append(s.ApprovedTools, name)
			}
		}
	case "gemini", "qwen":
		s.EnabledTools, s.DisabledTools = toolList(e["includeTools"]), texts(e["excludeTools"])
		if e["trust"] == true {
			s.ApprovedTools = []string{"*"}
		}
	case "copilot":
		s.EnabledTools = toolList(e["tools"])
	case "goose":
		s.EnabledTools = toolList(e["available_tools"])
		if len(s.EnabledTools) == 0 {
			s.EnabledTools = nil // an empty list is Goose's way to say all
		}
	case "continue":
		s.StartupTimeout, s.Timeout = duration(e["connectionTimeout"], unit), 0
	case "opencode":
		s.StartupTimeout, s.Timeout = s.Timeout, 0 // of the connection
	case "cline":
		s.ApprovedTools = texts(e["autoApprove"])
	case "cursor", "windsurf":
		s.ApprovedTools, s.DisabledTools = texts(e["alwaysAllow"]), texts(e["disabledTools"])
	}
}

// toolList reads a list that limits tools; nil, or a list with "*", does not.
func toolList(v any) []string {
	if _, ok := v.([]any); !ok {
		return nil
	}
	names := texts(v)
	if contains(names, "*") {
		return nil
	}
	if names == nil {
		names = []string{}
	}
	return names
}

func (f File) vars(v any, in field) []Var {
	m, _ := v.(map[string]any)
	var out []Var
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] == nil {
			continue // VS Code: not set for the child
		}
		out = append(out, Var{name, f.valueOf(text(m[name]), in)})
	}
	return out
}

// text returns a value as text; numbers and booleans as they are written in JSON.
func text(v any) string {
	switch v := v.(type) {
	case nil, map[string]any, []any:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(v)
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func texts(v any) []string {
	var out []string
	for _, e := range list(v) {
		out = append(out, text(e))
	}
	return out
}

func duration(v any, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(text(v), 64)
	if err != nil || n <= 0 || n > 1e9 {
		return 0
	}
	return time.Duration(n * float64(unit))
}

func contains(names []string, name string) bool { return slices.Contains(names, name) }
