package peers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// The official SDKs of the model providers through the real ctxgate, in front of a provider that validates
// every request as strictly as the real ones (H1–H3, H10, H+3). model_test.go sets up the setup,
// modeljudge_test.go checks what the provider received, modelscript_test.go runs the SDKs of npm (their
// checks are in npm/model.mjs), modelgo_test.go with modelopenai_test.go, modelanthropic_test.go and
// modelgemini_test.go those for Go.

// llmSetup is what an SDK connects to. Exported fields are for npm/model.mjs.
type llmSetup struct {
	URL          string                  `json:"url"`
	Key          string                  `json:"key"`
	Shape        string                  `json:"shape"`
	Stream       bool                    `json:"stream"`
	Gateway      bool                    `json:"gateway"`
	System       string                  `json:"system"`
	Tools        []modelTool             `json:"tools"`
	Models       []string                `json:"models"`
	Conversation trajectories.Trajectory `json:"conversation"` // of the model test-agent
	Says         fakeprovider.Step       `json:"says"`         // the reply of most models
	Calls        fakeprovider.Step       `json:"calls"`        // the first reply of test-calls

	provider *fakeprovider.Provider
	busy     onceBusy
}

type modelTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

const (
	modelKey    = "sk-mine"
	modelWindow = 2
	modelTurns  = 12
)

// The names say what the models do. The last two are for the gateway's retries and fallbacks.
var scriptedModels = []string{
	"test-say", "test-calls", "test-agent", "test-busy", "test-limited", "test-down", "test-cut", "test-broken", "test-slow", "test-count",
	"test-runner", "patient", "over",
}

// onceBusy remembers which models were busy once.
type onceBusy struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (b *onceBusy) first(model string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.seen[model]
	b.seen[model] = true
	return !before
}

// modelSetups returns all shapes, and more, streamed and not, behind one gateway or direct.
func modelSetups(t *testing.T, gateway bool, more ...fakeprovider.Shape) []*llmSetup {
	t.Helper()
	p := fakeprovider.New(t, fakeprovider.Options{Key: modelKey, Models: scriptedModels, Prices: fakeprovider.Prices{Write: 1.25, Read: 0.1}, MinCacheTokens: 64})
	url := p.URL
	if gateway {
		url = modelGateway(t, p.URL)
	}
	var out []*llmSetup
	for _, shape := range append(fakeprovider.AllShapes(), more...) {
		for _, stream := range []bool{false, true} {
			out = append(out, newModelSetup(p, url, shape, stream, gateway))
		}
	}
	return out
}

func newModelSetup(p *fakeprovider.Provider, url string, shape fakeprovider.Shape, stream, gateway bool) *llmSetup {
	think := ""
	if shape != fakeprovider.Chat { // chat completions have no thinking
		think = "Deux villes, alors deux appels."
	}
	w := &llmSetup{
		URL: url, Key: modelKey, Shape: shape.String(), Stream: stream, Gateway: gateway, Models: scriptedModels, provider: p,
		Conversation: newAgentConversation(think), Says: fakeprovider.ReplyText("C’est fini : é, ü, 漢字 <b>&amp;</b> \"q\" \\ 😀."),
		Calls: fakeprovider.Step{Thinking: think, Text: "Let me see.", Calls: []fakeprovider.Call{
			{ID: "call_a", Name: "read_file", Args: `{"path":"Lyon & <Paris>"}`},
			{ID: "call_b", Name: "search", Args: `{"pattern":"Kyōto"}`},
		}},
	}
	if gateway {
		w.Models = append(slices.Clip(w.Models), "gone")
	}
	w.System = w.Conversation.System
	for _, tool := range w.Conversation.Tools {
		w.Tools = append(w.Tools, modelTool{tool.Name, tool.Description, json.RawMessage(tool.Schema)})
	}
	return w
}

func (w *llmSetup) String() string { return fmt.Sprintf("%s/stream=%v", w.Shape, w.Stream) }

