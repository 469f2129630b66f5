package peers

import (
	"encoding/json"
	"testing"
)

// The SDKs of npm (openai, @anthropic-ai/sdk) through ctxgate: they read what the provider sent, and the
// provider received valid, masked requests.
func TestModelScripts(t *testing.T) {
	for _, w := range modelSetups(t, true) {
		t.Run(w.String(), func(t *testing.T) { w.checkProvider(t, runModelScript(t, w)) })
	}
}

func TestModelScriptsDirect(t *testing.T) {
	for _, w := range modelSetups(t, false) {
		t.Run(w.String(), func(t *testing.T) { w.checkProvider(t, runModelScript(t, w)) })
	}
}

// runModelScript runs the checks of a shape's SDK; each becomes a subtest. It returns the reported usage by
// model.
func runModelScript(t *testing.T, w *llmSetup) map[string][]modelUsage {
	t.Helper()
	w.resetProvider()
	module(t, "openai", "package.json") // fails with a hint if it is missing
	module(t, "@anthropic-ai", "sdk", "package.json")
	used := map[string][]modelUsage{}
	env := environ(t.TempDir()) // no key and no address from the environment
	runScript(t, "model.mjs", w, env, func(name string, line []byte) {
		var check struct{ Used []modelUsage }
		if err := json.Unmarshal(line, &check); err == nil && check.Used != nil {
			used[modelOf[name]] = check.Used
		}
	})
	return used
}
