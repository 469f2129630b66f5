package launch

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

func openCode() Agent {
	return Agent{
		ID: "opencode", Names: []string{"opencode"}, Title: "opencode", Program: "opencode", Install: "npm install -g opencode-ai",
		model: openCodeModel, wire: wireOpenCode,
	}
}

const openCodeContent = "OPENCODE_CONFIG_CONTENT"

type openCodeConfig struct {
	Provider map[string]struct {
		Options struct {
			BaseURL string `json:"baseURL"`
		} `json:"options"`
	} `json:"provider"`
}

// openCodeModel finds the providers that opencode's files configure. Those named anthropic and openai go through the
// gateway, unless they are used with a login that has a service of its own.
func openCodeModel(h Host, _ []string) Model {
	global := filepath.Join(cmp.Or(h.value("XDG_CONFIG_HOME"), filepath.Join(h.Home, ".config")), "opencode")
	files := []string{filepath.Join(global, "config.json"), filepath.Join(global, "opencode.json"), filepath.Join(global, "opencode.jsonc"), h.value("OPENCODE_CONFIG")}
	for _, name := range []string{"opencode.json", "opencode.jsonc"} {
		above := h.upwards(name)
		slices.Reverse(above)
		files = append(files, above...)
	}
	m := Model{Upstream: map[string]string{}}
	var others []string
	for _, file := range files {
		if file == "" {
			continue
		}
		for name, p := range readJSONC[openCodeConfig](file).Provider {
			switch {
			case name != Anthropic && name != OpenAI:
				others = append(others, name)
			case p.Options.BaseURL != "":
				m.Upstream[name] = p.Options.BaseURL
			}
		}
	}
	data := cmp.Or(h.value("XDG_DATA_HOME"), filepath.Join(h.Home, ".local", "share"))
	logins := readJSONC[map[string]struct {
		Type string `json:"type"`
	}](filepath.Join(data, "opencode", "auth.json"))
	for _, kind := range []string{Anthropic, OpenAI} {
		if logins[kind].Type == "oauth" && kind == OpenAI {
			others = append(others, "openai, with the ChatGPT login,")
			continue
		}
		m.Kinds = append(m.Kinds, kind)
	}
	if len(others) > 0 {
		slices.Sort(others)
		m.Direct = "conversations with opencode's providers anthropic and openai go through the gateway; those with " + strings.Join(slices.Compact(others), ", ") + " do not"
	}
	return m
}

func wireOpenCode(c *Command, w Wiring) error {
	content := map[string]any{}
	if own := c.value(openCodeContent); own != "" {
		if err := json.Unmarshal([]byte(own), &content); err != nil {
			return err
		}
	}
	below := func(key string) map[string]any {
		table, _ := content[key].(map[string]any)
		if table == nil {
			table = map[string]any{}
			content[key] = table
		}
		return table
	}
	for _, kind := range w.model.Kinds {
		if w.hasKind(kind) {
			options := map[string]any{"baseURL": w.URL + "/v1"}
			if w.Token != "" {
				options["headers"] = map[string]string{"X-Ctxgate-Token": w.Token}
			}
			below("provider")[kind] = map[string]any{"options": options}
		}
	}
	e := w.entry("remote")
	entry := map[string]any{"type": "remote", "url": e.URL, "enabled": true, "oauth": false, "timeout": 60_000, "headers": e.Headers}
	if e.Command != "" {
		entry = map[string]any{"type": "local", "command": append([]string{e.Command}, e.Args...), "environment": e.Env, "enabled": true, "timeout": 60_000}
	}
	for _, key := range []string{"headers", "environment"} {
		if m, ok := entry[key].(map[string]string); ok && len(m) == 0 {
			delete(entry, key)
		}
	}
	servers := below("mcp")
	for _, name := range w.Replace {
		servers[name] = map[string]any{"enabled": false}
	}
	servers[EntryName] = entry
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	c.setenv(openCodeContent, string(text))
	return nil
}
