package clients

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/rounds"
)

// The provider is as strict as the real ones: what it takes as the request of another round is what
// a round must say.

var wires = map[history.Shape]llmtest.Shape{
	history.Chat: llmtest.Chat, history.Messages: llmtest.Messages, history.Responses: llmtest.Responses,
}

// request is a client's request, to which the tool was added.
func request(shape history.Shape, stream bool) []byte {
	user := strings.Repeat("What was in the file? ", 300)
	flag := fmt.Sprintf(`"model":"m","stream":%v`, stream)
	tools := []string{"look", rounds.Tool}
	object := `{"type":"object","properties":{}}`
	switch shape {
	case history.Messages:
		for i, name := range tools {
			tools[i] = fmt.Sprintf(`{"name":%q,"input_schema":%s}`, name, object)
		}
		return fmt.Appendf(nil, `{%s,"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2048},"cache_control":{"type":"ephemeral"},"tools":[%s],"messages":[{"role":"user","content":%q}]}`, flag, strings.Join(tools, ","), user)
	case history.Responses:
		for i, name := range tools {
			tools[i] = fmt.Sprintf(`{"type":"function","name":%q,"parameters":%s}`, name, object)
		}
		return fmt.Appendf(nil, `{%s,"tools":[%s],"input":%q}`, flag, strings.Join(tools, ","), user)
	case history.Chat:
	}
	for i, name := range tools {
		tools[i] = fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, name, object)
	}
	if stream {
		flag += `,"stream_options":{"include_usage":true}`
	}
	return fmt.Appendf(nil, `{%s,"tools":[%s],"messages":[{"role":"user","content":%q}]}`, flag, strings.Join(tools, ","), user)
}

// ask is what the provider answers.
func ask(t *testing.T, p *llmtest.Provider, shape history.Shape, body []byte) []byte {
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

// told is what came of a conversation's turn.
type told struct {
	joined  []byte
	rounds  []*rounds.Round
	replies [][]byte
	bill    llmtest.Ledger
}

// play answers every call of the tool until the model asks nothing back, or most rounds are over.
func play(t *testing.T, shape history.Shape, stream bool, most int, steps ...llmtest.Step) told {
	t.Helper()
	p := llmtest.New(t, llmtest.Options{Prices: llmtest.Prices{Write: 1.25, Read: 0.1}})
	p.Script(steps...)
	var got told
	j := rounds.NewJoin(shape, stream)
	body := request(shape, stream)
	for {
		raw := ask(t, p, shape, body)
		got.replies = append(got.replies, raw)
		got.joined = append(got.joined, write(t, j, raw, rand.IntN(64)+1)...)
		r := j.End()
		if r != nil {
			got.rounds = append(got.rounds, r)
		}
		if r == nil || r.Mixed || len(got.replies) == most {
			break
		}
		body = followed(t, shape, body, r)
	}
	got.joined = append(got.joined, j.Finish()...)
	got.bill = p.Bill()
	if n := len(got.rounds); n == len(got.replies) {
		ask(t, p, shape, followed(t, shape, body, got.rounds[n-1])) // the client goes on
	}
	return got
}

func followed(t *testing.T, shape history.Shape, body []byte, r *rounds.Round) []byte {
	t.Helper()
	var answers []rounds.Answer
	for _, c := range r.Calls {
		answers = append(answers, rounds.Answer{ID: c.ID, Text: "read back for " + string(c.Args)})
	}
	for _, id := range r.Others {
		answers = append(answers, rounds.Answer{ID: id, Text: "looked"})
	}
	body, err := rounds.Follow(shape, body, r, answers)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// write gives a reply to the join in pieces of at most size bytes.
func write(t *testing.T, j *rounds.Join, raw []byte, size int) []byte {
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

// serve answers every request with the same bytes.
func serve(t *testing.T, stream bool, body []byte) string {
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

func both(t *testing.T, f func(t *testing.T, stream bool)) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) { f(t, stream) })
	}
}

func recoverCall(id, of string) llmtest.Call {
	return llmtest.Call{ID: id, Name: rounds.Tool, Args: fmt.Sprintf(`{"prune_id":%q,"note":"é \"quoted\" 漢字"}`, of)}
}

func look(id string) llmtest.Call {
	return llmtest.Call{ID: id, Name: "look", Args: `{"at":"the <file>"}`}
}

// turn is one turn of a conversation, and what the client shall see of it.
type turn struct {
	name   string
	most   int
	steps  []llmtest.Step
	text   string
	calls  []string // ids
	rounds int
	mixed  bool
	ends   string // in the words of chat
}

