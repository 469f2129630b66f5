// Package anthropic is the wire shape of Anthropic's Messages API.
//
// Path through the files: request.go reads requests; readback.go writes the messages of hidden rounds, and
// merge.go merges replies; vendor.go is the rest of the API: errors, keys, model lists.
package anthropic

import (
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Codec is the [llm.Codec] of the Messages API.
type Codec struct{}

var wire = llm.Wire{
	Name:   "messages",
	Vendor: Vendor{},
	Endpoints: []llm.Endpoint{
		{Path: "/v1/messages", UpstreamPath: "/messages", Conversation: true},
		{Path: "/v1/messages/count_tokens", UpstreamPath: "/messages/count_tokens"},
	},
	MessagesKey: "messages",
	SyntaxBytes: 10,
	RequestKeys: llm.RequestKeys, PromptKeys: llm.PromptKeys,
	LastEvents:      []string{"message_stop", "error"},
	MarkedCacheOnly: true,
	OfferFirst:      true,
	Usage: llm.UsageKeys{
		Model: "model", Object: "usage",
		Input: "input_tokens", Output: "output_tokens", Details: "cache_creation",
		Cached: []string{"cache_read_input_tokens"}, Created: []string{"cache_creation_input_tokens"},
		Long: []string{"ephemeral_1h_input_tokens"}, InputIsFresh: true,
	},
}

// Wire implements [llm.Codec].
func (Codec) Wire() *llm.Wire { return &wire }

func (Codec) String() string { return wire.Name }

// ReadMessage implements [llm.Codec]. Results are blocks in user messages. Their content is a string or a list
// of blocks. A list of only texts can be masked: the first block becomes the placeholder and the others an
// ellipsis, because no block may be removed or empty.
func (Codec) ReadMessage(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message) (err error) {
	var role []byte
	var content llm.Value
	m.Span, err = r.Object(s, llm.MessageKeys, func(key []byte, v llm.Value) {
		switch string(key) {
		case "role":
			role = r.Text(v)
		case "content":
			content = v
		}
	})
	if err != nil {
		return err
	}
	weight := content.Str.Len()
	m.ByUser = string(role) == "user"
	if content.IsString {
		m.Prompt = content.Span
	} else {
		err = r.Each(content.Span, func(s *jsonscan.Scanner) error {
			w, err := readBlock(r, s, m, string(role) == "assistant", weight)
			weight += w
			return err
		})
	}
	m.Spoken = len(m.Results) == 0
	m.ClosesTurn = len(m.Calls) == 0 && len(m.Results) == 0
	m.Weight = m.Len() - content.Len() + weight
	return err
}

// readBlock reads one block and returns its weight; offset is the weight of the blocks before it.
func readBlock(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message, byModel bool, offset int) (int, error) {
	b, err := r.ReadBlock(s, &m.Mark)
	if err != nil {
		return 0, err
	}
	if b.Body.IsString {
		m.Prompt = b.Body.Span
	}
	switch {
	case string(b.Type) == "tool_use" && byModel && b.ID.IsString:
		m.Calls = append(m.Calls, llm.Call{ID: b.ID, Name: b.Name})
	case string(b.Type) == "tool_result" && m.ByUser:
		text, end, err := r.ReadContent(b.Content, true, &m.Mark)
		m.Mark.Set(end)
		if b.Cached {
			m.Mark.Set(b.End)
		}
		m.Results = append(m.Results, llm.Result{CallID: b.ToolUseID, Content: text, Failed: b.Failed, Offset: offset})
		return b.Len() - b.CacheBytes - b.Content.Len() + text.Weight, err
	}
	if b.Cached {
		m.Mark.Set(b.End)
	}
	return b.Weight(), nil
}

// CallArguments implements [llm.Codec].
func (Codec) CallArguments(body []byte, message jsonscan.Span, callID string, limit int) ([]byte, bool) {
	return llm.FindArguments(body, message, "content", callID, limit)
}

// DigestMessage implements [llm.Codec].
func (Codec) DigestMessage(d llm.Digest, body []byte, message jsonscan.Span, spoken bool) {
	llm.DigestFields(d, body, message, !spoken)
}

// ToolName implements [llm.Codec].
func (Codec) ToolName(body []byte, tool jsonscan.Span) string { return llm.NestedToolName(body, tool) }
