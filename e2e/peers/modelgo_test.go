package peers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// llmClient is a Go SDK for one shape.
type llmClient interface {
	openConversation(w *llmSetup, model, key string, retries int) llmConversation
	models(ctx context.Context) ([]string, error)
	model(ctx context.Context, id string) (string, error)
	count(ctx context.Context, w *llmSetup, model string) (int, error)
}

// llmConversation is a growing conversation. onDelta is called with each text delta of a stream.
type llmConversation interface {
	user(text string)
	results(list []trajectories.ToolUse)
	sendRequest(ctx context.Context, onDelta func(string)) (llmReply, error)
}

// llmReply is a reply as the SDK reads it.
type llmReply struct {
	text, thought string
	calls         []fakeprovider.Call
	stop          string
	used          modelUsage
}

// stopReasons are a shape's finish reasons: at the end, and for tool calls.
var stopReasons = map[string][2]string{
	"chat": {"stop", "tool_calls"}, "responses": {"completed", "completed"}, "messages": {"end_turn", "tool_use"}, "gemini": {"STOP", "STOP"},
}

// The Go SDKs (openai-go, anthropic-sdk-go, genai) through ctxgate, with the checks of npm/model.mjs.
func TestModelGoSDKs(t *testing.T) {
	for _, w := range modelSetups(t, true, fakeprovider.Gemini) {
		t.Run(w.String(), func(t *testing.T) { runModelGo(t, w) })
	}
}

func TestModelGoSDKsDirect(t *testing.T) {
	for _, w := range modelSetups(t, false, fakeprovider.Gemini) {
		t.Run(w.String(), func(t *testing.T) { runModelGo(t, w) })
	}
}

func runModelGo(t *testing.T, w *llmSetup) {
	t.Helper()
	w.resetProvider()
	c := &llmChecks{llmSetup: w, used: map[string][]modelUsage{}}
	switch w.Shape {
	case fakeprovider.Messages.String():
		c.client = newAnthropicClient(w)
	case fakeprovider.Gemini.String():
		c.client = newGeminiClient(w)
	default:
		c.client = newOpenAIClient(w)
	}
	for _, name := range slices.Sorted(maps.Keys(goModelChecks)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			goModelChecks[name](ctx, t, c)
		})
	}
	w.checkProvider(t, c.used)
}

// llmChecks is the state that the checks of a setup share.
type llmChecks struct {
	*llmSetup
	client llmClient
	used   map[string][]modelUsage
}

// newConversation has a first user message.
func (c *llmChecks) newConversation(model string) llmConversation {
	return c.newConversationWith(model, c.Key, 0)
}

func (c *llmChecks) newConversationWith(model, key string, retries int) llmConversation {
	conv := c.client.openConversation(c.llmSetup, model, key, retries)
	conv.user(c.Conversation.Task)
	return conv
}

// requireReply sends a request and compares the reply with a step of the script.
func (c *llmChecks) requireReply(ctx context.Context, t *testing.T, conv llmConversation, model string, step fakeprovider.Step) {
	t.Helper()
	var deltas strings.Builder
	got, err := conv.sendRequest(ctx, func(delta string) { deltas.WriteString(delta) })
	if err != nil {
		t.Fatal(err)
	}
	stop := stopReasons[c.Shape][0]
	if len(step.Calls) > 0 {
		stop = stopReasons[c.Shape][1]
	}
	want := llmReply{text: step.Text, thought: step.Thinking, calls: step.Calls, stop: stop, used: got.used}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(llmReply{})); diff != "" {
		t.Fatalf("unexpected reply: %s", diff)
	}
	if c.Stream && deltas.String() != step.Text {
		t.Errorf("the stream has %q, its end %q", deltas.String(), step.Text)
	}
	c.used[model] = append(c.used[model], got.used)
}

// requireError sends a request that must fail with a status and a text of the provider.
func requireError(ctx context.Context, t *testing.T, conv llmConversation, status int, says string) {
	t.Helper()
	got, err := conv.sendRequest(ctx, nil)
	if err == nil {
		t.Fatalf("answered %+v", got)
	}
	if n, text := errorStatus(err); n != status || !strings.Contains(text, says) {
		t.Errorf("failed with %d %q, want %d %q: %v", n, text, status, says, err)
	}
}

