package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"google.golang.org/genai"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// errorStatus returns the status and text of an SDK error; 0 if there was no reply.
func errorStatus(err error) (int, string) {
	var o *openai.Error
	var a *anthropic.Error
	var g genai.APIError
	switch {
	case errors.As(err, &o):
		return o.StatusCode, o.Message
	case errors.As(err, &a):
		return a.StatusCode, a.RawJSON()
	case errors.As(err, &g):
		return g.Code, g.Message
	}
	return 0, ""
}

// openAIClient is openai-go.
type openAIClient struct{ openai.Client }

func newOpenAIClient(w *llmSetup) llmClient {
	return openAIClient{openAI(w.URL, w.Key, 0)}
}

func openAI(url, key string, retries int) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(retries))
}

func (c openAIClient) openConversation(w *llmSetup, model, key string, retries int) llmConversation {
	client := openAI(w.URL, key, retries)
	if w.Shape == fakeprovider.Responses.String() {
		return newResponsesConversation(client, w, model)
	}
	return newChatConversation(client, w, model)
}

func (c openAIClient) models(ctx context.Context) ([]string, error) {
	var ids []string
	pages := c.Models.ListAutoPaging(ctx)
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	return ids, pages.Err()
}

func (c openAIClient) model(ctx context.Context, id string) (string, error) {
	m, err := c.Models.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

func (openAIClient) count(context.Context, *llmSetup, string) (int, error) {
	return 0, errors.New("this SDK does not count")
}

func parameters(t modelTool) map[string]any {
	var out map[string]any
	_ = json.Unmarshal(t.Schema, &out) // always valid
	return out
}

type chatConversation struct {
	client openai.Client
	stream bool
	params openai.ChatCompletionNewParams
}

func newChatConversation(client openai.Client, w *llmSetup, model string) *chatConversation {
	c := &chatConversation{client: client, stream: w.Stream, params: openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(w.System)},
	}}
	for _, t := range w.Tools {
		c.params.Tools = append(c.params.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: t.Name, Description: openai.String(t.Description), Parameters: parameters(t),
		}))
	}
	if w.Stream {
		c.params.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	return c
}

func (c *chatConversation) user(text string) {
	c.params.Messages = append(c.params.Messages, openai.UserMessage(text))
}

func (c *chatConversation) results(list []trajectories.ToolUse) {
	for _, r := range list {
		c.params.Messages = append(c.params.Messages, openai.ToolMessage(r.Result, r.ID))
	}
}

func (c *chatConversation) sendRequest(ctx context.Context, onDelta func(string)) (llmReply, error) {
	got, err := c.completion(ctx, onDelta)
	if err != nil {
		return llmReply{}, err
	}
	if len(got.Choices) != 1 {
		return llmReply{}, fmt.Errorf("%d choices", len(got.Choices))
	}
	m := got.Choices[0].Message
	c.params.Messages = append(c.params.Messages, m.ToParam())
	u := got.Usage
	d := u.PromptTokensDetails
	out := llmReply{text: m.Content, stop: got.Choices[0].FinishReason, used: modelUsage{
		int(u.PromptTokens - d.CachedTokens - d.CacheWriteTokens), int(d.CachedTokens), int(d.CacheWriteTokens), int(u.CompletionTokens),
	}}
	for _, call := range m.ToolCalls {
		out.calls = append(out.calls, fakeprovider.Call{ID: call.ID, Name: call.Function.Name, Args: call.Function.Arguments})
	}
	return out, nil
}

func (c *chatConversation) completion(ctx context.Context, onDelta func(string)) (*openai.ChatCompletion, error) {
	if !c.stream {
		return c.client.Chat.Completions.New(ctx, c.params)
	}
	s := c.client.Chat.Completions.NewStreaming(ctx, c.params)
	defer s.Close()
	var all openai.ChatCompletionAccumulator
	for s.Next() {
		chunk := s.Current()
		if !all.AddChunk(chunk) {
			return nil, fmt.Errorf("the SDK cannot add %s", chunk.RawJSON())
		}
		all.Usage = chunk.Usage // the accumulator drops cache writes
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" && onDelta != nil {
			onDelta(chunk.Choices[0].Delta.Content)
		}
	}
	return &all.ChatCompletion, s.Err()
}

type responsesConversation struct {
	client openai.Client
	stream bool
	params responses.ResponseNewParams
}

func newResponsesConversation(client openai.Client, w *llmSetup, model string) *responsesConversation {
	r := &responsesConversation{client: client, stream: w.Stream, params: responses.ResponseNewParams{
		Model: model, Instructions: openai.String(w.System), Store: openai.Bool(false),
	}}
	for _, t := range w.Tools {
		r.params.Tools = append(r.params.Tools, responses.ToolParamOfFunction(t.Name, parameters(t), false))
	}
	return r
}

func (r *responsesConversation) add(items ...responses.ResponseInputItemUnionParam) {
	r.params.Input.OfInputItemList = append(r.params.Input.OfInputItemList, items...)
}

func (r *responsesConversation) user(text string) {
	r.add(responses.ResponseInputItemParamOfMessage(text, "user"))
}

func (r *responsesConversation) results(list []trajectories.ToolUse) {
	for _, x := range list {
		item := responses.ResponseInputItemParamOfFunctionCallOutput(x.Result)
		item.OfFunctionCallOutput.CallID = openai.String(x.ID)
		r.add(item)
	}
}

func (r *responsesConversation) sendRequest(ctx context.Context, onDelta func(string)) (llmReply, error) {
	got, err := r.response(ctx, onDelta)
	if err != nil {
		return llmReply{}, err
	}
	u := got.Usage
	d := u.InputTokensDetails
	out := llmReply{text: got.OutputText(), stop: string(got.Status), used: modelUsage{
		int(u.InputTokens - d.CachedTokens - d.CacheWriteTokens), int(d.CachedTokens), int(d.CacheWriteTokens), int(u.OutputTokens),
	}}
	for _, item := range got.Output {
		r.add(param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
		switch v := item.AsAny().(type) {
		case responses.ResponseFunctionToolCall:
			out.calls = append(out.calls, fakeprovider.Call{ID: v.CallID, Name: v.Name, Args: v.Arguments})
		case responses.ResponseReasoningItem:
			for _, s := range v.Summary {
				out.thought += s.Text
			}
		}
	}
	return out, nil
}

func (r *responsesConversation) response(ctx context.Context, onDelta func(string)) (*responses.Response, error) {
	if !r.stream {
		return r.client.Responses.New(ctx, r.params)
	}
	s := r.client.Responses.NewStreaming(ctx, r.params)
	defer s.Close()
	var last *responses.Response
	for n := int64(0); s.Next(); n++ {
		e := s.Current()
		if e.SequenceNumber != n {
			return nil, fmt.Errorf("event %d has the number %d", n, e.SequenceNumber)
		}
		switch v := e.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			if onDelta != nil {
				onDelta(v.Delta)
			}
		case responses.ResponseErrorEvent:
			return nil, fmt.Errorf("in the stream: %s", v.Message)
		case responses.ResponseCompletedEvent:
			last = &v.Response
		}
	}
	if err := s.Err(); err != nil || last != nil {
		return last, err
	}
	return nil, errors.New("the stream ended without its end")
}
