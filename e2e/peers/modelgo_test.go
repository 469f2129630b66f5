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

	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// modelClient is an SDK of Go in one shape. key and retries are what its next talks use.
type modelClient interface {
	talk(w *modelWorld, model, key string, retries int) modelTalk
	models(ctx context.Context) ([]string, error)
	model(ctx context.Context, id string) (string, error)
	count(ctx context.Context, w *modelWorld, model string) (int, error)
}

// modelTalk is a conversation that grows. heard is told of each piece of text of a stream.
type modelTalk interface {
	user(text string)
	results(list []llmtest.Exchange)
	ask(ctx context.Context, heard func(string)) (modelAnswer, error)
}

// modelAnswer is what the SDK says that the model said.
type modelAnswer struct {
	text, thought string
	calls         []llmtest.Call
	stop          string
	used          modelUsage
}

// modelStops are the words for the end of an answer: when all is said, and when tools are called.
var modelStops = map[string][2]string{
	"chat": {"stop", "tool_calls"}, "responses": {"completed", "completed"}, "messages": {"end_turn", "tool_use"},
}

// The Go SDKs (openai-go, anthropic-sdk-go) through ctxgate; what they must be able to do is what
// npm/model.mjs asks of the others.
func TestModelGoSDKs(t *testing.T) {
	for _, w := range modelWorlds(t, true) {
		t.Run(w.String(), func(t *testing.T) { runModelGo(t, w) })
	}
}

func TestModelGoSDKsDirect(t *testing.T) {
	for _, w := range modelWorlds(t, false) {
		t.Run(w.String(), func(t *testing.T) { runModelGo(t, w) })
	}
}

func runModelGo(t *testing.T, w *modelWorld) {
	t.Helper()
	w.start()
	c := &modelChecks{modelWorld: w, used: map[string][]modelUsage{}}
	if w.Shape == llmtest.Messages.String() {
		c.client = newAnthropicClient(w)
	} else {
		c.client = newOpenAIClient(w)
	}
	for _, name := range slices.Sorted(maps.Keys(goModelChecks)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			goModelChecks[name](ctx, t, c)
		})
	}
	w.judge(t, c.used)
}

// modelChecks is what the checks of one world share.
type modelChecks struct {
	*modelWorld
	client modelClient
	used   map[string][]modelUsage
}

// begin is a talk in which the user has said something.
func (c *modelChecks) begin(model string) modelTalk { return c.beginWith(model, c.Key, 0) }

func (c *modelChecks) beginWith(model, key string, retries int) modelTalk {
	talk := c.client.talk(c.modelWorld, model, key, retries)
	talk.user(c.Saga.Task)
	return talk
}

// says asks, and holds the answer against a step of the script.
func (c *modelChecks) says(ctx context.Context, t *testing.T, talk modelTalk, model string, step llmtest.Step) {
	t.Helper()
	var heard strings.Builder
	got, err := talk.ask(ctx, func(piece string) { heard.WriteString(piece) })
	if err != nil {
		t.Fatal(err)
	}
	stop := modelStops[c.Shape][0]
	if len(step.Calls) > 0 {
		stop = modelStops[c.Shape][1]
	}
	want := modelAnswer{text: step.Text, thought: step.Think, calls: step.Calls, stop: stop, used: got.used}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(modelAnswer{})); diff != "" {
		t.Fatalf("the model said something else: %s", diff)
	}
	if c.Stream && heard.String() != step.Text {
		t.Errorf("the stream said %q, its end %q", heard.String(), step.Text)
	}
	c.used[model] = append(c.used[model], got.used)
}

// refused asks what must not be answered, but refused with a status and with words of the provider.
func refused(ctx context.Context, t *testing.T, talk modelTalk, status int, says string) {
	t.Helper()
	got, err := talk.ask(ctx, nil)
	if err == nil {
		t.Fatalf("answered %+v", got)
	}
	if n, text := refusalOf(err); n != status || !strings.Contains(text, says) {
		t.Errorf("refused with %d %q, want %d %q: %v", n, text, status, says, err)
	}
}

