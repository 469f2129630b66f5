package fakeprovider

import (
	"encoding/json"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// Members are raw where the wire distinguishes null from absent; nil is absent.
var null = json.RawMessage("null")

// completion is a reply or a chunk of one.
type completion struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []choice        `json:"choices"`
	Usage             json.RawMessage `json:"usage,omitempty"`
	ServiceTier       string          `json:"service_tier"`
	SystemFingerprint string          `json:"system_fingerprint"`
}

type choice struct {
	Index        int             `json:"index"`
	Message      *chatMessage    `json:"message,omitempty"`
	Delta        *chatDelta      `json:"delta,omitempty"`
	Logprobs     json.RawMessage `json:"logprobs"`
	FinishReason *string         `json:"finish_reason"`
}

type chatMessage struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCall `json:"tool_calls,omitempty"`
	Refusal          *string    `json:"refusal"`
	Annotations      []string   `json:"annotations"`
}

type chatDelta struct {
	Role             string          `json:"role,omitempty"`
	Content          json.RawMessage `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCall      `json:"tool_calls,omitempty"`
	Refusal          json.RawMessage `json:"refusal,omitempty"`
}

type chatCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatUsage struct {
	PromptTokens            int               `json:"prompt_tokens"`
	CompletionTokens        int               `json:"completion_tokens"`
	TotalTokens             int               `json:"total_tokens"`
	PromptTokensDetails     chatPromptUsage   `json:"prompt_tokens_details"`
	CompletionTokensDetails chatOutcomeDetail `json:"completion_tokens_details"`
}

type chatPromptUsage struct {
	CachedTokens     int  `json:"cached_tokens"`
	AudioTokens      int  `json:"audio_tokens"`
	CacheWriteTokens *int `json:"cache_write_tokens,omitempty"`
}

type chatOutcomeDetail struct {
	ReasoningTokens          int `json:"reasoning_tokens"`
	AudioTokens              int `json:"audio_tokens"`
	AcceptedPredictionTokens int `json:"accepted_prediction_tokens"`
	RejectedPredictionTokens int `json:"rejected_prediction_tokens"`
}

func (a reply) chatUsage() json.RawMessage {
	in, out := a.prompt.tokens(), a.outputTokens()
	u := chatUsage{PromptTokens: in, CompletionTokens: out, TotalTokens: in + out}
	u.PromptTokensDetails.CachedTokens = a.cacheRead
	if a.reportsWrites {
		u.PromptTokensDetails.CacheWriteTokens = &a.cacheWritten
	}
	u.CompletionTokensDetails.ReasoningTokens = Tokens(a.Thinking)
	return encodeJSON(u)
}

func (a reply) finishReason() *string {
	reason := "stop"
	if len(a.Calls) > 0 {
		reason = "tool_calls"
	}
	if a.Truncated {
		reason = "length"
	}
	return &reason
}

func (a reply) completion(object string, choices ...choice) completion {
	return completion{
		ID: a.id, Object: object, Created: a.created.Unix(), Model: a.model, Choices: choices,
		ServiceTier: "default", SystemFingerprint: "fp_fakeprovider",
	}
}

func (a reply) chatBody() []byte {
	m := &chatMessage{Role: "assistant", ReasoningContent: a.Thinking, Annotations: []string{}}
	if a.Text != "" || len(a.Calls) == 0 {
		m.Content = &a.Text
	}
	for _, c := range a.Calls {
		m.ToolCalls = append(m.ToolCalls, chatCall{ID: c.ID, Type: "function", Function: chatFunction{c.Name, c.Args}})
	}
	body := a.completion("chat.completion", choice{Message: m, FinishReason: a.finishReason()})
	body.Usage = a.chatUsage()
	return encodeJSON(body)
}

func (a reply) chatEvents() []sse.Event {
	var events []sse.Event
	send := func(c completion) {
		if a.includeUsage && c.Usage == nil {
			c.Usage = null
		}
		events = append(events, sse.Event{Data: encodeJSON(c)})
	}
	for _, d := range a.chatDeltas() {
		send(a.completion("chat.completion.chunk", choice{Delta: &d}))
	}
	send(a.completion("chat.completion.chunk", choice{Delta: &chatDelta{}, FinishReason: a.finishReason()}))
	if a.includeUsage {
		last := a.completion("chat.completion.chunk")
		last.Choices, last.Usage = []choice{}, a.chatUsage()
		send(last)
	}
	return append(events, sse.Event{Data: []byte("[DONE]")})
}

func (a reply) chatDeltas() []chatDelta {
	first := chatDelta{Role: "assistant", Content: encodeJSON(""), Refusal: null}
	if a.Text == "" && len(a.Calls) > 0 {
		first.Content = null
	}
	out := []chatDelta{first}
	for _, chunk := range a.chunks(a.Thinking) {
		out = append(out, chatDelta{ReasoningContent: chunk})
	}
	for _, chunk := range a.chunks(a.Text) {
		out = append(out, chatDelta{Content: encodeJSON(chunk)})
	}
	for i, c := range a.Calls {
		out = append(out, chatDelta{ToolCalls: []chatCall{{&i, c.ID, "function", chatFunction{Name: c.Name}}}})
		for _, chunk := range a.chunks(c.Args) {
			out = append(out, chatDelta{ToolCalls: []chatCall{{Index: &i, Function: chatFunction{Arguments: chunk}}}})
		}
	}
	return out
}
