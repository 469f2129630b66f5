package rounds

import (
	"bytes"
	"errors"
	"slices"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Answer is what a call of the tool is answered with.
type Answer struct {
	ID     string // of the call
	Text   string
	Failed bool
}

var errNoList = errors.New("the request holds no conversation")

// Follow is the request of the next round: body, and after its last message what the model said to
// it and the answers to its calls. Nothing else changes, so that the provider finds what it has
// cached. The body is left as it is.
func Follow(shape history.Shape, body []byte, r *Round, answers []Answer) ([]byte, error) {
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return nil, err
	}
	list, ok := fields.Field(listOf(shape))
	if !ok {
		return nil, errNoList
	}
	edit, err := extend(body, list.Value, exchange(nil, shape, r.Said, answers))
	if err != nil {
		return nil, err
	}
	edits := []jsonscan.Edit{edit}
	return jsonscan.AppendSpliced(make([]byte, 0, jsonscan.SplicedLen(body, edits)), body, edits), nil
}

const (
	mark     = `,"cache_control":{"type":"ephemeral"}`
	maxMarks = 4 // that a request may have
)

// MayMark says whether one more block of a request may have a cache_control. Where the request as a
// whole has one, that is on its last block already.
func MayMark(body []byte) bool {
	fields, err := jsonscan.FieldsOf(body)
	if _, whole := fields.Field("cache_control"); err != nil || whole {
		return false
	}
	return bytes.Count(body, []byte(`"cache_control"`)) < maxMarks
}

// Mark puts a cache_control on the last answer of a request that Follow made for [history.Messages]:
// where a client has its messages cached, its next request has this round among them. What Follow
// did not make is left as it is.
func Mark(followed []byte) []byte {
	const end = `}]}]`
	fields, err := jsonscan.FieldsOf(followed)
	list, ok := fields.Field(listOf(history.Messages))
	if err != nil || !ok || !bytes.HasSuffix(list.Value.Of(followed), []byte(end)) {
		return followed
	}
	at := list.Value.End - len(end)
	return slices.Concat(followed[:at], []byte(mark), followed[at:])
}

// listOf is the key of the conversation.
func listOf(shape history.Shape) string {
	if shape == history.Responses {
		return "input"
	}
	return "messages"
}

// extend puts elements at the end of a conversation. One that is a string is what the user said.
func extend(body []byte, list jsonscan.Span, elements []byte) (jsonscan.Edit, error) {
	switch body[list.Start] {
	case '"':
		text := append([]byte(`[{"role":"user","content":`), list.Of(body)...)
		text = append(append(text, `},`...), elements...)
		return jsonscan.Edit{Span: list, Text: append(text, ']')}, nil
	case '[':
		text := append([]byte{','}, elements...)
		if body[skipSpace(body, list.Start+1)] == ']' {
			text = elements
		}
		return jsonscan.Edit{Span: jsonscan.Span{Start: list.End - 1, End: list.End - 1}, Text: text}, nil
	}
	return jsonscan.Edit{}, errNoList
}

// exchange appends what the model said and what it was answered, as elements of a conversation.
func exchange(dst []byte, shape history.Shape, said []byte, answers []Answer) []byte {
	dst = append(spoken(dst, shape, said), ',')
	if shape != history.Messages {
		return results(dst, shape, answers)
	}
	dst = append(dst, `{"role":"user","content":[`...)
	return append(results(dst, shape, answers), `]}`...)
}

// spoken appends what the model said.
func spoken(dst []byte, shape history.Shape, said []byte) []byte {
	switch shape {
	case history.Messages:
		dst = append(append(dst, `{"role":"assistant","content":`...), said...)
		return append(dst, '}')
	case history.Responses:
		return append(dst, inside(said)...)
	case history.Chat:
	}
	return append(dst, said...)
}

// results appends the answers: messages, blocks of one, or items.
func results(dst []byte, shape history.Shape, answers []Answer) []byte {
	for i, a := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = a.append(dst, shape)
	}
	return dst
}

func (a Answer) append(dst []byte, shape history.Shape) []byte {
	before, between := `{"role":"tool","tool_call_id":`, `,"content":`
	switch shape {
	case history.Messages:
		before = `{"type":"tool_result","tool_use_id":`
		if a.Failed {
			between = `,"is_error":true,"content":`
		}
	case history.Responses:
		before, between = `{"type":"function_call_output","call_id":`, `,"output":`
	case history.Chat:
	}
	dst = jsonscan.AppendString(append(dst, before...), a.ID)
	return append(jsonscan.AppendString(append(dst, between...), a.Text), '}')
}

// inside is what is between the brackets of an array.
func inside(array []byte) []byte {
	array = bytes.TrimSpace(array)
	return bytes.TrimSpace(array[1 : len(array)-1])
}