var goModelChecks = map[string]func(context.Context, *testing.T, *llmChecks){
	"say": func(ctx context.Context, t *testing.T, c *llmChecks) {
		c.requireReply(ctx, t, c.newConversation("test-say"), "test-say", c.Says)
	},
	"calls": checkModelCalls,
	"agent": checkModelAgent,
	"retried by the SDK": func(ctx context.Context, t *testing.T, c *llmChecks) {
		c.requireReply(ctx, t, c.newConversationWith("test-busy", c.Key, 2), "test-busy", c.Says)
	},
	"rate limited": func(ctx context.Context, t *testing.T, c *llmChecks) {
		requireError(ctx, t, c.newConversation("test-limited"), 429, "limit")
	},
	"wrong key": func(ctx context.Context, t *testing.T, c *llmChecks) {
		requireError(ctx, t, c.newConversationWith("test-say", "sk-wrong", 0), 401, "key")
	},
	"bad request": checkModelBadRequest,
	"unknown model": func(ctx context.Context, t *testing.T, c *llmChecks) {
		requireError(ctx, t, c.newConversation("unknown-model"), 404, "unknown-model")
	},
	"overloaded": func(ctx context.Context, t *testing.T, c *llmChecks) {
		requireError(ctx, t, c.newConversation("test-down"), c.scriptedReply(fakeprovider.Request{Model: "test-down"}).Fail.Status, "verloaded")
	},
	"breaks off": func(ctx context.Context, t *testing.T, c *llmChecks) {
		requireError(ctx, t, c.newConversation("test-cut"), 0, "")
	},
	"fails in the stream": func(ctx context.Context, t *testing.T, c *llmChecks) {
		if !c.Stream {
			t.Skip("not a stream")
		}
		if got, err := c.newConversation("test-broken").sendRequest(ctx, nil); err == nil {
			t.Errorf("answered %+v", got)
		}
	},
	"abort":  checkModelAbort,
	"models": checkModelList,
	"count":  checkModelCount,
	"retried by the gateway": func(ctx context.Context, t *testing.T, c *llmChecks) {
		c.onlyGateway(t)
		c.requireReply(ctx, t, c.newConversation("patient"), "patient", c.Says)
	},
	"fallback": func(ctx context.Context, t *testing.T, c *llmChecks) {
		c.onlyGateway(t)
		c.requireReply(ctx, t, c.newConversation("over"), "over", c.Says)
	},
	"provider unreachable": func(ctx context.Context, t *testing.T, c *llmChecks) {
		c.onlyGateway(t)
		requireError(ctx, t, c.newConversation("gone"), 502, "not available")
	},
}

func (c *llmChecks) onlyGateway(t *testing.T) {
	t.Helper()
	if !c.Gateway {
		t.Skip("only a gateway does this")
	}
}

func checkModelCalls(ctx context.Context, t *testing.T, c *llmChecks) {
	conv := c.newConversation("test-calls")
	c.requireReply(ctx, t, conv, "test-calls", c.Calls)
	var results []trajectories.ToolUse
	for _, call := range c.Calls.Calls {
		results = append(results, trajectories.ToolUse{Call: call, Result: "the result of " + call.ID})
	}
	conv.results(results)
	c.requireReply(ctx, t, conv, "test-calls", c.Says)
}

func checkModelAgent(ctx context.Context, t *testing.T, c *llmChecks) {
	conv := c.newConversation("test-agent")
	for _, turn := range c.Conversation.Turns {
		step := fakeprovider.Step{Thinking: turn.Thinking, Text: turn.Text}
		for _, u := range turn.ToolUses {
			step.Calls = append(step.Calls, u.Call)
		}
		c.requireReply(ctx, t, conv, "test-agent", step)
		conv.results(turn.ToolUses)
	}
	c.requireReply(ctx, t, conv, "test-agent", fakeprovider.ReplyText(c.Conversation.Final))
}

func checkModelBadRequest(ctx context.Context, t *testing.T, c *llmChecks) {
	conv := c.newConversation("test-say")
	conv.results([]trajectories.ToolUse{{Call: fakeprovider.Call{ID: "call_nobody"}, Result: "an answer to no question"}})
	requireError(ctx, t, conv, 400, map[string]string{"chat": "role 'tool'", "responses": "call_nobody", "messages": "call_nobody", "gemini": "function response parts"}[c.Shape])
}

func checkModelAbort(ctx context.Context, t *testing.T, c *llmChecks) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	deltas := 0
	if !c.Stream {
		time.AfterFunc(200*time.Millisecond, leave)
	}
	got, err := c.newConversation("test-slow").sendRequest(ctx, func(string) {
		if deltas++; deltas == 2 {
			leave()
		}
	})
	if !errors.Is(err, context.Canceled) || c.Stream && deltas > 10 {
		t.Errorf("got %+v, %v after %d deltas", got, err, deltas)
	}
}

func checkModelList(ctx context.Context, t *testing.T, c *llmChecks) {
	got, err := c.client.models(ctx)
	slices.Sort(got)
	want := slices.Sorted(slices.Values(c.Models))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if id, err := c.client.model(ctx, "test-say"); err != nil || id != "test-say" {
		t.Errorf("got %q, %v", id, err)
	}
	id, err := c.client.model(ctx, "unknown-model")
	if status, _ := errorStatus(err); status != 404 {
		t.Errorf("got %q, %v", id, err)
	}
}

func checkModelCount(ctx context.Context, t *testing.T, c *llmChecks) {
	if c.Shape != fakeprovider.Messages.String() && c.Shape != fakeprovider.Gemini.String() {
		t.Skip("this shape does not count")
	}
	n, err := c.client.count(ctx, c.llmSetup, "test-count")
	if err != nil {
		t.Fatal(err)
	}
	if c.Shape == fakeprovider.Gemini.String() { // its SDK counts the contents alone
		if n == 0 {
			t.Error("nothing was counted")
		}
		return
	}
	c.requireReply(ctx, t, c.newConversation("test-count"), "test-count", c.Says)
	if u := c.used["test-count"][0]; u.Fresh+u.Cached+u.Created != n {
		t.Errorf("counted %d, used %+v", n, u)
	}
}
