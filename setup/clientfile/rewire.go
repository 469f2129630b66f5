package clientfile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Rewire returns a file's text with the entry in place of the servers that move. The entry is added behind the
// servers that stay; one of the same name is replaced. The moved entries go with the comments that belong to
// them (Server.Comment); every other byte stays. An empty text becomes a new file.
func (f File) Rewire(data []byte, entry Entry, move []Move) (Rewired, error) {
	if reason := f.ReadOnly(); reason != "" {
		return Rewired{}, fmt.Errorf("%s: %s", f.Path, reason)
	}
	if f.Client == "continue" && f.form().isList && len(bytes.TrimSpace(data)) == 0 {
		data = []byte("name: Local Config\nversion: 1.0.0\nschema: v1\n") // it reads no file without these
	}
	doc, err := f.document(data)
	if err != nil {
		return Rewired{}, err
	}
	w := rewiring{File: f, doc: doc, entry: entry, move: move}
	at := f.places(doc)[0].path
	if entry.Name != "" { // else another file of the client has it
		if err := w.setEntry(at); err != nil {
			return Rewired{}, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	// From the last to the first: an index of a list counts until something before it goes.
	for _, m := range slices.Backward(slices.Clone(move)) {
		if m.Server.Name == entry.Name && slices.Equal(m.Server.path[:len(m.Server.path)-1], at) && !f.form().isList {
			continue // replaced by the entry
		}
		if err := doc.Delete(m.Server.path...); err != nil {
			return Rewired{}, fmt.Errorf("%s: %s: %w", f.Path, m.Server.Name, err)
		}
	}
	if err := w.renameInLists(); err != nil {
		return Rewired{}, fmt.Errorf("%s: %w", f.Path, err)
	}
	return Rewired{Data: doc.Bytes(), Notes: w.notes}, nil
}

// rewiring is one run of Rewire.
type rewiring struct {
	File
	doc   document
	entry Entry
	move  []Move
	notes []string
}

// setEntry writes the entry for ctxgate into the map or list at a path.
func (w *rewiring) setEntry(at []string) error {
	key := w.entry.Name
	if w.form().isList {
		keys, err := w.doc.Keys(at...)
		if err != nil {
			return err
		}
		key = strconv.Itoa(len(keys))
		for _, k := range keys {
			if v, _, _ := w.doc.Value(append(slices.Clone(at), k)...); v != nil {
				if fields, _ := v.(map[string]any); text(fields["name"]) == w.entry.Name {
					key = k
				}
			}
		}
		if len(keys) == 0 {
			return w.doc.Set([]any{w.object()}, at...)
		}
	}
	path := append(slices.Clone(at), key)
	object := w.object()
	if former, _, _ := w.doc.Value(path...); former != nil {
		if fields, ok := former.(map[string]any); ok && w.server(key, fields).Gateway {
			object = withFormer(object, fields)
		}
	}
	return w.doc.Set(object, path...)
}

// withFormer adds what an earlier entry for ctxgate has and the new one has not: approvals and variables of servers that
// moved before, a longer time limit, what the user has added.
func withFormer(object textedit.Object, former map[string]any) textedit.Object {
	isNew := map[string]bool{}
	for i, m := range object {
		isNew[m.Key] = true
		old, ok := former[m.Key]
		if !ok {
			continue
		}
		inner, isMap := old.(map[string]any)
		switch value := m.Value.(type) {
		case textedit.Object:
			if isMap {
				object[i].Value = withFormer(value, inner)
			}
		case []string:
			if slices.Contains([]string{"autoApprove", "alwaysAllow", "env_vars"}, m.Key) {
				all := append(texts(old), value...)
				slices.Sort(all)
				object[i].Value = slices.Compact(all)
			}
		case int64:
			if n, err := strconv.ParseInt(text(old), 10, 64); err == nil {
				object[i].Value = max(n, value)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(former)) {
		if !isNew[key] {
			object = append(object, textedit.Member{Key: key, Value: former[key]})
		}
	}
	return object
}

// fields collects the members of an entry.
type fields struct{ textedit.Object }

func (o *fields) add(key string, value any) {
	o.Object = append(o.Object, textedit.Member{Key: key, Value: value})
}

// object returns the entry in the client's form.
func (w *rewiring) object() textedit.Object {
	o := &fields{}
	e, env := w.entry, w.env()
	addProgram := func(o *fields) {
		o.add("command", e.Command)
		o.add("args", e.Args)
		if len(env) > 0 {
			o.add("env", env)
		}
	}
	switch w.Client {
	case "claude-code", "vscode":
		o.add("type", "stdio")
		addProgram(o)
	case "cline":
		if w.isNested() {
			inner := &fields{}
			inner.add("type", "stdio")
			addProgram(inner)
			o.add("transport", inner.Object)
		} else {
			addProgram(o)
		}
		if names := w.approved(); len(names) > 0 {
			o.add("autoApprove", names)
		}
	case "cursor", "windsurf":
		addProgram(o)
		if names := w.approved(); len(names) > 0 {
			o.add("alwaysAllow", names)
		}
	case "continue":
		if w.form().isList {
			o.add("name", e.Name)
		}
		addProgram(o)
	case "codex":
		addProgram(o)
		if len(e.PassEnv) > 0 {
			o.add("env_vars", e.PassEnv)
		}
		w.addCodexSettings(o)
	case "gemini", "qwen":
		addProgram(o)
		w.noteTrust()
	case "opencode":
		o.add("type", "local")
		o.add("command", append([]string{e.Command}, e.Args...))
		if len(env) > 0 {
			o.add("environment", env)
		}
		o.add("enabled", true)
	case "zed":
		if w.anyHas("source") {
			o.add("source", "custom")
		}
		addProgram(o)
	case "copilot":
		o.add("type", "local")
		addProgram(o)
		o.add("tools", []string{"*"})
	case "goose":
		o.add("enabled", true)
		o.add("type", "stdio")
		o.add("name", e.Name)
		o.add("description", "MCP servers behind ctxgate")
		o.add("cmd", e.Command)
		o.add("args", e.Args)
		o.add("envs", env)
		o.add("timeout", int64(max(w.longestTimeout(), 5*time.Minute)/time.Second))
	default:
		addProgram(o)
	}
	if key, unit, usual := w.timeoutKey(); key != "" {
		if longest := w.longestTimeout(); longest > usual {
			o.add(key, int64(longest/unit))
		}
	}
	return o.Object
}

// env returns the variables of the entry, with those that the client does not pass on by itself.
func (w *rewiring) env() textedit.Object {
	env := textedit.Object{}
	for _, v := range w.entry.Env {
		env = append(env, textedit.Member{Key: v.Name, Value: v.Value})
	}
	pattern := ""
	switch w.Client {
	case "cursor", "vscode", "windsurf":
		pattern = "${env:%s}"
	case "gemini": // it keeps variables from the child whose names look secret, unless they are listed
		pattern = "$%s"
	case "claude-desktop", "zed", "goose", "continue":
		if len(w.entry.PassEnv) > 0 {
			w.notes = append(w.notes, fmt.Sprintf("it may start ctxgate without your shell's environment, and %s may be missing there; a file: reference always works", strings.Join(w.entry.PassEnv, ", ")))
		}
	}
	if pattern != "" {
		for _, name := range w.entry.PassEnv {
			env = append(env, textedit.Member{Key: name, Value: fmt.Sprintf(pattern, name)})
		}
	}
	return env
}

// isNested says that Cline's file has the newer form, with the program under "transport".
func (w *rewiring) isNested() bool { return w.anyHas("transport") }

// anyHas says that an entry of the file has a field.
func (w *rewiring) anyHas(name string) bool {
	at := w.places(w.doc)[0].path
	keys, _ := w.doc.Keys(at...)
	for _, key := range keys {
		v, _, _ := w.doc.Value(append(slices.Clone(at), key)...)
		if m, _ := v.(map[string]any); m[name] != nil {
			return true
		}
	}
	return false
}

// approved returns the tools that need no question, under the names that they have in ctxgate.
func (w *rewiring) approved() []string {
	var names []string
	for _, m := range w.move {
		for _, tool := range m.Server.ApprovedTools {
			if tool != "*" {
				names = append(names, m.id()+separator+tool)
			}
		}
	}
	return names
}

// noteTrust says that the client asks again. A server whose tools were all approved does not approve those of ctxgate:
// behind it are the servers of other clients, too.
func (w *rewiring) noteTrust() {
	var names []string
	for _, m := range w.move {
		if contains(m.Server.ApprovedTools, "*") {
			names = append(names, m.Server.Name)
		}
	}
	if len(names) > 0 {
		w.notes = append(w.notes, fmt.Sprintf("it asks again before it uses tools of %s: that trust would now hold for every server behind ctxgate", strings.Join(names, ", ")))
	}
}

// timeoutKey returns the field for the time limit of a call, its unit and the client's default. The limit is
// only raised: through ctxgate it holds for all servers.
func (w *rewiring) timeoutKey() (key string, unit, usual time.Duration) {
	switch w.Client {
	case "gemini", "qwen":
		return "timeout", time.Millisecond, 10 * time.Minute
	case "copilot":
		return "timeout", time.Millisecond, time.Minute
	case "cline", "zed":
		return "timeout", time.Second, time.Minute
	case "codex":
		return "tool_timeout_sec", time.Second, 5 * time.Minute
	}
	return "", 0, 0 // Claude Code waits for hours; Goose's is always written
}

// longestTimeout returns the longest time limit of the servers that move.
func (w *rewiring) longestTimeout() time.Duration {
	var longest time.Duration
	for _, m := range w.move {
		longest = max(longest, m.Server.Timeout)
	}
	return longest
}
