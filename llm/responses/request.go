// Package responses is the wire shape of OpenAI's Responses API.
//
// Path through the files: request.go reads requests; readback.go writes the messages of hidden rounds, and
// merge.go merges replies.
package responses

import (
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/openai"
)

// Codec is the [llm.Codec] of the Responses API.
type Codec struct{}

var wire = llm.Wire{
	Name:         "responses",
	Vendor:       openai.Vendor{},
	Endpoints:    []llm.Endpoint{{Path: "/v1/responses", UpstreamPath: "/responses", Conversation: true}},
	MessagesKey:  "input",
	TextInput:    true,
	ReplyIsItems: true,
	SyntaxBytes:  25,
	LastEvents:   []string{"response.completed", "response.incomplete", "response.failed", "error"},
	RequestKeys:  llm.RequestKeys, PromptKeys: llm.PromptKeys,
	Usage: llm.UsageKeys{
		Model: "model", Object: "usage",
		Input: "input_tokens", Output: "output_tokens", Details: "input_tokens_details",
		Cached: []string{"cached_tokens"}, Created: []string{"cache_write_tokens", "cache_creation_tokens"},
	},
}

// Wire implements [llm.Codec].
func (Codec) Wire() *llm.Wire { return &wire }

func (Codec) String() string { return wire.Name }

// ReadMessage implements [llm.Codec]: it reads one item of the input. A tool turn is one reply of the model: the
// function calls since the client's last item, with the reasoning between them.
func (Codec) ReadMessage(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message) (err error) {
	var kind, role []byte
	var call llm.Call
	var output, content llm.Value
	cached := false
	m.Span, err = r.Object(s, llm.MessageKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "type":
			kind = r.Text(v)
		case "role":
			role = r.Text(v)
		case "call_id":
			call.ID = v
		case "name":
			call.Name = v
		case "output":
			output = v
		case "content":
			content = v
		case "cache_control":
			cached = r.Body[v.Start] != 'n'
		}
	})
	if err != nil {
		return err
	}
	if cached {
		m.Mark.Set(m.End)
	}
	m.Weight, m.ByUser = m.Len(), string(role) == "user"
	switch string(kind) {
	case "function_call":
		m.Spoken = true
		if m.JoinsTurn = call.ID.IsString; m.JoinsTurn {
			m.Calls = append(m.Calls, call)
		}
	case "function_call_output":
		text, end, err := r.ReadContent(output, true, &m.Mark)
		if err != nil {
			return err
		}
		m.Mark.Set(end)
		m.Results = append(m.Results, llm.Result{CallID: call.ID, Content: text})
		m.Weight += text.Weight - output.Len()
	case "reasoning", "item_reference":
		m.Weight = 0 // clients drop them at any time
	case "message", "":
		text, end, err := r.ReadContent(content, true, &m.Mark)
		if err != nil {
			return err
		}
		m.Mark.Set(end)
		m.Spoken, m.Prompt = true, text.Last
		m.ClosesTurn = string(role) != "assistant"
		m.Weight += text.Weight - content.Len()
	}
	return nil
}

// CallArguments implements [llm.Codec].
func (Codec) CallArguments(body []byte, message jsonscan.Span, callID string, limit int) ([]byte, bool) {
	item, err := jsonscan.ReadFields(body, message)
	if err != nil || item.Text("type") != "function_call" || item.Text("call_id") != callID {
		return nil, false
	}
	return llm.ArgumentsOf(item, limit), true
}

// DigestMessage implements [llm.Codec].
func (Codec) DigestMessage(d llm.Digest, body []byte, message jsonscan.Span, _ bool) {
	llm.DigestFields(d, body, message, false)
}

// ToolName implements [llm.Codec].
func (Codec) ToolName(body []byte, tool jsonscan.Span) string { return llm.NestedToolName(body, tool) }
