package recall

import (
	"iter"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// cut is a text to shorten, with everything in the reply that is shortened along with it.
type cut struct {
	parts []part                          // the first is the original; another says the same
	notes func(id string) []jsonscan.Edit // tell of it elsewhere in the reply; nil when the parts do
	chars int                             // how long the original is
	left  int                             // how many characters are left out
	bare  *cut                            // in its place where no id can be shown; nil when this one can do without
}

// cutter says how to shorten a string of a reply, and whether it is long enough for that.
type cutter func(jsonscan.Str) (cut, bool)

// part is a place in the body that is shortened.
type part struct {
	jsonscan.Span
	value   bool                            // a JSON value as it stands; otherwise the inside of a string
	decoded []byte                          // the string's text, where that was needed already
	shorten func(id string) []jsonscan.Edit // in order
}

func (c cut) edits(id string) []jsonscan.Edit {
	var edits []jsonscan.Edit
	for _, p := range c.parts {
		edits = append(edits, p.shorten(id)...)
	}
	if c.notes != nil {
		edits = append(edits, c.notes(id)...)
	}
	return edits
}

// text is what stands there now, in pieces of at most a part.
func (p part) text(body []byte) iter.Seq[[]byte] {
	if p.decoded != nil {
		return slices.Chunk(p.decoded, partSize)
	}
	return p.textOf(p.Of(body))
}

// textOf is what bytes of p stand for.
func (p part) textOf(raw []byte) iter.Seq[[]byte] {
	if p.value {
		return slices.Chunk(raw, partSize)
	}
	return jsonscan.Texts(raw, partSize)
}

// left is what will stand there, shortened.
func (p part) left(body []byte, id string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := p.Start
		for _, e := range append(p.shorten(id), jsonscan.Edit{Span: jsonscan.Span{Start: p.End, End: p.End}}) {
			for _, raw := range [][]byte{body[at:e.Start], e.Text} {
				for piece := range p.textOf(raw) {
					if !yield(piece) {
						return
					}
				}
			}
			at = e.End
		}
	}
}

// mask cuts a string to its head and tail.
func (p Policy) mask(body []byte, str jsonscan.Str) (cut, bool) {
	c, ok := p.Cut(body, str)
	if !ok {
		return cut{}, false
	}
	shorten := func(id string) []jsonscan.Edit { return []jsonscan.Edit{c.Edit(id)} }
	return cut{parts: []part{{Span: str.Span, shorten: shorten}}, chars: str.Chars, left: str.Chars - c.Head - c.Tail}, true
}

// masker masks the strings of d.
func (p Policy) masker(d Doc) cutter {
	return func(str jsonscan.Str) (cut, bool) { return p.mask(d.Body, str) }
}

// thin leaves elements out of a string that is JSON, and cuts one that is not as others are.
func (p Policy) thin(body []byte, str jsonscan.Str, other cutter) (c cut, plan reduce.Plan, ok bool) {
	if looksLikeJSON(str.Of(body)) {
		text := jsonscan.AppendText(nil, str.Of(body))
		if plan, ok = p.Thin(text, p.idLen()); ok {
			only := part{Span: str.Span, decoded: text, shorten: plan.InString(body, str.Span).Edits}
			return cut{parts: []part{only}, chars: str.Chars, left: plan.Left}, plan, true
		}
	}
	c, ok = other(str)
	return c, reduce.Plan{}, ok
}

// idLen is how long the id in a marker is.
func (p Policy) idLen() int {
	if !p.RecoverLine {
		return 0
	}
	return len(idPrefix) + idLen
}

// looksLikeJSON spares a text that cannot be JSON, by its first and last characters, from being
// decoded.
func looksLikeJSON(raw []byte) bool {
	first, n := jsonscan.DecodeChar(raw)
	for raw = raw[n:]; isSpace(first) && len(raw) > 0; raw = raw[n:] {
		first, n = jsonscan.DecodeChar(raw)
	}
	if first != '{' && first != '[' {
		return false
	}
	for len(raw) > 0 {
		last, n := jsonscan.DecodeLastChar(raw)
		if !isSpace(last) {
			return last == '}' || last == ']'
		}
		raw = raw[:len(raw)-n]
	}
	return false
}

func isSpace(r rune) bool { return r == ' ' || r == '\n' || r == '\t' || r == '\r' }
