package history

import (
	"fmt"
	"testing"

	"github.com/ctxgate/ctxgate/llm"
)

// H+5: the hub's recover_text counts under any prefix; a tool that only resembles it does not.
func TestOffersRecovery(t *testing.T) {
	const params = `{"type":"object","properties":{"prune_id":{"type":"string"}}}`
	bodies := map[llm.Codec]string{
		openAIChat:        `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"x"}},{"type":"function","function":{"name":%q,"parameters":%s}}]}`,
		anthropicMessages: `{"model":"m","tools":[{"type":"bash_20250124","name":"bash"},{"name":%q,"input_schema":%s}],"messages":[]}`,
		openAIResponses:   `{"model":"m","input":"x","tools":[{"type":"web_search"},{"type":"function","name":%q,"parameters":%s}]}`,
		geminiContents:    `{"contents":[],"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"x"}]},{"function_declarations":[{"name":%q,"parameters":%s}]}]}`,
	}
	for _, c := range []struct {
		name, params string
		want         bool
	}{
		{"recover_text", params, true},
		{"mcp__ctxgate__recover_text", params, true},
		{"pruner::recover_text", params, true},
		{"hub.recover_text", params, true},
		{"recover_text", `{}`, false},
		{"recover_texts", params, false},
		{"xrecover_text", params, false},
		{"é" + "recover_text", params, false},
		{"other", `{"description":"recover_text prune_id"}`, false},
	} {
		for shape, body := range bodies {
			d, err := Read(shape, fmt.Appendf(nil, body, c.name, c.params), 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.OffersRecovery(); got != c.want {
				t.Errorf("%s: %s %s: got %v", shape, c.name, c.params, got)
			}
		}
	}
	for _, tools := range []string{`[]`, `null`, `7`, `[null,7,"recover_text prune_id"]`, `{"name":"recover_text prune_id"}`} {
		d, err := Read(openAIChat, []byte(`{"messages":[],"tools":`+tools+`}`), 0)
		if err != nil {
			t.Fatal(err)
		}
		if d.OffersRecovery() {
			t.Errorf("%s: OffersRecovery is true", tools)
		}
	}
}
