package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newHost makes a home directory with files, and a project below it.
func newHost(t *testing.T, files map[string]string, env ...string) Host {
	t.Helper()
	home := t.TempDir()
	h := Host{GOOS: "linux", Home: home, Cwd: filepath.Join(home, "project"), Env: env}
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// A model address that the user has set becomes the gateway's provider. Where the conversation cannot pass the gateway, the
// reason is said.
func TestModelAddresses(t *testing.T) {
	t.Parallel()
	const key = `{"OPENAI_API_KEY":"sk-x","tokens":null}`
	for name, tt := range map[string]struct {
		agent  string
		files  map[string]string
		env    []string
		args   []string
		want   string // kind=upstream, sorted
		direct string // a part of the note
	}{
		"claude":                           {agent: "claude", want: "anthropic="},
		"claude with a base URL":           {agent: "claude", env: []string{"ANTHROPIC_BASE_URL=http://a"}, want: "anthropic=http://a"},
		"claude with a base URL in a file": {agent: "claude", files: map[string]string{".claude/settings.json": `{"env":{"ANTHROPIC_BASE_URL":"http://s"}}`}, env: []string{"ANTHROPIC_BASE_URL=http://a"}, want: "anthropic=http://s"},
		"claude, settings of the project":  {agent: "claude", files: map[string]string{".claude/settings.json": `{"env":{"ANTHROPIC_BASE_URL":"http://s"}}`, "project/.claude/settings.local.json": `{"env":{"ANTHROPIC_BASE_URL":"http://p"}}`}, want: "anthropic=http://p"},
		"claude on Bedrock":                {agent: "claude", env: []string{"CLAUDE_CODE_USE_BEDROCK=1"}, direct: "Amazon Bedrock (CLAUDE_CODE_USE_BEDROCK)"},
		"claude on Vertex, in a file":      {agent: "claude", files: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_USE_VERTEX":"1"}}`}, direct: "Google Vertex AI"},
		"claude with Bedrock off":          {agent: "claude", env: []string{"CLAUDE_CODE_USE_BEDROCK=0"}, want: "anthropic="},
		"codex with an API key":            {agent: "codex", files: map[string]string{".codex/auth.json": key}, want: "openai="},
		"codex with a key in a variable":   {agent: "codex", env: []string{"CODEX_API_KEY=sk-x"}, want: "openai="},
		"codex with ChatGPT":               {agent: "codex", files: map[string]string{".codex/auth.json": `{"OPENAI_API_KEY":null,"tokens":{"access_token":"x"}}`}, direct: "logged in with ChatGPT"},
		"codex without a login":            {agent: "codex", direct: "no API key"},
		"codex with a base URL":            {agent: "codex", files: map[string]string{".codex/auth.json": key, ".codex/config.toml": `openai_base_url = "http://o/v1"`}, want: "openai=http://o/v1"},
		"codex with a provider":            {agent: "codex", files: map[string]string{".codex/config.toml": "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://m/v1\"\n"}, want: "openai=http://m/v1"},
		"codex with a built-in provider":   {agent: "codex", files: map[string]string{".codex/config.toml": `model_provider = "ollama"`}, direct: `provider "ollama"`},
		"codex in another home":            {agent: "codex", files: map[string]string{"ch/auth.json": key}, env: []string{"CODEX_HOME=$HOME/ch"}, want: "openai="},
		"codex with --oss":                 {agent: "codex", env: []string{"CODEX_API_KEY=sk-x"}, args: []string{"exec", "--oss", "x"}, direct: "the command line"},
		"codex with -c model_provider":     {agent: "codex", env: []string{"CODEX_API_KEY=sk-x"}, args: []string{"-c", "model_provider=x"}, direct: "the command line"},
		"codex with another -c":            {agent: "codex", env: []string{"CODEX_API_KEY=sk-x"}, args: []string{"-c", "model=x"}, want: "openai="},
		"gemini without a key":             {agent: "gemini", direct: "no API key"},
		"gemini with a key":                {agent: "gemini", env: []string{"GEMINI_API_KEY=k"}, want: "gemini="},
		"gemini with a key in a file":      {agent: "gemini", files: map[string]string{".gemini/.env": "# mine\nexport GEMINI_API_KEY='k'\nGOOGLE_GEMINI_BASE_URL=http://e\n"}, want: "gemini=http://e"},
		"gemini with a base URL":           {agent: "gemini", env: []string{"GOOGLE_GEMINI_BASE_URL=http://g"}, want: "gemini=http://g"},
		"gemini with a chosen key":         {agent: "gemini", files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`}, want: "gemini="},
		"gemini with a Google account":     {agent: "gemini", files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"oauth-personal"}}}`}, env: []string{"GEMINI_API_KEY=k"}, direct: "Google account"},
		"gemini on Vertex":                 {agent: "gemini", env: []string{"GEMINI_API_KEY=k", "GOOGLE_GENAI_USE_VERTEXAI=true"}, direct: "Vertex AI"},
		"gemini on Vertex in the project":  {agent: "gemini", files: map[string]string{"project/.gemini/settings.json": `{"security":{"auth":{"selectedType":"vertex-ai"}}}`}, env: []string{"GEMINI_API_KEY=k"}, direct: "Vertex AI"},
		"qwen":                             {agent: "qwen", direct: "OPENAI_BASE_URL is not set"},
		"qwen with an address":             {agent: "qwen", env: []string{"OPENAI_BASE_URL=http://q/v1"}, want: "openai=http://q/v1"},
		"qwen with its own login":          {agent: "qwen", files: map[string]string{".qwen/settings.json": `{"security":{"auth":{"selectedType":"qwen-oauth"}}}`}, env: []string{"OPENAI_BASE_URL=http://q/v1"}, direct: "qwen-oauth"},
		"opencode":                         {agent: "opencode", want: "anthropic= openai="},
		"opencode with files": {agent: "opencode", files: map[string]string{
			".config/opencode/opencode.jsonc": `{"provider":{"anthropic":{"options":{"baseURL":"http://g/v1"}},"mine":{}}, /* mine */}`,
			"project/opencode.json":           `{"provider":{"anthropic":{"options":{"baseURL":"http://p/v1"}}}}`,
		}, want: "anthropic=http://p/v1 openai=", direct: "those with mine do not"},
		"opencode with ChatGPT": {agent: "opencode", files: map[string]string{".local/share/opencode/auth.json": `{"openai":{"type":"oauth"},"anthropic":{"type":"oauth"}}`}, want: "anthropic=", direct: "ChatGPT login"},
		"continue":              {agent: "cn", direct: "no config file with models"},
		"continue with models": {agent: "continue", files: map[string]string{".continue/config.yaml": "models:\n  - {provider: openai, apiBase: 'http://c/v1'}\n  - {provider: ollama}\n"},
			want: "openai=http://c/v1", direct: "ollama"},
		"cline":                         {agent: "cline", direct: "Cline keeps its model's address in a file"},
		"goose":                         {agent: "goose", direct: "Goose does not use its provider"},
		"goose with a provider":         {agent: "goose", files: map[string]string{".config/goose/config.yaml": "GOOSE_PROVIDER: anthropic\nANTHROPIC_HOST: http://g\n"}, want: "anthropic=http://g"},
		"copilot with its own provider": {agent: "copilot", env: []string{"COPILOT_PROVIDER_BASE_URL=http://c/v1"}, want: "openai=http://c/v1"},
		"copilot with Azure":            {agent: "copilot", env: []string{"COPILOT_PROVIDER_BASE_URL=http://c", "COPILOT_PROVIDER_TYPE=azure"}, direct: "of a kind that ctxgate does not serve"},
		"copilot":                       {agent: "copilot", direct: "GitHub's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, tt.files)
			for _, kv := range tt.env {
				h.Env = append(h.Env, strings.ReplaceAll(kv, "$HOME", h.Home))
			}
			a, ok := Find(tt.agent)
			if !ok {
				t.Fatal("no such agent")
			}
			m := a.Model(h, tt.args)
			var got []string
			for _, kind := range m.Kinds {
				got = append(got, kind+"="+m.Upstream[kind])
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tt.want || !strings.Contains(m.Direct, tt.direct) || (m.Direct == "") != (tt.direct == "") {
				t.Errorf("got %q, %q; want %q, %q", got, m.Direct, tt.want, tt.direct)
			}
		})
	}
}

// wired is how an agent is started.
func wired(t *testing.T, agent string, h Host, w Wiring, args ...string) *Command {
	t.Helper()
	a, _ := Find(agent)
	w.Dir = t.TempDir()
	c, err := a.Command(h, args, a.Model(h, args), w)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Claude Code gets its settings' address overridden, its own servers left out, and the user's options after ours.
func TestClaudeCommand(t *testing.T) {
	t.Parallel()
	settings := map[string]string{".claude/settings.json": `{"env":{"ANTHROPIC_BASE_URL":"http://s"}}`}
	w := Wiring{URL: "http://gate", MCPURL: "http://gate/mcp?client=claude-code", IsOnly: true, Token: "t0ken"}
	c := wired(t, "claude", newHost(t, settings, "ANTHROPIC_BASE_URL=http://a", "ANTHROPIC_CUSTOM_HEADERS=A: b"), w, "-p", "hi")
	if c.value("ANTHROPIC_BASE_URL") != "http://gate" || c.value("ANTHROPIC_CUSTOM_HEADERS") != "A: b\nX-Ctxgate-Token: t0ken" {
		t.Errorf("environment %q", c.Env)
	}
	if len(c.Args) != 6 || c.Args[0] != "--strict-mcp-config" || c.Args[2] != "--allowedTools=mcp__ctxgate__recover_text" ||
		c.Args[3] != `--settings={"env":{"ANTHROPIC_BASE_URL":"http://gate"}}` || c.Args[4] != "-p" {
		t.Errorf("arguments %q", c.Args)
	}
	file := strings.TrimPrefix(c.Args[1], "--mcp-config=")
	text, err := os.ReadFile(file)
	info, _ := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || !strings.Contains(string(text), `"Authorization": "Bearer t0ken"`) {
		t.Errorf("%v %v %s", err, info, text)
	}
	if c := wired(t, "claude", newHost(t, nil), w, "mcp", "list"); len(c.Args) != 2 {
		t.Errorf("a command that starts no conversation: %q", c.Args)
	}
	if c := wired(t, "claude", newHost(t, nil), w, "--mcp-config", "mine.json"); slices.Contains(c.Args, "--strict-mcp-config") {
		t.Errorf("servers of the command line are left out: %q", c.Args)
	}
	if c := wired(t, "claude", newHost(t, settings), w, "--settings", "mine.json"); len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "--settings is yours") {
		t.Errorf("notes %q", c.Notes)
	}
}

// Codex gets everything by -c.
func TestCodexCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t, map[string]string{".codex/config.toml": "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://m/v1\"\n"})
	c := wired(t, "codex", h, Wiring{URL: "http://gate", Command: []string{"/bin/ctxgate", "stdio", "--config", "/a 'b'/c.toml"}, Env: map[string]string{"X": "y"}, Replace: []string{"logs", "a b"}}, "exec", "hi")
	want := []string{
		"-c", "model_providers.mine.base_url='http://gate/v1'",
		"-c", `mcp_servers.ctxgate={ command = '/bin/ctxgate', args = ['stdio', '--config', "/a 'b'/c.toml"], env = { X = 'y' }, required = true, startup_timeout_sec = 60 }`,
		"-c", "mcp_servers.logs.enabled=false", "exec", "hi",
	}
	if !slices.Equal(c.Args, want) {
		t.Errorf("got %q\nwant %q", c.Args, want)
	}
}

