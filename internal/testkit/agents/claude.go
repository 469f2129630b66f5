//go:build unix

package agents

import "github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"

func claudeCode() Agent {
	return Agent{
		ID: "claude-code", Name: "Claude Code", Package: "@anthropic-ai/claude-code",
		Shapes: []fakeprovider.Shape{fakeprovider.Messages}, HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.binary("claude-code", "@anthropic-ai/claude-code-*/claude")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			claudeEnvironment(s, w)
			args := []string{
				"-p", prompt, "--model", "claude-sonnet-4-5", "--output-format", "stream-json", "--verbose",
				"--allowedTools", "mcp__ctxgate", "Bash(sleep:*)",
			}
			if w.Server != nil {
				file := writeJSON(s, "claude-mcp.json", claudeServers(w))
				args = append(args, "--mcp-config", file, "--strict-mcp-config")
			}
			return args, nil
		},
		list: func(s *Sandbox, w Wiring) ([]string, error) {
			claudeEnvironment(s, w)
			if w.Server != nil {
				writeJSON(s, ".claude.json", claudeServers(w))
			}
			return []string{"mcp", "list"}, nil
		},
	}
}

// mcpServers is the file format that Claude Code has made common.
type mcpServers struct {
	Servers map[string]mcpServer `json:"mcpServers"`
}

type mcpServer struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	HTTPURL string            `json:"httpUrl,omitempty"`
	Trust   bool              `json:"trust,omitempty"`
}

// newServer is the entry of a server, with the type that a URL has in this client.
func newServer(s *Server, urlType string) mcpServer {
	if s.URL != "" {
		return mcpServer{Type: urlType, URL: s.URL}
	}
	return mcpServer{Command: s.Command[0], Args: s.Command[1:], Env: s.Env}
}

func claudeServers(w Wiring) mcpServers {
	return mcpServers{map[string]mcpServer{w.serverName(): newServer(w.Server, "http")}}
}

func claudeEnvironment(s *Sandbox, w Wiring) {
	s.Setenv("ANTHROPIC_BASE_URL", w.modelURL())
	s.Setenv("ANTHROPIC_API_KEY", Key)
	for _, name := range []string{
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING",
	} {
		s.Setenv(name, "1")
	}
}
