//go:build unix

package agents_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// runnable is an agent as `ctxgate run` starts it.
type runnable struct {
	program string   // its executable
	args    []string // before the prompt
	files   map[string]string
	env     map[string]string
	direct  bool // its conversation does not pass the gateway
}

// runnables are the agents in homes as people have them: a model address of their own, and an MCP server named logs. $SELF is the
// server's program, $MODEL the address of the provider.
var runnables = map[string]runnable{
	"claude-code": {
		program: "claude",
		args:    []string{"--model", "claude-sonnet-4-5", "--output-format", "stream-json", "--verbose", "--allowedTools", "mcp__ctxgate", "-p"},
		files:   map[string]string{".claude.json": `{"mcpServers":{"logs":{"command":"$SELF","args":["log-server"]}}}`},
		env: map[string]string{
			"ANTHROPIC_API_KEY": agents.Key, "ANTHROPIC_BASE_URL": "$MODEL", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_ERROR_REPORTING": "1",
		},
	},
	"codex": {
		program: "codex",
		args:    []string{"exec", "--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox"},
		files: map[string]string{".codex/config.toml": "model = \"gpt-5.5\"\nopenai_base_url = \"$MODEL/v1\" # mine\ncheck_for_update_on_startup = false\n" +
			"[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n[mcp_servers.logs]\ncommand = \"$SELF\"\nargs = [\"log-server\"]\n"},
		env: map[string]string{"CODEX_API_KEY": agents.Key},
	},
	"opencode": {
		program: "opencode",
		args:    []string{"run", "--format", "json"},
		files: map[string]string{".config/opencode/opencode.jsonc": `{
  "$schema": "https://opencode.ai/config.json", // mine
  "model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-sonnet-4-5", "autoupdate": false, "share": "disabled",
  "permission": {"*": "allow"},
  "provider": {"anthropic": {"options": {"baseURL": "$MODEL/v1", "apiKey": "` + agents.Key + `"}, "models": {"claude-sonnet-4-5": {}}}},
  "mcp": {"logs": {"type": "local", "command": ["$SELF", "log-server"], "timeout": 30000}},
}`},
		env: map[string]string{
			"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "npm_config_fetch_retries": "0",
		},
	},
	"qwen": {
		program: "qwen",
		args:    []string{"--approval-mode", "yolo", "--output-format", "stream-json", "-p"},
		files: map[string]string{".qwen/settings.json": `{"security":{"auth":{"selectedType":"openai"},"folderTrust":{"enabled":false}},
  "general":{"enableAutoUpdate":false,"disableAutoUpdate":true},"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},
  "mcpServers":{"logs":{"command":"$SELF","args":["log-server"],"trust":true}},
  "$version": 4}`},
		env: map[string]string{"OPENAI_BASE_URL": "$MODEL/v1", "OPENAI_API_KEY": agents.Key, "OPENAI_MODEL": "gpt-4o", "QWEN_CODE_SIMPLE_TELEMETRY": "0"},
	},
	"continue": {
		program: "cn",
		args:    []string{"--auto", "-p"},
		files: map[string]string{".continue/config.yaml": "# mine\nname: mine\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: test\n    provider: openai\n    model: gpt-4o\n" +
			"    apiBase: $MODEL/v1/\n    apiKey: " + agents.Key + "\n    roles: [chat]\n    capabilities: [tool_use]\n" +
			"mcpServers:\n  - name: logs\n    command: $SELF\n    args: [log-server]\n"},
		env: map[string]string{"CONTINUE_CLI_ENABLE_TELEMETRY": "0", "CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_ALLOW_ANONYMOUS_TELEMETRY": "0"},
	},
	"gemini": {
		program: "gemini",
		args:    []string{"--approval-mode", "yolo", "--output-format", "stream-json", "-p"},
		files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},
  "general":{"enableAutoUpdate":false,"disableAutoUpdate":true},"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},
  "mcpServers":{"logs":{"command":"$SELF","args":["log-server"]}}}`},
		env: map[string]string{"GOOGLE_GEMINI_BASE_URL": "$MODEL", "GEMINI_API_KEY": agents.Key, "GEMINI_MODEL": "gemini-2.5-flash", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
	},
	"cline": {
		program: "cline", direct: true,
		args: []string{"--json", "--timeout", "100"},
		files: map[string]string{
			".cline/data/settings/cline_mcp_settings.json": `{"mcpServers":{"logs":{"command":"$SELF","args":["log-server"]}}}`,
			".cline/data/settings/providers.json": `{"version":1,"lastUsedProvider":"openai-compatible","modes":{},"providers":{"openai-compatible":
  {"settings":{"provider":"openai-compatible","apiKey":"` + agents.Key + `","model":"gpt-4o","baseUrl":"$MODEL/v1"},"updatedAt":"2026-01-01T00:00:00.000Z","tokenSource":"manual"}}}`,
		},
		env: map[string]string{"CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"},
	},
}

// `ctxgate run AGENT` without a config file: the agent's own MCP servers and its own model address go through a gateway of the run,
// and nothing of it is left behind.
func TestRunWithoutConfig(t *testing.T) {
	for _, a := range chosen() {
		r, ok := runnables[a.ID]
		if !ok {
			continue
		}
		t.Run(a.ID, func(t *testing.T) {
			t.Parallel()
			s := newRunSetup(t, a, r)
			files := s.snapshot()
			script := s.run(r)
			if t.Failed() {
				return
			}
			if !r.direct {
				checkConversation(t, a, script)
			} else if agents.PruneID(script.Result(0)) == "" {
				t.Errorf("the long result is not cut: %.300s", script.Result(0))
			}
			for _, offered := range script.Offered() {
				for _, name := range offered {
					if strings.Contains(name, "read_log") && !strings.Contains(name, "ctxgate") && a.ID != "continue" {
						t.Errorf("the agent's own server is there beside the gateway: %s", name)
					}
				}
			}
			for path, before := range files {
				if isState := strings.HasSuffix(path, ".claude.json") || strings.HasSuffix(path, "providers.json"); isState {
					continue // the agent itself writes them
				}
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
					t.Errorf("%s was changed: %v\n%s", path, err, now)
				}
			}
			s.checkNothingLeft()
		})
	}
}

// `ctxgate run AGENT` with a config file of the profile agents uses the gateway of that file, in the background.
func TestRunWithTheUsersGateway(t *testing.T) {
	for _, id := range []string{"claude-code", "codex"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			a := requireAgent(t, id)
			r := runnables[id]
			r.files = map[string]string{".codex/config.toml": "model = \"gpt-5.5\"\n[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n"}
			s := newRunSetup(t, a, r)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			config := fmt.Sprintf(configText, "", self)
			for kind, path := range map[string]string{"openai": "/v1", "anthropic": ""} {
				config += fmt.Sprintf("[[providers]]\nname = %q\nkind = %q\nbase_url = %q\n", kind, kind, s.provider.URL+path)
			}
			s.sandbox.WriteFile(".config/ctxgate/ctxgate.toml", config)
			script := s.run(r)
			if t.Failed() {
				return
			}
			checkConversation(t, a, script)
			s.checkNothingLeft()
			if tr := s.sandbox.Run(binary, "stop"); tr.ExitCode != 0 {
				t.Errorf("the gateway of the config file did not run: %s", tr.Stderr)
			}
		})
	}
}

// A model address in an agent's settings, which win over its variables, is not bypassed: it becomes the provider.
func TestRunFollowsTheAgentsSettings(t *testing.T) {
	for id, change := range map[string]func(*runnable){
		"claude-code": func(r *runnable) {
			r.files = maps.Clone(r.files)
			r.files[".claude/settings.json"] = `{"env":{"ANTHROPIC_BASE_URL":"$MODEL"}}`
			r.env = maps.Clone(r.env)
			r.env["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"
		},
		"codex": func(r *runnable) {
			text := strings.Replace(r.files[".codex/config.toml"], "openai_base_url = \"$MODEL/v1\"", "model_provider = \"mine\"", 1)
			r.files = map[string]string{".codex/config.toml": text + "[model_providers.mine]\nname = \"Mine\"\nbase_url = \"$MODEL/v1\"\nenv_key = \"CODEX_API_KEY\"\nwire_api = \"responses\"\n"}
		},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			a := requireAgent(t, id)
			r := runnables[id]
			change(&r)
			s := newRunSetup(t, a, r)
			if script := s.run(r); !t.Failed() {
				checkConversation(t, a, script)
			}
		})
	}
}

// A run that is killed leaves a directory behind, which the next run removes; its gateway and servers end with it.
func TestRunThatIsKilled(t *testing.T) {
	t.Parallel()
	s := &setup{t: t, sandbox: agents.NewSandbox(t)}
	ready := filepath.Join(s.sandbox.Home, "ready")
	s.addScript("claude", "echo $$ > "+ready+"; exec sleep 600")
	cmd := exec.Command(binary, "run", "claude")
	cmd.Dir, cmd.Env = s.sandbox.Work, s.sandbox.Env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the agent to run", func() bool { text, _ := os.ReadFile(ready); return len(text) > 0 })
	left := func() []string {
		dirs, _ := filepath.Glob(filepath.Join(s.sandbox.Home, "tmp", "ctxgate-run-*"))
		return dirs
	}
	if len(left()) != 1 {
		t.Fatalf("the directories of the run: %q", left())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(left()[0], old, old); err != nil {
		t.Fatal(err)
	}
	s.addScript("codex", "true")
	s.sandbox.Run(binary, "run", "codex")
	s.checkNothingLeft()
}

// Signals reach the agent, and the run ends as the agent does.
func TestRunPassesSignals(t *testing.T) {
	t.Parallel()
	s := &setup{t: t, sandbox: agents.NewSandbox(t)}
	ready := filepath.Join(s.sandbox.Home, "ready")
	s.addScript("claude", "trap 'echo got TERM; exit 5' TERM; trap 'echo got INT' INT; echo x > "+ready+"; while :; do sleep 0.05; done")
	var out process.Buffer
	cmd := exec.Command(binary, "run", "claude")
	cmd.Dir, cmd.Env, cmd.Stdout = s.sandbox.Work, s.sandbox.Env, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the agent to run", func() bool { text, _ := os.ReadFile(ready); return len(text) > 0 })
	for _, step := range []struct {
		signal os.Signal
		text   string
	}{{os.Interrupt, "got INT"}, {syscall.SIGTERM, "got TERM"}} {
		if err := cmd.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
		wait.For(t, step.text, func() bool { return strings.Contains(out.String(), step.text) })
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code %d", cmd.ProcessState.ExitCode())
	}
	s.checkNothingLeft()
}

// addScript puts a shell script into the PATH, in the place of an agent.
func (s *setup) addScript(name, script string) {
	s.t.Helper()
	path := s.sandbox.WriteFile("bin/"+name, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a program of the test's
		s.t.Fatal(err)
	}
	s.sandbox.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
}

// The exit code and the output of the agent are those of `ctxgate run`.
func TestRunPassesExitCodeAndOutput(t *testing.T) {
	t.Parallel()
	s := &setup{t: t, sandbox: agents.NewSandbox(t)}
	for name, script := range map[string]string{"codex": "echo out; echo err >&2; exit 7", "claude": "kill -TERM $$"} {
		s.addScript(name, script)
	}
	tr := s.sandbox.Run(binary, "run", "codex", "--", "exec", "hello")
	if tr.ExitCode != 7 || tr.Stdout != "out\n" || !strings.Contains(tr.Stderr, "err\n") || !strings.Contains(tr.Stderr, "ctxgate: no tool result was cut") {
		t.Errorf("exit code %d, stdout %q, stderr %q", tr.ExitCode, tr.Stdout, tr.Stderr)
	}
	if tr := s.sandbox.Run(binary, "run", "-q", "codex"); tr.ExitCode != 7 || tr.Stderr != "err\n" {
		t.Errorf("with -q: exit code %d, stderr %q", tr.ExitCode, tr.Stderr)
	}
	if tr := s.sandbox.Run(binary, "run", "claude"); tr.ExitCode != 128+15 {
		t.Errorf("ended by a signal: exit code %d, stderr %q", tr.ExitCode, tr.Stderr)
	}
	if tr := s.sandbox.Run(binary, "run", "opencode"); tr.ExitCode != 1 || !strings.Contains(tr.Stderr, "npm install -g opencode-ai") {
		t.Errorf("not installed: exit code %d, stderr %q", tr.ExitCode, tr.Stderr)
	}
	s.checkNothingLeft()
}

// newRunSetup makes the home of an agent with a short window, so that a short conversation shows masking.
func newRunSetup(t *testing.T, a agents.Agent, r runnable) *setup {
	t.Helper()
	s := newHome(t, a, r)
	s.sandbox.Setenv("CTXGATE_OBSERVATION_MASKING_SCHEMA1_WINDOW_TURNS", "2")
	s.sandbox.Setenv("CTXGATE_OBSERVATION_MASKING_SCHEMA1_ADVANCE", "turn")
	return s
}

// newHome makes the home of an agent as people have it.
func newHome(t *testing.T, a agents.Agent, r runnable) *setup {
	t.Helper()
	s := &setup{t: t, agent: a, sandbox: agents.NewSandbox(t), provider: fakeprovider.New(t, fakeprovider.Options{})}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$SELF", self, "$MODEL", s.provider.URL)
	for name, text := range r.files {
		s.sandbox.WriteFile(name, fill.Replace(text))
	}
	for name, value := range r.env {
		s.sandbox.Setenv(name, fill.Replace(value))
	}
	s.sandbox.AddProgram(a, r.program)
	return s
}

// run lets the agent answer a prompt by `ctxgate run`.
func (s *setup) run(r runnable) *agents.Script {
	s.t.Helper()
	script := agents.NewScript(s.provider, s.agent, conversation()...)
	log := filepath.Join(s.t.ArtifactDir(), "gateway.log")
	tr := s.sandbox.Run(append(append([]string{binary, "run", "--log", log, r.program, "--"}, r.args...), "Read the log named alpha and say what is in it.")...)
	if err := script.Done(); err != nil || tr.ExitCode != 0 || !strings.Contains(tr.Stdout, agents.Answer) {
		s.t.Errorf("%s: %v; exit code %d after %s", s.agent.Name, err, tr.ExitCode, tr.Took)
		s.logTranscript(tr)
		text, _ := os.ReadFile(log)
		s.t.Logf("the gateway's log: %s", text)
	}
	if strings.Contains(tr.Stdout, "ctxgate:") || !strings.Contains(tr.Stderr, " cut by ") {
		s.t.Errorf("stdout is not the agent's alone, or there is no summary:\n%.300s\n%s", tr.Stdout, tr.Stderr)
	}
	if isDirect := strings.Contains(tr.Stderr, "its conversation does not"); isDirect != r.direct {
		s.t.Errorf("the conversation passes the gateway: %v\n%s", !isDirect, tr.Stderr)
	}
	return script
}

// snapshot is the content of the files in the home directory.
func (s *setup) snapshot() map[string][]byte {
	files := map[string][]byte{}
	_ = filepath.WalkDir(s.sandbox.Home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[path], err = os.ReadFile(path)
		}
		return err
	})
	return files
}

// checkNothingLeft checks that no temporary file of a run is left.
func (s *setup) checkNothingLeft() {
	s.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(s.sandbox.Home, "tmp", "ctxgate-run-*")); len(left) > 0 {
		s.t.Errorf("left behind: %q", left)
	}
}
