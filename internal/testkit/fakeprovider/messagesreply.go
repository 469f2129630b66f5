package fakeprovider

import (
	"encoding/json"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// message is a messages reply.
type message struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []contentBlock `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        messageUsage   `json:"usage"`
}

// contentBlock is a block of any type; members of other types are nil.
type contentBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

type messageUsage struct {
	InputTokens              int            `json:"input_tokens"`
	CacheCreationInputTokens int            `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int            `json:"cache_read_input_tokens"`
	CacheCreation            *cacheCreation `json:"cache_creation,omitempty"`
	OutputTokens             int            `json:"output_tokens"`
	ServiceTier              string         `json:"service_tier,omitempty"`
}

type cacheCreation struct {
	Ephemeral5m int `json:"ephemeral_5m_input_tokens"`
	Ephemeral1h int `json:"ephemeral_1h_input_tokens"`
}

// messageEvent is a stream event of any type.
type messageEvent struct {
	Type    string        `json:"type"`
	Message *message      `json:"message,omitempty"`
	Index   *int          `json:"index,omitempty"`
	Block   *contentBlock `json:"content_block,omitempty"`
	Delta   *messageDelta `json:"delta,omitempty"`
	Usage   *messageUsage `json:"usage,omitempty"`
}

type messageDelta struct {
	Type         string          `json:"type,omitempty"`
	Text         *string         `json:"text,omitempty"`
	Thinking     *string         `json:"thinking,omitempty"`
	Signature    *string         `json:"signature,omitempty"`
	PartialJSON  *string         `json:"partial_json,omitempty"`
	StopReason   *string         `json:"stop_reason,omitempty"`
	StopSequence json.RawMessage `json:"stop_sequence,omitempty"`
}

func (a reply) messageUsage(output int) messageUsage {
	return messageUsage{
		InputTokens:              a.uncached,
		CacheCreationInputTokens: a.cacheWritten + a.cacheWritten1h,
		CacheReadInputTokens:     a.cacheRead,
		CacheCreation:            &cacheCreation{a.cacheWritten, a.cacheWritten1h},
		OutputTokens:             output,
		ServiceTier:              "standard",
	}
}

func (a reply) message() message {
	return message{ID: a.id, Type: "message", Role: "assistant", Model: a.model, Content: []contentBlock{}}
}

func (a reply) stopReason() *string {
	reason := "end_turn"
	if len(a.Calls) > 0 {
		reason = "tool_use"
	}
	if a.Truncated {
		reason = "max_tokens"
	}
	return &reason
}

func (a reply) messagesBody() []byte {
	m := a.message()
	if a.Thinking != "" {
		sig := SignThinking(a.Thinking)
		m.Content = append(m.Content, contentBlock{Type: "thinking", Thinking: &a.Thinking, Signature: &sig})
	}
	if a.Text != "" {
		m.Content = append(m.Content, contentBlock{Type: "text", Text: &a.Text})
	}
	for _, c := range a.Calls {
		m.Content = append(m.Content, contentBlock{Type: "tool_use", ID: c.ID, Name: c.Name, Input: json.RawMessage(c.Args)})
	}
	m.StopReason = a.stopReason()
	m.Usage = a.messageUsage(a.outputTokens())
	return encodeJSON(m)
}

// messageStream collects events.
type messageStream struct {
	events []sse.Event
	index  int
}

func (s *messageStream) addEvent(e messageEvent) {
	s.events = append(s.events, sse.Event{Name: e.Type, Data: encodeJSON(e)})
}

// addBlock adds the events of one block: start, deltas, stop.
func (s *messageStream) addBlock(start contentBlock, deltas ...messageDelta) {
	i := s.index
	s.index++
	s.addEvent(messageEvent{Type: "content_block_start", Index: &i, Block: &start})
	if i == 0 {
		s.addEvent(messageEvent{Type: "ping"})
	}
	for _, d := range deltas {
		s.addEvent(messageEvent{Type: "content_block_delta", Index: &i, Delta: &d})
	}
	s.addEvent(messageEvent{Type: "content_block_stop", Index: &i})
}

func (a reply) messagesEvents() []sse.Event {
	var s messageStream
	none := ""
	m := a.message()
	m.Usage = a.messageUsage(1)
	s.addEvent(messageEvent{Type: "message_start", Message: &m})
	if a.Thinking != "" {
		var deltas []messageDelta
		for _, chunk := range a.chunks(a.Thinking) {
			deltas = append(deltas, messageDelta{Type: "thinking_delta", Thinking: &chunk})
		}
		sig := SignThinking(a.Thinking)
		deltas = append(deltas, messageDelta{Type: "signature_delta", Signature: &sig})
		s.addBlock(contentBlock{Type: "thinking", Thinking: &none, Signature: &none}, deltas...)
	}
	if a.Text != "" {
		var deltas []messageDelta
		for _, chunk := range a.chunks(a.Text) {
			deltas = append(deltas, messageDelta{Type: "text_delta", Text: &chunk})
		}
		s.addBlock(contentBlock{Type: "text", Text: &none}, deltas...)
	}
	for _, c := range a.Calls {
		deltas := []messageDelta{{Type: "input_json_delta", PartialJSON: &none}}
		for _, chunk := range a.chunks(c.Args) {
			deltas = append(deltas, messageDelta{Type: "input_json_delta", PartialJSON: &chunk})
		}
		s.addBlock(contentBlock{Type: "tool_use", ID: c.ID, Name: c.Name, Input: json.RawMessage("{}")}, deltas...)
	}
	usage := a.messageUsage(a.outputTokens())
	usage.CacheCreation, usage.ServiceTier = nil, ""
	s.addEvent(messageEvent{Type: "message_delta", Delta: &messageDelta{StopReason: a.stopReason(), StopSequence: null}, Usage: &usage})
	s.addEvent(messageEvent{Type: "message_stop"})
	return s.events
}
