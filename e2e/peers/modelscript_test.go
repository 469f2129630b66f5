package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

// The SDKs of npm (openai, @anthropic-ai/sdk) through ctxgate: what they say that was said is what
// the provider said, and what the provider saw is valid, and masked.
func TestModelScripts(t *testing.T) {
	for _, w := range modelWorlds(t, true) {
		t.Run(w.String(), func(t *testing.T) { w.judge(t, runModelScript(t, w)) })
	}
}

func TestModelScriptsDirect(t *testing.T) {
	for _, w := range modelWorlds(t, false) {
		t.Run(w.String(), func(t *testing.T) { w.judge(t, runModelScript(t, w)) })
	}
}

// runModelScript lets the SDK of a shape do its checks; each becomes a subtest. What it says that
// its requests used is given by the model it asked.
func runModelScript(t *testing.T, w *modelWorld) map[string][]modelUsage {
	t.Helper()
	w.start()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptLimit)
	defer cancel()
	module(t, "openai", "package.json") // or say what is missing
	module(t, "@anthropic-ai", "sdk", "package.json")
	cmd := exec.CommandContext(ctx, node(t), npm(t, "model.mjs"), string(text))
	cmd.Dir, cmd.Env = t.TempDir(), environ(t.TempDir()) // no key and no address from anywhere else
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	used, last := map[string][]modelUsage{}, ""
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		last = subtest(t, lines.Bytes())
		var check struct{ Used []modelUsage }
		if err := json.Unmarshal(lines.Bytes(), &check); err == nil && check.Used != nil {
			used[modelOf[last]] = check.Used
		}
	}
	if err != nil || last != "close" {
		t.Errorf("model.mjs ended after %q: %v\n%s", last, err, stderr.Bytes())
	}
	return used
}
