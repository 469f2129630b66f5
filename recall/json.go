package recall

import (
	"iter"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// A tool's result holds its data in content and often once more in structuredContent. Clients
// differ in which of them a model gets to see, so both are shortened, and alike:
//
//   - a text of content that is JSON is thinned, and structuredContent that is the same value
//     loses the same elements, under the same id;
//   - a string of structuredContent that is also a text of content is cut as that is, and what
//     stands around it is left alone;
//   - structuredContent that nothing in content repeats is thinned by itself, and is an original
//     of its own.
//
// For a reader who said what to look for, a text that is JSON is thinned all the same: lines of
// it would be no JSON. Any other is cut to lines wherever it stands.

// jsonCuts are the cuts of a policy that reads JSON; other cuts what is none.
func (p Policy) jsonCuts(d Doc, other cutter) iter.Seq[cut] {
	return func(yield func(cut) bool) {
		res := findResult(d.Body)
		inside, outside := p.split(d.Strings, res.structured)
		for _, str := range outside {
			c, plan, ok := p.thin(d.Body, str, other)
			if c, twins := p.withTwin(d.Body, c, plan, res); twins {
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
		if c, ok := p.thinValue(d.Body, res, inside, outside); ok {
			yield(c)
			return
		}
		for _, str := range inside {
			if c, _, ok := p.thin(d.Body, str, other); ok && !yield(c) {
				return
			}
		}
	}
}

// split parts the strings that are too long into those in span and those that are not.
func (p Policy) split(strs []jsonscan.Str, span jsonscan.Span) (inside, outside []jsonscan.Str) {
	for _, s := range strs {
		switch {
		case s.Chars <= p.MaxChars:
		case s.Start >= span.Start && s.End <= span.End:
			inside = append(inside, s)
		default:
			outside = append(outside, s)
		}
	}
	return inside, outside
}

// withTwin is c with structuredContent, when that is the same value as c's text.
func (p Policy) withTwin(body []byte, c cut, plan reduce.Plan, res result) (cut, bool) {
	if len(plan.Gaps) == 0 || res.structured.Len() == 0 {
		return c, false
	}
	twin, ok := plan.Twin(c.parts[0].decoded, res.structured.Of(body))
	if !ok {
		return c, false
	}
	second, ok := p.typed(body, twin, res)
	c.parts = append(c.parts, second)
	c.notes = func(id string) []jsonscan.Edit { return res.notes(body, twin, id) }
	c.left += twin.Left
	return c, ok
}

// thinValue leaves elements out of structuredContent, when it is a text of its own.
func (p Policy) thinValue(body []byte, res result, inside, outside []jsonscan.Str) (cut, bool) {
	raw := res.structured.Of(body)
	if len(raw) <= p.MaxChars || repeats(body, inside, outside) || res.saidIn(body, p.MaxChars) {
		return cut{}, false
	}
	plan, ok := p.Thin(raw, p.idLen())
	if !ok {
		return cut{}, false
	}
	only, ok := p.typed(body, plan, res)
	notes := func(id string) []jsonscan.Edit { return res.notes(body, plan, id) }
	return cut{parts: []part{only}, notes: notes, chars: plan.Chars, left: plan.Left}, ok
}

// typed is structuredContent shortened by plan. False means that it would be no smaller, with
// the notes, than it is, or that the reply has no place for them: then it stays as it is.
func (p Policy) typed(body []byte, plan reduce.Plan, res result) (part, bool) {
	shorten := func(id string) []jsonscan.Edit {
		edits := plan.TypedEdits(res.structured.Of(body), id)
		for i := range edits {
			edits[i].Start += res.structured.Start
			edits[i].End += res.structured.Start
		}
		return edits
	}
	anyID := formatID([idBytes]byte{})
	edits := append(shorten(anyID), res.notes(body, plan, anyID)...)
	smaller := jsonscan.SplicedLen(body, edits) < len(body)
	return part{Span: res.structured, value: true, shorten: shorten}, smaller && !res.odd
}

// repeats says whether a long string of structuredContent is a long string elsewhere.
func repeats(body []byte, inside, outside []jsonscan.Str) bool {
	if len(inside) == 0 || len(outside) == 0 {
		return false
	}
	var anyKey [32]byte // nothing secret is named by these sums
	sum := func(s jsonscan.Str) [idBytes]byte { return hash128(anyKey[:], jsonscan.Texts(s.Of(body), partSize)) }
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

// result is where things are in a tool's result.
type result struct {
	structured jsonscan.Span // structuredContent, when it is an object or an array
	content    jsonscan.Span // when it is an array
	meta       jsonscan.Span // _meta
	cuts       jsonscan.Span // its member noteKey
	odd        bool          // _meta or its member is not what it should be
}

// noteKey is the member of a result's _meta that lists what is missing from structuredContent.
const noteKey = "ctxgate/cut"

// findResult looks at the members of a reply's result. The body has been parsed once already:
// where it is no reply there is nothing to find.
func findResult(body []byte) (res result) {
	s := jsonscan.New(body, 0)
	err := s.Members(func(key []byte) error {
		if string(key) != "result" || s.Kind() != '{' {
			return nil
		}
		return s.Members(func(key []byte) error { return res.member(s, key) })
	})
	if err != nil {
		return result{}
	}
	return res
}

func (res *result) member(s *jsonscan.Scanner, key []byte) (err error) {
	kind := s.Kind()
	switch {
	case string(key) == "structuredContent" && (kind == '{' || kind == '['):
		res.structured, err = s.Skip()
	case string(key) == "content" && kind == '[':
		res.content, err = s.Skip()
	case string(key) == "_meta" && kind == '{':
		start := s.Pos()
		err = s.Members(func(key []byte) (err error) {
			if string(key) == noteKey {
				res.odd = s.Kind() != '['
				res.cuts, err = s.Skip()
			}
			return err
		})
		res.meta = jsonscan.Span{Start: start, End: s.Pos()}
	case string(key) == "_meta":
		res.odd = true
	}
	return err
}

// saidIn says whether a text of content that is short enough to stay is the same value.
func (res result) saidIn(body []byte, most int) bool {
	if res.content.Len() == 0 {
		return false
	}
	strs, _, err := jsonscan.New(res.content.Of(body), 0).Long(nil, 1)
	if err != nil {
		return false
	}
	for _, s := range strs {
		raw := s.Of(res.content.Of(body))
		if s.Chars <= most && looksLikeJSON(raw) && reduce.Same(jsonscan.AppendText(nil, raw), res.structured.Of(body)) {
			return true
		}
	}
	return false
}

// notes list plan's gaps in the result's _meta: in the list that is there, in the _meta that is
// there, or in one of its own behind structuredContent.
func (res result) notes(body []byte, plan reduce.Plan, id string) []jsonscan.Edit {
	list := plan.AppendNotes(nil, id)
	if len(list) == 0 {
		return nil
	}
	if res.cuts.Len() > 0 {
		return inFront(body, res.cuts, list)
	}
	list = append(append([]byte(`"`+noteKey+`":[`), list...), ']')
	if res.meta.Len() > 0 {
		return inFront(body, res.meta, list)
	}
	behind := jsonscan.Span{Start: res.structured.End, End: res.structured.End}
	return []jsonscan.Edit{{Span: behind, Text: append(append([]byte(`,"_meta":{`), list...), '}')}}
}

// inFront puts something in front of what an object or a list holds.
func inFront(body []byte, container jsonscan.Span, text []byte) []jsonscan.Edit {
	at := container.Start + 1
	for isSpace(rune(body[at])) {
		at++
	}
	if at < container.End-1 {
		text = append(text, ',')
	}
	return []jsonscan.Edit{{Span: jsonscan.Span{Start: at, End: at}, Text: text}}
}
