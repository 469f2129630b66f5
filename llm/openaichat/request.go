// Package openaichat is the wire shape of OpenAI's chat completions.
//
// Path through the files: request.go reads requests; readback.go writes the messages of hidden rounds, and
// merge.go merges replies.
package openaichat

import (
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/openai"
)

// Codec is the [llm.Codec] of chat completions.
type Codec struct{}

var wire = llm.Wire{
	Name:   "chat",
	Vendor: openai.Vendor{},
	Endpoints: []llm.Endpoint{
		{Path: "/v1/chat/completions", UpstreamPath: "/chat/completions", Conversation: true},
		{Path: "/chat/completions", UpstreamPath: "/chat/completions", Conversation: true},
	},
	MessagesKey: "messages",
	SyntaxBytes: 10,
	RequestKeys: llm.RequestKeys, PromptKeys: llm.PromptKeys,
	Usage: llm.UsageKeys{
		Model: "model", Object: "usage",
		Input: "prompt_tokens", Output: "completion_tokens", Details: "prompt_tokens_details",
		Cached:  []string{"cached_tokens", "prompt_cache_hit_tokens"}, // the second is DeepSeek's
		Created: []string{"cache_write_tokens", "cache_creation_tokens"},
	},
}

// Wire implements [llm.Codec].
func (Codec) Wire() *llm.Wire { return &wire }

func (Codec) String() string { return wire.Name }

var (
	callKeys     = []string{"id", "function", "custom"}
	functionKeys = []string{"name"}
)

// ReadMessage implements [llm.Codec] (H1). Tool content that is not a string is not masked (H7), except with
// profile = "agents": Qwen Code sends every result as a list of one text.
func (Codec) ReadMessage(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message) (err error) {
	var role []byte
	var content, calls, id llm.Value
	cacheBytes, cached := 0, false
	m.Span, err = r.Object(s, llm.MessageKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "role":
			role = r.Text(v)
		case "content":
			content = v
		case "tool_calls":
			calls = v
		case "tool_call_id":
			id = v
		case "cache_control":
			cached = r.Body[v.Start] != 'n'
			cacheBytes = llm.CacheControlLen(v)
		}
	})
	if err != nil {
		return err
	}
	text, end, err := r.ReadContent(content, false, &m.Mark)
	if err != nil {
		return err
	}
	if cached {
		end = m.End
	}
	m.Mark.Set(end)
	m.ClosesTurn = true
	switch string(role) {
	case "tool":
		m.ClosesTurn = false
		m.Results = append(m.Results, llm.Result{CallID: id, Content: text})
	case "assistant":
		m.Spoken = true
		err = readCalls(r, calls, m)
	case "user":
		m.Spoken, m.ByUser, m.Prompt = true, true, text.Last
	}
	m.Weight = m.Len() - cacheBytes - content.Len() + text.Weight
	return err
}

// readCalls reads the calls whose id is a string.
func readCalls(r *llm.Reader, calls llm.Value, m *llm.Message) error {
	return r.Each(calls.Span, func(s *jsonscan.Scanner) error {
		var call llm.Call
		var function llm.Value
		_, err := r.Object(s, callKeys, func(key []byte, v llm.Value) {
			switch string(key) {
			case "id":
				call.ID = v
			case "function", "custom":
				function = v
			}
		})
		if err != nil || !call.ID.IsString {
			return err
		}
		if function.Len() > 0 {
			_, err = r.Object(jsonscan.NewAt(r.Body, function.Start, 0, 0), functionKeys, func(key []byte, v llm.Value) {
				if string(key) == "name" {
					call.Name = v
				}
			})
		}
		m.Calls = append(m.Calls, call)
		return err
	})
}

// CallArguments implements [llm.Codec].
func (Codec) CallArguments(body []byte, message jsonscan.Span, callID string, limit int) ([]byte, bool) {
	return llm.FindArguments(body, message, "tool_calls", callID, limit)
}

// DigestMessage implements [llm.Codec].
func (Codec) DigestMessage(d llm.Digest, body []byte, message jsonscan.Span, _ bool) {
	llm.DigestFields(d, body, message, false)
}

// ToolName implements [llm.Codec].
func (Codec) ToolName(body []byte, tool jsonscan.Span) string { return llm.NestedToolName(body, tool) }
