package readback

import (
	"errors"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// The tool as the model is offered it. The bytes never change: they stand at the front of every prompt,
// and a provider's cache lives on that.
const description = `"Reads back text that was taken out of this conversation to save room. Where a tool result was replaced or shortened ` +
	`and names a prune_id (prn_…), the original is kept: call this with that prune_id when you need what it said. Prefer a part: ` +
	`pattern gives the lines that match, ranges gives lines by number, chars gives characters first-last. Without them you get ` +
	`all of it. Several calls at once are fine."`

var schema = recovertool.Schema(recovertool.Descriptions{
	PruneID: "The id of the original, such as prn_0123456789abcdefghjkmnpqrs.",
	Ranges:  "Lines to read, counted from 1, both ends included.",
	Chars:   "Characters to read, as first-last, counted from 1.",
})

func toolEntry(codec llm.ReadbackCodec) string {
	return codec.ToolEntry(recovertool.Name, description, schema)
}

// OfferTool is the edit that adds recover_text to a request, which d was read from; false where it is not
// to be added:
//
//   - The client offers no tools: it has no results to read back, and could not be sent any call.
//   - It has the hub's tool already, and calls us itself; or it has another tool of that name.
//   - The request cannot have hidden rounds: see [llm.ReadbackCodec].
//
// A tool_choice of none changes nothing: then the model does not call it, and the tools stay the same from
// one request to the next.
func OfferTool(d *history.Dialogue, body []byte) (jsonscan.Edit, bool) {
	codec, ok := d.Codec.(llm.ReadbackCodec)
	list := d.Tools()
	if !ok || list.Len() == 0 || d.OffersRecovery() || d.Offers(recovertool.Name) || !codec.MayOffer(d.Other) {
		return jsonscan.Edit{}, false
	}
	first := rawjson.SkipSpace(body, list.Start+1)
	if body[first] == ']' {
		return jsonscan.Edit{}, false
	}
	if codec.Wire().OfferFirst {
		return jsonscan.Edit{Span: jsonscan.Span{Start: first, End: first}, Text: []byte(toolEntry(codec) + ",")}, true
	}
	end := list.End - 1
	return jsonscan.Edit{Span: jsonscan.Span{Start: end, End: end}, Text: []byte("," + toolEntry(codec))}, true
}

var errNoConversation = errors.New("the request holds no conversation")

// NextRequest is the request of the next round: body, and after its last message what the model said to it
// and the answers to its calls. Nothing else changes, so that the provider finds what it has cached. The
// body is left as it is.
func NextRequest(codec llm.ReadbackCodec, body []byte, r *llm.Round, answers []llm.Answer) ([]byte, error) {
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return nil, err
	}
	list, ok := fields.Field(codec.Wire().MessagesKey)
	if !ok {
		return nil, errNoConversation
	}
	round := append(codec.AppendSaid(nil, r.Said), ',')
	round = codec.AppendAnswers(round, answers)
	var edit jsonscan.Edit
	switch body[list.Value.Start] {
	case '"': // what the user said
		text := append([]byte(`[{"role":"user","content":`), list.Value.Of(body)...)
		text = append(append(text, `},`...), round...)
		edit = jsonscan.Edit{Span: list.Value, Text: append(text, ']')}
	case '[':
		if body[rawjson.SkipSpace(body, list.Value.Start+1)] != ']' {
			round = append([]byte{','}, round...)
		}
		end := list.Value.End - 1
		edit = jsonscan.Edit{Span: jsonscan.Span{Start: end, End: end}, Text: round}
	default:
		return nil, errNoConversation
	}
	edits := []jsonscan.Edit{edit}
	return jsonscan.AppendSpliced(make([]byte, 0, jsonscan.SplicedLen(body, edits)), body, edits), nil
}
