package sdktest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/chat/readback"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// The wire shapes, under names that differ from the SDKs' packages.
var (
	openAIChat        llm.ReadbackCodec = openaichat.Codec{}
	anthropicMessages llm.ReadbackCodec = anthropic.Codec{}
	openAIResponses   llm.ReadbackCodec = responses.Codec{}
)

// The provider is as strict as the real ones, so that it accepts only correct requests of later rounds.

var wires = map[llm.ReadbackCodec]fakeprovider.Shape{
	openAIChat: fakeprovider.Chat, anthropicMessages: fakeprovider.Messages, openAIResponses: fakeprovider.Responses,
}

// request is a client's request with the tool added.
func request(shape llm.ReadbackCodec, stream bool) []byte {
	user := strings.Repeat("What was in the file? ", 300)
	flag := fmt.Sprintf(`"model":"m","stream":%v`, stream)
	tools := []string{"look", recovertool.Name}
	object := `{"type":"object","properties":{}}`
	switch shape {
	case anthropicMessages:
		for i, name := range tools {
			tools[i] = fmt.Sprintf(`{"name":%q,"input_schema":%s}`, name, object)
		}
		return fmt.Appendf(nil, `{%s,"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2048},"cache_control":{"type":"ephemeral"},"tools":[%s],"messages":[{"role":"user","content":%q}]}`, flag, strings.Join(tools, ","), user)
	case openAIResponses:
		for i, name := range tools {
			tools[i] = fmt.Sprintf(`{"type":"function","name":%q,"parameters":%s}`, name, object)
		}
		return fmt.Appendf(nil, `{%s,"tools":[%s],"input":%q}`, flag, strings.Join(tools, ","), user)
	case openAIChat:
	}
	for i, name := range tools {
		tools[i] = fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, name, object)
	}
	if stream {
		flag += `,"stream_options":{"include_usage":true}`
	}
	return fmt.Appendf(nil, `{%s,"tools":[%s],"messages":[{"role":"user","content":%q}]}`, flag, strings.Join(tools, ","), user)
}

// sendRequest returns the provider's reply.
func sendRequest(t *testing.T, p *fakeprovider.Provider, shape llm.ReadbackCodec, body []byte) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+wires[shape].Path(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "k")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: the provider refuses: %s\n%s", shape, raw, body)
	}
	return raw
}

// turnResult is the result of a turn.
type turnResult struct {
	merged  []byte
	rounds  []*llm.Round
	replies [][]byte
	bill    fakeprovider.Bill
}

// runTurn answers every call of the tool until the model makes none, or maxRounds is reached.
func runTurn(t *testing.T, shape llm.ReadbackCodec, stream bool, most int, steps ...fakeprovider.Step) turnResult {
	t.Helper()
	p := fakeprovider.New(t, fakeprovider.Options{Prices: fakeprovider.Prices{Write: 1.25, Read: 0.1}})
	p.Script(steps...)
	var got turnResult
	j := readback.NewMerger(shape, stream)
	body := request(shape, stream)
	for {
		raw := sendRequest(t, p, shape, body)
		got.replies = append(got.replies, raw)
		got.merged = append(got.merged, writeChunks(t, j, raw, rand.IntN(64)+1)...)
		r := j.EndRound()
		if r != nil {
			got.rounds = append(got.rounds, r)
		}
		if r == nil || r.Mixed || len(got.replies) == most {
			break
		}
		body = followUp(t, shape, body, r)
	}
	got.merged = append(got.merged, j.Finish()...)
	got.bill = p.Bill()
	if n := len(got.rounds); n == len(got.replies) {
		sendRequest(t, p, shape, followUp(t, shape, body, got.rounds[n-1])) // the client's next request
	}
	return got
}

func followUp(t *testing.T, shape llm.ReadbackCodec, body []byte, r *llm.Round) []byte {
	t.Helper()
	var answers []llm.Answer
	for _, c := range r.Calls {
		answers = append(answers, llm.Answer{ID: c.ID, Text: "read back for " + string(c.Args)})
	}
	for _, id := range r.Others {
		answers = append(answers, llm.Answer{ID: id, Text: "looked"})
	}
	body, err := readback.NextRequest(shape, body, r, answers)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// writeChunks writes a reply to the merger in chunks of at most size bytes.
func writeChunks(t *testing.T, j *readback.Merger, raw []byte, size int) []byte {
	t.Helper()
	var out []byte
	for len(raw) > 0 {
		n := min(rand.IntN(size)+1, len(raw))
		more, err := j.Write(raw[:n])
		if err != nil {
			t.Fatal(err)
		}
		out, raw = append(out, more...), raw[n:]
	}
	return out
}

// serveBody replies to every request with the same body.
func serveBody(t *testing.T, stream bool, body []byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func forBothStreamings(t *testing.T, f func(t *testing.T, stream bool)) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) { f(t, stream) })
	}
}

func recoverCall(id, of string) fakeprovider.Call {
	return fakeprovider.Call{ID: id, Name: recovertool.Name, Args: fmt.Sprintf(`{"prune_id":%q,"note":"é \"quoted\" 漢字"}`, of)}
}

