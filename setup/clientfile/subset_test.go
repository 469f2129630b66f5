package clientfile

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"
)

// Whichever servers move, the others stay as they were, and taking the edit back restores all.
func TestAnySubsetOfServersMoves(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	rapid.Check(t, func(t *rapid.T) {
		archive, err := txtar.ParseFile(rapid.SampledFrom(files).Draw(t, "file"))
		if err != nil {
			t.Fatal(err)
		}
		head := header(string(archive.Comment))
		file := At(testEnv("/home/ann"), head["client"], head["path"], Scope(head["scope"]))
		if file.ReadOnly() != "" {
			return
		}
		in := fixtureBytes(section(archive, "in"), head)
		content, err := file.Read(in)
		if err != nil {
			t.Fatal(err)
		}
		var move []Move
		var stay []Server
		for _, s := range content.Servers {
			if rapid.Bool().Draw(t, s.Name) {
				move = append(move, Move{Server: s, ID: "id-" + s.Name})
			} else {
				stay = append(stay, s)
			}
		}
		out, err := file.Rewire(in, Entry{Name: "ctxgate", Command: `C:\bin\ctxgate.exe`, Args: []string{"stdio", "a: b # c", ""}, Env: []EnvVar{{"K", "v\"'"}}}, move)
		if err != nil {
			t.Fatal(err)
		}
		after, err := file.Read(out.Data)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.Data)
		}
		var rest []Server
		for _, s := range after.Servers {
			if !s.Gateway {
				rest = append(rest, s)
				continue
			}
			if s.Command.Text != `C:\bin\ctxgate.exe` || len(s.Args) != 3 || s.Args[1].Text != "a: b # c" || len(s.Env) == 0 || s.Env[0].Value.Text != "v\"'" {
				t.Errorf("the entry reads as %+v in\n%s", s, out.Data)
			}
		}
		if g, w := sortedDump(withoutSwitches(rest)), sortedDump(withoutSwitches(stay)); g != w {
			t.Errorf("moved %d; left are\n%s\nwant\n%s\nin\n%s", len(move), g, w, out.Data)
		}
		for line := range strings.Lines(string(in)) {
			// Comments on lines of their own that belong to no server.
			text := strings.TrimSpace(line)
			if isComment := strings.HasPrefix(text, "//") || strings.HasPrefix(text, "#"); isComment && !ofServers(content.Servers, text) && !strings.Contains(string(out.Data), text) {
				t.Errorf("the comment %q is gone", text)
			}
		}
		back, left, err := file.Revert(in, out.Data, out.Data)
		if err != nil || len(left) > 0 {
			t.Fatal(err, left)
		}
		restored, err := file.Read(back)
		if err != nil {
			t.Fatal(err)
		}
		if g, w := sortedDump(restored.Servers), sortedDump(content.Servers); g != w {
			t.Errorf("taken back:\n%s\nwant\n%s\nin\n%s", g, w, back)
		}
	})
}

// withoutSwitches leaves out what a list elsewhere in the file says about a server: the list changes with those that move.
func withoutSwitches(servers []Server) []Server {
	var out []Server
	for _, s := range servers {
		s.Disabled = false
		out = append(out, s)
	}
	return out
}

func ofServers(servers []Server, comment string) bool {
	for _, s := range servers {
		if strings.Contains(s.Comment, strings.TrimLeft(comment, "/# ")) {
			return true
		}
	}
	return false
}
