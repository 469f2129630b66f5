package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// errEarly is a stream that ended without the shape's own end.
var errEarly = errors.New("the stream ended early")

// readBody reads an answer that came in one piece.
func readBody(s Shape, raw []byte) (outcome, error) {
	var o outcome
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
			o.text += *ch.Message.Content
		}
		for _, call := range ch.Message.ToolCalls {
			o.calls = append(o.calls, Call{call.ID, call.Function.Name, call.Function.Arguments})
		}
	}
	return o, o.chatUsage(c.Usage)
}

// readStream reads an answer to its last event.
func readStream(s Shape, r io.Reader) (outcome, error) {
	take := map[Shape]func(*outcome, sse.Event) (bool, error){
		Chat: (*outcome).chatChunk, Messages: (*outcome).messageEvent, Responses: (*outcome).responseEvent,
	}[s]
	var o outcome
	events := sse.NewReader(r, 64<<20)
	done := false
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) && done {
			return o, nil
		}
		if errors.Is(err, io.EOF) {
			return o, errEarly
		}
		if err != nil {
			return o, err
		}
		last, err := take(&o, e)
		if err != nil {
			return o, fmt.Errorf("event %q: %w", e.Data, err)
		}
		done = done || last
	}
}

func (o *outcome) chatUsage(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var u chatUsage
	if err := json.Unmarshal(raw, &u); err != nil {
		return err
	}
	d := u.PromptTokensDetails
	o.Cached, o.Output = d.CachedTokens, u.CompletionTokens
	if d.CacheWriteTokens != nil {
		o.Created = *d.CacheWriteTokens
	}
	o.Fresh = u.PromptTokens - o.Cached - o.Created
	return nil
}

func (o *outcome) chatChunk(e sse.Event) (bool, error) {
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
		text, _ := textOf(ch.Delta.Content)
		o.text += text
		for _, call := range ch.Delta.ToolCalls {
			if call.Index == nil || *call.Index > len(o.calls) {
				return false, errors.New("a call out of order")
			}
			if *call.Index == len(o.calls) {
				o.calls = append(o.calls, Call{ID: call.ID, Name: call.Function.Name})
			}
			o.calls[*call.Index].Args += call.Function.Arguments
		}
	}
	return false, o.chatUsage(c.Usage)
}

func (o *outcome) messageUsage(u messageUsage) {
	o.Fresh, o.Cached, o.Output = u.InputTokens, u.CacheReadInputTokens, u.OutputTokens
	if u.CacheCreation != nil {
		o.CreatedLong = u.CacheCreation.Ephemeral1h
	}
	o.Created = u.CacheCreationInputTokens - o.CreatedLong
}

func (o *outcome) readMessage(m message) {
	for _, b := range m.Content {
		o.messageBlock(b)
	}
	o.messageUsage(m.Usage)
}

func (o *outcome) messageBlock(b contentBlock) {
	if b.Type == "text" && b.Text != nil {
		o.text += *b.Text
	}
	if b.Type == "tool_use" {
		o.calls = append(o.calls, Call{b.ID, b.Name, string(b.Input)})
	}
}

func (o *outcome) messageEvent(e sse.Event) (bool, error) {
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
			o.text += *m.Delta.Text
		}
		if m.Delta.PartialJSON != nil && len(o.calls) > 0 {
			o.calls[len(o.calls)-1].Args += *m.Delta.PartialJSON
		}
	case "message_delta":
		if u := *m.Usage; u.InputTokens+u.CacheReadInputTokens+u.CacheCreationInputTokens > 0 {
			o.messageUsage(u)
		}
		o.Output = m.Usage.OutputTokens
	case "message_stop":
		return true, nil
	case "error":
		return false, errors.New("an error in the stream")
	}
	return false, nil
}

func (o *outcome) readResponse(r response) {
	for _, it := range r.Output {
		if it.Content != nil {
			for _, part := range *it.Content {
				o.text += part.Text
			}
		}
		if it.Type == "function_call" && it.Arguments != nil {
			o.calls = append(o.calls, Call{it.CallID, it.Name, *it.Arguments})
		}
	}
	if u := r.Usage; u != nil {
		o.Cached, o.Created, o.Output = u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, u.OutputTokens
		o.Fresh = u.InputTokens - o.Cached - o.Created
	}
}

func (o *outcome) responseEvent(e sse.Event) (bool, error) {
	var r responseEvent
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return false, err
	}
	switch r.Type {
	case "response.completed", "response.incomplete":
		o.readResponse(*r.Response)
		return true, nil
	case "response.failed", "error":
		return false, errors.New("an error in the stream")
	}
	return false, nil
}
