//go:build unix

package agents

import "github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"

func qwen() Agent {
	return Agent{
		ID: "qwen", Name: "Qwen Code", Package: "@qwen-code/qwen-code",
		Shapes: []fakeprovider.Shape{fakeprovider.Chat}, HasStdio: true, HasHTTP: true, Defers: true,
		program: func(in Install) ([]string, error) {
			return in.script("qwen", "@qwen-code/qwen-code", "cli-entry.js")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			qwenSettings(s, w)
			return []string{"-p", prompt, "--approval-mode", "yolo", "--output-format", "stream-json"}, nil
		},
		list: func(s *Sandbox, w Wiring) ([]string, error) {
			qwenSettings(s, w)
			return []string{"mcp", "list"}, nil
		},
	}
}

func qwenSettings(s *Sandbox, w Wiring) {
	s.Setenv("OPENAI_BASE_URL", w.modelURL()+"/v1")
	s.Setenv("OPENAI_API_KEY", Key)
	s.Setenv("OPENAI_MODEL", "gpt-4o")
	s.Setenv("QWEN_CODE_SIMPLE_TELEMETRY", "0")
	f := geminiFile{
		Security:  geminiSecurity{map[string]string{"selectedType": "openai"}, map[string]bool{"enabled": false}},
		General:   map[string]bool{"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true},
		Privacy:   map[string]bool{"usageStatisticsEnabled": false},
		Telemetry: map[string]bool{"enabled": false},
	}
	if w.Server != nil {
		one := newServer(w.Server, "")
		one.HTTPURL, one.URL = one.URL, "" // a URL without type is SSE
		one.Trust = true
		f.Servers = map[string]mcpServer{w.serverName(): one}
	}
	writeJSON(s, ".qwen/settings.json", f)
}
