package reduce

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Plan is what to leave out of a text that is JSON so that what stays is JSON too. Whole
// elements go from the middle of arrays, the largest arrays first; one string element in their
// place says so. A string that is still too long is masked. Keys, members, the elements that
// stay and all white space around them keep their bytes.
type Plan struct {
	Gaps  []Gap // in the order of the text
	Left  int   // how many characters they are
	Chars int   // how many the text has

	size     int  // how many bytes the text has
	inString bool // the text is the inside of a JSON string of a larger document
}

// Gap is what is left out of one array, or of one string.
type Gap struct {
	jsonscan.Span     // from the first element left out to the end of the last; or part of a string
	From, To      int // the same in characters of the whole text, counted from 1

	Path  string // where the array or string is: a JSON Pointer
	Chars int    // how long the array or string was

	Elements, Dropped int // of an array: how many it had, how many are left out
	Head, Tail        int // of a string: how many characters stay on either side
}

// Thin says how to bring text, which must be decoded and valid UTF-8, to at most MaxChars
// characters, markers and an id of idLen letters in them included. HeadChars and TailChars give
// the proportion in which an array's first and last elements share its room.
//
// False means that the text is not for it: it is short enough, is no JSON array or object, or
// cannot be brought under the limit with anything of it left. Documents that stand one to a line
// (JSON Lines) are thinned as the elements of one array.
func (m Mask) Thin(text []byte, idLen int) (Plan, bool) {
	chars := countChars(text)
	if chars <= m.MaxChars || !isDocuments(text) {
		return Plan{}, false
	}
	o := &outline{text: text, ascii: chars == len(text), most: m.MaxChars}
	o.gap, o.cut = longestMarkers(chars, idLen)
	if !o.run() {
		return Plan{}, false
	}
	f := fitter{outline: o, head: m.HeadChars, tail: m.TailChars}
	f.fit(0, m.MaxChars)
	p := Plan{Gaps: f.gaps, Chars: chars, size: len(text)}
	slices.SortFunc(p.Gaps, func(a, b Gap) int { return a.Start - b.Start })
	p.countChars(text)
	return p, !f.empty()
}

// isDocuments says whether text is an array or an object, or several with line breaks between.
func isDocuments(text []byte) bool {
	s := jsonscan.New(text, 0)
	for n := 0; ; n++ {
		before := s.Pos()
		if s.End() == nil {
			return n > 0
		}
		if k := s.Kind(); k != '{' && k != '[' {
			return false
		}
		if n > 0 && bytes.IndexByte(text[before:s.Pos()], '\n') < 0 {
			return false
		}
		if _, err := s.Skip(); err != nil {
			return false
		}
	}
}

// empty says whether nothing of the text's own elements stays: the mask shows more than that.
func (f *fitter) empty() bool {
	root := f.nodes[0]
	if root.count == 1 && len(f.nodes) > 1 && f.nodes[1].kind == '[' {
		root = f.nodes[1]
	}
	return slices.ContainsFunc(f.gaps, func(g Gap) bool { return g.Span == root.inner })
}

// countChars fills in where the gaps are, in characters.
func (p *Plan) countChars(text []byte) {
	at, chars := 0, 0
	for i := range p.Gaps {
		g := &p.Gaps[i]
		g.From = chars + countChars(text[at:g.Start]) + 1
		size := countChars(text[g.Start:g.End])
		g.To = g.From + size - 1
		at, chars = g.End, g.To
		p.Left += size
	}
}

// Edits are the plan as splices of what it was made for.
func (p Plan) Edits(id string) []jsonscan.Edit {
	edits := make([]jsonscan.Edit, len(p.Gaps))
	for i, g := range p.Gaps {
		text := g.appendJSON(nil, id)
		if p.inString {
			text = jsonscan.AppendRaw(nil, string(text))
		}
		edits[i] = jsonscan.Edit{Span: g.Span, Text: text}
	}
	return edits
}

// InString is the plan for the string of body whose text it was made for, so that escapes that
// are not cut keep their spelling. The text before the largest gap is followed from the start
// and the text after it from the end: nearly all of a long text is never read for this.
func (p Plan) InString(body []byte, s jsonscan.Span) Plan {
	out := p
	out.Gaps, out.inString = slices.Clone(p.Gaps), true
	raw := s.Of(body)
	largest := 0
	for i, g := range p.Gaps {
		if g.Len() > p.Gaps[largest].Len() {
			largest = i
		}
	}
	at, text := 0, 0 // the same place, in the raw string and in its text
	for i := 0; i <= largest; i++ {
		for _, bound := range out.Gaps[i].bounds(i < largest) {
			at, text = rawOffset(raw, at, *bound-text), *bound
			*bound = s.Start + at
		}
	}
	at, text = len(raw), p.size
	for i := len(p.Gaps) - 1; i >= largest; i-- {
		bounds := out.Gaps[i].bounds(true)
		if i == largest {
			bounds = bounds[1:]
		}
		for _, bound := range slices.Backward(bounds) {
			at, text = rawOffsetBack(raw, at, text-*bound), *bound
			*bound = s.Start + at
		}
	}
	return out
}

// bounds are where a gap starts and, when asked, ends.
func (g *Gap) bounds(both bool) []*int {
	if !both {
		return []*int{&g.Start}
	}
	return []*int{&g.Start, &g.End}
}

// rawOffset is where in raw n bytes of text from at end.
func rawOffset(raw []byte, at, n int) int {
	for n > 0 {
		plain := bytes.IndexByte(raw[at:min(len(raw), at+n)], '\\')
		if plain < 0 {
			return at + n
		}
		r, size := jsonscan.DecodeChar(raw[at+plain:])
		at += plain + size
		n -= plain + utf8.RuneLen(r)
	}
	return at
}

// rawOffsetBack is where in raw n bytes of text up to at start.
func rawOffsetBack(raw []byte, at, n int) int {
	for n > 0 {
		r, size := jsonscan.DecodeLastChar(raw[:at])
		at -= size
		n -= utf8.RuneLen(r)
	}
	return at
}
