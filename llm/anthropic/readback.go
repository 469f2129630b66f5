package anthropic

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// ReadStatement implements [llm.ReadbackCodec].
func (Codec) ReadStatement(st *llm.Statement, body []byte, message jsonscan.Span) bool {
	fields, err := jsonscan.ReadFields(body, message)
	if err != nil || fields.Text("role") != "assistant" {
		return false
	}
	st.AddContent(body, fields)
	return true
}

// ReadSaid implements [llm.ReadbackCodec].
func (Codec) ReadSaid(st *llm.Statement, said []byte) { st.AddBlocks(said, rawjson.All(said)) }

// ReadReply implements [llm.ReadbackCodec].
func (c Codec) ReadReply(st *llm.Statement, document []byte) {
	c.ReadSaid(st, rawjson.Inner(document, "content"))
}

// ReadReplyEvent implements [llm.ReadbackCodec]. The start of a block names its call.
func (c Codec) ReadReplyEvent(st *llm.Statement, data []byte) bool {
	switch jsonscan.DecodeString(rawjson.Inner(data, "type")) {
	case "content_block_start":
		c.ReadSaid(st, rawjson.Array(rawjson.Inner(data, "content_block")))
	case "content_block_delta":
		st.Text += jsonscan.DecodeString(rawjson.Inner(data, "delta", "text"))
	case "message_stop":
		return true
	}
	return false
}

// ToolEntry implements [llm.ReadbackCodec].
func (Codec) ToolEntry(name, description, schema string) string {
	return `{"name":"` + name + `","description":` + description + `,"input_schema":` + schema + `}`
}

// MayOffer implements [llm.ReadbackCodec].
func (Codec) MayOffer(func(key string) []byte) bool { return true }

// AppendSaid implements [llm.ReadbackCodec].
func (Codec) AppendSaid(dst, said []byte) []byte {
	return append(append(append(dst, `{"role":"assistant","content":`...), said...), '}')
}

// AppendAnswers implements [llm.ReadbackCodec].
func (Codec) AppendAnswers(dst []byte, answers []llm.Answer) []byte {
	dst = append(dst, `{"role":"user","content":[`...)
	return append(appendResults(dst, answers), `]}`...)
}

func appendResults(dst []byte, answers []llm.Answer) []byte {
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendQuoted(append(dst, `{"type":"tool_result","tool_use_id":`...), a.ID)
		if a.Failed {
			dst = append(dst, `,"is_error":true`...)
		}
		dst = append(jsonscan.AppendQuoted(append(dst, `,"content":`...), a.Text), '}')
	}
	return dst
}

// Restore implements [llm.ReadbackCodec].
func (Codec) Restore(r *llm.Restoration) ([]jsonscan.Edit, bool) {
	message := r.Messages[0]
	fields, err := jsonscan.ReadFields(r.Body, message)
	content, ok := fields.Field("content")
	if err != nil || !ok {
		return nil, false
	}
	if r.Mixed != nil {
		return restoreMixed(r, message, content.Value)
	}
	if r.Body[content.Value.Start] == '"' {
		return restoreText(r, message, content.Value)
	}
	blocks := rawjson.ElementSpans(r.Body, content.Value)
	n, ok := r.CountShown(blocks)
	switch {
	case !ok:
		return nil, false
	case n == len(blocks):
		return r.Replace(message)
	}
	edits := r.InsertHidden(message.Start)
	if n > 0 {
		edits = append(edits, jsonscan.Edit{Span: jsonscan.Span{Start: blocks[0].Start, End: blocks[n].Start}})
	}
	return edits, true
}

// restoreText restores a message whose blocks the client joined into one string.
func restoreText(r *llm.Restoration, message, content jsonscan.Span) ([]jsonscan.Edit, bool) {
	var said strings.Builder
	for i := range r.Whole {
		said.WriteString(r.Whole[i].Text())
	}
	shown := said.String()
	rest, ok := strings.CutPrefix(jsonscan.DecodeString(content.Of(r.Body)), shown)
	switch {
	case !ok:
		return nil, false
	case rest == "":
		return r.Replace(message)
	case shown == "":
		return r.InsertHidden(message.Start), true
	}
	return append(r.InsertHidden(message.Start), jsonscan.Edit{Span: content, Text: jsonscan.AppendQuoted(nil, rest)}), true
}

