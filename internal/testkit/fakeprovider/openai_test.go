package fakeprovider

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// The official SDKs read exactly the scripted replies.

func openaiClient(p *Provider) openai.Client {
	return openai.NewClient(option.WithBaseURL(p.URL+"/v1"), option.WithAPIKey("sk-x"), option.WithMaxRetries(0))
}

var weather = shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}

var twoCalls = Step{Text: "Let me see: é, ü, 漢字 <b>&amp;</b>.", Calls: []Call{
	{ID: "call_a", Name: "weather", Args: `{"city":"Lyon & <Paris>"}`},
	{ID: "call_b", Name: "weather", Args: `{"city":"Kyōto"}`},
}}

func chatParams(stream bool, messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	params := openai.ChatCompletionNewParams{
		Model: "gpt-test", Messages: messages,
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "weather", Parameters: weather})},
	}
	if stream {
		params.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	return params
}

func complete(t *testing.T, c openai.Client, stream bool, messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletion {
	t.Helper()
	params := chatParams(stream, messages...)
	if !stream {
		got, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		return *got
	}
	s := c.Chat.Completions.NewStreaming(t.Context(), params)
	defer s.Close()
	var acc openai.ChatCompletionAccumulator
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatalf("the accumulator rejects %s", s.Current().RawJSON())
		}
		// The accumulator drops cache writes.
		acc.Usage = s.Current().Usage
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return acc.ChatCompletion
}

func TestOpenAIChat(t *testing.T) {
	for _, stream := range []bool{false, true} {
		p := New(t, Options{Prices: Prices{Write: 1.25, Read: 0.1}})
		c := openaiClient(p)
		p.Script(twoCalls, ReplyText("Sunny."))
		user := openai.UserMessage(strings.Repeat("What is the weather? ", 300))
		first := complete(t, c, stream, user)
		m := first.Choices[0].Message
		if m.Content != twoCalls.Text || len(m.ToolCalls) != 2 || first.Choices[0].FinishReason != "tool_calls" {
			t.Fatalf("stream %v: %s", stream, first.RawJSON())
		}
		for i, call := range m.ToolCalls {
			want := twoCalls.Calls[i]
			if got := (Call{call.ID, call.Function.Name, call.Function.Arguments}); got != want {
				t.Errorf("stream %v: call %d is %v, not %v", stream, i, got, want)
			}
		}
		second := complete(t, c, stream, user, m.ToParam(), openai.ToolMessage("19 °C", "call_a"), openai.ToolMessage("22 °C", "call_b"))
		if second.Choices[0].Message.Content != "Sunny." || second.Choices[0].FinishReason != "stop" {
			t.Errorf("stream %v: %s", stream, second.RawJSON())
		}
		for i, u := range []openai.CompletionUsage{first.Usage, second.Usage} {
			e := p.Bill()[i]
			d := u.PromptTokensDetails
			if u.PromptTokens != int64(e.Input()) || d.CachedTokens != int64(e.CacheRead) || d.CacheWriteTokens != int64(e.CacheWrite) || u.CompletionTokens != int64(e.Output) {
				t.Errorf("stream %v: usage %s, bill %+v", stream, u.RawJSON(), e)
			}
		}
		if p.Bill()[1].CacheRead < 1024 {
			t.Errorf("nothing was read from the cache: %+v", p.Bill())
		}
		r := p.Requests()[1]
		if r.ToolTurns != 1 || len(r.Results) != 2 || r.Results[1].Text != "22 °C" || r.Stream != stream || r.Header.Get("Authorization") != "Bearer sk-x" || !json.Valid(r.Body) {
			t.Errorf("recorded %+v", r)
		}
	}
}

func TestOpenAIErrors(t *testing.T) {
	p := New(t, Options{})
	c := openaiClient(p)
	for _, status := range []int{400, 401, 403, 404, 429, 500, 503, 529} {
		p.Script(FailWith(status))
		_, err := c.Chat.Completions.New(t.Context(), chatParams(false, openai.UserMessage("hi")))
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != status || e.Message == "" || e.Type == "" {
			t.Errorf("%d: %v", status, err)
		}
		if retry := e.Response.Header.Get("Retry-After"); (status == http.StatusTooManyRequests) != (retry == "1") {
			t.Errorf("%d: Retry-After %q", status, retry)
		}
	}
	p.Script(Step{Text: "some text that goes on and on", AfterEvents: 2, Fail: &Failure{Status: 500}})
	s := c.Chat.Completions.NewStreaming(t.Context(), chatParams(true, openai.UserMessage("hi")))
	defer s.Close()
	for s.Next() {
	}
	if s.Err() == nil {
		t.Error("the error in the stream was not reported")
	}
}

