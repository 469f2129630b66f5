package openaichat

import (
	"slices"
	"strconv"
	"strings"

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
	addMessage(st, body, fields)
	return true
}

func addMessage(st *llm.Statement, body []byte, fields jsonscan.Fields) {
	st.AddContent(body, fields)
	f, _ := fields.Field("tool_calls")
	_ = jsonscan.EachElement(body, f.Value, func(s jsonscan.Span) error {
		call, err := jsonscan.ReadFields(body, s)
		st.AddCall(call.Text("id"))
		return err
	})
}

// ReadSaid implements [llm.ReadbackCodec].
func (Codec) ReadSaid(st *llm.Statement, said []byte) {
	if fields, err := jsonscan.FieldsOf(said); err == nil {
		addMessage(st, said, fields)
	}
}

// ReadReply implements [llm.ReadbackCodec].
func (c Codec) ReadReply(st *llm.Statement, document []byte) {
	c.ReadSaid(st, rawjson.Inner(firstChoice(document), "message"))
}

// ReadReplyEvent implements [llm.ReadbackCodec]. A stream ends with the event [DONE], as in other shapes. Some
// providers name a call in each of its pieces.
func (c Codec) ReadReplyEvent(st *llm.Statement, data []byte) bool {
	c.ReadSaid(st, rawjson.Inner(firstChoice(data), "delta"))
	st.Calls = slices.Compact(st.Calls)
	return false
}

func firstChoice(data []byte) []byte {
	if choices := rawjson.Elements(rawjson.Inner(data, "choices")); len(choices) > 0 {
		return choices[0]
	}
	return nil
}

// ToolEntry implements [llm.ReadbackCodec].
func (Codec) ToolEntry(name, description, schema string) string {
	return `{"type":"function","function":{"name":"` + name + `","description":` + description + `,"parameters":` + schema + `}}`
}

// MayOffer implements [llm.ReadbackCodec]. The rounds of several choices cannot be told apart.
func (Codec) MayOffer(member func(key string) []byte) bool {
	raw := member("n")
	n, err := strconv.ParseFloat(string(raw), 64)
	return raw == nil || err == nil && n == 1
}

// AppendSaid implements [llm.ReadbackCodec].
func (Codec) AppendSaid(dst, said []byte) []byte { return append(dst, said...) }

// AppendAnswers implements [llm.ReadbackCodec].
func (Codec) AppendAnswers(dst []byte, answers []llm.Answer) []byte {
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendQuoted(append(dst, `{"role":"tool","tool_call_id":`...), a.ID)
		dst = append(jsonscan.AppendQuoted(append(dst, `,"content":`...), a.Text), '}')
	}
	return dst
}

// Restore implements [llm.ReadbackCodec]. The rounds are separated by their texts only.
func (Codec) Restore(r *llm.Restoration) ([]jsonscan.Edit, bool) {
	message := r.Messages[0]
	fields, err := jsonscan.ReadFields(r.Body, message)
	if err != nil {
		return nil, false
	}
	var said strings.Builder // the text of the rounds before the last
	for _, s := range r.Whole {
		round, err := jsonscan.FieldsOf(s.Said)
		if err != nil {
			return nil, false
		}
		said.WriteString(round.Text("content"))
	}
	shown := said.String()
	content, _ := fields.Field("content")
	at, rest, ok := cutText(r.Body, content.Value, shown)
	switch {
	case !ok:
		return nil, false
	case r.Mixed != nil, rest == "" && len(r.Reply.Calls) == 0:
		return r.Replace(message)
	case shown == "":
		return r.InsertHidden(message.Start), true
	case rest == "":
		return append(r.InsertHidden(message.Start), jsonscan.Edit{Span: content.Value, Text: []byte("null")}), true
	}
	return append(r.InsertHidden(message.Start), jsonscan.Edit{Span: at, Text: jsonscan.AppendQuoted(nil, rest)}), true
}

// cutText finds the text of a content, and the part of it after the earlier rounds. A list of more than one text
// is not split.
func cutText(body []byte, content jsonscan.Span, shown string) (at jsonscan.Span, rest string, ok bool) {
	at = content
	if list := rawjson.ElementSpans(body, content); len(list) > 0 {
		block, err := jsonscan.ReadFields(body, list[0])
		text, _ := block.Field("text")
		if err != nil || len(list) > 1 && shown != "" {
			return at, "", false
		}
		at = text.Value
	}
	rest, ok = strings.CutPrefix(jsonscan.DecodeString(at.Of(body)), shown)
	return at, rest, ok
}

// NewStreamMerger implements [llm.ReadbackCodec].
func (Codec) NewStreamMerger(b *llm.EventBuffer) llm.StreamMerger {
	return &streamMerger{EventBuffer: b}
}

// NewDocumentMerger implements [llm.ReadbackCodec].
func (Codec) NewDocumentMerger() llm.DocumentMerger { return &documentMerger{} }
