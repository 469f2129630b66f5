package reduce

import (
	"bytes"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// A tool that declares an outputSchema promises that structuredContent fits it, and clients
// check: the TypeScript and Python SDKs refuse the whole result when one element of an array is
// of another type, or when an object has a member that the schema does not know (schemas made
// from zod and from Go structs allow none). A gateway does not see the schema in the reply, so
// in structuredContent nothing may appear that is not of the kind that was there:
//
//   - among strings the marker is an element like the others, as it is in a text;
//   - among objects and arrays that hold prose, the first element left out stays and carries the
//     marker in place of its longest prose, which its schema lets be any string. Clients that
//     show the model nothing but structuredContent need to find the mark there;
//   - among numbers and the like there is no place for a word: the elements go, and only the
//     note in the result's _meta tells, with the text of the content block where there is one.
//
// What remains open: a schema with minItems, or with prefixItems for more than a pair, may refuse
// a shorter array all the same, and one that bounds the length of prose may refuse the marker.

// TypedEdits are the plan as splices of doc, which it was made for, with no value in place of one
// of another type.
func (p Plan) TypedEdits(doc []byte, id string) []jsonscan.Edit {
	var edits []jsonscan.Edit
	for _, g := range p.Gaps {
		if g.Elements == 0 || doc[g.Start] == '"' {
			edits = append(edits, jsonscan.Edit{Span: g.Span, Text: g.appendJSON(nil, id)})
			continue
		}
		if carrier, prose, ok := findProse(doc, g); ok {
			edits = append(edits,
				jsonscan.Edit{Span: prose, Text: jsonscan.AppendRaw(nil, g.Marker(id))},
				jsonscan.Edit{Span: jsonscan.Span{Start: carrier.End, End: g.End}})
			continue
		}
		edits = append(edits, jsonscan.Edit{Span: withComma(doc, g.Span)})
	}
	return edits
}

// mostCarrier is the longest element that is worth keeping for the marker's sake, in bytes.
const mostCarrier = 1024

// findProse looks for the string of the first element left out that can carry the marker: the
// longest one of at least three words. What a schema holds to a list of values, a pattern or a
// format is shorter than that.
func findProse(doc []byte, g Gap) (carrier, prose jsonscan.Span, ok bool) {
	end, ok := valueEnd(doc, g.Start, mostCarrier)
	if !ok || g.Dropped < 2 {
		return carrier, prose, false
	}
	carrier = jsonscan.Span{Start: g.Start, End: end}
	strs, _, err := jsonscan.New(carrier.Of(doc), 0).Long(nil, 0)
	if err != nil {
		return carrier, prose, false
	}
	for _, s := range strs {
		if s.Len() > prose.Len() && bytes.Count(s.Of(carrier.Of(doc)), []byte(" ")) >= 2 {
			prose = s.Span
		}
	}
	found := prose.Len() > 0
	prose.Start += g.Start
	prose.End += g.Start
	return carrier, prose, found
}

// withComma is a run of elements with one of the commas beside it.
func withComma(doc []byte, s jsonscan.Span) jsonscan.Span {
	if after := skipSpace(doc, s.End); after < len(doc) && doc[after] == ',' {
		return jsonscan.Span{Start: s.Start, End: skipSpace(doc, after+1)}
	}
	return jsonscan.Span{Start: preceding(doc, s.Start), End: s.End}
}

// AppendNotes appends what a program needs to know of the arrays that were thinned, as the
// elements of a JSON array: where each is, how many elements it had and lost, and where those
// are in the original.
func (p Plan) AppendNotes(dst []byte, id string) []byte {
	between := ""
	for _, g := range p.Gaps {
		if g.Elements > 0 {
			dst = g.appendNote(append(dst, between...), id)
			between = ","
		}
	}
	return dst
}

func (g Gap) appendNote(dst []byte, id string) []byte {
	dst = jsonscan.AppendString(append(dst, `{"path":`...), g.Path)
	dst = appendNumbers(dst, `,"original_chars":`, g.Chars, `,"elements":`, g.Elements, `,"dropped":`, g.Dropped, "")
	if id != "" {
		dst = jsonscan.AppendString(append(dst, `,"prune_id":`...), id)
		dst = strconv.AppendInt(append(dst, `,"chars":[`...), int64(g.From), 10)
		dst = append(strconv.AppendInt(append(dst, ','), int64(g.To), 10), ']')
	}
	return append(dst, '}')
}
