package launch

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func cline() Agent {
	return Agent{
		ID: "cline", Names: []string{"cline"}, Title: "Cline", Program: "cline", Install: "npm install -g cline",
		model: func(Host, []string) Model {
			return Model{Direct: "Cline keeps its model's address in a file: its tools go through the gateway, its conversation does not (set the base URL of its provider to the gateway's for that)"}
		},
		wire: func(c *Command, w Wiring) error {
			file, err := w.writeJSON("cline_mcp_settings.json", w.file("streamableHttp"))
			if err == nil {
				c.setenv("CLINE_MCP_SETTINGS_PATH", file)
			}
			return err
		},
	}
}

func copilot() Agent {
	return Agent{
		ID: "copilot", Names: []string{"copilot"}, Title: "Copilot CLI", Program: "copilot", Install: "npm install -g @github/copilot",
		model: copilotModel,
		wire: func(c *Command, w Wiring) error {
			for _, kind := range w.model.Kinds {
				if !w.hasKind(kind) {
					continue
				}
				c.setenv(copilotBaseURL, w.URL+map[string]string{OpenAI: "/v1"}[kind])
				if w.Token != "" {
					c.setenv("COPILOT_PROVIDER_HEADERS", strings.TrimPrefix(c.value("COPILOT_PROVIDER_HEADERS")+"\nX-Ctxgate-Token: "+w.Token, "\n"))
				}
			}
			servers := w.file("http")
			e := servers.Servers[EntryName]
			e.Tools = []string{"*"}
			if e.Command != "" {
				e.Type = "local"
			}
			servers.Servers[EntryName] = e
			file, err := w.writeJSON("copilot-mcp.json", servers)
			if err == nil {
				c.prepend("--additional-mcp-config=@" + file)
			}
			for _, name := range w.Replace {
				c.prepend("--disable-mcp-server=" + name)
			}
			return err
		},
	}
}

const copilotBaseURL = "COPILOT_PROVIDER_BASE_URL"

// copilotModel follows a provider of the user's own. GitHub's models are reached by a service of its own.
func copilotModel(h Host, _ []string) Model {
	url, kind := h.value(copilotBaseURL), cmp.Or(h.value("COPILOT_PROVIDER_TYPE"), OpenAI)
	switch {
	case url == "":
		return Model{Direct: "Copilot's models are GitHub's: its tools go through the gateway, its conversation does not"}
	case kind != OpenAI && kind != Anthropic, h.value("COPILOT_PROVIDER_TRANSPORT") == "websockets":
		return Model{Direct: "Copilot's provider is of a kind that ctxgate does not serve: its tools go through the gateway, its conversation does not"}
	}
	return Model{Kinds: []string{kind}, Upstream: map[string]string{kind: url}}
}

func continueCLI() Agent {
	return Agent{
		ID: "continue", Names: []string{"continue", "cn"}, Title: "Continue", Program: "cn", Install: "npm install -g @continuedev/cli",
		model: continueModel, wire: wireContinue,
	}
}

// continueFile is the configuration that Continue would use: the one on its command line, or the user's.
func continueFile(h Host, args []string) string {
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, "--config="); ok {
			return value
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return filepath.Join(h.dir("CONTINUE_GLOBAL_DIR", ".continue"), "config.yaml")
}

type continueModels struct {
	Models []struct {
		Provider string `yaml:"provider"`
		APIBase  string `yaml:"apiBase"`
	} `yaml:"models"`
}

// continueModel finds the models of Continue's configuration that the gateway can serve.
func continueModel(h Host, args []string) Model {
	var found continueModels
	if err := yaml.Unmarshal(readSettings(continueFile(h, args)), &found); err != nil || len(found.Models) == 0 {
		return Model{Direct: "Continue has no config file with models: its conversation does not go through the gateway"}
	}
	m := Model{Upstream: map[string]string{}}
	var others []string
	for _, model := range found.Models {
		known, isKnown := m.Upstream[model.Provider]
		switch {
		case model.Provider != Anthropic && model.Provider != OpenAI:
			others = append(others, model.Provider)
		case isKnown && known != model.APIBase:
			others = append(others, model.APIBase)
		default:
			m.Upstream[model.Provider] = model.APIBase
			if !slices.Contains(m.Kinds, model.Provider) {
				m.Kinds = append(m.Kinds, model.Provider)
			}
		}
	}
	if len(others) > 0 {
		m.Direct = "conversations with these models of Continue do not go through the gateway: " + strings.Join(others, ", ")
	}
	return m
}

// wireContinue starts Continue with a copy of its configuration that has the gateway in it.
func wireContinue(c *Command, w Wiring) error {
	source := continueFile(c.Host, c.Args)
	content := map[string]any{"name": "ctxgate", "version": "1.0.0", "schema": "v1"}
	if err := yaml.Unmarshal(readSettings(source), &content); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	models, _ := content["models"].([]any)
	for _, one := range models {
		m, _ := one.(map[string]any)
		kind, _ := m["provider"].(string)
		base, _ := m["apiBase"].(string)
		if w.hasKind(kind) && w.Token == "" && w.model.Upstream[kind] == base {
			m["apiBase"] = w.URL + "/v1/"
		}
	}
	e := w.entry("streamable-http")
	entry := map[string]any{"name": EntryName, "command": e.Command, "args": e.Args, "env": e.Env}
	if e.Command == "" {
		entry = map[string]any{"name": EntryName, "type": e.Type, "url": e.URL}
		if len(e.Headers) > 0 {
			entry["requestOptions"] = map[string]any{"headers": e.Headers}
		}
	}
	servers, _ := content["mcpServers"].([]any)
	servers = slices.DeleteFunc(slices.Clone(servers), func(one any) bool {
		m, _ := one.(map[string]any)
		name, _ := m["name"].(string)
		return name == EntryName || slices.Contains(w.Replace, name)
	})
	content["mcpServers"] = append(servers, entry)
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	file := filepath.Join(w.Dir, "continue.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if i := slices.Index(c.Args, "--config"); i >= 0 && i+1 < len(c.Args) {
		c.Args = slices.Delete(c.Args, i, i+2)
	}
	c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--config=") })
	c.prepend("--config", file)
	return nil
}
