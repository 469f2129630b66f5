package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/config"
)

func loadText(t *testing.T, text string, env ...string) config.Loaded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ctxgate.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, problems := config.Load(path, env)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return loaded
}

// H2, H8: the profile is "document" unless the config says "agents"; the chat configuration follows it.
func TestProfile(t *testing.T) {
	for text, agents := range map[string]bool{"": false, `profile = "document"`: false, `profile = "agents"`: true} {
		if got := loadText(t, text).Chat.ObservationMasking.Schema1.Agents; got != agents {
			t.Errorf("%q: agents %v", text, got)
		}
	}
	if loaded, problems := config.Load("", config.Env{"CTXGATE_PROFILE=agents"}); len(problems) > 0 || !loaded.Chat.ObservationMasking.Schema1.Agents {
		t.Errorf("by the environment: %v", problems)
	}
	path := filepath.Join(t.TempDir(), "ctxgate.json")
	if err := os.WriteFile(path, []byte(`{"profile":"agent"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, problems := config.Load(path, nil); len(problems) != 1 || !strings.Contains(problems[0].String(), "agents") {
		t.Errorf("an unknown profile: %v", problems)
	}
}

// The profile "document" is the bare defaults.
func TestProfileDocumentChangesNoDefault(t *testing.T) {
	if found := config.Diff(config.Default(), config.DefaultFor("document")); len(found) > 0 {
		t.Errorf("differs in %v", found)
	}
	if found := loadText(t, `profile = "document"`).ProfileSettings(nil); len(found) > 0 {
		t.Errorf("sets %v", found)
	}
}

// What the profile "agents" sets, so that agents work without further keys.
func TestProfileAgentsSetsWhatAgentsNeed(t *testing.T) {
	c := loadText(t, `profile = "agents"`).Config
	o := c.Chat.ObservationMasking
	if c.Hub.Naming.Separator != "__" || c.Pruner.Builtin || !o.Recovery.Offer || !o.Schema1.PastBreakpoints || o.Schema1.Advance != "auto" {
		t.Errorf("got %+v, builtin %v, %+v", c.Hub.Naming, c.Pruner.Builtin, o)
	}
	var names []string
	for _, p := range c.Chat.Providers {
		names = append(names, p.Name+" "+string(p.Kind)+" "+p.BaseURL.Reveal())
		if p.APIKey.IsSet() {
			t.Errorf("%s has a key of its own", p.Name)
		}
	}
	if want := []string{"anthropic anthropic https://api.anthropic.com", "openai openai https://api.openai.com/v1", "google gemini https://generativelanguage.googleapis.com"}; !slices.Equal(names, want) {
		t.Errorf("providers %q", names)
	}
	if report := strings.Join(c.Chat.PriceReport(), "\n"); !strings.Contains(report, "anthropic: the built-in table") || !strings.Contains(report, "openai: the built-in table") {
		t.Errorf("prices:\n%s", report)
	}
}

// What a file or a variable sets wins over the profile, wherever in the file the profile is named.
func TestExplicitKeysWinOverTheProfile(t *testing.T) {
	c := loadText(t, `
[naming]
separator = "::"
[observation_masking.recovery]
offer = false
[[providers]]
name = "mine"
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
`, "CTXGATE_PROFILE=agents", "CTXGATE_MCP_PRUNER_BUILTIN=true").Config
	if c.Hub.Naming.Separator != "::" || c.Chat.ObservationMasking.Recovery.Offer || !c.Pruner.Builtin || len(c.Chat.Providers) != 1 || c.Chat.Providers[0].Name != "mine" {
		t.Errorf("got %+v", c)
	}
	if !c.Chat.ObservationMasking.Schema1.PastBreakpoints {
		t.Error("what the file does not set is not the profile's")
	}
	back := loadText(t, `profile = "agents"`, "CTXGATE_PROFILE=document").Config
	if found := config.Diff(config.Default(), back); len(found) > 0 {
		t.Errorf("the variable does not win over the file: %v", found)
	}
}

// The list of what a profile sets names the file's line or the variable that overrides a key.
func TestProfileSettingsNameWhatOverridesThem(t *testing.T) {
	env := []string{"CTXGATE_MCP_PRUNER_BUILTIN=true"}
	loaded := loadText(t, "profile = \"agents\"\n[naming]\nseparator = \"-\"\n", env...)
	var lines []string
	for _, s := range loaded.ProfileSettings(env) {
		lines = append(lines, strings.ReplaceAll(s.String(), filepath.Dir(loaded.File.Path)+string(filepath.Separator), ""))
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		`naming.separator = "__" (not used: set by ctxgate.toml:3)`, "mcp_pruner.builtin = false (not used: set by CTXGATE_MCP_PRUNER_BUILTIN)",
		"observation_masking.recovery.offer = true", `providers = ["anthropic", "openai", "google"]`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// A reload from one profile to the other reports every key that changes.
func TestDiffOfTwoProfilesListsTheirKeys(t *testing.T) {
	var keys []string
	for _, d := range config.Diff(config.Default(), config.DefaultFor("agents")) {
		keys = append(keys, d.Key)
	}
	for _, want := range []string{"profile", "naming.separator", "mcp_pruner.builtin", "observation_masking.recovery.offer", "providers.anthropic"} {
		if !slices.Contains(keys, want) {
			t.Errorf("%s is missing in %q", want, keys)
		}
	}
}
