package recall

import (
	"iter"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// A tool result holds its data in content and often once more in structuredContent. Clients
// differ in which of them a model gets to see, so both are shortened, and alike:
//
//   - a text of content that is JSON is thinned, and structuredContent that is the same value
//     loses the same elements, under the same id;
//   - a string of structuredContent that is also a text of content is cut as that text is, and
//     the rest of structuredContent is left alone;
//   - structuredContent that nothing in content repeats is thinned by itself, and is an original
//     of its own.
//
// With a goal, a text that is JSON is thinned all the same: single lines of it would not parse. Any
// other text is pruned to lines wherever it stands.

// jsonCuts are the cuts of a policy that shortens JSON as JSON.
func (p Policy) jsonCuts(req ShrinkRequest, each cutFunc) iter.Seq[cut] {
	return func(yield func(cut) bool) {
		res := findResult(req.Body)
		var inside, outside []jsonscan.Str // too long, in structuredContent and elsewhere
		for _, s := range req.Strings {
			switch {
			case s.Chars <= p.MaxChars:
			case s.Start >= res.structured.Start && s.End <= res.structured.End:
				inside = append(inside, s)
			default:
				outside = append(outside, s)
			}
		}
		for _, str := range outside {
			c, ok := each(str)
			if c, ok := p.withStructuredCopy(req.Body, c, res); ok {
				if !yield(c) {
					return
				}
				res.structured, inside = jsonscan.Span{}, nil // done
				continue
			}
			if ok && !yield(c) {
				return
			}
		}
		if c, ok := p.thinStructured(req.Body, res, inside, outside); ok {
			yield(c)
			return
		}
		for _, str := range inside {
			if c, ok := each(str); ok && !yield(c) {
				return
			}
		}
	}
}

// withStructuredCopy adds structuredContent to c when it is the same value as the text of c.
func (p Policy) withStructuredCopy(body []byte, c cut, res toolResult) (cut, bool) {
	if c.json == nil || res.structured.Len() == 0 {
		return c, false
	}
	twin, ok := c.json.ForCopy(c.parts[0].decoded, res.structured.Of(body))
	if !ok {
		return c, false
	}
	second, ok := p.structuredPart(body, twin, res)
	c.parts = append(c.parts, second)
	c.metaEdits = func(id string) []jsonscan.Edit { return res.metaEdits(body, twin, id) }
	c.charsCut += twin.OmittedChars
	return c, ok
}

// thinStructured leaves elements out of structuredContent when nothing in content repeats it.
func (p Policy) thinStructured(body []byte, res toolResult, inside, outside []jsonscan.Str) (cut, bool) {
	raw := res.structured.Of(body)
	if len(raw) <= p.MaxChars || haveCommonString(body, inside, outside) || res.isRepeatedInContent(body, p.MaxChars) {
		return cut{}, false
	}
	plan, ok := p.CutJSON(raw, p.markerIDLen())
	if !ok {
		return cut{}, false
	}
	only, ok := p.structuredPart(body, plan, res)
	metaEdits := func(id string) []jsonscan.Edit { return res.metaEdits(body, plan, id) }
	return cut{parts: []part{only}, metaEdits: metaEdits, chars: plan.Chars, charsCut: plan.OmittedChars}, ok
}

// structuredPart is structuredContent shortened by plan. It reports false when that is not smaller
// than the original together with its entry in _meta, or when _meta cannot take the entry.
func (p Policy) structuredPart(body []byte, plan reduce.JSONCut, res toolResult) (part, bool) {
	shorten := func(id string) []jsonscan.Edit {
		edits := plan.TypedEdits(res.structured.Of(body), id)
		for i := range edits {
			edits[i].Start += res.structured.Start
			edits[i].End += res.structured.Start
		}
		return edits
	}
	anyID := formatID([idBytes]byte{})
	edits := append(shorten(anyID), res.metaEdits(body, plan, anyID)...)
	isSmaller := jsonscan.SplicedLen(body, edits) < len(body)
	return part{Span: res.structured, isValue: true, shorten: shorten}, isSmaller && !res.hasInvalidMeta
}

// haveCommonString says whether a long string of structuredContent is also a long string elsewhere.
func haveCommonString(body []byte, inside, outside []jsonscan.Str) bool {
	if len(inside) == 0 || len(outside) == 0 {
		return false
	}
	var anyKey [32]byte // the sums are compared only here
	sum := func(s jsonscan.Str) [idBytes]byte {
		return hash128(anyKey[:], jsonscan.DecodedChunks(s.Of(body), partSize))
	}
	seen := make(map[[idBytes]byte]bool, len(outside))
	for _, s := range outside {
		seen[sum(s)] = true
	}
	for _, s := range inside {
		if seen[sum(s)] {
			return true
		}
	}
	return false
}

// toolResult locates the members of a tool result in a reply.
type toolResult struct {
	structured     jsonscan.Span // structuredContent, when it is an object or an array
	content        jsonscan.Span // when it is an array
	meta           jsonscan.Span // _meta
	metaCuts       jsonscan.Span // the member metaKey of _meta
	hasInvalidMeta bool          // _meta is not an object, or its member metaKey is not an array
}

// metaKey is the member of a result's _meta that lists what is missing from structuredContent.
const metaKey = "ctxgate/cut"

// findResult finds nothing in a body that is not a reply with a result. The body has been parsed
// before.
func findResult(body []byte) (res toolResult) {
	s := jsonscan.New(body, 0)
	err := s.Members(func(key []byte) error {
		if string(key) != "result" || s.Kind() != '{' {
			return nil
		}
		return s.Members(func(key []byte) error { return res.readMember(s, key) })
	})
	if err != nil {
		return toolResult{}
	}
	return res
}

func (res *toolResult) readMember(s *jsonscan.Scanner, key []byte) (err error) {
	kind := s.Kind()
	switch {
	case string(key) == "structuredContent" && (kind == '{' || kind == '['):
		res.structured, err = s.Skip()
	case string(key) == "content" && kind == '[':
		res.content, err = s.Skip()
	case string(key) == "_meta" && kind == '{':
		start := s.Pos()
		err = s.Members(func(key []byte) (err error) {
			if string(key) == metaKey {
				res.hasInvalidMeta = s.Kind() != '['
				res.metaCuts, err = s.Skip()
			}
			return err
		})
		res.meta = jsonscan.Span{Start: start, End: s.Pos()}
	case string(key) == "_meta":
		res.hasInvalidMeta = true
	}
	return err
}

// isRepeatedInContent says whether a text of content of at most maxChars, which stays whole, is the
// same value as structuredContent.
func (res toolResult) isRepeatedInContent(body []byte, maxChars int) bool {
	if res.content.Len() == 0 {
		return false
	}
	strs, _, err := jsonscan.New(res.content.Of(body), 0).LongStrings(nil, 1)
	if err != nil {
		return false
	}
	for _, s := range strs {
		raw := s.Of(res.content.Of(body))
		if s.Chars <= maxChars && reduce.LooksLikeJSON(raw) && reduce.EqualJSON(jsonscan.AppendDecoded(nil, raw), res.structured.Of(body)) {
			return true
		}
	}
	return false
}

// metaEdits list the gaps of plan in the result's _meta: in the list that is there, in the _meta
// that is there, or in a new _meta after structuredContent.
func (res toolResult) metaEdits(body []byte, plan reduce.JSONCut, id string) []jsonscan.Edit {
	list := plan.AppendNotes(nil, id)
	if len(list) == 0 {
		return nil
	}
	if res.metaCuts.Len() > 0 {
		return insertFirst(body, res.metaCuts, list)
	}
	list = append(append([]byte(`"`+metaKey+`":[`), list...), ']')
	if res.meta.Len() > 0 {
		return insertFirst(body, res.meta, list)
	}
	after := jsonscan.Span{Start: res.structured.End, End: res.structured.End}
	return []jsonscan.Edit{{Span: after, Text: append(append([]byte(`,"_meta":{`), list...), '}')}}
}

// insertFirst inserts text as the first member or element of a container.
func insertFirst(body []byte, container jsonscan.Span, text []byte) []jsonscan.Edit {
	at := container.Start + 1
	for strings.IndexByte(" \n\t\r", body[at]) >= 0 {
		at++
	}
	if at < container.End-1 {
		text = append(text, ',')
	}
	return []jsonscan.Edit{{Span: jsonscan.Span{Start: at, End: at}, Text: text}}
}
