//go:build unix

package agents

import "github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"

func continueCLI() Agent {
	return Agent{
		ID: "continue", Name: "Continue", Package: "@continuedev/cli",
		Shapes: []fakeprovider.Shape{fakeprovider.Chat, fakeprovider.Messages}, HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.script("continue", "@continuedev/cli", "dist", "cn.js")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			s.Setenv("CONTINUE_CLI_ENABLE_TELEMETRY", "0")
			s.Setenv("CONTINUE_TELEMETRY_ENABLED", "0")
			s.Setenv("CONTINUE_ALLOW_ANONYMOUS_TELEMETRY", "0")
			model := continueModel{Name: "test", Provider: "openai", Model: "gpt-4o", APIBase: w.modelURL() + "/v1/", APIKey: Key, Roles: []string{"chat"}, Capabilities: []string{"tool_use"}}
			if w.shape(continueCLI()) == fakeprovider.Messages {
				model.Provider, model.Model = "anthropic", "claude-sonnet-4-5"
			}
			c := continueConfig{Name: "test", Version: "1.0.0", Schema: "v1", Models: []continueModel{model}}
			if w.Server != nil {
				c.Servers = append(c.Servers, continueServer{Name: w.serverName(), mcpServer: newServer(w.Server, "streamable-http")})
			}
			// JSON is YAML.
			return []string{"--config", writeJSON(s, ".continue/config.yaml", c), "--auto", "-p", prompt}, nil
		},
	}
}

type continueConfig struct {
	Name    string           `json:"name"`
	Version string           `json:"version"`
	Schema  string           `json:"schema"`
	Models  []continueModel  `json:"models"`
	Servers []continueServer `json:"mcpServers,omitempty"`
}

type continueModel struct {
	Name         string   `json:"name"`
	Provider     string   `json:"provider"`
	Model        string   `json:"model"`
	APIBase      string   `json:"apiBase"`
	APIKey       string   `json:"apiKey"`
	Roles        []string `json:"roles"`
	Capabilities []string `json:"capabilities"`
}

type continueServer struct {
	Name string `json:"name"`
	mcpServer
}
