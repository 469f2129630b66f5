//go:build unix

package agents_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// agentFiles are the files of the agents that have a command for their servers, as people write them, with SELF in the
// place of the server's program.
var agentFiles = map[string]string{
	".claude.json":                                 "{\n  \"mcpServers\": {\n    \"mylogs\": {\"type\": \"stdio\", \"command\": \"SELF\", \"args\": [\"log-server\"]}\n  }\n}\n",
	".codex/config.toml":                           "# mine\n[mcp_servers.mylogs] # logs\ncommand = \"SELF\"\nargs = [\"log-server\"]\nenv = { LOG_TOKEN = \"t0ken-of-codex\" }\n",
	".gemini/settings.json":                        "{ // mine\n  \"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}, \"folderTrust\": {\"enabled\": false}},\n  \"mcpServers\": { \"mylogs\": {\"command\": \"SELF\", \"args\": [\"log-server\"]} }\n}\n",
	".qwen/settings.json":                          "{ // mine\n  \"$version\": 4,\n  \"security\": {\"auth\": {\"selectedType\": \"openai\"}, \"folderTrust\": {\"enabled\": false}},\n  \"mcpServers\": { \"mylogs\": {\"command\": \"SELF\", \"args\": [\"log-server\"]} }\n}\n",
	".config/opencode/opencode.jsonc":              "{\n  \"$schema\": \"https://opencode.ai/config.json\", // else it is added\n  // mine\n  \"mcp\": { \"mylogs\": {\"type\": \"local\", \"command\": [\"SELF\", \"log-server\"], \"enabled\": true}, },\n}\n",
	".cursor/mcp.json":                             "{ \"mcpServers\": { \"mylogs\": {\"command\": \"SELF\", \"args\": [\"log-server\"]}, /* mine */ } }\n",
	".cline/data/settings/cline_mcp_settings.json": "{\"mcpServers\": {\"mylogs\": {\"command\": \"SELF\", \"args\": [\"log-server\"]}}}\n",
	".continue/config.yaml":                        "name: mine\nversion: 1.0.0\nschema: v1\nmodels: []\nmcpServers:\n  - name: mylogs # logs\n    command: SELF\n    args: [log-server]\n",
	".config/Claude/claude_desktop_config.json":    "{\"mcpServers\": {\"mylogs\": {\"command\": \"SELF\", \"args\": [\"log-server\"]}}}",
	".codeium/windsurf/mcp_config.json":            "{\"mcpServers\": {\"mylogs\": {\"command\": \"SELF\", \"args\": [\"log-server\"]}}}",
}

// `ctxgate init --yes` connects the agents: each one's own list of servers shows ctxgate and no longer what moved behind
// it, Claude Code calls a tool through it, and `ctxgate init --undo` restores every file byte for byte.
func TestInitConnectsTheAgents(t *testing.T) {
	sandbox := agents.NewSandbox(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, text := range agentFiles {
		text = strings.ReplaceAll(text, "SELF", self)
		files[sandbox.WriteFile(name, text)] = text
	}
	run := func(args ...string) string {
		t.Helper()
		tr := sandbox.Run(append([]string{binary}, args...)...)
		if tr.ExitCode != 0 {
			t.Fatalf("ctxgate %s: exit code %d\n%s\n%s", strings.Join(args, " "), tr.ExitCode, tr.Stdout, tr.Stderr)
		}
		return tr.Stdout
	}
	for name, value := range map[string]string{"CTXGATE_LISTEN": "127.0.0.1:0", "CTXGATE_ADMIN_LISTEN": "127.0.0.1:0", "CTXGATE_MCP_PRUNER_LISTEN": "", "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_API_KEY": agents.Key} {
		sandbox.Setenv(name, value)
	}
	out := run("init", "--yes")
	config := filepath.Join(sandbox.Home, ".config/ctxgate/ctxgate.toml")
	t.Cleanup(func() { run("stop", "--config", config) })
	if strings.Contains(out, "t0ken-of-codex") {
		t.Error("a credential is visible")
	}
	for _, a := range chosen() {
		if !a.HasList() {
			continue
		}
		args := []string{"mcp", "list"}
		if a.ID == "codex" {
			args = append(args, "--json")
		}
		tr := a.Run(sandbox, args...)
		text := strings.ToLower(tr.Stdout + tr.Stderr)
		connects := a.ID != "codex" // it only prints its configuration
		if tr.ExitCode != 0 || !strings.Contains(text, "ctxgate") || strings.Contains(text, "mylogs") || connects && !strings.Contains(text, "connected") || strings.Contains(text, "disconnected") {
			t.Errorf("%s: exit code %d\n%s\n%s", a.Name, tr.ExitCode, tr.Stdout, tr.Stderr)
		}
	}
	for _, a := range chosen() {
		if a.ID != "claude-code" {
			continue
		}
		provider := fakeprovider.New(t, fakeprovider.Options{})
		script := agents.NewScript(provider, a, agents.CallTool("mylogs__read_log", `{"name":"alpha","size":300}`))
		tr := a.Ask(sandbox, agents.Wiring{ModelURL: provider.URL}, "Read the log.")
		if got := script.Result(0); !strings.Contains(plain(got), logLine("alpha", 1)) {
			t.Errorf("the tool's result is %q\n%s\n%s", got, tr.Stdout, tr.Stderr)
		}
	}

	// Claude Code has written its state since: the servers are back, and the state stays. Everything else is as it was.
	run("stop", "--config", config)
	run("init", "--undo")
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if isState := filepath.Base(path) == ".claude.json"; isState && len(chosen()) > 0 {
			if strings.Contains(string(got), "ctxgate.toml") || !strings.Contains(string(got), `"mylogs"`) {
				t.Errorf("%s is\n%s", path, got)
			}
		} else if string(got) != want {
			t.Errorf("%s is\n%s\nwas\n%s", path, got, want)
		}
	}
}