// restoreMixed restores a message whose calls the client has answered. The answers to hidden calls are inserted
// before the client's, in the next message.
func restoreMixed(r *llm.Restoration, message, content jsonscan.Span) ([]jsonscan.Edit, bool) {
	if r.Next.Len() == 0 || r.Body[content.Start] != '[' {
		return nil, false
	}
	fields, err := jsonscan.ReadFields(r.Body, r.Next)
	theirs, _ := fields.Field("content")
	blocks := rawjson.ElementSpans(r.Body, theirs.Value)
	if err != nil || fields.Text("role") != "user" || len(blocks) == 0 {
		return nil, false
	}
	// The earlier rounds must be present as shown; the last round is known byte for byte.
	if _, ok := r.CountShown(rawjson.ElementSpans(r.Body, content)); !ok {
		return nil, false
	}
	edits := append(r.InsertHidden(message.Start), jsonscan.Edit{Span: content, Text: r.Mixed.Said})
	return append(edits, llm.InsertElements(blocks[0].Start, appendResults(nil, r.Mixed.Answers))...), true
}

const (
	cacheControl     = `,"cache_control":{"type":"ephemeral"}`
	cacheControlHour = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
)

// MayMark implements [llm.CacheMarkCodec]. A cache_control on the request itself already marks the last block.
func (Codec) MayMark(body []byte) bool {
	fields, err := jsonscan.FieldsOf(body)
	if _, whole := fields.Field("cache_control"); err != nil || whole {
		return false
	}
	return bytes.Count(body, []byte(`"cache_control"`)) < llm.MaxCacheMarks
}

// MarkLast implements [llm.CacheMarkCodec].
func (Codec) MarkLast(body []byte) []byte {
	const end = `}]}]`
	fields, err := jsonscan.FieldsOf(body)
	list, ok := fields.Field(wire.MessagesKey)
	if err != nil || !ok || !bytes.HasSuffix(list.Value.Of(body), []byte(end)) {
		return body
	}
	at := list.Value.End - len(end)
	return slices.Concat(body[:at], []byte(cacheControl), body[at:])
}

// MarkMessage implements [llm.CacheMarkCodec]. Thinking may have no cache_control.
func (Codec) MarkMessage(body []byte, message jsonscan.Span, ttl time.Duration) (jsonscan.Edit, bool) {
	fields, err := jsonscan.ReadFields(body, message)
	content, ok := fields.Field("content")
	if err != nil || !ok {
		return jsonscan.Edit{}, false
	}
	var last jsonscan.Span
	if jsonscan.EachElement(body, content.Value, func(s jsonscan.Span) error { last = s; return nil }) != nil || last.Len() == 0 || body[last.Start] != '{' {
		return jsonscan.Edit{}, false
	}
	block, err := jsonscan.ReadFields(body, last)
	if _, marked := block.Field("cache_control"); err != nil || marked || block.Text("type") != "tool_use" {
		return jsonscan.Edit{}, false
	}
	mark := cacheControl
	if ttl >= time.Hour {
		mark = cacheControlHour
	}
	at := last.End - 1 // before the closing brace
	return jsonscan.Edit{Span: jsonscan.Span{Start: at, End: at}, Text: []byte(mark)}, true
}

// NewStreamMerger implements [llm.ReadbackCodec].
func (Codec) NewStreamMerger(b *llm.EventBuffer) llm.StreamMerger {
	return &streamMerger{EventBuffer: b}
}

// NewDocumentMerger implements [llm.ReadbackCodec].
func (Codec) NewDocumentMerger() llm.DocumentMerger { return &documentMerger{} }
