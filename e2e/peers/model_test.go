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

	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// The official SDKs of the model providers, through the real ctxgate in front of a provider that
// checks every request as strictly as the real ones do: H1–H3, H10, H+3. model_test.go is the world
// they find, modeljudge_test.go what the provider must have seen, modelscript_test.go the SDKs of
// npm (their checks are in npm/model.mjs), modelgo_test.go those of Go with modelopenai_test.go and
// modelanthropic_test.go.

// modelWorld is where an SDK finds itself. What is exported is for npm/model.mjs.
type modelWorld struct {
	URL     string             `json:"url"`
	Key     string             `json:"key"`
	Shape   string             `json:"shape"`
	Stream  bool               `json:"stream"`
	Gateway bool               `json:"gateway"`
	System  string             `json:"system"`
	Tools   []modelTool        `json:"tools"`
	Models  []string           `json:"models"`
	Saga    llmtest.Trajectory `json:"saga"`  // of the model test-agent
	Says    llmtest.Step       `json:"says"`  // what most models say
	Calls   llmtest.Step       `json:"calls"` // what test-calls says first

	provider *llmtest.Provider
	busy     busyModels
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

// What each model does is in its name. The last is only there for a gateway, which is told of it.
var scriptedModels = []string{
	"test-say", "test-calls", "test-agent", "test-busy", "test-limited", "test-down", "test-cut", "test-broken", "test-slow", "test-count",
	"test-runner", "patient", "over",
}

// busyModels are those that have been busy once.
type busyModels struct {
	mu   sync.Mutex
	were map[string]bool
}

func (b *busyModels) first(model string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.were[model]
	b.were[model] = true
	return !before
}

// modelWorlds are all shapes, streamed and not, of one provider; behind one gateway, or bare.
func modelWorlds(t *testing.T, gateway bool) []*modelWorld {
	t.Helper()
	p := llmtest.New(t, llmtest.Options{Key: modelKey, Models: scriptedModels, Prices: llmtest.Prices{Write: 1.25, Read: 0.1}, MinCache: 64})
	url := p.URL
	if gateway {
		url = modelGateway(t, p.URL)
	}
	var out []*modelWorld
	for _, shape := range llmtest.Shapes() {
		for _, stream := range []bool{false, true} {
			out = append(out, newModelWorld(p, url, shape, stream, gateway))
		}
	}
	return out
}

func newModelWorld(p *llmtest.Provider, url string, shape llmtest.Shape, stream, gateway bool) *modelWorld {
	think := ""
	if shape != llmtest.Chat { // OpenAI's chat completions have no place for it
		think = "Deux villes, alors deux appels."
	}
	w := &modelWorld{
		URL: url, Key: modelKey, Shape: shape.String(), Stream: stream, Gateway: gateway, Models: scriptedModels, provider: p,
		Saga: modelSaga(think), Says: llmtest.Say("C’est fini : é, ü, 漢字 <b>&amp;</b> \"q\" \\ 😀."),
		Calls: llmtest.Step{Think: think, Text: "Let me see.", Calls: []llmtest.Call{
			{ID: "call_a", Name: "read_file", Args: `{"path":"Lyon & <Paris>"}`},
			{ID: "call_b", Name: "search", Args: `{"pattern":"Kyōto"}`},
		}},
	}
	if gateway {
		w.Models = append(slices.Clip(w.Models), "gone")
	}
	w.System = w.Saga.System
	for _, tool := range w.Saga.Tools {
		w.Tools = append(w.Tools, modelTool{tool.Name, tool.Description, json.RawMessage(tool.Schema)})
	}
	return w
}

func (w *modelWorld) String() string { return fmt.Sprintf("%s/stream=%v", w.Shape, w.Stream) }

// modelSaga is an agent's work: some turns call three tools at once, one result is an error, one is
// too short to be worth a placeholder.
func modelSaga(think string) llmtest.Trajectory {
	t := llmtest.Uniform(0, 0)
	for i := range modelTurns {
		turn := llmtest.Turn{Think: think, Say: fmt.Sprintf("Turn %d.", i)}
		for k := range 1 + 2*(i%3%2) {
			result := strings.Repeat(fmt.Sprintf("src/%d.go:%d: une « ligne » of a long result\n", i, k), 25)
			e := llmtest.Exchange{Call: llmtest.Call{ID: fmt.Sprintf("call_%02d_%d", i, k), Name: "read_file", Args: fmt.Sprintf(`{"path":"src/%d.go"}`, i)}, Result: result}
			switch i {
			case 3:
				e.Result, e.Failed = "Error: open src/3.go: no such file\n"+result, true
			case 5:
				e.Result = "ok"
			}
			turn.Uses = append(turn.Uses, e)
		}
		t.Turns = append(t.Turns, turn)
	}
	return t
}

// start makes the provider do for this world what its models' names say, from the beginning.
func (w *modelWorld) start() {
	w.busy.were = map[string]bool{}
	w.provider.Reset()
	w.provider.ScriptFunc(w.answer)
}

func (w *modelWorld) answer(r llmtest.Request) llmtest.Step {
	busy := llmtest.Step{Fail: &llmtest.Failure{Status: http.StatusTooManyRequests, RetryAfter: 50 * time.Millisecond}}
	long := strings.Repeat("a long answer that goes on ", 40)
	switch r.Model {
	case "test-calls":
		if r.ToolTurns == 0 {
			return w.Calls
		}
	case "test-agent", "test-runner":
		return w.Saga.Answer(r)
	case "test-busy", "patient":
		if w.busy.first(r.Model) {
			return busy
		}
	case "test-limited":
		return busy
	case "test-down":
		if w.Shape == llmtest.Messages.String() {
			return llmtest.Fail(529)
		}
		return llmtest.Fail(503)
	case "test-cut":
		return llmtest.Cut(long, 5)
	case "test-broken":
		return llmtest.Step{Text: long, At: 6, Fail: &llmtest.Failure{Status: 500}}
	case "test-slow":
		return llmtest.Step{Text: long, Delay: w.unstreamed(), Pace: pace}
	}
	return w.Says
}

// modelConfig is the part of ctxgate's configuration that these tests use.
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

// modelGateway runs ctxgate in front of a provider: one entry passes the client's key and asks once,
// one has its own key and asks again, and two name an address where nobody is.
func modelGateway(t *testing.T, url string) string {
	t.Helper()
	home := t.TempDir()
	key := filepath.Join(home, "key")
	if err := os.WriteFile(key, []byte(modelKey), 0o600); err != nil {
		t.Fatal(err)
	}
	nobody := "http://127.0.0.1:" + freePort(t)
	c := modelConfig{
		config:  config{Listen: "127.0.0.1:0", DataDir: filepath.Join(home, "data"), Level: "DEBUG", Servers: []server{}, State: driver{"memory"}},
		Masking: map[string]schema{"schema1": {modelWindow, "turn", 0, modelTemplate}},
		LLM:     map[string]float64{"retry_budget": 1}, // half of what the patient model is asked is asked again
	}
	for _, kind := range []string{"openai", "anthropic"} {
		c.Providers = append(c.Providers,
			modelProvider{Name: kind, Kind: kind, URL: url, Models: []string{"test-*"}},
			modelProvider{Name: kind + "-patient", Kind: kind, URL: url, Key: "file:" + key, Models: []string{"patient"}, Retries: 2},
			modelProvider{Name: kind + "-gone", Kind: kind, URL: nobody, Key: "file:" + key, Models: []string{"gone"}},
			modelProvider{Name: kind + "-over", Kind: kind, URL: nobody, Key: "file:" + key, Models: []string{"over"}, Fallback: []string{kind + "-patient"}},
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
	p, mcp, err := launch(ctxgate.path(t), filepath.Join(t.ArtifactDir(), "ctxgate.log"), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.terminate(); err != nil {
			t.Errorf("ctxgate: %v", err)
		}
		p.tell(t)
	})
	return strings.TrimSuffix(mcp, "/mcp")
}
