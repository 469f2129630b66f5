package launch

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func codex() Agent {
	return Agent{
		ID: "codex", Names: []string{"codex"}, Title: "Codex", Program: "codex", Install: "npm install -g @openai/codex",
		model: codexModel, wire: wireCodex,
	}
}

type codexConfig struct {
	ModelProvider  string                   `toml:"model_provider"`
	OpenAIBaseURL  string                   `toml:"openai_base_url"`
	ModelProviders map[string]codexProvider `toml:"model_providers"`
}

type codexProvider struct {
	BaseURL string `toml:"base_url"`
}

type codexAuth struct {
	Mode   string `json:"auth_mode"`
	APIKey string `json:"OPENAI_API_KEY"` //nolint:gosec // the key of the file, not a credential
	Tokens *struct {
		AccountID string `json:"account_id"`
	} `json:"tokens"`
}

// codexModel finds the provider that Codex uses. Its built-in one has another service for ChatGPT logins.
func codexModel(h Host, args []string) Model {
	if hasOption(args, "--oss", "--local-provider", "--profile", "-p") || codexOverrides(args, "model_provider") || codexOverrides(args, "openai_base_url") {
		return Model{Direct: "the command line chooses the provider of Codex: its tools go through the gateway, its conversation does not"}
	}
	dir := h.dir("CODEX_HOME", ".codex")
	cfg := readTOML[codexConfig](filepath.Join(dir, "config.toml"))
	m := Model{Kinds: []string{OpenAI}, Upstream: map[string]string{}}
	if id := cfg.ModelProvider; id != "" && id != "openai" {
		own := cfg.ModelProviders[id]
		if own.BaseURL == "" || !bareKey.MatchString(id) {
			return Model{Direct: "Codex uses its provider " + strconv.Quote(id) + ", which has no base_url: its tools go through the gateway, its conversation does not"}
		}
		m.Upstream[OpenAI], m.setting = own.BaseURL, "model_providers."+id+".base_url"
		return m
	}
	auth := readJSONC[codexAuth](filepath.Join(dir, "auth.json"))
	switch {
	case h.value("CODEX_API_KEY") != "", auth.APIKey != "" && auth.Tokens == nil:
	case auth.Tokens != nil || auth.Mode == "chatgpt":
		return Model{Direct: "Codex is logged in with ChatGPT, whose service ctxgate does not serve: its tools go through the gateway, its conversation does not ('codex login --with-api-key' changes that)"}
	default:
		return Model{Direct: "Codex has no API key: its tools go through the gateway, its conversation does not ('codex login --with-api-key' changes that)"}
	}
	if cfg.OpenAIBaseURL != "" {
		m.Upstream[OpenAI] = cfg.OpenAIBaseURL
	} else if url := h.value("OPENAI_BASE_URL"); url != "" {
		m.Upstream[OpenAI] = url
	}
	m.setting = "openai_base_url"
	return m
}

// bareKey is a key that can stand in the path of an override.
var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// codexOverrides reports whether -c sets a key.
func codexOverrides(args []string, key string) bool {
	for i, a := range args {
		value, isLong := strings.CutPrefix(a, "--config=")
		if i > 0 && (args[i-1] == "-c" || args[i-1] == "--config") {
			value, isLong = a, true
		}
		if isLong && strings.HasPrefix(strings.TrimSpace(value), key) {
			return true
		}
	}
	return false
}

func wireCodex(c *Command, w Wiring) error {
	var overrides []string
	set := func(key, value string) { overrides = append(overrides, "-c", key+"="+value) }
	if w.URL != "" && w.Token == "" {
		set(w.model.setting, tomlText(w.URL+"/v1"))
	} else if w.URL != "" {
		c.note("Codex cannot send auth_token beside its own key: its conversation does not go through the gateway")
	}
	e := w.entry("")
	table := "url = " + tomlText(e.URL)
	if e.Command != "" {
		table = "command = " + tomlText(e.Command) + ", args = " + tomlList(e.Args)
	}
	if len(e.Env) > 0 {
		table += ", env = " + tomlTable(e.Env)
	}
	if len(e.Headers) > 0 {
		table += ", http_headers = " + tomlTable(e.Headers)
	}
	// Without required, Codex does not wait for the server before its first request.
	set("mcp_servers."+EntryName, "{ "+table+", required = true, startup_timeout_sec = 60 }")
	for _, name := range slices.Sorted(slices.Values(w.Replace)) {
		if bareKey.MatchString(name) && name != EntryName {
			set("mcp_servers."+name+".enabled", "false")
		}
	}
	c.prepend(overrides...)
	return nil
}

// tomlText is a TOML string. Go's escapes of what is not printable are TOML's, but for \x, \a and \v.
func tomlText(s string) string {
	if !strings.ContainsAny(s, "'\n\r") {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}

func tomlTable(m map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, name+" = "+tomlText(m[name]))
	}
	return "{ " + strings.Join(pairs, ", ") + " }"
}

func tomlList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = tomlText(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
