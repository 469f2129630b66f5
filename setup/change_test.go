package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/config"
)

// addTo writes a configuration, adds a server, and returns the file's text.
func addTo(t *testing.T, name, text string, add Addition) (string, *Change, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if text != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Add(path, Place{Secrets: filepath.Join(dir, "secrets")}, add)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := config.LoadBytes(path, got, nil); len(problems) > 0 {
		t.Fatalf("%v in\n%s", problems, got)
	}
	return path, c, string(got)
}

// A server is added to files of every format and removed again; every other byte stays.
func TestAddAndRemove(t *testing.T) {
	add := Addition{Name: "gh", Command: []string{"npx", "gh"}, Env: []Pair{{"GITHUB_TOKEN", "ghp_0123456789abcdefghij0123456789abcdef"}, {"A", "env:B"}}}
	for name, text := range map[string]string{
		"a.toml": "# mine\n[[servers]] # one\nid = \"a\"\nurl = \"http://h/x\"\n\n[masking]\nmax_chars = 9000 # end\n",
		"b.toml": "servers = [ { id = \"a\", url = \"http://h/x\" } ] # inline\n",
		"c.toml": "# nothing yet\n",
		"a.json": "{\n  \"servers\": [\n    {\"id\": \"a\", \"url\": \"http://h/x\"}\n  ],\n  \"log_level\": \"INFO\"\n}\n",
		"b.json": "{}\n",
		"a.yaml": "# mine\nservers:\n  - id: a # one\n    url: http://h/x\nlog_level: INFO\n",
	} {
		t.Run(name, func(t *testing.T) {
			path, c, got := addTo(t, name, text, add)
			if !strings.Contains(got, "gh") || strings.Contains(got, "ghp_") || len(c.Secrets) != 1 {
				t.Errorf("got\n%s", got)
			}
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); strings.Contains(line, "#") && !strings.Contains(got, line[strings.Index(line, "#"):]) {
					t.Errorf("%q is missing in\n%s", line, got)
				}
			}
			info, err := os.Stat(c.Secrets[0])
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the credential's file: %v %v", info, err)
			}
			loaded, _ := config.LoadBytes(path, []byte(got), nil)
			last := loaded.Upstream.Servers[len(loaded.Upstream.Servers)-1]
			if v, err := last.Env["GITHUB_TOKEN"].Resolve(nil); err != nil || v.Reveal() != add.Env[0].Value || last.Env["A"].Source() != "env:B" {
				t.Errorf("got %q, %v", v.Reveal(), err)
			}

			if _, err := Add(path, Place{}, Addition{Name: "gh", Command: []string{"x"}}); err == nil || !strings.Contains(err.Error(), "already") {
				t.Errorf("a second one: %v", err)
			}
			r, err := Remove(path, Place{Secrets: filepath.Dir(c.Secrets[0])}, "gh")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Write(); err != nil {
				t.Fatal(err)
			}
			data, _ := os.ReadFile(path)
			if strings.TrimSpace(string(data)) != strings.TrimSpace(text) && name != "b.json" {
				t.Errorf("got\n%s\nwas\n%s", data, text)
			}
			if _, err := os.Stat(c.Secrets[0]); err == nil {
				t.Error("the file of the credential is still there")
			}
		})
	}
}

func TestAddMakesAConfig(t *testing.T) {
	_, c, got := addTo(t, "ctxgate.toml", "", Addition{Name: "docs", URL: "https://u:pa55word@h.example.com/mcp?key=s3cr3t&x=1", Transport: "sse", Headers: []Pair{{"X-Team", "a"}, {"X-Api-Key", "abc"}}})
	if !c.IsNew || !strings.Contains(got, `profile = "agents"`) || !strings.Contains(got, `transport = "sse"`) || strings.Contains(got, "s3cr3t") || strings.Contains(got, "pa55word") || strings.Contains(got, "abc") {
		t.Errorf("got\n%s", got)
	}
	if len(c.Secrets) != 3 {
		t.Errorf("credentials: %q", c.Secrets)
	}
	_, _, got = addTo(t, "x.json", "", Addition{Name: "docs", URL: "https://h.example.com/${TOKEN}/mcp"})
	if !strings.Contains(got, `"profile": "agents"`) {
		t.Errorf("got\n%s", got)
	}
}

// What would not be valid is refused, and nothing is written.
func TestAddRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ctxgate.toml")
	for _, tt := range []struct {
		add  Addition
		want string
	}{
		{Addition{Name: "a b", Command: []string{"x"}}, "letters, digits"},
		{Addition{Name: "a", URL: "ftp://h"}, "http"},
		{Addition{Name: "a", URL: "https://h", Transport: "grpc"}, "want one of"},
	} {
		if _, err := Add(path, Place{Secrets: filepath.Join(dir, "secrets")}, tt.add); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.add, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("it wrote %v", entries)
	}
	if err := os.WriteFile(path, []byte("lissten = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Add(path, Place{}, Addition{Name: "a", Command: []string{"x"}}); err == nil || !strings.Contains(err.Error(), "correct the configuration first") {
		t.Errorf("got %v", err)
	}
}