var goModelChecks = map[string]func(context.Context, *testing.T, *modelChecks){
	"say": func(ctx context.Context, t *testing.T, c *modelChecks) {
		c.says(ctx, t, c.begin("test-say"), "test-say", c.Says)
	},
	"calls": checkModelCalls,
	"agent": checkModelAgent,
	"retried by the SDK": func(ctx context.Context, t *testing.T, c *modelChecks) {
		c.says(ctx, t, c.beginWith("test-busy", c.Key, 2), "test-busy", c.Says)
	},
	"rate limited": func(ctx context.Context, t *testing.T, c *modelChecks) {
		refused(ctx, t, c.begin("test-limited"), 429, "limit")
	},
	"wrong key": func(ctx context.Context, t *testing.T, c *modelChecks) {
		refused(ctx, t, c.beginWith("test-say", "sk-wrong", 0), 401, "key")
	},
	"bad request": checkModelBadRequest,
	"unknown model": func(ctx context.Context, t *testing.T, c *modelChecks) {
		refused(ctx, t, c.begin("nobody-knows"), 404, "nobody-knows")
	},
	"overloaded": func(ctx context.Context, t *testing.T, c *modelChecks) {
		refused(ctx, t, c.begin("test-down"), c.answer(llmtest.Request{Model: "test-down"}).Fail.Status, "verloaded")
	},
	"breaks off": func(ctx context.Context, t *testing.T, c *modelChecks) { refused(ctx, t, c.begin("test-cut"), 0, "") },
	"fails in the stream": func(ctx context.Context, t *testing.T, c *modelChecks) {
		if !c.Stream {
			t.Skip("not a stream")
		}
		if got, err := c.begin("test-broken").ask(ctx, nil); err == nil {
			t.Errorf("answered %+v", got)
		}
	},
	"abort":  checkModelAbort,
	"models": checkModelList,
	"count":  checkModelCount,
	"retried by the gateway": func(ctx context.Context, t *testing.T, c *modelChecks) {
		c.onlyGateway(t)
		c.says(ctx, t, c.begin("patient"), "patient", c.Says)
	},
	"fallback": func(ctx context.Context, t *testing.T, c *modelChecks) {
		c.onlyGateway(t)
		c.says(ctx, t, c.begin("over"), "over", c.Says)
	},
	"nobody there": func(ctx context.Context, t *testing.T, c *modelChecks) {
		c.onlyGateway(t)
		refused(ctx, t, c.begin("gone"), 502, "not available")
	},
}

func (c *modelChecks) onlyGateway(t *testing.T) {
	t.Helper()
	if !c.Gateway {
		t.Skip("only a gateway does this")
	}
}

func checkModelCalls(ctx context.Context, t *testing.T, c *modelChecks) {
	talk := c.begin("test-calls")
	c.says(ctx, t, talk, "test-calls", c.Calls)
	var results []llmtest.Exchange
	for _, call := range c.Calls.Calls {
		results = append(results, llmtest.Exchange{Call: call, Result: "the result of " + call.ID})
	}
	talk.results(results)
	c.says(ctx, t, talk, "test-calls", c.Says)
}

func checkModelAgent(ctx context.Context, t *testing.T, c *modelChecks) {
	talk := c.begin("test-agent")
	for _, turn := range c.Saga.Turns {
		step := llmtest.Step{Think: turn.Think, Text: turn.Say}
		for _, u := range turn.Uses {
			step.Calls = append(step.Calls, u.Call)
		}
		c.says(ctx, t, talk, "test-agent", step)
		talk.results(turn.Uses)
	}
	c.says(ctx, t, talk, "test-agent", llmtest.Say(c.Saga.Final))
}

func checkModelBadRequest(ctx context.Context, t *testing.T, c *modelChecks) {
	talk := c.begin("test-say")
	talk.results([]llmtest.Exchange{{Call: llmtest.Call{ID: "call_nobody"}, Result: "an answer to no question"}})
	refused(ctx, t, talk, 400, map[string]string{"chat": "role 'tool'", "responses": "call_nobody", "messages": "call_nobody"}[c.Shape])
}

func checkModelAbort(ctx context.Context, t *testing.T, c *modelChecks) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	heard := 0
	if !c.Stream {
		time.AfterFunc(200*time.Millisecond, leave)
	}
	got, err := c.begin("test-slow").ask(ctx, func(string) {
		if heard++; heard == 2 {
			leave()
		}
	})
	if !errors.Is(err, context.Canceled) || c.Stream && heard > 10 {
		t.Errorf("got %+v, %v after %d pieces", got, err, heard)
	}
}

func checkModelList(ctx context.Context, t *testing.T, c *modelChecks) {
	got, err := c.client.models(ctx)
	slices.Sort(got)
	want := slices.Sorted(slices.Values(c.Models))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if id, err := c.client.model(ctx, "test-say"); err != nil || id != "test-say" {
		t.Errorf("got %q, %v", id, err)
	}
	id, err := c.client.model(ctx, "nobody-knows")
	if status, _ := refusalOf(err); status != 404 {
		t.Errorf("got %q, %v", id, err)
	}
}

func checkModelCount(ctx context.Context, t *testing.T, c *modelChecks) {
	if c.Shape != llmtest.Messages.String() {
		t.Skip("only this shape counts")
	}
	n, err := c.client.count(ctx, c.modelWorld, "test-count")
	if err != nil {
		t.Fatal(err)
	}
	c.says(ctx, t, c.begin("test-count"), "test-count", c.Says)
	if u := c.used["test-count"][0]; u.Fresh+u.Cached+u.Created != n {
		t.Errorf("counted %d, used %+v", n, u)
	}
}
