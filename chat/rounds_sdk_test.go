package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// heardReply is a reply as an official client has it.
type heardReply struct {
	id       string // of the reply, where a later request can name it
	text     string
	calls    []string // names and ids
	why      string
	in, out  int64
	elements []string // as the client sends it again
}

// dialect is how the tests write a request of a shape, and an official client that sends it.
type dialect struct {
	kind string
	body string // with places for stream, extra members and the conversation
	call string // a turn, with places for its id and its result
	ask  func(ctx context.Context, t *testing.T, url, body string, stream bool) (heardReply, error)
}

var dialects = map[llmtest.Shape]dialect{
	llmtest.Chat: {
		kind: "openai",
		body: `{"model":"m-1"%s,"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}],"messages":[%s]}`,
		call: `{"role":"assistant","content":null,"tool_calls":[{"id":"%[1]s","type":"function","function":{"name":"read","arguments":"{}"}}]},` + chatResult,
		ask:  askChat,
	},
	llmtest.Messages: {
		kind: "anthropic",
		body: `{"model":"m-1","max_tokens":4096%s,"tools":[{"name":"read","input_schema":{"type":"object"}}],"messages":[%s]}`,
		call: `{"role":"assistant","content":[{"type":"tool_use","id":"%[1]s","name":"read","input":{}}]},` + messagesResult,
		ask:  askMessages,
	},
	llmtest.Responses: {
		kind: "openai",
		body: `{"model":"m-1"%s,"tools":[{"type":"function","name":"read","parameters":{"type":"object"},"strict":false}],"input":[%s]}`,
		call: `{"type":"function_call","call_id":"%[1]s","name":"read","arguments":"{}"},` + responsesResult,
		ask:  askResponses,
	},
}

const (
	chatResult      = `{"role":"tool","tool_call_id":"%[1]s","content":%[2]q}`
	messagesResult  = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"%[1]s","content":%[2]q}]}`
	responsesResult = `{"type":"function_call_output","call_id":"%[1]s","output":%[2]q}`
)

// result is what a tool answered, as an element of the conversation.
func (d dialect) result(id, text string) string {
	_, form, _ := strings.Cut(d.call, "},{")
	return fmt.Sprintf("{"+form, id, text)
}

func (d dialect) turn(id, text string) string { return fmt.Sprintf(d.call, id, text) }

func (d dialect) request(stream bool, elements ...string) string {
	extra := ""
	if stream {
		extra = `,"stream":true`
		if strings.Contains(d.body, `"function":{`) {
			extra += `,"stream_options":{"include_usage":true}`
		}
	}
	return fmt.Sprintf(d.body, extra, strings.Join(elements, ","))
}

// thinking asks the model to think, where that must be asked for.
func (d dialect) thinking() dialect {
	d.body = strings.Replace(d.body, `"max_tokens":4096`, `"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048}`, 1)
	return d
}

func openaiAt(url, body string) (openai.Client, openaioption.RequestOption) {
	return openai.NewClient(openaioption.WithBaseURL(url+"/v1"), openaioption.WithAPIKey("k"), openaioption.WithMaxRetries(0)),
		openaioption.WithRequestBody("application/json", []byte(body))
}

func askChat(ctx context.Context, t *testing.T, url, body string, stream bool) (heardReply, error) {
	t.Helper()
	c, raw := openaiAt(url, body)
	var got openai.ChatCompletion
	if stream {
		s := c.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{}, raw)
		defer s.Close()
		var acc openai.ChatCompletionAccumulator
		for s.Next() {
			if !acc.AddChunk(s.Current()) {
				t.Errorf("the accumulator refuses %s", s.Current().RawJSON())
			}
		}
		if s.Err() != nil {
			return heardReply{}, s.Err()
		}
		got = acc.ChatCompletion
	} else {
		one, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{}, raw)
		if err != nil {
			return heardReply{}, err
		}
		got = *one
	}
	m := got.Choices[0].Message
	out := heardReply{text: m.Content, why: got.Choices[0].FinishReason, in: got.Usage.PromptTokens, out: got.Usage.CompletionTokens}
	for _, call := range m.ToolCalls {
		out.calls = append(out.calls, call.Function.Name+" "+call.ID)
	}
	out.elements = []string{marshal(t, m.ToParam())}
	return out, nil
}

func askMessages(ctx context.Context, t *testing.T, url, body string, stream bool) (heardReply, error) {
	t.Helper()
	c := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("k"), anthropicoption.WithMaxRetries(0))
	raw := anthropicoption.WithRequestBody("application/json", []byte(body))
	var got anthropic.Message
	params := anthropic.MessageNewParams{MaxTokens: 100}
	if stream {
		s := c.Messages.NewStreaming(ctx, params, raw)
		defer s.Close()
		for s.Next() {
			if err := got.Accumulate(s.Current()); err != nil {
				t.Errorf("%s: %v", s.Current().RawJSON(), err)
			}
		}
		if s.Err() != nil {
			return heardReply{}, s.Err()
		}
	} else {
		one, err := c.Messages.New(ctx, params, raw)
		if err != nil {
			return heardReply{}, err
		}
		got = *one
	}
	u := got.Usage
	out := heardReply{why: string(got.StopReason), in: u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens, out: u.OutputTokens}
	for _, b := range got.Content {
		switch b.Type {
		case "text":
			out.text += b.Text
		case "tool_use":
			out.calls = append(out.calls, b.Name+" "+b.ID)
		}
	}
	out.elements = []string{marshal(t, got.ToParam())}
	return out, nil
}

func askResponses(ctx context.Context, t *testing.T, url, body string, stream bool) (heardReply, error) {
	t.Helper()
	c, raw := openaiAt(url, body)
	var got responses.Response
	if stream {
		s := c.Responses.NewStreaming(ctx, responses.ResponseNewParams{}, raw)
		defer s.Close()
		text := ""
		for n := int64(0); s.Next(); n++ {
			e := s.Current()
			if e.SequenceNumber != n {
				t.Errorf("event %d has number %d", n, e.SequenceNumber)
			}
			switch v := e.AsAny().(type) {
			case responses.ResponseTextDeltaEvent:
				text += v.Delta
			case responses.ResponseCompletedEvent:
				got = v.Response
			}
		}
		if s.Err() != nil {
			return heardReply{}, s.Err()
		}
		if text != got.OutputText() {
			t.Errorf("deltas say %q, the response %q", text, got.OutputText())
		}
	} else {
		one, err := c.Responses.New(ctx, responses.ResponseNewParams{}, raw)
		if err != nil {
			return heardReply{}, err
		}
		got = *one
	}
	out := heardReply{id: got.ID, text: got.OutputText(), why: string(got.Status), in: got.Usage.InputTokens, out: got.Usage.OutputTokens}
	for _, item := range got.Output {
		if item.Type == "function_call" {
			out.calls = append(out.calls, item.Name+" "+item.CallID)
		}
		out.elements = append(out.elements, item.RawJSON())
	}
	return out, nil
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
