package setup

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Several runs are undone one after the other.
func TestUndoOfSeveralRuns(t *testing.T) {
	h := newHome(t, map[string]string{".cursor/mcp.json": fiveClients[".cursor/mcp.json"], ".claude.json": fiveClients[".claude.json"]})
	first := h.snapshot()
	opts := h.options()
	opts.Clients = []string{"cursor"}
	h.apply(h.plan(opts))
	second := h.snapshot()
	opts.Clients = nil
	h.apply(h.plan(opts))
	h.undo()
	if !maps.Equal(h.snapshot(), second) {
		t.Error("the second run was not undone")
	}
	h.undo()
	if !maps.Equal(h.snapshot(), first) {
		t.Errorf("the first run was not undone: %v", h.snapshot())
	}
	if m, err := h.backups().Last(); m != nil || err != nil {
		t.Error("there is more to undo", err)
	}
}

// Files that somebody has changed since are not overwritten: Claude Code's new state stays and gets its servers back, the
// user's edit of the configuration stays, and so do the credentials that it needs.
func TestUndoKeepsWhatWasChangedSince(t *testing.T) {
	h := newHome(t, fiveClients)
	h.apply(h.plan(h.options()))
	claude := strings.Replace(h.read(".claude.json"), `"numStartups": 7`, `"numStartups": 8, "userID": "new"`, 1)
	h.write(".claude.json", claude)
	config := h.read(".config/ctxgate/ctxgate.toml") + "# edited\n"
	h.write(".config/ctxgate/ctxgate.toml", config)
	results := h.undo()
	for _, want := range []string{"reverted .claude.json", "kept .config/ctxgate/ctxgate.toml", "kept .config/ctxgate/secrets/github.GITHUB_TOKEN", "restored .cursor/mcp.json"} {
		if !strings.Contains(results, want) {
			t.Errorf("%q is missing in\n%s", want, results)
		}
	}
	var state struct {
		NumStartups int
		UserID      string
		MCPServers  map[string]any
	}
	if err := json.Unmarshal([]byte(h.read(".claude.json")), &state); err != nil {
		t.Fatal(err)
	}
	if state.NumStartups != 8 || state.UserID != "new" || len(state.MCPServers) != 2 || state.MCPServers["github"] == nil {
		t.Errorf("got %s", h.read(".claude.json"))
	}
	if h.read(".config/ctxgate/ctxgate.toml") != config {
		t.Error("the user's edit is lost")
	}
}

// If one file cannot be written, those before it are put back.
func TestFailedWriteRollsBack(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write everywhere: a file in the way stands for a folder that is read-only")
	}
	h := newHome(t, fiveClients)
	p := h.plan(h.options())
	before := h.snapshot()
	// The last file's folder becomes a file between plan and write.
	p.Edits = append(p.Edits, Edit{Path: filepath.Join(h.dir, ".claude.json", "x"), After: []byte("x"), Mode: 0o600})
	if _, err := h.backups().Apply(p.Edits, p.Time); err == nil {
		t.Fatal("it did not fail")
	}
	if after := h.snapshot(); !maps.Equal(after, before) {
		t.Errorf("it left %v", after)
	}
	if m, err := h.backups().Last(); m != nil || err != nil {
		t.Error("a failed run can be undone", err)
	}
}

// A client that writes its file between the plan and the write is not overwritten.
func TestFileThatChangesMeanwhile(t *testing.T) {
	h := newHome(t, fiveClients)
	p := h.plan(h.options())
	h.write(".cursor/mcp.json", `{"mcpServers": {}}`)
	before := h.snapshot()
	if _, err := h.backups().Apply(p.Edits, p.Time); err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("got %v", err)
	}
	if !maps.Equal(h.snapshot(), before) {
		t.Error("something was written")
	}
}

