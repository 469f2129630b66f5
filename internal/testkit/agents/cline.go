//go:build unix

package agents

import "github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"

func cline() Agent {
	return Agent{
		ID: "cline", Name: "Cline", Package: "cline",
		Shapes: []fakeprovider.Shape{fakeprovider.Chat}, HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.script("cline", "cline", "bin", "cline")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			s.Setenv("CLINE_TELEMETRY_DISABLED", "1")
			s.Setenv("CLINE_NO_AUTO_UPDATE", "1")
			if w.Server != nil {
				writeJSON(s, ".cline/data/settings/cline_mcp_settings.json", mcpServers{map[string]mcpServer{w.serverName(): newServer(w.Server, "streamableHttp")}})
			}
			writeJSON(s, ".cline/data/settings/providers.json", clineProviders{
				Version: 1, LastUsed: "openai-compatible", Modes: struct{}{},
				Providers: map[string]clineProvider{"openai-compatible": {
					Settings:  map[string]string{"provider": "openai-compatible", "apiKey": Key, "model": "gpt-4o", "baseUrl": w.modelURL() + "/v1"},
					UpdatedAt: "2026-01-01T00:00:00.000Z", TokenSource: "manual",
				}},
			})
			return []string{"--json", "--timeout", "100", prompt}, nil
		},
	}
}

type clineProviders struct {
	Version   int                      `json:"version"`
	LastUsed  string                   `json:"lastUsedProvider"`
	Modes     struct{}                 `json:"modes"`
	Providers map[string]clineProvider `json:"providers"`
}

type clineProvider struct {
	Settings    map[string]string `json:"settings"`
	UpdatedAt   string            `json:"updatedAt"`
	TokenSource string            `json:"tokenSource"`
}
