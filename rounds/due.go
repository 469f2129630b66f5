package rounds

import (
	"bytes"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// A client of the responses API may leave its conversation with the provider and name the reply
// that it goes on with. A call that it was not shown is there too when nobody answered it yet, and
// the provider takes no next request that does not.

// ReplyID is the id of a reply that a request may go on with, of which [Join.Finish] gave the end;
// "" where it has none.
func ReplyID(shape history.Shape, end []byte, stream bool) string {
	if shape != history.Responses {
		return ""
	}
	if !stream {
		fields, _ := jsonscan.FieldsOf(end)
		return fields.Text("id")
	}
	id := ""
	for line := range bytes.Lines(end) {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		fields, err := jsonscan.FieldsOf(data)
		reply, ok := fields.Field("response")
		if err != nil || !ok {
			continue
		}
		if fields, err = jsonscan.ReadFields(data, reply.Value); err == nil {
			id = fields.Text("id")
		}
	}
	return id
}

// Previous is the id of the reply that a request goes on with, "" where it names none.
func Previous(d *history.Dialogue) string {
	if d.Shape != history.Responses {
		return ""
	}
	return jsonscan.TextOf(d.Other("previous_response_id"))
}

// Due is the edit that answers, before anything else, the calls of the record's last round, which
// the reply ended with that a request goes on with.
func (rec *Record) Due(body []byte) ([]jsonscan.Edit, error) {
	fields, err := jsonscan.FieldsOf(body)
	list, ok := fields.Field(listOf(history.Responses))
	if err != nil || !ok || len(rec.Steps) == 0 {
		return nil, errNoList
	}
	answers := results(nil, history.Responses, rec.Steps[len(rec.Steps)-1].Answers)
	switch body[list.Value.Start] {
	case '"':
		text := append(append([]byte{'['}, answers...), `,{"role":"user","content":`...)
		return []jsonscan.Edit{{Span: list.Value, Text: append(append(text, list.Value.Of(body)...), `}]`...)}}, nil
	case '[':
		at := skipSpace(body, list.Value.Start+1)
		if body[at] != ']' {
			return put(at, answers), nil
		}
		return []jsonscan.Edit{{Span: jsonscan.Span{Start: at, End: at}, Text: answers}}, nil
	}
	return nil, errNoList
}
