package launch

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

func gemini() Agent {
	return Agent{
		ID: "gemini", Names: []string{"gemini"}, Title: "Gemini CLI", Program: "gemini", Install: "npm install -g @google/gemini-cli",
		model: geminiModel, wire: wireGemini,
	}
}

const geminiBaseURL = "GOOGLE_GEMINI_BASE_URL"

type geminiSettings struct {
	Security struct {
		Auth struct {
			SelectedType string `json:"selectedType"`
		} `json:"auth"`
	} `json:"security"`
}

// geminiModel follows Gemini CLI's choice of an account. Only with an API key does it use Gemini's API.
func geminiModel(h Host, _ []string) Model {
	home := h.dir("GEMINI_CLI_HOME")
	own := readDotEnv(filepath.Join(h.Cwd, ".gemini", ".env"), filepath.Join(h.Cwd, ".env"), filepath.Join(home, ".gemini", ".env"), filepath.Join(home, ".env"))
	value := func(name string) string { return cmp.Or(h.value(name), own[name]) }
	chosen := ""
	for _, dir := range []string{home, h.Cwd} {
		s := readJSONC[geminiSettings](filepath.Join(dir, ".gemini", "settings.json"))
		chosen = cmp.Or(s.Security.Auth.SelectedType, chosen)
	}
	var why string
	switch {
	case chosen == "vertex-ai", chosen == "" && value("GOOGLE_GENAI_USE_VERTEXAI") == "true":
		why = "it uses Vertex AI, which ctxgate does not serve"
	case chosen != "" && chosen != "gemini-api-key" && chosen != "gateway", chosen == "" && value("GOOGLE_GENAI_USE_GCA") == "true":
		why = "it is logged in with a Google account, whose service ctxgate does not serve"
	case chosen == "" && value("GEMINI_API_KEY") == "" && value(geminiBaseURL) == "":
		why = "it has no API key (GEMINI_API_KEY)"
	default:
		return Model{Kinds: []string{Gemini}, Upstream: map[string]string{Gemini: value(geminiBaseURL)}}
	}
	return Model{Direct: "the tools of Gemini CLI go through the gateway, its conversation does not: " + why}
}

func qwen() Agent {
	return Agent{
		ID: "qwen", Names: []string{"qwen"}, Title: "Qwen Code", Program: "qwen", Install: "npm install -g @qwen-code/qwen-code",
		model: qwenModel,
		wire: func(c *Command, w Wiring) error {
			if w.URL != "" && w.Token == "" {
				c.setenv("OPENAI_BASE_URL", w.URL+"/v1")
			} else if w.URL != "" {
				c.note("Qwen Code cannot send auth_token beside its own key: its conversation does not go through the gateway")
			}
			return wireQwenTools(c, w)
		},
	}
}

type qwenSettings struct {
	Security struct {
		Auth struct {
			SelectedType string `json:"selectedType"`
			BaseURL      string `json:"baseUrl"`
		} `json:"auth"`
	} `json:"security"`
	ModelProviders map[string]any `json:"modelProviders"`
}

// qwenModel follows OPENAI_BASE_URL, the one address that can be changed for a single process.
func qwenModel(h Host, args []string) Model {
	s := readJSONC[qwenSettings](filepath.Join(h.dir("QWEN_HOME", ".qwen"), "settings.json"))
	var why string
	switch auth := s.Security.Auth; {
	case hasOption(args, "--openai-base-url", "--openaiBaseUrl", "--auth-type"):
		why = "the command line chooses its provider"
	case auth.SelectedType != "" && auth.SelectedType != "openai":
		why = "it is logged in with " + auth.SelectedType
	case auth.BaseURL != "" || len(s.ModelProviders) > 0:
		why = "its settings choose the provider"
	case h.value("OPENAI_BASE_URL") == "":
		why = "OPENAI_BASE_URL is not set"
	default:
		return Model{Kinds: []string{OpenAI}, Upstream: map[string]string{OpenAI: h.value("OPENAI_BASE_URL")}}
	}
	return Model{Direct: "the tools of Qwen Code go through the gateway, its conversation does not: " + why}
}

// wireQwenTools gives the entry by a file of system settings, with what such a file of the administrator says.
func wireQwenTools(c *Command, w Wiring) error {
	const variable = "QWEN_CODE_SYSTEM_SETTINGS_PATH"
	admins := "/etc/qwen-code/settings.json"
	switch c.GOOS {
	case "darwin":
		admins = "/Library/Application Support/QwenCode/settings.json"
	case "windows":
		admins = filepath.Join(cmp.Or(c.value("ProgramData"), `C:\ProgramData`), "qwen-code", "settings.json")
	}
	settings := withEntry(readJSONC[map[string]any](cmp.Or(c.value(variable), admins)), w)
	file, err := w.writeJSON("settings.json", settings)
	if err != nil {
		return err
	}
	c.setenv(variable, file)
	c.allowOnlyEntry(w)
	return nil
}

// withEntry adds the gateway to the settings of Gemini CLI or Qwen Code.
func withEntry(settings map[string]any, w Wiring) map[string]any {
	if settings == nil {
		settings = map[string]any{}
	}
	servers, _ := settings["mcpServers"].(map[string]any)
	if servers == nil {
		servers = map[string]any{}
	}
	e := w.entry("")
	e.URL, e.HTTPURL = "", e.URL // a URL without type is SSE
	servers[EntryName] = e
	settings["mcpServers"] = servers
	return settings
}

func (c *Command) allowOnlyEntry(w Wiring) {
	if w.IsOnly && !hasOption(c.Args, "--allowed-mcp-server-names") {
		c.prepend("--allowed-mcp-server-names=" + EntryName)
	}
}

// wireGemini starts Gemini CLI with a directory of its own that has the user's settings and the entry, and links to
// everything else that the user's has. System settings, which would be simpler, must be the administrator's.
func wireGemini(c *Command, w Wiring) error {
	own := filepath.Join(c.dir("GEMINI_CLI_HOME"), ".gemini")
	home := filepath.Join(w.Dir, "gemini")
	made := filepath.Join(home, ".gemini")
	if err := os.MkdirAll(made, 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(own, 0o700); err != nil { // what Gemini CLI stores belongs to the user
		return err
	}
	entries, err := os.ReadDir(own)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "settings.json" {
			continue
		}
		if err := os.Symlink(filepath.Join(own, e.Name()), filepath.Join(made, e.Name())); err != nil {
			return err
		}
	}
	settings := readJSONC[map[string]any](filepath.Join(own, "settings.json"))
	if _, err := w.writeJSON(filepath.Join("gemini", ".gemini", "settings.json"), withEntry(settings, w)); err != nil {
		return err
	}
	if w.URL != "" {
		const headers = "GEMINI_CLI_CUSTOM_HEADERS"
		c.setenv(geminiBaseURL, w.URL)
		if w.Token != "" {
			c.setenv(headers, strings.TrimPrefix(c.value(headers)+", X-Ctxgate-Token: "+w.Token, ", "))
		}
	}
	c.setenv("GEMINI_CLI_HOME", home)
	c.allowOnlyEntry(w)
	c.note("settings that you change in Gemini CLI during this run are not kept")
	return nil
}
