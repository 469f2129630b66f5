package peers

import (
	"context"
	"errors"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// anthropicClient is anthropic-sdk-go.
type anthropicClient struct{ anthropic.Client }

func newAnthropicClient(w *llmSetup) llmClient {
	return anthropicClient{anthropicAt(w.URL, w.Key, 0)}
}

func anthropicAt(url, key string, retries int) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(retries))
}

func (c anthropicClient) openConversation(w *llmSetup, model, key string, retries int) llmConversation {
	return &messagesConversation{client: anthropicAt(w.URL, key, retries), stream: w.Stream, params: anthropic.MessageNewParams{
		Model: model, MaxTokens: 4096, Thinking: anthropic.ThinkingConfigParamOfEnabled(2048), System: system(w), Tools: anthropicTools(w),
	}}
}

func system(w *llmSetup) []anthropic.TextBlockParam {
	return []anthropic.TextBlockParam{{Text: w.System, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
}

func anthropicTools(w *llmSetup) []anthropic.ToolUnionParam {
	var out []anthropic.ToolUnionParam
	for _, t := range w.Tools {
		out = append(out, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name: t.Name, Description: anthropic.String(t.Description), InputSchema: anthropic.ToolInputSchemaParam{Properties: parameters(t)["properties"]},
		}})
	}
	return out
}

func (c anthropicClient) models(ctx context.Context) ([]string, error) {
	var ids []string
	pages := c.Models.ListAutoPaging(ctx, anthropic.ModelListParams{})
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	return ids, pages.Err()
}

func (c anthropicClient) model(ctx context.Context, id string) (string, error) {
	m, err := c.Models.Get(ctx, id, anthropic.ModelGetParams{})
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

func (c anthropicClient) count(ctx context.Context, w *llmSetup, model string) (int, error) {
	params := anthropic.MessageCountTokensParams{
		Model: model, Thinking: anthropic.ThinkingConfigParamOfEnabled(2048),
		System:   anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: system(w)},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(w.Conversation.Task))},
	}
	for _, t := range anthropicTools(w) {
		params.Tools = append(params.Tools, anthropic.MessageCountTokensToolUnionParam{OfTool: t.OfTool})
	}
	n, err := c.Messages.CountTokens(ctx, params)
	if err != nil {
		return 0, err
	}
	return int(n.InputTokens), nil
}

type messagesConversation struct {
	client anthropic.Client
	stream bool
	params anthropic.MessageNewParams
}

func (m *messagesConversation) user(text string) {
	m.params.Messages = append(m.params.Messages, anthropic.NewUserMessage(anthropic.NewTextBlock(text)))
}

func (m *messagesConversation) results(list []trajectories.ToolUse) {
	var blocks []anthropic.ContentBlockParamUnion
	for _, r := range list {
		blocks = append(blocks, anthropic.NewToolResultBlock(r.ID, r.Result, r.IsError))
	}
	m.params.Messages = append(m.params.Messages, anthropic.NewUserMessage(blocks...))
}

func (m *messagesConversation) sendRequest(ctx context.Context, onDelta func(string)) (llmReply, error) {
	got, err := m.message(ctx, onDelta)
	if err != nil {
		return llmReply{}, err
	}
	m.params.Messages = append(m.params.Messages, got.ToParam())
	u := got.Usage
	out := llmReply{stop: string(got.StopReason), used: modelUsage{
		int(u.InputTokens), int(u.CacheReadInputTokens), int(u.CacheCreationInputTokens), int(u.OutputTokens),
	}}
	for _, block := range got.Content {
		switch v := block.AsAny().(type) {
		case anthropic.TextBlock:
			out.text += v.Text
		case anthropic.ThinkingBlock:
			out.thought += v.Thinking
		case anthropic.ToolUseBlock:
			out.calls = append(out.calls, fakeprovider.Call{ID: v.ID, Name: v.Name, Args: string(v.Input)})
		}
	}
	return out, nil
}

func (m *messagesConversation) message(ctx context.Context, onDelta func(string)) (*anthropic.Message, error) {
	if !m.stream {
		return m.client.Messages.New(ctx, m.params)
	}
	s := m.client.Messages.NewStreaming(ctx, m.params)
	defer s.Close()
	var all anthropic.Message
	for s.Next() {
		e := s.Current()
		if err := all.Accumulate(e); err != nil {
			return nil, err
		}
		if delta, ok := e.AsAny().(anthropic.ContentBlockDeltaEvent); ok && delta.Delta.Text != "" && onDelta != nil {
			onDelta(delta.Delta.Text)
		}
	}
	if err := s.Err(); err != nil || all.StopReason != "" {
		return &all, err
	}
	return nil, errors.New("the stream ended without its end")
}
