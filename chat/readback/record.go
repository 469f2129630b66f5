package readback

import (
	"errors"
	"slices"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Record is what a client was not shown of a reply: the rounds in which the model read back, and what it
// was answered. It is stored where only the client's tenant finds it, under the reply's place in its
// conversation, before anything of the next round is shown.
type Record struct {
	Steps []llm.Step
	// Reply identifies the reply, without hidden calls. It is known when all of it was said; until then it
	// is zero.
	Reply history.Hash
}

// Add adds a round and what its calls were answered with.
func (rec *Record) Add(r *llm.Round, answers []llm.Answer) {
	rec.Steps = append(rec.Steps, llm.Step{Said: r.Said, Answers: answers, Mixed: r.Mixed, Others: r.Others})
}

const recordVersion = 1

// Encode encodes the record: its version, the reply's identity, the rounds.
func (rec *Record) Encode() []byte {
	b := append([]byte{recordVersion}, rec.Reply[:]...)
	for _, s := range rec.Steps {
		b = varint.AppendString(varint.AppendBool(b, s.Mixed), string(s.Said))
		b = varint.AppendUint(b, len(s.Others))
		for _, id := range s.Others {
			b = varint.AppendString(b, id)
		}
		b = varint.AppendUint(b, len(s.Answers))
		for _, a := range s.Answers {
			b = varint.AppendString(varint.AppendBool(varint.AppendString(b, a.ID), a.Failed), a.Text)
		}
	}
	return b
}

var errRecord = errors.New("the record of a reply's rounds cannot be decoded")

// DecodeRecord decodes what Encode encoded.
func DecodeRecord(raw []byte) (*Record, error) {
	d := varint.NewDecoder(raw)
	if d.Byte() != recordVersion {
		return nil, errRecord
	}
	rec := &Record{}
	copy(rec.Reply[:], d.Bytes(len(rec.Reply)))
	for len(d.Rest()) > 0 {
		s := llm.Step{Mixed: d.Bool(), Said: []byte(d.String())}
		for range d.Count() {
			s.Others = append(s.Others, d.String())
		}
		for range d.Count() {
			s.Answers = append(s.Answers, llm.Answer{ID: d.String(), Failed: d.Bool(), Text: d.String()})
		}
		rec.Steps = append(rec.Steps, s)
	}
	if d.Failed() {
		return nil, errRecord
	}
	return rec, nil
}

// Restore returns the edits that put what the client was not shown of a reply back into a request that
// repeats the reply, so that the provider gets the whole conversation: the rounds stand before what the
// last of them said, and a call that the client was not shown beside its own calls, with its answer.
//
// False means that the client's message is not what it was shown: then it stays as it came.
func (rec *Record) Restore(d *history.Dialogue, body []byte, r history.Reply) ([]jsonscan.Edit, bool) {
	codec, ok := d.Codec.(llm.ReadbackCodec)
	if !ok || len(rec.Steps) == 0 || rec.Reply != (history.Hash{}) && rec.Reply != r.Identity() {
		return nil, false
	}
	in := &llm.Restoration{Codec: codec, Body: body, Reply: r.Statement, Whole: rec.Steps}
	if last := len(rec.Steps) - 1; rec.Steps[last].Mixed {
		in.Mixed, in.Whole = &rec.Steps[last], rec.Steps[:last]
		if !slices.Equal(r.Calls, in.Mixed.Others) {
			return nil, false // the client dropped a call, or added one: it is another reply
		}
	}
	for _, m := range d.Messages[r.First:r.End] {
		in.Messages = append(in.Messages, m.Span)
	}
	if r.End < len(d.Messages) {
		in.Next = d.Messages[r.End].Span
	}
	return codec.Restore(in)
}

// AnswerPending is the edit that answers, before anything else, the calls of the record's last round: the
// reply that a request continues by its id ended with them.
func (rec *Record) AnswerPending(codec llm.ReadbackCodec, body []byte) ([]jsonscan.Edit, error) {
	fields, err := jsonscan.FieldsOf(body)
	list, ok := fields.Field(codec.Wire().MessagesKey)
	if err != nil || !ok || len(rec.Steps) == 0 {
		return nil, errNoConversation
	}
	answers := codec.AppendAnswers(nil, rec.Steps[len(rec.Steps)-1].Answers)
	switch body[list.Value.Start] {
	case '"':
		text := append(append([]byte{'['}, answers...), `,{"role":"user","content":`...)
		return []jsonscan.Edit{{Span: list.Value, Text: append(append(text, list.Value.Of(body)...), `}]`...)}}, nil
	case '[':
		at := rawjson.SkipSpace(body, list.Value.Start+1)
		if body[at] != ']' {
			return llm.InsertElements(at, answers), nil
		}
		return []jsonscan.Edit{{Span: jsonscan.Span{Start: at, End: at}, Text: answers}}, nil
	}
	return nil, errNoConversation
}