// newAgentConversation has turns with three parallel calls, an error result, and a result that is too short
// for a placeholder.
func newAgentConversation(think string) trajectories.Trajectory {
	t := trajectories.Uniform(0, 0)
	for i := range modelTurns {
		turn := trajectories.Turn{Thinking: think, Text: fmt.Sprintf("Turn %d.", i)}
		for k := range 1 + 2*(i%3%2) {
			result := strings.Repeat(fmt.Sprintf("src/%d.go:%d: une « ligne » of a long result\n", i, k), 25)
			e := trajectories.ToolUse{Call: fakeprovider.Call{ID: fmt.Sprintf("call_%02d_%d", i, k), Name: "read_file", Args: fmt.Sprintf(`{"path":"src/%d.go"}`, i)}, Result: result}
			switch i {
			case 3:
				e.Result, e.IsError = "Error: open src/3.go: no such file\n"+result, true
			case 5:
				e.Result = "ok"
			}
			turn.ToolUses = append(turn.ToolUses, e)
		}
		t.Turns = append(t.Turns, turn)
	}
	return t
}

// resetProvider resets the provider and its script.
func (w *llmSetup) resetProvider() {
	w.busy.seen = map[string]bool{}
	w.provider.Reset()
	w.provider.ScriptFunc(w.scriptedReply)
}

func (w *llmSetup) scriptedReply(r fakeprovider.Request) fakeprovider.Step {
	busy := fakeprovider.Step{Fail: &fakeprovider.Failure{Status: http.StatusTooManyRequests, RetryAfter: 50 * time.Millisecond}}
	long := strings.Repeat("a long answer that goes on ", 40)
	switch r.Model {
	case "test-calls":
		if r.ToolTurns == 0 {
			return w.Calls
		}
	case "test-agent", "test-runner":
		return w.Conversation.Answer(r)
	case "test-busy", "patient":
		if w.busy.first(r.Model) {
			return busy
		}
	case "test-limited":
		return busy
	case "test-down":
		if w.Shape == fakeprovider.Messages.String() {
			return fakeprovider.FailWith(529)
		}
		return fakeprovider.FailWith(503)
	case "test-cut":
		return fakeprovider.CutAfter(long, 5)
	case "test-broken":
		return fakeprovider.Step{Text: long, AfterEvents: 6, Fail: &fakeprovider.Failure{Status: 500}}
	case "test-slow":
		return fakeprovider.Step{Text: long, Delay: w.slowDelay(), EventDelay: eventDelay}
	}
	return w.Says
}

// modelConfig is the part of the configuration that these tests use.
type modelConfig struct {
	config
	Providers []modelProvider    `json:"providers"`
	Masking   map[string]schema  `json:"observation_masking"`
	LLM       map[string]float64 `json:"llm"`
}

type modelProvider struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	URL      string   `json:"base_url"`
	Key      string   `json:"api_key,omitempty"`
	Models   []string `json:"models"`
	Retries  int      `json:"retries"`
	Fallback []string `json:"fallback,omitempty"`
}

type schema struct {
	Window   int    `json:"window_turns"`
	Advance  string `json:"advance"`
	Handles  int    `json:"keep_handles"`
	Template string `json:"placeholder_template"`
}

// modelGateway runs ctxgate in front of a provider: one entry passes on the client's key without retries, one
// has its own key and retries, and two have an unreachable address.
func modelGateway(t *testing.T, url string) string {
	t.Helper()
	home := t.TempDir()
	key := filepath.Join(home, "key")
	if err := os.WriteFile(key, []byte(modelKey), 0o600); err != nil {
		t.Fatal(err)
	}
	unreachable := "http://" + freeAddress(t)
	c := modelConfig{
		config:  config{Listen: "127.0.0.1:0", DataDir: filepath.Join(home, "data"), Level: "DEBUG", Servers: []server{}, State: driver{"memory"}},
		Masking: map[string]schema{"schema1": {modelWindow, "turn", 0, modelTemplate}},
		LLM:     map[string]float64{"retry_budget": 1}, // half of the requests for the model "patient" are retried
	}
	for _, kind := range []string{"openai", "anthropic", "gemini"} {
		c.Providers = append(c.Providers,
			modelProvider{Name: kind, Kind: kind, URL: url, Models: []string{"test-*"}},
			modelProvider{Name: kind + "-patient", Kind: kind, URL: url, Key: "file:" + key, Models: []string{"patient"}, Retries: 2},
			modelProvider{Name: kind + "-gone", Kind: kind, URL: unreachable, Key: "file:" + key, Models: []string{"gone"}},
			modelProvider{Name: kind + "-over", Kind: kind, URL: unreachable, Key: "file:" + key, Models: []string{"over"}, Fallback: []string{kind + "-patient"}},
		)
	}
	text, err := json.MarshalIndent(c, "", "  ")
	s := site{home, filepath.Join(home, "ctxgate.json")}
	if err == nil {
		err = os.WriteFile(s.config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return serveSite(t, s).URL
}
