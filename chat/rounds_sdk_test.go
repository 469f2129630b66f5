package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// clientReply is a reply as an official SDK returns it.
type clientReply struct {
	id                        string // of the reply, if a later request can refer to it
	text                      string
	calls                     []string // names and ids
	stopReason                string
	inputTokens, outputTokens int64
	elements                  []string // the messages with which the client repeats it
}

// apiDialect encodes requests of one wire, and sends them with the official SDK.
type apiDialect struct {
	kind string
	body string // format: extra members, messages
	call string // format of a tool turn: call id, result
	send func(ctx context.Context, t *testing.T, url, body string, stream bool) (clientReply, error)
}

var dialects = map[fakeprovider.Shape]apiDialect{
	fakeprovider.Chat: {
		kind: "openai",
		body: `{"model":"m-1"%s,"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}],"messages":[%s]}`,
		call: `{"role":"assistant","content":null,"tool_calls":[{"id":"%[1]s","type":"function","function":{"name":"read","arguments":"{}"}}]},` + chatResult,
		send: sendChat,
	},
	fakeprovider.Messages: {
		kind: "anthropic",
		body: `{"model":"m-1","max_tokens":4096%s,"tools":[{"name":"read","input_schema":{"type":"object"}}],"messages":[%s]}`,
		call: `{"role":"assistant","content":[{"type":"tool_use","id":"%[1]s","name":"read","input":{}}]},` + messagesResult,
		send: sendMessages,
	},
	fakeprovider.Responses: {
		kind: "openai",
		body: `{"model":"m-1"%s,"tools":[{"type":"function","name":"read","parameters":{"type":"object"},"strict":false}],"input":[%s]}`,
		call: `{"type":"function_call","call_id":"%[1]s","name":"read","arguments":"{}"},` + responsesResult,
		send: sendResponses,
	},
	fakeprovider.Gemini: {
		kind: "gemini",
		body: `{"tools":[{"functionDeclarations":[{"name":"read","parameters":{"type":"object"}}]}]%s,"contents":[%s]}`,
		call: `{"role":"model","parts":[{"functionCall":{"id":"%[1]s","name":"read","args":{}}}]},` + geminiResult,
		send: sendGemini,
	},
}

const (
	chatResult      = `{"role":"tool","tool_call_id":"%[1]s","content":%[2]q}`
	messagesResult  = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"%[1]s","content":%[2]q}]}`
	geminiResult    = `{"role":"user","parts":[{"functionResponse":{"id":"%[1]s","name":"read","response":{"output":%[2]q}}}]}`
	responsesResult = `{"type":"function_call_output","call_id":"%[1]s","output":%[2]q}`
)

// result is a tool result as a message.
func (d apiDialect) result(id, text string) string {
	_, form, _ := strings.Cut(d.call, "},{")
	return fmt.Sprintf("{"+form, id, text)
}

func (d apiDialect) turn(id, text string) string { return fmt.Sprintf(d.call, id, text) }

func (d apiDialect) request(stream bool, elements ...string) string {
	extra := ""
	if d.kind == "gemini" {
		return geminiWords.Replace(fmt.Sprintf(d.body, "", strings.Join(elements, ",")))
	}
	if stream {
		extra = `,"stream":true`
		if strings.Contains(d.body, `"function":{`) {
			extra += `,"stream_options":{"include_usage":true}`
		}
	}
	return fmt.Sprintf(d.body, extra, strings.Join(elements, ","))
}

// thinking enables thinking on the wire where a request must ask for it.
func (d apiDialect) thinking() apiDialect {
	d.body = strings.Replace(d.body, `"max_tokens":4096`, `"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048}`, 1)
	return d
}

func openaiClient(url, body string) (openai.Client, openaioption.RequestOption) {
	return openai.NewClient(openaioption.WithBaseURL(url+"/v1"), openaioption.WithAPIKey("k"), openaioption.WithMaxRetries(0)),
		openaioption.WithRequestBody("application/json", []byte(body))
}

func sendChat(ctx context.Context, t *testing.T, url, body string, stream bool) (clientReply, error) {
	t.Helper()
	c, raw := openaiClient(url, body)
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
			return clientReply{}, s.Err()
		}
		got = acc.ChatCompletion
	} else {
		one, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{}, raw)
		if err != nil {
			return clientReply{}, err
		}
		got = *one
	}
	m := got.Choices[0].Message
	out := clientReply{text: m.Content, stopReason: got.Choices[0].FinishReason, inputTokens: got.Usage.PromptTokens, outputTokens: got.Usage.CompletionTokens}
	for _, call := range m.ToolCalls {
		out.calls = append(out.calls, call.Function.Name+" "+call.ID)
	}
	out.elements = []string{marshal(t, m.ToParam())}
	return out, nil
}

