package reduce

import (
	"bytes"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The structuredContent of a tool with an outputSchema must match it, and clients check: the TypeScript
// and Python SDKs reject the whole result if one element of an array has another type, or if an object
// has a member that the schema does not know (schemas made from zod and from Go structs allow none). The
// reply does not contain the schema, so structuredContent may only get values of types that were there:
//
//   - among strings the marker is an element like the others, as in a text;
//   - among objects and arrays with prose in them, the first element left out stays and carries the
//     marker in place of its longest prose, for which a schema allows any string. Clients that show the
//     model only structuredContent need the marker there;
//   - among numbers and the like no marker is possible: the elements go, and only the note in the
//     result's _meta tells, and the text of the content block if there is one.
//
// Known limits: a schema with minItems, or with prefixItems for more than a pair, may still reject a
// shorter array, and one that bounds the length of prose may reject the marker.

// TypedEdits are the cut as splices of doc in which no value is replaced by one of another type.
func (p JSONCut) TypedEdits(doc []byte, id string) []jsonscan.Edit {
	var edits []jsonscan.Edit
	for _, g := range p.Gaps {
		if g.Elements == 0 || doc[g.Start] == '"' {
			edits = append(edits, jsonscan.Edit{Span: g.Span, Text: g.appendJSON(nil, id)})
			continue
		}
		if carrier, prose, ok := findProse(doc, g); ok {
			edits = append(edits,
				jsonscan.Edit{Span: prose, Text: jsonscan.AppendEscaped(nil, g.Marker(id))},
				jsonscan.Edit{Span: jsonscan.Span{Start: carrier.End, End: g.End}})
			continue
		}
		edits = append(edits, jsonscan.Edit{Span: withComma(doc, g.Span)})
	}
	return edits
}

// maxCarrier bounds the element that is kept to carry the marker, in bytes.
const maxCarrier = 1024

// findProse finds the string in the first element left out that can carry the marker: the longest of at
// least three words. Strings that a schema restricts to values, a pattern or a format are shorter.
func findProse(doc []byte, g Gap) (carrier, prose jsonscan.Span, ok bool) {
	end, ok := valueEnd(doc, g.Start, maxCarrier)
	if !ok || g.Dropped < 2 {
		return carrier, prose, false
	}
	carrier = jsonscan.Span{Start: g.Start, End: end}
	strs, _, err := jsonscan.New(carrier.Of(doc), 0).LongStrings(nil, 0)
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

// withComma extends a run of elements by one of the commas beside it.
func withComma(doc []byte, s jsonscan.Span) jsonscan.Span {
	if after := skipSpace(doc, s.End); after < len(doc) && doc[after] == ',' {
		return jsonscan.Span{Start: s.Start, End: skipSpace(doc, after+1)}
	}
	return jsonscan.Span{Start: previousElement(doc, s.Start), End: s.End}
}

// AppendNotes describes the shortened arrays for programs, as elements of a JSON array: the path of each,
// how many elements it had and lost, and where those are in the original.
func (p JSONCut) AppendNotes(dst []byte, id string) []byte {
	between := ""
	for _, g := range p.Gaps {
		if g.Elements > 0 {
			dst = g.appendGapNote(append(dst, between...), id)
			between = ","
		}
	}
	return dst
}

func (g Gap) appendGapNote(dst []byte, id string) []byte {
	dst = jsonscan.AppendQuoted(append(dst, `{"path":`...), g.Path)
	dst = appendNumbers(dst, `,"original_chars":`, g.Chars, `,"elements":`, g.Elements, `,"dropped":`, g.Dropped, "")
	if id != "" {
		dst = jsonscan.AppendQuoted(append(dst, `,"prune_id":`...), id)
		dst = strconv.AppendInt(append(dst, `,"chars":[`...), int64(g.FirstChar), 10)
		dst = append(strconv.AppendInt(append(dst, ','), int64(g.LastChar), 10), ']')
	}
	return append(dst, '}')
}
