package fakeprovider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// Reply is what a client reads from a provider's reply.
type Reply struct {
	Usage
	Text  string
	Calls []Call
}

// ReadReply reads a reply of the given shape to its end.
func ReadReply(s Shape, r io.Reader, streamed bool) (Reply, error) {
	if streamed {
		return readStream(s, r)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return Reply{}, err
	}
	var o Reply
	switch s {
	case Messages:
		var m message
		err := json.Unmarshal(raw, &m)
		o.readMessage(m)
		return o, err
	case Responses:
		var r response
		err := json.Unmarshal(raw, &r)
		o.readResponse(r)
		return o, err
	case Gemini:
		var g geminiReply
		err := json.Unmarshal(raw, &g)
		o.readGemini(g)
		return o, err
	}
	var c completion
	if err := json.Unmarshal(raw, &c); err != nil {
		return o, err
	}
	for _, ch := range c.Choices {
		if ch.Message == nil {
			continue
		}
		if ch.Message.Content != nil {
			o.Text += *ch.Message.Content
		}
		for _, call := range ch.Message.ToolCalls {
			o.Calls = append(o.Calls, Call{call.ID, call.Function.Name, call.Function.Arguments})
		}
	}
	return o, o.chatUsage(c.Usage)
}

func readStream(s Shape, r io.Reader) (Reply, error) {
	readEvent := map[Shape]func(*Reply, sse.Event) (bool, error){
		Chat: (*Reply).chatChunk, Messages: (*Reply).messageEvent, Responses: (*Reply).responseEvent, Gemini: (*Reply).geminiEvent,
	}[s]
	var o Reply
	events := sse.NewReader(r, 64<<20)
	done := false
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) && done {
			return o, nil
		}
		if errors.Is(err, io.EOF) {
			return o, errors.New("the stream ended before its last event")
		}
		if err != nil {
			return o, err
		}
		last, err := readEvent(&o, e)
		if err != nil {
			return o, fmt.Errorf("event %q: %w", e.Data, err)
		}
		done = done || last
	}
}

func (o *Reply) chatUsage(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var u chatUsage
	if err := json.Unmarshal(raw, &u); err != nil {
		return err
	}
	d := u.PromptTokensDetails
	o.CacheRead, o.Output = d.CachedTokens, u.CompletionTokens
	if d.CacheWriteTokens != nil {
		o.CacheWrite = *d.CacheWriteTokens
	}
	o.Uncached = u.PromptTokens - o.CacheRead - o.CacheWrite
	return nil
}

func (o *Reply) chatChunk(e sse.Event) (bool, error) {
	if string(e.Data) == "[DONE]" {
		return true, nil
	}
	var c completion
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return false, err
	}
	for _, ch := range c.Choices {
		if ch.Delta == nil {
			continue
		}
		text, _ := parseString(ch.Delta.Content)
		o.Text += text
		for _, call := range ch.Delta.ToolCalls {
			if call.Index == nil || *call.Index > len(o.Calls) {
				return false, errors.New("tool calls are out of order")
			}
			if *call.Index == len(o.Calls) {
				o.Calls = append(o.Calls, Call{ID: call.ID, Name: call.Function.Name})
			}
			o.Calls[*call.Index].Args += call.Function.Arguments
		}
	}
	return false, o.chatUsage(c.Usage)
}

func (o *Reply) messageUsage(u messageUsage) {
	o.Uncached, o.CacheRead, o.Output = u.InputTokens, u.CacheReadInputTokens, u.OutputTokens
	if u.CacheCreation != nil {
		o.CacheWrite1h = u.CacheCreation.Ephemeral1h
	}
	o.CacheWrite = u.CacheCreationInputTokens - o.CacheWrite1h
}

func (o *Reply) readMessage(m message) {
	for _, b := range m.Content {
		o.messageBlock(b)
	}
	o.messageUsage(m.Usage)
}

func (o *Reply) messageBlock(b contentBlock) {
	if b.Type == "text" && b.Text != nil {
		o.Text += *b.Text
	}
	if b.Type == "tool_use" {
		o.Calls = append(o.Calls, Call{b.ID, b.Name, string(b.Input)})
	}
}

func (o *Reply) messageEvent(e sse.Event) (bool, error) {
	var m messageEvent
	if err := json.Unmarshal(e.Data, &m); err != nil {
		return false, err
	}
	switch m.Type {
	case "message_start":
		o.messageUsage(m.Message.Usage)
	case "content_block_start":
		m.Block.Input = nil
		o.messageBlock(*m.Block)
	case "content_block_delta":
		if m.Delta.Text != nil {
			o.Text += *m.Delta.Text
		}
		if m.Delta.PartialJSON != nil && len(o.Calls) > 0 {
			o.Calls[len(o.Calls)-1].Args += *m.Delta.PartialJSON
		}
	case "message_delta":
		if u := *m.Usage; u.InputTokens+u.CacheReadInputTokens+u.CacheCreationInputTokens > 0 {
			o.messageUsage(u)
		}
		o.Output = m.Usage.OutputTokens
	case "message_stop":
		return true, nil
	case "error":
		return false, errors.New("the stream reports an error")
	}
	return false, nil
}

func (o *Reply) readResponse(r response) {
	for _, it := range r.Output {
		if it.Content != nil {
			for _, part := range *it.Content {
				o.Text += part.Text
			}
		}
		if it.Type == "function_call" && it.Arguments != nil {
			o.Calls = append(o.Calls, Call{it.CallID, it.Name, *it.Arguments})
		}
	}
	if u := r.Usage; u != nil {
		o.CacheRead, o.CacheWrite, o.Output = u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, u.OutputTokens
		o.Uncached = u.InputTokens - o.CacheRead - o.CacheWrite
	}
}

func (o *Reply) responseEvent(e sse.Event) (bool, error) {
	var r responseEvent
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return false, err
	}
	switch r.Type {
	case "response.completed", "response.incomplete":
		o.readResponse(*r.Response)
		return true, nil
	case "response.failed", "error":
		return false, errors.New("the stream reports an error")
	}
	return false, nil
}
