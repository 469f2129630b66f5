package clientfile

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/internal/jsonedit"
)

// maxRuleProjects bounds the projects of Claude Code whose rules are looked at.
const maxRuleProjects = 1000

// FindRules lists the files in which clients keep rules for tools (allow, deny, ask) apart from their servers. A server
// that moves changes the names of its tools: an old rule would no longer protect anything. Personal files in the
// projects that Claude Code knows count as files of the user.
func FindRules(env Env) []File {
	l := locator{env: env}
	dir := l.override("CLAUDE_CONFIG_DIR", l.home(".claude"))
	l.add("claude-code", User, filepath.Join(dir, "settings.json"))
	for _, project := range l.claudeProjects() {
		l.add("claude-code", User, filepath.Join(project, ".claude", "settings.local.json"))
	}
	l.add("cursor", User, l.home(".cursor", "permissions.json"), l.home(".cursor", "cli-config.json"))
	for _, dir := range projectDirs(env) {
		l.add("claude-code", User, filepath.Join(dir, ".claude", "settings.local.json"))
		l.add("claude-code", Project, filepath.Join(dir, ".claude", "settings.json"))
		l.add("cursor", Project, filepath.Join(dir, ".cursor", "permissions.json"), filepath.Join(dir, ".cursor", "cli.json"))
	}
	return l.existing()
}

// claudeProjects returns the directories in which Claude Code has run.
func (l *locator) claudeProjects() []string {
	state := locator{env: l.env}
	state.addUser("claude-code")
	for _, f := range state.files {
		data, err := readFile(f.Path)
		if err != nil {
			continue
		}
		doc, err := jsonedit.Parse(data, strictJSON)
		if err != nil {
			continue
		}
		dirs, _ := doc.Keys("projects")
		return dirs[:min(len(dirs), maxRuleProjects)]
	}
	return nil
}

// isRules says that a file has rules for tools and no servers.
func (f File) isRules() bool {
	switch name := filepath.Base(f.Path); f.Client {
	case "claude-code":
		return strings.HasPrefix(name, "settings")
	case "cursor":
		return name != "mcp.json"
	}
	return false
}

// RenameRules returns the text of a file of FindRules with the rules for servers that move under their new names; the
// same text if it has none.
func (f File) RenameRules(data []byte, gateway string, move []Move) ([]byte, error) {
	doc, err := jsonedit.Parse(data, jsonc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	lists := [][]string{{"permissions", "allow"}, {"permissions", "deny"}, {"permissions", "ask"}}
	if f.Client == "cursor" {
		lists = append(lists, []string{"mcpAllowlist"})
	}
	for _, at := range lists {
		if err := renameRuleList(doc, f.Client, at, gateway, move); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	events, _ := doc.Keys("hooks")
	for _, event := range events {
		hooks, _ := doc.Keys("hooks", event)
		for _, i := range hooks {
			at := []string{"hooks", event, i, "matcher"}
			value, _, _ := doc.Value(at...)
			old, _ := value.(string)
			if next := renameMatcher(old, gateway, move); next != old {
				if err := doc.Set(next, at...); err != nil {
					return nil, fmt.Errorf("%s: %w", f.Path, err)
				}
			}
		}
	}
	return doc.Bytes(), nil
}

// renameRuleList renames the rules in a list of texts.
func renameRuleList(doc document, client string, at []string, gateway string, move []Move) error {
	value, _, err := doc.Value(at...)
	if err != nil {
		return err
	}
	for i, rule := range texts(value) {
		if next, ok := renamedRule(client, rule, gateway, move); ok {
			if err := doc.Set(next, append(slices.Clone(at), strconv.Itoa(i))...); err != nil {
				return err
			}
		}
	}
	return nil
}

// renamedRule returns a rule for a tool of a server that moves, under its new name.
func renamedRule(client, rule, gateway string, move []Move) (string, bool) {
	for _, m := range move {
		for _, server := range slices.Compact([]string{m.Server.Name, claudeName(m.Server.Name)}) {
			switch client {
			case "claude-code": // mcp__server, mcp__server__*, mcp__server__tool
				rest, ok := strings.CutPrefix(rule, "mcp__"+server)
				tool, hasTool := strings.CutPrefix(rest, "__")
				switch {
				case ok && rest == "":
					tool = "*"
				case !ok || !hasTool:
					continue
				}
				return "mcp__" + gateway + "__" + claudeName(m.id()) + separator + tool, true
			case "cursor": // Mcp(server:tool) of the command line, server:tool of the editor
				inner, isCall := strings.CutPrefix(rule, "Mcp(")
				rest, ok := strings.CutPrefix(inner, server)
				for _, colon := range []string{":", ", ", ","} {
					if tool, isTool := strings.CutPrefix(rest, colon); ok && isTool {
						next := gateway + colon + m.id() + separator + tool
						if isCall {
							next = "Mcp(" + next
						}
						return next, true
					}
				}
			}
		}
	}
	return "", false
}

// renameMatcher renames tools in the pattern of a hook.
func renameMatcher(pattern, gateway string, move []Move) string {
	for _, m := range move {
		if m.Server.Name == gateway {
			continue
		}
		pattern = strings.ReplaceAll(pattern, "mcp__"+claudeName(m.Server.Name)+"__", "mcp__"+gateway+"__"+claudeName(m.id())+separator)
	}
	return pattern
}

// claudeName is how Claude Code writes a name within that of a tool.
func claudeName(name string) string { return opencodeName(name) }
