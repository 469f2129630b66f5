//go:build unix

package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// clientFiles are the files of seven clients as people write them, each with one shell server of its own and SERVER in the
// place of its script.
var clientFiles = map[string]string{
	".claude.json": `{
  "numStartups": 12,
  "mcpServers": {
    "claude": {"type": "stdio", "command": "sh", "args": ["SERVER"], "env": {"CLAUDE_API_KEY": "s3cret-of-claude"}},
    "common": {"type": "stdio", "command": "sh", "args": ["SERVER", "common"]}
  }
}
`,
	".cursor/mcp.json": `// by hand
{
  "mcpServers": {
    "cursor": { "command": "sh", "args": ["SERVER"], "env": { "CURSOR_TOKEN": "${env:CURSOR_TOKEN}" } }, // mine
    "shared": { "command": "sh", "args": ["SERVER", "common"] },
  },
}
`,
	".config/Code/User/mcp.json": "{\r\n\t\"servers\": {\r\n\t\t/* one */ \"code\": {\"type\": \"stdio\", \"command\": \"sh\", \"args\": [\"SERVER\", \"--token\", \"s3cret-of-code\"]}\r\n\t}\r\n}",
	".codex/config.toml": `# Codex
model = "gpt-6" # the model

[mcp_servers.codex] # the first
command = "sh"
args = ["SERVER"] # its script
env = { CODEX_PASSWORD = "s3cret-of-codex" }

# colours
[tui]
theme = "x"
`,
	".gemini/settings.json": `{ "theme": "x", // dark
  "mcpServers": { "gemini": { "command": "sh", "args": ["SERVER"], "env": { "GEMINI_SECRET": "$MY_SECRET" } } } }`,
	".continue/config.yaml": "name: mine\n# servers\nmcpServers:\n  - name: continue # one\n    command: sh\n    args: [SERVER]\n    env:\n      PLAIN: plain\nmodels: []\n",
	".config/goose/config.yaml": `GOOSE_MODEL: x
extensions:
  # a shell
  goose: {type: stdio, name: goose, cmd: sh, args: ["SERVER"], envs: {GOOSE_KEY: s3cret-of-goose}, enabled: true}
  developer:
    type: builtin
    name: developer
    enabled: true
`,
}

// newAgentHome makes a home directory with the files of the clients, and returns their content by path.
func newAgentHome(t *testing.T) (home string, files map[string]string) {
	t.Helper()
	home, files = t.TempDir(), map[string]string{}
	script := filepath.Join(home, "server.sh")
	for name, text := range maps.Clone(clientFiles) {
		path := filepath.Join(home, name)
		files[path] = strings.ReplaceAll(text, "SERVER", script)
	}
	files[script] = shellServerScript
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return home, files
}

// From the files of seven clients, `ctxgate init --yes` makes one gateway: every client's entry starts it, sees the tools
// of all of them, and calls them with their own variables. `--undo` restores every file byte for byte.
func TestInitFromTheFilesOfTheClients(t *testing.T) {
	home, files := newAgentHome(t)
	env := gateway.Environment(home, "CURSOR_TOKEN=s3cret-of-cursor", "MY_SECRET=s3cret-of-gemini", "CTXGATE_LISTEN=127.0.0.1:0", "CTXGATE_ADMIN_LISTEN=127.0.0.1:0", "CTXGATE_MCP_PRUNER_LISTEN=")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = home, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ctxgate %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("init"); !strings.Contains(out, "To go ahead: ctxgate init --yes") {
		t.Errorf("without a terminal it says\n%s", out)
	}
	for path, want := range files {
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Fatalf("without --yes %s was changed", path)
		}
	}
	out := run("init", "--dry-run") + run("init", "--yes")
	config := filepath.Join(home, ".config/ctxgate/ctxgate.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "s3cret") || strings.Contains(string(text), "s3cret") {
		t.Errorf("a credential is visible in\n%s\n%s", out, text)
	}
	t.Cleanup(func() { run("stop", "--config", config) })
	run("check", "--secrets", "--config", config)

	// The credentials are in files that only the user can read.
	secrets, err := filepath.Glob(filepath.Join(home, ".config/ctxgate/secrets/*"))
	if err != nil || len(secrets) != 4 {
		t.Errorf("credentials: %q, %v", secrets, err)
	}
	for _, path := range secrets {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}

	// Each client starts what its file says.
	find := clientfile.Env{GOOS: "linux", Home: home}
	found := clientfile.Find(find)
	if len(found) != 7 {
		t.Fatalf("%d files of clients", len(found))
	}
	wantTools := []string{"claude", "code", "codex", "common", "continue", "cursor", "gemini", "goose"}
	for _, f := range found {
		data, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		content, err := f.Read(data)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(content.Servers, func(s clientfile.Server) bool { return s.Gateway })
		if at < 0 || slices.ContainsFunc(content.Servers, func(s clientfile.Server) bool { return !s.Gateway && s.Keep == "" }) {
			t.Fatalf("%s has\n%s", f.Path, data)
		}
		s := content.Servers[at]
		var args []string
		for _, a := range s.Args {
			args = append(args, a.String())
		}
		if got := strings.Join(args, " "); got != "stdio --client "+f.Client+" --config "+config {
			t.Errorf("%s starts ctxgate %s", f.Client, got)
		}
		cmd := exec.Command(s.Command.String(), args...)
		cmd.Dir, cmd.Env = home, env
		c := startStdioCommand(t, cmd)
		c.initialize("2025-11-25")
		list := string(c.callMethod("tools/list", params{}).Result)
		for _, server := range wantTools {
			if !strings.Contains(list, `"`+server+`__env"`) {
				t.Errorf("%s does not see the tools of %s: %s", f.Client, server, list)
			}
		}
	}
	cmd := exec.Command(binary, "stdio", "--config", config)
	cmd.Dir, cmd.Env = home, env
	c := startStdioCommand(t, cmd)
	c.initialize("2025-11-25")
	for server, want := range map[string]string{
		"claude": "CLAUDE_API_KEY=s3cret-of-claude", "cursor": "CURSOR_TOKEN=s3cret-of-cursor", "codex": "CODEX_PASSWORD=s3cret-of-codex",
		"gemini": "GEMINI_SECRET=s3cret-of-gemini", "continue": "PLAIN=plain", "goose": "GOOSE_KEY=s3cret-of-goose", "common": "PATH=",
	} {
		if got := string(c.callMethod("tools/call", params{"name": server + "__env", "arguments": params{}}).Result); !strings.Contains(got, want) {
			t.Errorf("%s: %s", server, got)
		}
	}

	// Once more changes nothing; undo restores everything.
	if out := run("init", "--yes"); !strings.Contains(out, "Nothing to change.") {
		t.Errorf("a second init says\n%s", out)
	}
	run("stop", "--config", config)
	run("init", "--undo")
	for path, want := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s (%v) is\n%s\nwas\n%s", path, info.Mode(), got, want)
		}
	}
	if _, err := os.Stat(filepath.Dir(config)); err == nil {
		t.Error("the configuration is still there")
	}
}
