//go:build unix

package agents

import "github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"

func opencode() Agent {
	return Agent{
		ID: "opencode", Name: "opencode", Package: "opencode-ai",
		Shapes: []fakeprovider.Shape{fakeprovider.Chat, fakeprovider.Messages}, HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.binary("opencode", "opencode-*/bin/opencode")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			opencodeConfig(s, w)
			return []string{"run", "--format", "json", prompt}, nil
		},
		list: func(s *Sandbox, w Wiring) ([]string, error) {
			opencodeConfig(s, w)
			return []string{"mcp", "list"}, nil
		},
	}
}

type opencodeFile struct {
	Schema     string                      `json:"$schema"`
	Model      string                      `json:"model"`
	SmallModel string                      `json:"small_model"`
	AutoUpdate bool                        `json:"autoupdate"`
	Share      string                      `json:"share"`
	Permission map[string]string           `json:"permission"`
	Provider   map[string]opencodeProvider `json:"provider"`
	MCP        map[string]opencodeServer   `json:"mcp,omitempty"`
}

type opencodeProvider struct {
	NPM     string              `json:"npm"`
	Name    string              `json:"name"`
	Options map[string]string   `json:"options"`
	Models  map[string]struct{} `json:"models"`
}

type opencodeServer struct {
	Type        string            `json:"type"`
	Command     []string          `json:"command,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	URL         string            `json:"url,omitempty"`
	Enabled     bool              `json:"enabled"`
	OAuth       *bool             `json:"oauth,omitempty"`
	Timeout     int               `json:"timeout"` // ms; a busy machine needs more than the default of 5 s
}

func opencodeConfig(s *Sandbox, w Wiring) {
	for _, name := range []string{"OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD", "OPENCODE_DISABLE_DEFAULT_PLUGINS"} {
		s.Setenv(name, "1")
	}
	s.Setenv("npm_config_fetch_retries", "0") // it installs a plugin package, and would try for half a minute
	name, npm := "gpt-4o", "@ai-sdk/openai-compatible"
	if w.shape(opencode()) == fakeprovider.Messages {
		name, npm = "claude-sonnet-4-5", "@ai-sdk/anthropic"
	}
	f := opencodeFile{
		Schema: "https://opencode.ai/config.json", Model: "test/" + name, SmallModel: "test/" + name, Share: "disabled",
		Permission: map[string]string{"*": "allow"},
		Provider: map[string]opencodeProvider{"test": {
			NPM: npm, Name: "Test", Options: map[string]string{"baseURL": w.modelURL() + "/v1", "apiKey": Key},
			Models: map[string]struct{}{name: {}},
		}},
	}
	if w.Server != nil {
		one := opencodeServer{Type: "local", Command: w.Server.Command, Environment: w.Server.Env, Enabled: true, Timeout: 30_000}
		if w.Server.URL != "" {
			off := false
			one = opencodeServer{Type: "remote", URL: w.Server.URL, Enabled: true, OAuth: &off, Timeout: 30_000}
		}
		f.MCP = map[string]opencodeServer{w.serverName(): one}
	}
	writeJSON(s, ".config/opencode/opencode.json", f)
}
