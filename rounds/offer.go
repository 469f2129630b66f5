package rounds

import (
	"strconv"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// The tool as the model is told of it. The bytes never change: they stand at the front of every
// prompt, and a provider's cache lives on that.
const (
	described = `"Reads back text that was taken out of this conversation to save room. Where a tool result was replaced or shortened ` +
		`and names a prune_id (prn_…), the original is kept: call this with that prune_id when you need what it said. Prefer a part: ` +
		`pattern gives the lines that match, ranges gives lines by number, chars gives characters first-last. Without them you get ` +
		`all of it. Several calls at once are fine."`
	schema = `{"type":"object","properties":{` +
		`"prune_id":{"type":"string","description":"The id of the original, such as prn_0123456789abcdefghjkmnpqrs."},` +
		`"ranges":{"type":"array","description":"Lines to read, counted from 1, both ends included.","items":{"type":"object","properties":{` +
		`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},` +
		`"required":["start_line","end_line"],"additionalProperties":false}},` +
		`"pattern":{"type":"string","description":"Only lines that match this regular expression (RE2)."},` +
		`"chars":{"type":"string","description":"Characters to read, as first-last, counted from 1."},` +
		`"include_line_numbers":{"type":"boolean","description":"Put the number before each line."}},` +
		`"required":["prune_id"],"additionalProperties":false}`

	chatTool     = `{"type":"function","function":{"name":"` + Tool + `","description":` + described + `,"parameters":` + schema + `}}`
	messagesTool = `{"name":"` + Tool + `","description":` + described + `,"input_schema":` + schema + `}`
	// Without a word on it, a function of the responses API is strict, and must require all it has.
	responsesTool = `{"type":"function","name":"` + Tool + `","description":` + described + `,"parameters":` + schema + `,"strict":false}`
)

// Offer is the edit that adds the tool to a request, which d was read from; false where it is not
// to be added:
//
//   - The client offers no tools: it has no results to read back, and could not be sent any call.
//   - It has the hub's tool already, and asks us itself; or it has another tool of that name.
//   - It asks for several choices at once, whose rounds could not be told apart.
//   - The conversation, or the reply, stays with the provider (conversation, background), who
//     would not forget what the client must not see.
//
// A tool_choice of none changes nothing: then the model does not call it, and the tools stay the
// same from one request to the next.
//
// It goes to the end of the list, but for messages to its beginning: there a cache_control on a tool
// is about all tools before it, so that what comes first is in whatever the client has cached.
func Offer(d *history.Dialogue, body []byte) (jsonscan.Edit, bool) {
	list := d.Tools()
	if list.Len() == 0 || d.Recovers() || d.Offers(Tool) || !alone(d) {
		return jsonscan.Edit{}, false
	}
	begins := skipSpace(body, list.Start+1)
	if body[begins] == ']' {
		return jsonscan.Edit{}, false
	}
	switch d.Shape {
	case history.Messages:
		return jsonscan.Edit{Span: jsonscan.Span{Start: begins, End: begins}, Text: []byte(messagesTool + ",")}, true
	case history.Responses:
		return appending(list, responsesTool), true
	case history.Chat:
		return appending(list, chatTool), true
	}
	return jsonscan.Edit{}, false
}

// alone says that a request asks for one reply, of which the provider keeps nothing that changes
// the next request.
func alone(d *history.Dialogue) bool {
	switch d.Shape {
	case history.Chat:
		raw := d.Other("n")
		n, err := strconv.ParseFloat(string(raw), 64)
		return raw == nil || err == nil && n == 1
	case history.Responses:
		return d.Other("conversation") == nil && string(d.Other("background")) != "true"
	case history.Messages:
	}
	return true
}

// appending is the edit that puts an element after the last of a list that has one.
func appending(list jsonscan.Span, element string) jsonscan.Edit {
	return jsonscan.Edit{Span: jsonscan.Span{Start: list.End - 1, End: list.End - 1}, Text: []byte("," + element)}
}

func skipSpace(body []byte, at int) int {
	for body[at] <= ' ' {
		at++
	}
	return at
}