// A link stays a link, its target keeps its mode; a link that leads nowhere is not followed.
func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making links needs a privilege on Windows")
	}
	h := newHome(t, map[string]string{"dotfiles/cursor.json": fiveClients[".cursor/mcp.json"], ".claude.json": fiveClients[".claude.json"]})
	target := filepath.Join(h.dir, "dotfiles/cursor.json")
	if err := os.Chmod(target, 0o640); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{".cursor/mcp.json": target, ".gemini/settings.json": "/does/not/exist"} {
		path := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	before := h.snapshot()
	opts := h.options()
	opts.Clients = []string{"cursor", "gemini", "claude-code"}
	h.apply(h.plan(opts))
	link, err := os.Lstat(filepath.Join(h.dir, ".cursor/mcp.json"))
	info, err2 := os.Stat(target)
	if err != nil || err2 != nil || link.Mode()&os.ModeSymlink == 0 || info.Mode().Perm() != 0o640 || !strings.Contains(h.read("dotfiles/cursor.json"), "ctxgate") {
		t.Errorf("link %v, target %v: %v %v", link.Mode(), info.Mode(), err, err2)
	}
	if _, err := os.Lstat("/does/not/exist"); err == nil {
		t.Error("a link that led nowhere was followed")
	}
	h.undo()
	if !maps.Equal(h.snapshot(), before) {
		t.Errorf("undo left %v", h.snapshot())
	}
}

