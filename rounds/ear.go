package rounds

import (
	"bytes"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Ear hears what a client is shown of a round, or of a whole reply that is no stream, so that it can
// be told from other replies when the client sends it again. A nil Ear hears nothing.
type Ear struct {
	reply  history.Reply
	text   strings.Builder
	shape  history.Shape
	stream bool
	rest   []byte // a line, or a document, that has not ended
	deaf   bool   // something was not understood, or too long
	over   bool   // the stream has ended
}

// NewEar makes an ear.
func NewEar(shape history.Shape, stream bool) *Ear { return &Ear{shape: shape, stream: stream} }

// Write takes what the client is shown, in whatever pieces.
func (e *Ear) Write(shown []byte) {
	if e == nil {
		return
	}
	e.rest = append(e.rest, shown...)
	if e.deaf = e.deaf || len(e.rest) > MaxKept; e.deaf {
		e.rest = nil
	}
	for e.stream {
		line, rest, ended := bytes.Cut(e.rest, []byte("\n"))
		if !ended {
			return
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			e.event(bytes.TrimSpace(data))
			e.text.WriteString(e.reply.Text)
			e.reply.Text = ""
		}
		e.rest = rest
	}
}

// Heard adds what was heard to a reply; of a document that is all of it. False means that not
// everything was understood.
func (e *Ear) Heard(reply *history.Reply) bool {
	if e == nil || e.deaf {
		return false
	}
	if !e.stream {
		reply.Text, reply.Calls = "", nil
		e.document(e.rest)
	}
	reply.Text += e.text.String() + e.reply.Text
	// Some providers name a call in each of its pieces.
	reply.Calls = append(reply.Calls, slices.Compact(e.reply.Calls)...)
	return true
}

// Over says that the last event of a stream was heard.
func (e *Ear) Over() bool { return e != nil && e.over }

// inner is a value within a value, by keys; empty where it is not.
func inner(data []byte, keys ...string) []byte {
	for _, key := range keys {
		fields, err := jsonscan.FieldsOf(data)
		if err != nil {
			return nil
		}
		data, _ = fields.Get(key)
	}
	return data
}

// firstChoice is the first of the choices of a chat completion.
func firstChoice(data []byte) []byte {
	list := inner(data, "choices")
	if all := elementsOf(list, jsonscan.Span{End: len(list)}); len(all) > 0 {
		return all[0].Of(list)
	}
	return nil
}

func (e *Ear) document(data []byte) {
	switch e.shape {
	case history.Chat:
		e.reply.Hear(e.shape, inner(firstChoice(data), "message"))
	case history.Messages:
		e.reply.Hear(e.shape, inner(data, "content"))
	case history.Responses:
		e.reply.Hear(e.shape, inner(data, "output"))
	}
}

// event hears an event of a stream. A call is told by its beginning, but of responses, where a text
// and a call are told again when they are whole.
func (e *Ear) event(data []byte) {
	if string(data) == "[DONE]" {
		e.over = true
		return
	}
	if _, err := jsonscan.FieldsOf(data); err != nil {
		e.deaf = true
		return
	}
	kind := jsonscan.TextOf(inner(data, "type"))
	switch {
	case e.shape == history.Chat:
		e.reply.Hear(e.shape, inner(firstChoice(data), "delta"))
	case kind == "content_block_start":
		e.hearList(inner(data, "content_block"))
	case kind == "content_block_delta":
		e.reply.Text += jsonscan.TextOf(inner(data, "delta", "text"))
	case kind == "response.output_item.done":
		e.hearList(inner(data, "item"))
	case kind == "message_stop", kind == "response.completed", kind == "response.incomplete":
		e.over = true
	}
}

// hearList hears one block, or item.
func (e *Ear) hearList(one []byte) {
	e.reply.Hear(e.shape, append(append([]byte{'['}, one...), ']'))
}