// What opencode is told besides is kept.
func TestOpenCodeCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, `OPENCODE_CONFIG_CONTENT={"theme":"mine","mcp":{"other":{"enabled":true}}}`)
	c := wired(t, "opencode", h, Wiring{URL: "http://gate", MCPURL: "http://gate/mcp", Replace: []string{"logs"}})
	var got struct {
		Theme    string
		Provider map[string]struct{ Options struct{ BaseURL string } }
		MCP      map[string]struct {
			Enabled bool
			URL     string
		}
	}
	if err := json.Unmarshal([]byte(c.value(openCodeContent)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Theme != "mine" || got.Provider["openai"].Options.BaseURL != "http://gate/v1" || !got.MCP["other"].Enabled || got.MCP["logs"].Enabled || got.MCP["ctxgate"].URL != "http://gate/mcp" {
		t.Errorf("got %+v", got)
	}
}

// Goose gets its extension after the subcommand, with session as the default one.
func TestGooseCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "GOOSE_PROVIDER=openai")
	w := Wiring{URL: "http://gate", Command: []string{"/my bin/ctxgate", "stdio"}, Env: map[string]string{"A": "b"}}
	c := wired(t, "goose", h, w)
	if !slices.Equal(c.Args, []string{"session", "--with-extension", "A=b '/my bin/ctxgate' stdio"}) || c.value("OPENAI_HOST") != "http://gate" {
		t.Errorf("got %q, %q", c.Args, c.value("OPENAI_HOST"))
	}
	if c := wired(t, "goose", h, Wiring{MCPURL: "http://gate/mcp"}, "run", "-t", "hi"); !slices.Equal(c.Args, []string{"run", "--with-streamable-http-extension", "http://gate/mcp", "-t", "hi"}) {
		t.Errorf("got %q", c.Args)
	}
}

// A proxy is not asked for the gateway, which is on this machine.
func TestProxyIsBypassed(t *testing.T) {
	t.Parallel()
	c := wired(t, "claude", newHost(t, nil, "HTTPS_PROXY=http://proxy:1", "NO_PROXY=corp"), Wiring{URL: "http://127.0.0.1:1", MCPURL: "http://127.0.0.1:1/mcp"})
	if c.value("NO_PROXY") != "corp,127.0.0.1,localhost" || c.value("no_proxy") != "127.0.0.1,localhost" {
		t.Errorf("got %q, %q", c.value("NO_PROXY"), c.value("no_proxy"))
	}
}