// A backup that was changed is not put back.
func TestUndoChecksItsBackup(t *testing.T) {
	h := newHome(t, map[string]string{".cursor/mcp.json": fiveClients[".cursor/mcp.json"]})
	m := h.apply(h.plan(h.options()))
	for _, f := range m.Files {
		if f.Backup != "" {
			if err := os.WriteFile(filepath.Join(m.dir, f.Backup), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := h.undo(); !strings.Contains(got, "failed .cursor/mcp.json") {
		t.Errorf("got %s", got)
	}
	if m, _ := h.backups().Last(); m == nil {
		t.Error("a run that failed to be undone counts as undone")
	}
}

// FuzzUndo writes any text into a client's file: whatever init makes of it, undo restores every byte.
func FuzzUndo(f *testing.F) {
	files := maps.Clone(fiveClients)
	files[".codex/config.toml"] = "# mine\nmodel = \"x\" # y\n\n[mcp_servers.a] # first\ncommand = \"a\"\nenv = { T = \"t\" }\n\n# second\n[mcp_servers.\"b c\"]\nurl = 'http://h/x'\n[tui]\n"
	files[".continue/config.yaml"] = "# mine\nname: x\nmcpServers:\n  # first\n  - name: a\n    command: npx # c\n    args: [\"a\"]\n  - name: b\n    url: http://h/x\n"
	names := slices.Sorted(maps.Keys(files))
	for i, name := range names {
		f.Add(uint8(i), []byte(files[name]))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		name := names[int(which)%len(names)]
		h := newHome(t, map[string]string{name: string(text)})
		p, err := NewPlan(h.options())
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Edits) == 0 {
			return
		}
		h.apply(p)
		if again := h.plan(h.options()); len(again.Edits) > 0 {
			t.Errorf("a second init writes %+v", again.Edits)
		}
		h.undo()
		if got := h.read(name); !bytes.Equal([]byte(got), text) {
			t.Errorf("got %q, was %q", got, text)
		}
	})
}

// Continue makes one list of all its files: ctxgate is in one of them only.
func TestContinueIsConnectedOnce(t *testing.T) {
	h := newHome(t, map[string]string{
		".continue/config.yaml":        "name: x\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: a # one\n    command: a\n",
		".continue/mcpServers/b.yaml":  "name: b\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: b\n    command: b\n  - name: c\n    command: c\n",
		".continue/mcpServers/d.json":  `{"mcpServers": {"d": {"command": "d"}}}`,
		".continue/mcpServers/no.yaml": "name: none\nversion: 1.0.0\nschema: v1\n",
	})
	before := h.snapshot()
	p := h.plan(h.options())
	h.apply(p)
	count := 0
	for name := range before {
		if strings.HasPrefix(name, "/.continue/") && strings.Contains(before[name], "mcpServers") {
			count += strings.Count(h.read(name), "--client")
		}
	}
	if count != 1 || len(p.Servers) != 4 {
		t.Errorf("%d entries, %d servers", count, len(p.Servers))
	}
	if again := h.plan(h.options()); len(again.Edits) > 0 {
		t.Errorf("a second init writes %d files", len(again.Edits))
	}
	h.write(".continue/config.yaml", h.read(".continue/config.yaml")+"\n")
	h.write(".continue/mcpServers/e.json", `{"mcpServers": {"e": {"command": "e"}}}`)
	h.apply(h.plan(h.options()))
	if got := h.read(".continue/mcpServers/e.json"); strings.Contains(got, "ctxgate") || strings.Contains(got, `"command"`) {
		t.Errorf("got %s", got)
	}
}

// A client that passes only some variables on gets those of servers that move later, from other clients, too.
func TestConnectedClientsGetNewVariables(t *testing.T) {
	h := newHome(t, map[string]string{".codex/config.toml": "[mcp_servers.a] # mine\ncommand = \"a\"\nenv_vars = [\"A\"]\n"})
	first := h.snapshot()
	h.apply(h.plan(h.options()))
	second := h.snapshot()
	h.write(".claude.json", `{"mcpServers": {"b": {"type": "stdio", "command": "b", "env": {"T": "${B}"}}}}`)
	h.apply(h.plan(h.options()))
	if got := h.read(".codex/config.toml"); !strings.Contains(got, `["A", "B"]`) {
		t.Errorf("got %s", got)
	}
	if again := h.plan(h.options()); len(again.Edits) > 0 {
		t.Errorf("a third init writes %s", again.Edits[0].After)
	}
	h.undo()
	if err := os.Remove(filepath.Join(h.dir, ".claude.json")); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(h.snapshot(), second) {
		t.Errorf("the second run was not undone: %v", h.snapshot())
	}
	h.undo()
	if !maps.Equal(h.snapshot(), first) {
		t.Errorf("the first run was not undone: %v", h.snapshot())
	}
}

// A client's file that init made, and the client has written since, loses only ctxgate.
func TestUndoOfAFileThatTheClientHasWritten(t *testing.T) {
	h := newHome(t, nil)
	opts := h.options()
	opts.Clients = []string{"zed"}
	h.apply(h.plan(opts))
	const name = ".config/zed/settings.json"
	h.write(name, strings.Replace(h.read(name), "{", `{"theme": "dark",`, 1))
	if got := h.undo(); !strings.Contains(got, "reverted "+name) {
		t.Errorf("got %s", got)
	}
	if got := h.read(name); !strings.Contains(got, "dark") || strings.Contains(got, "ctxgate") {
		t.Errorf("got %s", got)
	}
}

// The backups of a run that was undone are removed: they hold credentials. Those of others are bounded in number.
func TestBackupsAreBounded(t *testing.T) {
	h := newHome(t, map[string]string{".cursor/mcp.json": fiveClients[".cursor/mcp.json"]})
	h.apply(h.plan(h.options()))
	h.undo()
	if entries, _ := os.ReadDir(h.backups().Dir); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
	for i := range maxRuns + 3 {
		path := filepath.Join(h.dir, "x")
		before, err := ReadExisting(path)
		if err != nil {
			t.Fatal(err)
		}
		edit := Edit{Path: path, Before: before, After: []byte(strings.Repeat("x", i)), Mode: 0o600}
		if _, err := h.backups().Apply([]Edit{edit}, time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(h.backups().Dir)
	if err != nil || len(entries) != maxRuns || entries[0].Name() != "19700101T000003Z" {
		t.Errorf("%d runs are kept, the first is %v: %v", len(entries), entries[0], err)
	}
}
