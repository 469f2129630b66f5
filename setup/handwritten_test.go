package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// writer draws a file as somebody could have written it by hand: indentation, comments, line ends and order vary.
type writer struct {
	*rapid.T
	comment string // how a line comment begins; "" for none
	isJSONC bool   // with trailing commas
}

func (w writer) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.T, label)
}

// gap is white space, perhaps with a comment.
func (w writer) gap() string {
	gap := w.pick("gap", "", " ", "\n", "\n    ", "\t", "\n\n  ")
	if w.comment != "" && rapid.IntRange(0, 4).Draw(w.T, "comment?") == 0 {
		gap += w.comment + w.pick("comment", " mine", " {\"not\": \"a key\"}", "", " ünïcode ✓", " [mcp_servers.x]") + "\n"
	}
	if w.comment == "//" && rapid.IntRange(0, 8).Draw(w.T, "block?") == 0 {
		gap += w.pick("block", "/* a */", "/* } */", "/*\n*/")
	}
	return gap
}

func (w writer) jsonObject(members ...string) string {
	text := "{"
	for i, m := range members {
		if i > 0 {
			text += w.gap() + ","
		}
		text += w.gap() + m
	}
	if w.isJSONC && len(members) > 0 && rapid.Bool().Draw(w.T, "trailing comma") {
		text += ","
	}
	return text + w.gap() + "}"
}

func (w writer) jsonMember(key, value string) string {
	return fmt.Sprintf("%q%s:%s%s", key, w.gap(), w.gap(), value)
}

// jsonServers is an object of servers under names that people choose.
func (w writer) jsonServers() string {
	var members []string
	for i := range rapid.IntRange(0, 4).Draw(w.T, "servers") {
		name := w.pick("name", "github", "a b", "ctx.x", "Ünï", "ctxgate-old", "x") + fmt.Sprint(i)
		server := w.jsonObject(w.jsonMember("command", `"npx"`), w.jsonMember("args", `["-y",`+w.gap()+`"p`+fmt.Sprint(i)+`"]`))
		switch rapid.IntRange(0, 3).Draw(w.T, "kind") {
		case 0:
			server = w.jsonObject(w.jsonMember("type", `"http"`), w.jsonMember("url", `"https://h.example.com/mcp?key=k3y`+fmt.Sprint(i)+`"`))
		case 1:
			server = w.jsonObject(w.jsonMember("command", `"x"`), w.jsonMember("env", w.jsonObject(w.jsonMember("API_KEY", `"s3cr3t\u00e9-`+fmt.Sprint(i)+`"`), w.jsonMember("N", `"1.0"`))))
		}
		members = append(members, w.jsonMember(name, server))
	}
	return w.jsonObject(members...)
}

func (w writer) jsonFile(key string) string {
	members := []string{w.jsonMember(key, w.jsonServers())}
	for _, other := range []string{"theme", "z", "numStartups"} {
		if rapid.Bool().Draw(w.T, other) {
			members = append(members, w.jsonMember(other, w.pick("value", `"x"`, "1.50", "1e400", `{"a":[1, 2 ,3]}`, "[]", `"\u2028"`)))
		}
	}
	text := w.gap() + w.jsonObject(rapid.Permutation(members).Draw(w.T, "order")...) + w.gap()
	return w.pick("mark", "", "", "\ufeff") + text
}

func (w writer) tomlFile() string {
	var tables []string
	for i := range rapid.IntRange(0, 4).Draw(w.T, "servers") {
		name := w.pick("name", "github", `"a b"`, "x-y", "'q.q'")
		name = strings.TrimSuffix(name, name[len(name)-1:]) + fmt.Sprint(i) + name[len(name)-1:]
		table := w.tomlComment() + "[mcp_servers." + name + "]" + w.tomlEnd() + "command = " + w.pick("command", `"npx"`, "'npx'") + w.tomlEnd() + "args = [" + w.pick("args", `"p"`, "\n  \"p\", # one\n  \"q\",\n") + "]" + w.tomlEnd()
		if rapid.Bool().Draw(w.T, "env") {
			table += "[mcp_servers." + name + ".env]" + w.tomlEnd() + "TOKEN = \"t0ken\"" + w.tomlEnd()
		}
		tables = append(tables, table)
	}
	for _, other := range []string{"tui", "profiles.x", "[many]"} {
		if rapid.Bool().Draw(w.T, other) {
			tables = append(tables, w.tomlComment()+"["+other+"]"+w.tomlEnd()+"a = 1979-05-27T07:32:00Z"+w.tomlEnd())
		}
	}
	return w.tomlComment() + "model = \"x\"" + w.tomlEnd() + strings.Join(rapid.Permutation(tables).Draw(w.T, "order"), w.pick("between", "", "\n", "\n\n"))
}

func (w writer) tomlComment() string {
	return w.pick("above", "", "# about it\n", "\n# apart\n\n", "# [mcp_servers.not]\n")
}
func (w writer) tomlEnd() string { return w.pick("end", "\n", " # mine\n", "\n\n", "\t\n") }

// Whatever people write into the files of their agents: init changes what it says, a second init changes nothing, and undo
// restores every byte.
func TestUndoRestoresHandWrittenFiles(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		strict, comments, jsonc := writer{T: r}, writer{T: r, comment: "//"}, writer{T: r, comment: "//", isJSONC: true}
		files := map[string]string{
			".claude.json":                              strict.jsonFile("mcpServers"),
			".cursor/mcp.json":                          jsonc.jsonFile("mcpServers"),
			".config/Code/User/mcp.json":                jsonc.jsonFile("servers"),
			".gemini/settings.json":                     comments.jsonFile("mcpServers"),
			".config/zed/settings.json":                 jsonc.jsonFile("context_servers"),
			".copilot/mcp-config.json":                  jsonc.jsonFile("mcpServers"),
			".codex/config.toml":                        writer{T: r}.tomlFile(),
			".config/Claude/claude_desktop_config.json": strict.jsonFile("mcpServers"),
		}
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(files))).Draw(r, "files")[3:] {
			delete(files, name)
		}
		if rapid.Bool().Draw(r, "CRLF") {
			for name, text := range files {
				files[name] = strings.ReplaceAll(text, "\n", "\r\n")
			}
		}
		h := newHome(t, files)
		p, err := NewPlan(h.options())
		if err != nil {
			r.Fatal(err)
		}
		for _, f := range p.Files {
			if f.Err != nil {
				r.Errorf("%s: %v in\n%s", f.Path, f.Err, files[strings.TrimPrefix(f.Path, h.dir+"/")])
			}
		}
		if len(p.Edits) == 0 {
			return
		}
		h.apply(p)
		again, err := NewPlan(h.options())
		if err != nil {
			r.Fatal(err)
		}
		for _, e := range again.Edits {
			r.Errorf("a second init writes %s:\n%s\nwas\n%s", e.Path, e.After, e.Before)
		}
		h.undo()
		for name, text := range files {
			if got := h.read(name); got != text {
				r.Errorf("%s is %q, was %q", name, got, text)
			}
		}
	})
}
