package responses

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// ReadStatement implements [llm.ReadbackCodec].
func (Codec) ReadStatement(st *llm.Statement, body []byte, message jsonscan.Span) bool {
	fields, err := jsonscan.ReadFields(body, message)
	if err != nil || !byModel(fields) {
		return false
	}
	addItem(st, body, fields)
	return true
}

// byModel says whether an item is the model's. Items of tools and clients have their own types.
func byModel(fields jsonscan.Fields) bool {
	switch kind := fields.Text("type"); kind {
	case "", "message":
		return fields.Text("role") == "assistant"
	default:
		return kind != "item_reference" && kind != "mcp_approval_response" && !strings.HasSuffix(kind, "_output")
	}
}

func addItem(st *llm.Statement, body []byte, item jsonscan.Fields) {
	if item.Text("type") == "function_call" {
		st.AddCall(item.Text("call_id"))
		return
	}
	st.AddContent(body, item)
}

// ReadSaid implements [llm.ReadbackCodec].
func (Codec) ReadSaid(st *llm.Statement, said []byte) {
	_ = jsonscan.EachElement(said, rawjson.All(said), func(s jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(said, s)
		addItem(st, said, fields)
		return err
	})
}

// ReadReply implements [llm.ReadbackCodec].
func (c Codec) ReadReply(st *llm.Statement, document []byte) {
	c.ReadSaid(st, rawjson.Inner(document, "output"))
}

// ReadReplyEvent implements [llm.ReadbackCodec]. The done event of an item has all of it.
func (c Codec) ReadReplyEvent(st *llm.Statement, data []byte) bool {
	switch jsonscan.DecodeString(rawjson.Inner(data, "type")) {
	case "response.output_item.done":
		c.ReadSaid(st, rawjson.Array(rawjson.Inner(data, "item")))
	case "response.completed", "response.incomplete":
		return true
	}
	return false
}

// ToolEntry implements [llm.ReadbackCodec]. A function is strict by default, and a strict one must require all
// its arguments.
func (Codec) ToolEntry(name, description, schema string) string {
	return `{"type":"function","name":"` + name + `","description":` + description + `,"parameters":` + schema + `,"strict":false}`
}

// MayOffer implements [llm.ReadbackCodec]. A provider that stores the conversation, or runs the request in the
// background, would keep the hidden rounds.
func (Codec) MayOffer(member func(key string) []byte) bool {
	return member("conversation") == nil && string(member("background")) != "true"
}

// AppendSaid implements [llm.ReadbackCodec].
func (Codec) AppendSaid(dst, said []byte) []byte {
	return append(dst, bytes.TrimSpace(rawjson.Unwrap(bytes.TrimSpace(said)))...)
}

// AppendAnswers implements [llm.ReadbackCodec].
func (Codec) AppendAnswers(dst []byte, answers []llm.Answer) []byte {
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendQuoted(append(dst, `{"type":"function_call_output","call_id":`...), a.ID)
		dst = append(jsonscan.AppendQuoted(append(dst, `,"output":`...), a.Text), '}')
	}
	return dst
}

// Restore implements [llm.ReadbackCodec].
func (Codec) Restore(r *llm.Restoration) ([]jsonscan.Edit, bool) {
	items := r.Messages
	n, ok := r.CountShown(items)
	switch {
	case !ok:
		return nil, false
	case r.Mixed != nil || n == len(items):
		return r.Replace(jsonscan.Span{Start: items[0].Start, End: items[len(items)-1].End})
	case n == 0:
		return r.InsertHidden(items[0].Start), true
	}
	text := append(r.HiddenMessages(), ',')
	return []jsonscan.Edit{{Span: jsonscan.Span{Start: items[0].Start, End: items[n].Start}, Text: text}}, true
}

// ReplyID implements [llm.StatefulCodec].
func (Codec) ReplyID(end []byte, stream bool) string {
	if !stream {
		fields, _ := jsonscan.FieldsOf(end)
		return fields.Text("id")
	}
	id := ""
	read := func(raw []byte) {
		e := sse.ParseRaw(raw, false)
		if reply := rawjson.Inner(e.Data, "response"); len(reply) > 0 {
			id = jsonscan.DecodeString(rawjson.Inner(reply, "id"))
		}
	}
	split := sse.Splitter{MaxEvent: len(end)}
	_ = split.Write(end, read, func() {})
	read(split.Reset())
	return id
}

// PreviousReplyID implements [llm.StatefulCodec].
func (Codec) PreviousReplyID(member func(key string) []byte) string {
	return jsonscan.DecodeString(member("previous_response_id"))
}

// NewStreamMerger implements [llm.ReadbackCodec].
func (Codec) NewStreamMerger(b *llm.EventBuffer) llm.StreamMerger {
	return &streamMerger{EventBuffer: b}
}

// NewDocumentMerger implements [llm.ReadbackCodec].
func (Codec) NewDocumentMerger() llm.DocumentMerger { return &documentMerger{} }
