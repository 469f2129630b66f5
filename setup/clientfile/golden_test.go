package clientfile

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each file of testdata is a client's file, hand-written: what is read of it, and what Rewire makes of it when
// every server that can be moved moves. The header says which client and path, and "eol: crlf" or "bom: yes".
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	if len(files) == 0 {
		t.Fatal("no goldens")
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			head := header(string(archive.Comment))
			file := At(testEnv("/home/ann"), head["client"], head["path"], Scope(head["scope"]))
			in := fixtureBytes(section(archive, "in"), head)
			content, err := file.Read(in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, archive, "servers", []byte(dump(content.Servers)))
			if file.ReadOnly() != "" {
				if _, err := file.Rewire(in, Entry{Name: "ctxgate"}, nil); err == nil {
					t.Error("was rewired")
				}
				if *update {
					_ = os.WriteFile(name, txtar.Format(archive), 0o644)
				}
				return
			}
			var move []Move
			for _, s := range content.Servers {
				if s.Keep == "" {
					move = append(move, Move{Server: s})
				}
			}
			entry := Entry{
				Name: "ctxgate", Command: "/home/ann/bin/ctxgate",
				Args:    []string{"stdio", "--client", file.Client, "--config", "/home/ann/.config/ctxgate/ctxgate.toml"},
				PassEnv: []string{"GITHUB_TOKEN"},
			}
			out, err := file.Rewire(in, entry, move)
			if err != nil {
				t.Fatal(err)
			}
			if head["eol"] == "crlf" {
				if bytes.Count(out.Data, []byte("\r\n")) != bytes.Count(out.Data, []byte("\n")) {
					t.Error("line endings are mixed")
				}
				out.Data = bytes.ReplaceAll(out.Data, []byte("\r\n"), []byte("\n"))
			}
			if head["bom"] == "yes" {
				var had bool
				if out.Data, had = bytes.CutPrefix(out.Data, []byte("\xef\xbb\xbf")); !had {
					t.Error("the byte order mark is gone")
				}
			}
			checkRevert(t, file, in, fixtureBytes(out.Data, head))
			compare(t, archive, "out", out.Data)
			if len(out.Notes) > 0 || section(archive, "notes") != nil {
				compare(t, archive, "notes", []byte(strings.Join(out.Notes, "\n")+"\n"))
			}
			// A second run finds its own entry and changes nothing more.
			again, err := file.Read(fixtureBytes(out.Data, head))
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, s := range again.Servers {
				if s.Gateway && s.Project == "" {
					found++
				} else if s.Keep == "" {
					t.Errorf("%s is still there", s.Name)
				}
			}
			if found != 1 {
				t.Errorf("the file has %d entries for ctxgate, want 1", found)
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// checkRevert takes the edit back in a file that has a new setting since: all servers are there again, as they were
// written, and the setting stays.
func checkRevert(t *testing.T, file File, before, after []byte) {
	t.Helper()
	doc, err := file.document(after)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Set("since", "zz_new"); err != nil {
		t.Fatal(err)
	}
	now, left, err := file.Revert(before, after, doc.Bytes())
	if err != nil || len(left) > 0 {
		t.Fatalf("revert: %v %v", err, left)
	}
	if !bytes.Contains(now, []byte("zz_new")) {
		t.Errorf("the new setting is gone:\n%s", now)
	}
	want, _ := file.Read(before)
	got, err := file.Read(now)
	if err != nil {
		t.Fatal(err)
	}
	if w, g := sortedDump(want.Servers), sortedDump(got.Servers); w != g {
		t.Errorf("reverted to\n%s\ngot\n%s\nwant\n%s", now, g, w)
	}
}

// sortedDump shows servers by name, without their lines.
func sortedDump(servers []Server) string {
	servers = slices.Clone(servers)
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.Project+a.Name, b.Project+b.Name) })
	for i := range servers {
		servers[i].Line = 0
	}
	return dump(servers)
}

func testEnv(home string) Env {
	return Env{GOOS: "linux", Home: home, Lookup: func(string) (string, bool) { return "", false }}
}

func header(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.Contains(key, " ") {
			m[key] = value
		}
	}
	return m
}

func fixtureBytes(data []byte, head map[string]string) []byte {
	data = bytes.Clone(data)
	if head["eol"] == "crlf" {
		data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
	}
	if head["bom"] == "yes" {
		data = append([]byte("\xef\xbb\xbf"), data...)
	}
	return data
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func compare(t *testing.T, a *txtar.Archive, name string, got []byte) {
	t.Helper()
	if *update {
		for i := range a.Files {
			if a.Files[i].Name == name {
				a.Files[i].Data = got
				return
			}
		}
		a.Files = append(a.Files, txtar.File{Name: name, Data: got})
		return
	}
	if want := section(a, name); !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// dump shows servers, one field a line.
func dump(servers []Server) string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "  %-9s %v\n", name, value) }
	for _, s := range servers {
		fmt.Fprintf(&b, "%s (line %d)\n", s.Name, s.Line)
		if s.Project != "" {
			line("project", s.Project)
		}
		if s.Comment != "" {
			line("comment", fmt.Sprintf("%q", s.Comment))
		}
		if s.Transport == Stdio {
			line("command", show(s.Command))
			for _, a := range s.Args {
				line("arg", show(a))
			}
		} else if s.Transport != "" {
			kind := string(s.Transport)
			if s.TransportGuess {
				kind += "?"
			}
			line(kind, show(s.URL))
		}
		for _, v := range s.Env {
			line("env", v.Name+" = "+show(v.Value))
		}
		for _, v := range s.Headers {
			line("header", v.Name+": "+show(v.Value))
		}
		for name, v := range map[string]Value{"cwd": s.Cwd} {
			if v.Text != "" {
				line(name, show(v))
			}
		}
		if s.EnvFile.Text != "" {
			line("env file", show(s.EnvFile))
		}
		for name, list := range map[string][]string{"passes": s.PassEnv} {
			if len(list) > 0 {
				line(name, list)
			}
		}
		if s.EnabledTools != nil {
			line("only", s.EnabledTools)
		}
		if s.DisabledTools != nil {
			line("except", s.DisabledTools)
		}
		if s.ApprovedTools != nil {
			line("approved", s.ApprovedTools)
		}
		if s.Timeout > 0 {
			line("timeout", s.Timeout)
		}
		if s.StartupTimeout > 0 {
			line("startup", s.StartupTimeout)
		}
		if s.Disabled {
			line("disabled", true)
		}
		if s.Keep != "" {
			line("keep", s.Keep)
		}
		for _, n := range s.Notes {
			line("note", n)
		}
	}
	return b.String()
}

func show(v Value) string {
	var b strings.Builder
	for _, p := range v.Parts {
		switch {
		case p.Kind == Literal:
			b.WriteString(p.Text)
		case p.Default != "":
			fmt.Fprintf(&b, "<%s %s or %s>", p.Kind, p.Name, p.Default)
		default:
			fmt.Fprintf(&b, "<%s %s>", p.Kind, p.Name)
		}
	}
	return b.String()
}