// turns are the ways in which a model may read back.
func turns() []turn {
	long := strings.Repeat("Words and \"quotes\", é and 漢字.\n", 12)
	return []turn{
		{name: "nothing read back", steps: []llmtest.Step{{Think: long, Text: long, Calls: []llmtest.Call{look("a"), look("b")}}}, text: long, calls: []string{"a", "b"}, ends: "tool_calls"},
		{name: "one call", steps: []llmtest.Step{{Think: long, Text: "Let me see. ", Calls: []llmtest.Call{recoverCall("r1", "one")}}, {Think: "So. ", Text: long}}, text: "Let me see. " + long, rounds: 1, ends: "stop"},
		{name: "no text before", steps: []llmtest.Step{{Think: "Hm. ", Calls: []llmtest.Call{recoverCall("r1", "one"), recoverCall("r2", "two")}}, {Think: "So. ", Text: long}}, text: long, rounds: 1, ends: "stop"},
		{name: "three rounds, then the client's", steps: []llmtest.Step{
			{Think: "1 ", Text: "First. ", Calls: []llmtest.Call{recoverCall("r1", "one"), recoverCall("r2", "two")}},
			{Think: "2 ", Text: "Second. ", Calls: []llmtest.Call{recoverCall("r3", "three")}},
			{Think: "3 ", Text: long, Calls: []llmtest.Call{look("a"), look("b")}},
		}, text: "First. Second. " + long, calls: []string{"a", "b"}, rounds: 2, ends: "tool_calls"},
		{name: "mixed", steps: []llmtest.Step{
			{Think: "1 ", Text: "First. ", Calls: []llmtest.Call{recoverCall("r1", "one")}},
			{Think: "2 ", Text: "Second. ", Calls: []llmtest.Call{recoverCall("r2", "two"), look("a"), recoverCall("r3", "three"), look("b")}},
		}, text: "First. Second. ", calls: []string{"a", "b"}, rounds: 2, mixed: true, ends: "tool_calls"},
		{name: "mixed at once", steps: []llmtest.Step{
			{Think: "2 ", Text: "Only. ", Calls: []llmtest.Call{look("a"), recoverCall("r2", "two"), look("b")}},
		}, text: "Only. ", calls: []string{"a", "b"}, rounds: 1, mixed: true, ends: "tool_calls"},
		{name: "no more rounds", most: 2, steps: []llmtest.Step{
			{Think: "1 ", Text: "First. ", Calls: []llmtest.Call{recoverCall("r1", "one")}},
			{Think: "2 ", Text: "Second.", Calls: []llmtest.Call{recoverCall("r2", "two"), recoverCall("r3", "two")}},
		}, text: "First. Second.", rounds: 2, ends: "stop"},
		{name: "cut short", steps: []llmtest.Step{
			{Think: "1 ", Text: "First. ", Calls: []llmtest.Call{recoverCall("r1", "one")}},
			{Think: "2 ", Text: "Second.", Short: true, Calls: []llmtest.Call{recoverCall("r2", "two")}},
		}, text: "First. Second.", rounds: 1, ends: "length"},
	}
}

// check is what holds in every shape.
func (want turn) check(t *testing.T, got told) {
	t.Helper()
	if len(got.rounds) != want.rounds {
		t.Fatalf("%d rounds, want %d\n%s", len(got.rounds), want.rounds, got.joined)
	}
	if want.rounds == 0 && !bytes.Equal(got.joined, got.replies[0]) {
		t.Errorf("not as it came:\n%s\n%s", got.replies[0], got.joined)
	}
	for i, r := range got.rounds {
		if mixed := want.mixed && i == len(got.rounds)-1; r.Mixed != mixed || mixed != (len(r.Others) > 0) {
			t.Errorf("round %d: %+v", i, r)
		}
		var ids []string
		for _, c := range want.steps[i].Calls {
			if c.Name == rounds.Tool {
				ids = append(ids, c.ID+c.Args)
			}
		}
		for n, c := range r.Calls {
			if n >= len(ids) || c.ID+string(c.Args) != ids[n] {
				t.Errorf("round %d: call %d is %s %s", i, n, c.ID, c.Args)
			}
		}
	}
	if want.rounds > 0 && bytes.Contains(got.joined, []byte(`"name":"`+rounds.Tool)) && !bytes.Contains(got.joined, []byte(`"tools":`)) {
		t.Errorf("a call is seen:\n%s", got.joined)
	}
}
