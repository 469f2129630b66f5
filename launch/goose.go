package launch

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// goose is as its documentation and source describe it; it is not on npm, so the tests do not start it.
func goose() Agent {
	return Agent{
		ID: "goose", Names: []string{"goose"}, Title: "Goose", Program: "goose", Install: "curl -fsSL https://github.com/block/goose/releases/download/stable/download_cli.sh | bash",
		KeepsServers: true, model: gooseModel, wire: wireGoose,
	}
}

// gooseHosts are the settings that say where Goose finds an API.
var gooseHosts = map[string]string{Anthropic: "ANTHROPIC_HOST", OpenAI: "OPENAI_HOST"}

// gooseModel follows the provider that Goose uses. A variable wins over its file.
func gooseModel(h Host, args []string) Model {
	file := filepath.Join(cmp.Or(h.value("XDG_CONFIG_HOME"), filepath.Join(h.Home, ".config")), "goose", "config.yaml")
	if h.GOOS == "windows" {
		file = filepath.Join(h.value("APPDATA"), "Block", "goose", "config", "config.yaml")
	}
	if root := h.value("GOOSE_PATH_ROOT"); root != "" {
		file = filepath.Join(root, "config", "config.yaml")
	}
	var settings map[string]any
	_ = yaml.Unmarshal(readSettings(file), &settings)
	setting := func(name string) string {
		text, _ := settings[name].(string)
		return cmp.Or(h.value(name), text)
	}
	kind := setting("GOOSE_PROVIDER")
	if hasOption(args, "--provider") || gooseHosts[kind] == "" {
		return Model{Direct: "Goose does not use its provider anthropic or openai: its tools go through the gateway, its conversation does not"}
	}
	m := Model{Kinds: []string{kind}, Upstream: map[string]string{}}
	if url := setting(gooseHosts[kind]); url != "" {
		m.Upstream[kind] = url
	}
	return m
}

func wireGoose(c *Command, w Wiring) error {
	for _, kind := range w.model.Kinds {
		if w.hasKind(kind) && w.Token == "" {
			c.setenv(gooseHosts[kind], w.URL)
		} else if w.URL != "" {
			c.note("Goose cannot send auth_token beside its own key: its conversation does not go through the gateway")
		}
	}
	if len(c.Args) == 0 {
		c.Args = []string{"session"}
	}
	if c.Args[0] != "session" && c.Args[0] != "run" {
		return nil
	}
	e := w.entry("")
	option := []string{"--with-streamable-http-extension", e.URL}
	if e.Command != "" {
		var words []string // the variables come first, as in a shell
		for _, name := range slices.Sorted(maps.Keys(e.Env)) {
			words = append(words, name+"="+shellWord(e.Env[name]))
		}
		for _, word := range append([]string{e.Command}, e.Args...) {
			words = append(words, shellWord(word))
		}
		option = []string{"--with-extension", strings.Join(words, " ")}
	} else if w.Token != "" {
		c.note("Goose cannot send auth_token to an MCP server of the command line: its tools do not go through the gateway")
		return nil
	}
	c.Args = slices.Insert(c.Args, 1, option...)
	return nil
}

// shellWord quotes a word for a shell, if it has to be.
func shellWord(s string) string {
	if !strings.ContainsAny(s, " \t'\"\\$&|;<>()*?~") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
