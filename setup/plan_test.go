package setup

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// testHome is a home directory with files of clients.
type testHome struct {
	t    *testing.T
	dir  string
	vars []string
}

func newHome(t *testing.T, files map[string]string) *testHome {
	t.Helper()
	h := &testHome{t: t, dir: t.TempDir()}
	for name, text := range files {
		h.write(name, text)
	}
	return h
}

func (h *testHome) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHome) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

func (h *testHome) options() Options {
	return Options{
		GOOS: "linux", Home: h.dir, Cwd: filepath.Join(h.dir, "project"), Env: append(config.Env{"HOME=" + h.dir}, h.vars...),
		Config: filepath.Join(h.dir, ".config/ctxgate/ctxgate.toml"), Secrets: filepath.Join(h.dir, ".config/ctxgate/secrets"),
		Program: "/usr/bin/ctxgate", Time: time.Unix(1_800_000_000, 0),
	}
}

func (h *testHome) backups() Backups {
	return Backups{filepath.Join(h.dir, ".local/share/ctxgate/backups")}
}

func (h *testHome) plan(opts Options) *Plan {
	h.t.Helper()
	p, err := NewPlan(opts)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *testHome) apply(p *Plan) *Manifest {
	h.t.Helper()
	m, err := h.backups().Apply(p.Edits, p.Time)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// undo undoes the last run and returns the results, sorted.
func (h *testHome) undo() string {
	h.t.Helper()
	m, err := h.backups().Last()
	if err != nil || m == nil {
		h.t.Fatal("there is nothing to undo", err)
	}
	var results []string
	for _, o := range m.Undo(clientfile.Env{GOOS: "linux", Home: h.dir}, time.Now()) {
		results = append(results, string(o.Result)+" "+strings.TrimPrefix(o.Path, h.dir+"/"))
	}
	slices.Sort(results)
	return strings.Join(results, "\n")
}

// snapshot is every file and its mode, but for the backups.
func (h *testHome) snapshot() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".local" {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(data)
		}
		all[strings.TrimPrefix(path, h.dir)] = text
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// fiveClients are hand-written files, with what people put into them.
var fiveClients = map[string]string{
	".claude.json": `{"numStartups": 7,
  "mcpServers": {
    "github": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghij0123456789abcdef", "LOG": "debug"}},
    "docs": {"type": "http", "url": "https://docs.example.com/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}
  },
  "projects": {"/x": {"mcpServers": {"local": {"type": "stdio", "command": "x"}}}}
}`,
	".cursor/mcp.json": `// my own
{ "mcpServers": {
    /* the same as in Claude */ "gh": { "command": "npx", "args": ["@modelcontextprotocol/server-github"],
      "env": { "LOG": "debug", "GITHUB_TOKEN": "${env:GH}" } },
    "docs": { "url": "https://user:pa55word@other.example.com/mcp?key=k3y-value&x=1" }, // another one
} }
`,
	".config/Code/User/mcp.json":         "{\r\n\t\"servers\": {\r\n\t\t\"asks\": {\"command\": \"a\", \"env\": {\"T\": \"${input:t}\"}},\r\n\t\t\"time\": {\"command\": \"uvx\", \"args\": [\"time\", \"--token\", \"t0ken-in-arguments\"]}\r\n\t}\r\n}\r\n",
	".gemini/settings.json":              `{ "theme": "x", /* ! */ "mcpServers": { "mem": {"command": "mem", "timeout": 90000, "includeTools": ["read"], "env": {"A": "$MEM_A"}} } }`,
	".config/opencode/opencode.jsonc":    "{\n  // opencode\n  \"mcp\": {\n    \"here\": {\"type\": \"local\", \"command\": [\"here\", \".\"]},\n    \"old\": {\"type\": \"remote\", \"url\": \"http://127.0.0.1:9/mcp\", \"enabled\": false},\n  },\n}\n",
	"project/.mcp.json":                  `{"mcpServers": {"proj": {"command": "proj"}}}`,
	".config/Claude/other-settings.json": `{}`,
}

const fiveSecrets = "ghp_0123456789abcdefghij0123456789abcdef pa55word k3y-value t0ken-in-arguments"

func TestInitOfFiveClients(t *testing.T) {
	h := newHome(t, fiveClients)
	h.vars = []string{"DOCS_TOKEN=d0cs-t0ken", "GH=ghp_0123456789abcdefghij0123456789abcdef", "MEM_A=a"}
	before := h.snapshot()
	p := h.plan(h.options())
	var printed strings.Builder
	if err := p.Print(&printed, true); err != nil {
		t.Fatal(err)
	}
	if err := p.PrintDiff(&printed); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, h.snapshot()) {
		t.Fatal("a plan has changed something")
	}
	h.apply(p)
	text := h.read(".config/ctxgate/ctxgate.toml")
	for _, s := range append(strings.Fields(fiveSecrets), "d0cs-t0ken") {
		if strings.Contains(text, s) || strings.Contains(printed.String(), s) {
			t.Errorf("%s is visible", s)
		}
	}

	// The configuration starts the servers as the clients did.
	loaded, problems := config.LoadBytes(p.Config, []byte(text), p.Env)
	if problems = append(problems, loaded.ResolveSecrets(p.Env)...); len(problems) > 0 {
		t.Fatalf("%v in\n%s", problems, text)
	}
	var got strings.Builder
	for _, s := range loaded.Upstream.Servers {
		got.WriteString(s.ID + ": " + strings.Join(s.Command, " ") + s.URL.Reveal() + " " + strings.Join(s.EnabledTools, ",") + " " + s.ResponseTimeout.String())
		for _, m := range []map[string]string{revealed(s.Env), revealed(s.Headers)} {
			for _, name := range slices.Sorted(maps.Keys(m)) {
				got.WriteString(" " + name + "=" + m[name])
			}
		}
		if s.Disabled {
			got.WriteString(" disabled")
		}
		got.WriteString("\n")
	}
	if want := `github: npx -y @modelcontextprotocol/server-github  0s GITHUB_TOKEN=ghp_0123456789abcdefghij0123456789abcdef LOG=debug
docs: https://docs.example.com/mcp  0s Authorization=Bearer d0cs-t0ken
docs-cursor: https://other.example.com/mcp?key=k3y-value&x=1  0s Authorization=Basic dXNlcjpwYTU1d29yZA==
time: uvx time --token t0ken-in-arguments  0s
mem: mem read 1m30s A=a
old: http://127.0.0.1:9/mcp  0s disabled
`; got.String() != want {
		t.Errorf("got\n%s\nwant\n%s\nfrom\n%s", got.String(), want, text)
	}
	if strings.Contains(text, "\r") || !strings.Contains(text, "# From Claude Code (~/.claude.json) and Cursor (~/.cursor/mcp.json).") {
		t.Errorf("got\n%s", text)
	}

	// The second time there is nothing to do.
	if again := h.plan(h.options()); len(again.Edits) > 0 {
		t.Errorf("a second init writes %+v", again.Edits)
	}
	h.undo()
	after := h.snapshot()
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s is\n%s\nwas\n%s", name, after[name], text)
		}
	}
	if len(after) != len(before) {
		t.Errorf("files after undo: %q", slices.Sorted(maps.Keys(after)))
	}
}

