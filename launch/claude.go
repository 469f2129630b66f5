package launch

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/ctxgate/ctxgate/internal/recovertool"
)

func claudeCode() Agent {
	return Agent{
		ID: "claude-code", Names: []string{"claude"}, Title: "Claude Code", Program: "claude", Install: "npm install -g @anthropic-ai/claude-code",
		model: claudeModel, wire: wireClaude,
	}
}

// claudeClouds are the switches by which Claude Code uses the API of a cloud.
var claudeClouds = []struct{ variable, cloud string }{
	{"CLAUDE_CODE_USE_BEDROCK", "Amazon Bedrock"},
	{"CLAUDE_CODE_USE_VERTEX", "Google Vertex AI"},
	{"CLAUDE_CODE_USE_FOUNDRY", "Microsoft Foundry"},
}

const claudeBaseURL = "ANTHROPIC_BASE_URL"

type claudeSettings struct {
	Env map[string]string `json:"env"`
}

// claudeModel reads the variables, and those that settings files set: these win.
func claudeModel(h Host, _ []string) Model {
	settings := map[string]string{}
	for _, file := range []string{
		filepath.Join(h.dir("CLAUDE_CONFIG_DIR", ".claude"), "settings.json"),
		filepath.Join(h.Cwd, ".claude", "settings.json"),
		filepath.Join(h.Cwd, ".claude", "settings.local.json"),
	} {
		for name, value := range readJSONC[claudeSettings](file).Env {
			settings[name] = value
		}
	}
	for _, c := range claudeClouds {
		if on := cmp.Or(settings[c.variable], h.value(c.variable)); on != "" && on != "0" && on != "false" {
			return Model{Direct: "Claude Code talks to " + c.cloud + " (" + c.variable + "), which ctxgate does not serve: its tools go through the gateway, its conversation does not"}
		}
	}
	m := Model{Kinds: []string{Anthropic}, Upstream: map[string]string{}}
	if url := cmp.Or(settings[claudeBaseURL], h.value(claudeBaseURL)); url != "" {
		m.Upstream[Anthropic] = url
	}
	if settings[claudeBaseURL] != "" {
		m.setting = claudeBaseURL
	}
	return m
}

// claudeCommands are the commands of Claude Code that start no conversation.
var claudeCommands = []string{"mcp", "config", "doctor", "update", "upgrade", "install", "setup-token", "plugin", "auth", "agents", "migrate-installer"}

// claudeRecoverTool is recover_text as Claude Code names it.
const claudeRecoverTool = "mcp__ctxgate__" + recovertool.Name

func wireClaude(c *Command, w Wiring) error {
	if w.URL != "" {
		c.setenv(claudeBaseURL, w.URL)
		if w.Token != "" {
			headers := "X-Ctxgate-Token: " + w.Token
			if own := c.value("ANTHROPIC_CUSTOM_HEADERS"); own != "" {
				headers = own + "\n" + headers
			}
			c.setenv("ANTHROPIC_CUSTOM_HEADERS", headers)
		}
	}
	if len(c.Args) > 0 && slices.Contains(claudeCommands, c.Args[0]) {
		return nil
	}
	if w.URL != "" && w.model.setting != "" {
		if hasOption(c.Args, "--settings") {
			c.note("a settings file of Claude Code sets %s, and --settings is yours: the conversation does not go through the gateway", claudeBaseURL)
		} else {
			override, err := json.Marshal(claudeSettings{Env: map[string]string{claudeBaseURL: w.URL}})
			if err != nil {
				return err
			}
			c.prepend("--settings=" + string(override))
		}
	}
	file, err := w.writeJSON("claude-mcp.json", w.file("http"))
	if err != nil {
		return err
	}
	// With "=" the option takes one value; without, it would take the prompt too. The model may read back what was cut
	// from its conversation without a question to the user; the option adds to those that the user gives.
	c.prepend("--mcp-config="+file, "--allowedTools="+claudeRecoverTool)
	if w.IsOnly && !hasOption(c.Args[1:], "--mcp-config") {
		c.prepend("--strict-mcp-config")
	}
	return nil
}
