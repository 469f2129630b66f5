//go:build unix

package agents

import "github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"

func gemini() Agent {
	return Agent{
		ID: "gemini", Name: "Gemini CLI", Package: "@google/gemini-cli",
		Shapes: []fakeprovider.Shape{fakeprovider.Gemini}, HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.script("gemini", "@google/gemini-cli", "bundle", "gemini.js")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			geminiSettings(s, w)
			return []string{"-p", prompt, "--approval-mode", "yolo", "--output-format", "stream-json"}, nil
		},
		list: func(s *Sandbox, w Wiring) ([]string, error) {
			geminiSettings(s, w)
			return []string{"mcp", "list"}, nil
		},
	}
}

type geminiFile struct {
	Servers   map[string]mcpServer `json:"mcpServers,omitempty"`
	Security  geminiSecurity       `json:"security"`
	General   map[string]bool      `json:"general"`
	Privacy   map[string]bool      `json:"privacy"`
	Telemetry map[string]bool      `json:"telemetry"`
}

type geminiSecurity struct {
	Auth        map[string]string `json:"auth"`
	FolderTrust map[string]bool   `json:"folderTrust"`
}

func geminiSettings(s *Sandbox, w Wiring) {
	s.Setenv("GOOGLE_GEMINI_BASE_URL", w.modelURL())
	s.Setenv("GEMINI_API_KEY", Key)
	s.Setenv("GEMINI_MODEL", "gemini-2.5-flash")
	s.Setenv("GEMINI_CLI_TRUST_WORKSPACE", "true")
	f := geminiFile{
		Security:  geminiSecurity{map[string]string{"selectedType": "gemini-api-key"}, map[string]bool{"enabled": false}},
		General:   map[string]bool{"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "disableAutoUpdate": true, "disableUpdateNag": true},
		Privacy:   map[string]bool{"usageStatisticsEnabled": false},
		Telemetry: map[string]bool{"enabled": false},
	}
	if w.Server != nil {
		one := newServer(w.Server, "http")
		one.Trust = true
		f.Servers = map[string]mcpServer{w.serverName(): one}
	}
	writeJSON(s, ".gemini/settings.json", f)
}
