package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/config"
)

// H2, H8: the profile is "document" unless the config says "agents"; the model's door hears of it.
func TestProfile(t *testing.T) {
	for text, agents := range map[string]bool{"": false, `profile = "document"`: false, `profile = "agents"`: true} {
		path := filepath.Join(t.TempDir(), "ctxgate.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, problems := config.Load(path, nil)
		if len(problems) > 0 || loaded.Chat.Observation.Schema1.Agents != agents {
			t.Errorf("%q: agents %v, %v", text, loaded.Chat.Observation.Schema1.Agents, problems)
		}
	}
	if loaded, problems := config.Load("", config.Env{"CTXGATE_PROFILE=agents"}); len(problems) > 0 || !loaded.Chat.Observation.Schema1.Agents {
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