func look(id string) fakeprovider.Call {
	return fakeprovider.Call{ID: id, Name: "look", Args: `{"at":"the <file>"}`}
}

// readbackTurn is a turn of a conversation, and what the client must receive.
type readbackTurn struct {
	name         string
	maxRounds    int
	steps        []fakeprovider.Step
	text         string
	calls        []string // ids
	rounds       int
	mixed        bool
	finishReason string // as in chat completions
}

// readbackTurns are the ways in which a model may read back.
func readbackTurns() []readbackTurn {
	long := strings.Repeat("Words and \"quotes\", é and 漢字.\n", 12)
	return []readbackTurn{
		{name: "nothing read back", steps: []fakeprovider.Step{{Thinking: long, Text: long, Calls: []fakeprovider.Call{look("a"), look("b")}}}, text: long, calls: []string{"a", "b"}, finishReason: "tool_calls"},
		{name: "one call", steps: []fakeprovider.Step{{Thinking: long, Text: "Let me see. ", Calls: []fakeprovider.Call{recoverCall("r1", "one")}}, {Thinking: "So. ", Text: long}}, text: "Let me see. " + long, rounds: 1, finishReason: "stop"},
		{name: "no text before", steps: []fakeprovider.Step{{Thinking: "Hm. ", Calls: []fakeprovider.Call{recoverCall("r1", "one"), recoverCall("r2", "two")}}, {Thinking: "So. ", Text: long}}, text: long, rounds: 1, finishReason: "stop"},
		{name: "three rounds, then the client's", steps: []fakeprovider.Step{
			{Thinking: "1 ", Text: "First. ", Calls: []fakeprovider.Call{recoverCall("r1", "one"), recoverCall("r2", "two")}},
			{Thinking: "2 ", Text: "Second. ", Calls: []fakeprovider.Call{recoverCall("r3", "three")}},
			{Thinking: "3 ", Text: long, Calls: []fakeprovider.Call{look("a"), look("b")}},
		}, text: "First. Second. " + long, calls: []string{"a", "b"}, rounds: 2, finishReason: "tool_calls"},
		{name: "mixed", steps: []fakeprovider.Step{
			{Thinking: "1 ", Text: "First. ", Calls: []fakeprovider.Call{recoverCall("r1", "one")}},
			{Thinking: "2 ", Text: "Second. ", Calls: []fakeprovider.Call{recoverCall("r2", "two"), look("a"), recoverCall("r3", "three"), look("b")}},
		}, text: "First. Second. ", calls: []string{"a", "b"}, rounds: 2, mixed: true, finishReason: "tool_calls"},
		{name: "mixed at once", steps: []fakeprovider.Step{
			{Thinking: "2 ", Text: "Only. ", Calls: []fakeprovider.Call{look("a"), recoverCall("r2", "two"), look("b")}},
		}, text: "Only. ", calls: []string{"a", "b"}, rounds: 1, mixed: true, finishReason: "tool_calls"},
		{name: "no more rounds", maxRounds: 2, steps: []fakeprovider.Step{
			{Thinking: "1 ", Text: "First. ", Calls: []fakeprovider.Call{recoverCall("r1", "one")}},
			{Thinking: "2 ", Text: "Second.", Calls: []fakeprovider.Call{recoverCall("r2", "two"), recoverCall("r3", "two")}},
		}, text: "First. Second.", rounds: 2, finishReason: "stop"},
		{name: "cut short", steps: []fakeprovider.Step{
			{Thinking: "1 ", Text: "First. ", Calls: []fakeprovider.Call{recoverCall("r1", "one")}},
			{Thinking: "2 ", Text: "Second.", Truncated: true, Calls: []fakeprovider.Call{recoverCall("r2", "two")}},
		}, text: "First. Second.", rounds: 1, finishReason: "length"},
	}
}

// checkTurn checks what holds in every shape.
func (want readbackTurn) checkTurn(t *testing.T, got turnResult) {
	t.Helper()
	if len(got.rounds) != want.rounds {
		t.Fatalf("%d rounds, want %d\n%s", len(got.rounds), want.rounds, got.merged)
	}
	if want.rounds == 0 && !bytes.Equal(got.merged, got.replies[0]) {
		t.Errorf("not as it came:\n%s\n%s", got.replies[0], got.merged)
	}
	for i, r := range got.rounds {
		if mixed := want.mixed && i == len(got.rounds)-1; r.Mixed != mixed || mixed != (len(r.Others) > 0) {
			t.Errorf("round %d: %+v", i, r)
		}
		var ids []string
		for _, c := range want.steps[i].Calls {
			if c.Name == recovertool.Name {
				ids = append(ids, c.ID+c.Args)
			}
		}
		for n, c := range r.Calls {
			if n >= len(ids) || c.ID+string(c.Args) != ids[n] {
				t.Errorf("round %d: call %d is %s %s", i, n, c.ID, c.Args)
			}
		}
	}
	if want.rounds > 0 && bytes.Contains(got.merged, []byte(`"name":"`+recovertool.Name)) && !bytes.Contains(got.merged, []byte(`"tools":`)) {
		t.Errorf("a call is seen:\n%s", got.merged)
	}
}