func sendMessages(ctx context.Context, t *testing.T, url, body string, stream bool) (clientReply, error) {
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
			return clientReply{}, s.Err()
		}
	} else {
		one, err := c.Messages.New(ctx, params, raw)
		if err != nil {
			return clientReply{}, err
		}
		got = *one
	}
	u := got.Usage
	out := clientReply{stopReason: string(got.StopReason), inputTokens: u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens, outputTokens: u.OutputTokens}
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

func sendResponses(ctx context.Context, t *testing.T, url, body string, stream bool) (clientReply, error) {
	t.Helper()
	c, raw := openaiClient(url, body)
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
			return clientReply{}, s.Err()
		}
		if text != got.OutputText() {
			t.Errorf("deltas say %q, the response %q", text, got.OutputText())
		}
	} else {
		one, err := c.Responses.New(ctx, responses.ResponseNewParams{}, raw)
		if err != nil {
			return clientReply{}, err
		}
		got = *one
	}
	out := clientReply{id: got.ID, text: got.OutputText(), stopReason: string(got.Status), inputTokens: got.Usage.InputTokens, outputTokens: got.Usage.OutputTokens}
	for _, item := range got.Output {
		if item.Type == "function_call" {
			out.calls = append(out.calls, item.Name+" "+item.CallID)
		}
		out.elements = append(out.elements, item.RawJSON())
	}
	return out, nil
}

// geminiWords rewrites the plain messages of the tests.
var geminiWords = strings.NewReplacer(`{"role":"user","content":"go"}`, `{"role":"user","parts":[{"text":"go"}]}`,
	`{"role":"user","content":"and?"}`, `{"role":"user","parts":[{"text":"and?"}]}`, `{"role":"user","content":"sure?"}`, `{"role":"user","parts":[{"text":"sure?"}]}`,
	`{"role":"user","content":"bye"}`, `{"role":"user","parts":[{"text":"bye"}]}`, `{"role":"assistant","content":"so"}`, `{"role":"model","parts":[{"text":"so"}]}`)

// bodyTransport sends a body in place of the SDK's own.
type bodyTransport struct{ body string }

func (b bodyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(b.body)), int64(len(b.body))
	r.GetBody = nil
	return http.DefaultTransport.RoundTrip(r)
}

// sendGemini repeats each event of a stream as a content, as the SDK's chats do.
func sendGemini(ctx context.Context, t *testing.T, url, body string, stream bool) (clientReply, error) {
	t.Helper()
	c, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: "k", Backend: genai.BackendGeminiAPI, HTTPClient: &http.Client{Transport: bodyTransport{body}}, HTTPOptions: genai.HTTPOptions{BaseURL: url},
	})
	if err != nil {
		t.Fatal(err)
	}
	var events []*genai.GenerateContentResponse
	if stream {
		for e, err := range c.Models.GenerateContentStream(ctx, "m-1", genai.Text("x"), nil) {
			if err != nil {
				return clientReply{}, err
			}
			events = append(events, e)
		}
	} else {
		one, err := c.Models.GenerateContent(ctx, "m-1", genai.Text("x"), nil)
		if err != nil {
			return clientReply{}, err
		}
		events = append(events, one)
	}
	var out clientReply
	for _, e := range events {
		u := e.UsageMetadata
		out.inputTokens, out.outputTokens = int64(u.PromptTokenCount), int64(u.CandidatesTokenCount+u.ThoughtsTokenCount)
		content := e.Candidates[0].Content
		out.stopReason += strings.ToLower(string(e.Candidates[0].FinishReason))
		isEmpty := true
		for _, p := range content.Parts {
			isEmpty = isEmpty && p.Text == "" && p.FunctionCall == nil
			if p.FunctionCall != nil {
				out.calls = append(out.calls, p.FunctionCall.Name+" "+p.FunctionCall.ID)
			} else if !p.Thought {
				out.text += p.Text
			}
		}
		if !isEmpty {
			out.elements = append(out.elements, marshal(t, content))
		}
	}
	if len(out.elements) == 0 {
		return out, errors.New("an empty reply")
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
