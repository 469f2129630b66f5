package clientfile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/internal/jsonedit"
	"github.com/ctxgate/ctxgate/internal/textedit"
)

// addCodexSettings carries the approvals of tools over, and a longer time to start.
func (w *rewiring) addCodexSettings(o *fields) {
	w.noteTrust()
	tools := textedit.Object{}
	for _, name := range w.approved() {
		tools = append(tools, textedit.Member{Key: name, Value: textedit.Object{{Key: "approval_mode", Value: "approve"}}})
	}
	if len(tools) > 0 {
		o.add("tools", tools)
	}
}

// renameInLists renames servers and their tools in the file's other settings.
func (w *rewiring) renameInLists() error {
	switch w.Client {
	case "gemini", "qwen":
		return w.renameAllowedServers()
	case "claude-code":
		return w.renameAllowedTools()
	case "zed":
		return w.renameZedTools()
	case "opencode":
		if doc, ok := w.doc.(*jsonedit.Doc); ok {
			return w.renameOpencodeTools(doc)
		}
	}
	return nil
}

// renameAllowedServers puts ctxgate on the list of allowed servers, if there is one: a server that is not on it is
// not started. The names that moved go from both lists.
func (w *rewiring) renameAllowedServers() error {
	for _, key := range []string{"allowed", "excluded"} {
		value, _, err := w.doc.Value("mcp", key)
		if err != nil {
			return err
		}
		names := texts(value)
		isMissing := key == "allowed" && len(names) > 0 && !contains(names, w.entry.Name)
		for i := len(names) - 1; i >= 0; i-- {
			if !w.moves(names[i]) {
				continue
			}
			path := []string{"mcp", key, strconv.Itoa(i)}
			if isMissing {
				isMissing = false
				err = w.doc.Set(w.entry.Name, path...)
			} else {
				err = w.doc.Delete(path...)
			}
			if err != nil {
				return err
			}
		}
		if isMissing {
			if err := w.doc.Set(w.entry.Name, "mcp", key, strconv.Itoa(len(names))); err != nil {
				return err
			}
		}
	}
	return nil
}

// moves says that a server of this name goes.
func (w *rewiring) moves(name string) bool {
	return name != w.entry.Name && slices.ContainsFunc(w.move, func(m Move) bool { return m.Server.Name == name })
}

// renameOpencodeTools renames the patterns for tools of the servers that move (github_*) to those for their new names
// (ctxgate_github__*), wherever opencode has such patterns.
func (w *rewiring) renameOpencodeTools(doc *jsonedit.Doc) error {
	places := [][]string{{"tools"}, {"permission"}}
	for _, kind := range []string{"agent", "mode"} {
		agents, _ := doc.Keys(kind)
		for _, name := range agents {
			places = append(places, []string{kind, name, "tools"}, []string{kind, name, "permission"})
		}
	}
	for _, at := range places {
		if value, _, _ := doc.Value(at...); value == nil {
			continue
		}
		keys, err := doc.Keys(at...)
		if err != nil {
			continue // a single word, such as "ask", for all tools
		}
		for _, key := range keys {
			for _, m := range w.move {
				tool, ok := strings.CutPrefix(key, opencodeName(m.Server.Name)+"_")
				if !ok {
					continue
				}
				next := opencodeName(w.entry.Name) + "_" + opencodeName(m.id()) + separator + tool
				if err := doc.Rename(next, append(slices.Clone(at), key)...); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// renameAllowedTools renames the tools that Claude Code may use in a project, where its state lists them.
func (w *rewiring) renameAllowedTools() error {
	projects, _ := w.doc.Keys("projects")
	for _, dir := range projects {
		if err := renameRuleList(w.doc, w.Client, []string{"projects", dir, "allowedTools"}, w.entry.Name, w.move); err != nil {
			return err
		}
	}
	return nil
}

// renameZedTools renames the tools of servers that move in Zed's permissions, and in the choices of its profiles.
func (w *rewiring) renameZedTools() error {
	doc, ok := w.doc.(*jsonedit.Doc)
	if !ok {
		return nil
	}
	rules := []string{"agent", "tool_permissions", "tools"}
	keys, _ := doc.Keys(rules...)
	for _, key := range keys {
		for _, m := range w.move {
			if tool, ok := strings.CutPrefix(key, "mcp:"+m.Server.Name+":"); ok {
				if err := doc.Rename("mcp:"+w.entry.Name+":"+m.id()+separator+tool, append(slices.Clone(rules), key)...); err != nil {
					return err
				}
			}
		}
	}
	profiles, _ := doc.Keys("agent", "profiles")
	for _, profile := range profiles {
		servers := []string{"agent", "profiles", profile, "context_servers"}
		for _, m := range w.move {
			at := append(slices.Clone(servers), m.Server.Name, "tools")
			tools, _ := doc.Keys(at...)
			for _, tool := range tools {
				value, _, err := doc.Value(append(slices.Clone(at), tool)...)
				if err == nil {
					err = doc.Set(value, append(slices.Clone(servers), w.entry.Name, "tools", m.id()+separator+tool)...)
				}
				if err != nil {
					return err
				}
			}
			if w.moves(m.Server.Name) {
				if err := doc.Delete(append(slices.Clone(servers), m.Server.Name)...); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// opencodeName is how opencode writes a server's name before its tools.
func opencodeName(server string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, server)
}