func TestOpenAIModels(t *testing.T) {
	p := New(t, Options{Models: []string{"m-1", "m-2"}})
	c := openaiClient(p)
	page, err := c.Models.List(t.Context())
	if err != nil || len(page.Data) != 2 || page.Data[1].ID != "m-2" {
		t.Errorf("%v %v", page, err)
	}
	if m, err := c.Models.Get(t.Context(), "m-1"); err != nil || m.ID != "m-1" {
		t.Errorf("%v %v", m, err)
	}
	_, err = c.Chat.Completions.New(t.Context(), chatParams(false, openai.UserMessage("hi")))
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusNotFound || e.Code != "model_not_found" {
		t.Errorf("%v", err)
	}
}

func respond(t *testing.T, c openai.Client, stream bool, params responses.ResponseNewParams) responses.Response {
	t.Helper()
	if !stream {
		got, err := c.Responses.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		return *got
	}
	s := c.Responses.NewStreaming(t.Context(), params)
	defer s.Close()
	var last responses.Response
	args, text, thought := map[string]string{}, "", ""
	for n := int64(0); s.Next(); n++ {
		e := s.Current()
		if e.SequenceNumber != n {
			t.Errorf("event %d has number %d", n, e.SequenceNumber)
		}
		switch v := e.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += v.Delta
		case responses.ResponseReasoningSummaryTextDeltaEvent:
			thought += v.Delta
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			args[v.ItemID] += v.Delta
		case responses.ResponseCompletedEvent:
			last = v.Response
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if text != last.OutputText() {
		t.Errorf("the deltas' text is %q, the response's %q", text, last.OutputText())
	}
	for _, it := range last.Output {
		switch v := it.AsAny().(type) {
		case responses.ResponseFunctionToolCall:
			if args[it.ID] != v.Arguments {
				t.Errorf("the deltas' arguments are %q, the item's %q", args[it.ID], v.Arguments)
			}
		case responses.ResponseReasoningItem:
			if v.Summary[0].Text != thought {
				t.Errorf("the deltas' thinking is %q, the item's %q", thought, v.Summary[0].Text)
			}
		}
	}
	return last
}

func functionResult(id, text string) responses.ResponseInputItemUnionParam {
	it := responses.ResponseInputItemParamOfFunctionCallOutput(text)
	it.OfFunctionCallOutput.CallID = openai.String(id)
	return it
}

func TestOpenAIResponses(t *testing.T) {
	for _, stream := range []bool{false, true} {
		p := New(t, Options{Prices: Prices{Write: 1.25, Read: 0.1}})
		c := openaiClient(p)
		thinking := twoCalls
		thinking.Thinking = "Two cities, so two calls."
		p.Script(thinking, ReplyText("Sunny."), ReplyText("Still."))
		input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(strings.Repeat("The weather? ", 400), "user")}
		params := responses.ResponseNewParams{
			Model: "gpt-test", Instructions: openai.String("Be brief."), Store: openai.Bool(true),
			Tools: []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", weather, false)},
			Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
		}
		first := respond(t, c, stream, params)
		var calls []Call
		for _, it := range first.Output {
			if v, ok := it.AsAny().(responses.ResponseFunctionToolCall); ok {
				calls = append(calls, Call{v.CallID, v.Name, v.Arguments})
				input = append(input, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(v.RawJSON())))
			}
		}
		if len(calls) != 2 || calls[0] != twoCalls.Calls[0] || calls[1] != twoCalls.Calls[1] || first.Status != "completed" || first.OutputText() != twoCalls.Text {
			t.Fatalf("stream %v: %s", stream, first.RawJSON())
		}
		outputs := responses.ResponseInputParam{
			functionResult("call_a", "19 °C"), functionResult("call_b", "22 °C"),
		}
		params.Input.OfInputItemList = append(input, outputs...)
		second := respond(t, c, stream, params)
		if second.OutputText() != "Sunny." {
			t.Errorf("stream %v: %s", stream, second.RawJSON())
		}
		params.Input.OfInputItemList, params.PreviousResponseID = outputs, openai.String(first.ID)
		third := respond(t, c, stream, params)
		for i, u := range []responses.ResponseUsage{first.Usage, second.Usage, third.Usage} {
			e := p.Bill()[i]
			d := u.InputTokensDetails
			if u.InputTokens != int64(e.Input()) || d.CachedTokens != int64(e.CacheRead) || d.CacheWriteTokens != int64(e.CacheWrite) || u.OutputTokens != int64(e.Output) {
				t.Errorf("stream %v: usage %s, bill %+v", stream, u.RawJSON(), e)
			}
		}
		if b := p.Bill(); b[1].CacheRead < 1024 || b[2].CacheRead < 1024 {
			t.Errorf("nothing was read from the cache: %+v", b)
		}
	}
}