func revealed[T interface{ Reveal() string }](m map[string]T) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v.Reveal()
	}
	return out
}

// What the plan says about each server: where it goes, or why it stays.
func TestPlanSaysWhatHappens(t *testing.T) {
	h := newHome(t, fiveClients)
	h.write(".codeium/windsurf/mcp_config.json", `{"mcpServers": {`)
	var out strings.Builder
	if err := h.plan(h.options()).Print(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"10 MCP servers of your agents",
		"docs    https://docs.example.com/mcp",
		"docs  https://other.example.com/mcp?…  → docs-cursor",
		"left alone: only the client knows ${input:t}",
		"left alone: its command has a path relative",
		"1 server for single directories (local): left alone",
		"uvx time --token ***",
		"(disabled)",
		"Not set in this shell: DOCS_TOKEN, GH, MEM_A",
		"./.mcp.json (Claude Code, Copilot CLI, Visual Studio Code and Qwen Code): proj",
		"~/.codeium/windsurf/mcp_config.json",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestInitAddsToAnExistingConfig(t *testing.T) {
	const mine = "# mine\nprofile = \"agents\"\r\n\r\n[[servers]] # keep\r\nid = \"docs\"\r\nurl = \"https://mine.example.com/mcp\"\r\n[masking]\r\nmax_chars = 9000"
	h := newHome(t, fiveClients)
	h.write(".config/ctxgate/ctxgate.toml", mine)
	p := h.plan(h.options())
	h.apply(p)
	text := h.read(".config/ctxgate/ctxgate.toml")
	if !strings.HasPrefix(text, mine+"\r\n\r\n# From") || !strings.Contains(text, `id = "docs-claude-code"`) {
		t.Errorf("got\n%s", text)
	}
	h.undo()
	if got := h.read(".config/ctxgate/ctxgate.toml"); got != mine {
		t.Errorf("got\n%s", got)
	}

	// A file with a mistake is not touched.
	h.write(".config/ctxgate/ctxgate.toml", "lissten = 1\n")
	if _, err := NewPlan(h.options()); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("got %v", err)
	}
}

// --client limits the plan, and connects a client that has no servers, or no file.
func TestInitOfNamedClients(t *testing.T) {
	h := newHome(t, map[string]string{".cursor/mcp.json": fiveClients[".cursor/mcp.json"], ".gemini/settings.json": "{}"})
	opts := h.options()
	opts.Clients = []string{"gemini", "cline"}
	p := h.plan(opts)
	var paths []string
	for _, e := range p.Edits {
		paths = append(paths, strings.TrimPrefix(e.Path, h.dir+"/"))
	}
	if got := strings.Join(paths, " "); got != ".config/ctxgate/ctxgate.toml .cline/data/settings/cline_mcp_settings.json .gemini/settings.json" && got != ".config/ctxgate/ctxgate.toml .gemini/settings.json .cline/data/settings/cline_mcp_settings.json" {
		t.Errorf("it writes %s", got)
	}
	h.apply(p)
	if got := h.read(".gemini/settings.json"); !strings.Contains(got, `"--client", "gemini", "--config"`) {
		t.Errorf("got %s", got)
	}
	if again := h.plan(opts); len(again.Edits) > 0 {
		t.Errorf("a second init writes %d files", len(again.Edits))
	}
	opts.Clients = []string{"gemeni"}
	if _, err := NewPlan(opts); err == nil || !strings.Contains(err.Error(), "the clients are claude-code") {
		t.Errorf("got %v", err)
	}
}

// The servers of a project go into its own file, and run in its directory.
func TestInitOfAProject(t *testing.T) {
	h := newHome(t, fiveClients)
	opts := h.options()
	opts.Project, opts.Config = true, filepath.Join(opts.Cwd, "ctxgate.toml")
	h.apply(h.plan(opts))
	text := h.read("project/ctxgate.toml")
	if !strings.Contains(text, `cwd = "`+opts.Cwd+`"`) || !strings.Contains(h.read("project/.mcp.json"), "ctxgate") || strings.Contains(text, "github") {
		t.Errorf("got\n%s", text)
	}
	if shared := h.read("project/.mcp.json"); strings.Contains(shared, "--client") {
		t.Errorf("a file that several clients read names one of them:\n%s", shared)
	}
}

// A file that cannot be written, or that starts ctxgate with another configuration, keeps its servers: they are not added.
func TestFilesThatAreLeftAlone(t *testing.T) {
	h := newHome(t, map[string]string{
		".cursor/mcp.json":      `{"mcpServers": {"a": {"command": "a"}, "ctxgate": {"command": "ctxgate", "args": ["stdio", "--config", "/other/ctxgate.toml"]}}}`,
		".gemini/settings.json": `{"mcpServers": {"b": {"command": "b"}}, "mcpServers": {}}`,
		".claude.json":          `{"mcpServers": {"c": {"type": "stdio", "command": "c"}}}`,
	})
	p := h.plan(h.options())
	if len(p.Servers) != 1 || p.Servers[0].ID != "c" {
		t.Errorf("servers: %+v", p.Servers)
	}
	for _, f := range p.Files {
		if (f.Err == nil) != (f.Client == "claude-code") {
			t.Errorf("%s: %v", f.Client, f.Err)
		}
		if f.Client == "cursor" && !strings.Contains(f.Err.Error(), "ctxgate init --config /other/ctxgate.toml") {
			t.Errorf("it says %v", f.Err)
		}
	}
}

// A configuration that somebody has removed is made again: the clients that are connected would not start without it.
func TestRemovedConfigIsMadeAgain(t *testing.T) {
	h := newHome(t, map[string]string{".cursor/mcp.json": `{"mcpServers": {"a": {"command": "a"}}}`})
	h.apply(h.plan(h.options()))
	if err := os.Remove(filepath.Join(h.dir, ".config/ctxgate/ctxgate.toml")); err != nil {
		t.Fatal(err)
	}
	p := h.plan(h.options())
	if len(p.Edits) != 1 || p.Edits[0].Path != p.Config {
		t.Errorf("it writes %+v", p.Edits)
	}
}
