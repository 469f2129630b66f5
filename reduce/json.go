package reduce

import (
	"bytes"
	"context"
	"slices"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// jsonReducer shortens a text that is JSON so that it stays JSON.
var jsonReducer = Reducer{Name: "json", OwnKey: true, Cutter: jsonCutter}

func jsonCutter(_ context.Context, p Policy) Cutter {
	return func(body []byte, str jsonscan.Str) (Cut, bool) {
		if !LooksLikeJSON(str.Of(body)) {
			return Cut{}, false
		}
		text := jsonscan.AppendDecoded(nil, str.Of(body))
		c, ok := p.CutJSON(text, p.IDLen)
		if !ok {
			return Cut{}, false
		}
		return Cut{OmittedChars: c.OmittedChars, Edits: c.ForString(body, str.Span).Edits, Decoded: text, JSON: &c}, true
	}
}

// LooksLikeJSON reports whether the inside of a JSON string may be JSON itself, by its first and last
// characters; it spares most texts from being decoded.
func LooksLikeJSON(raw []byte) bool {
	isSpace := func(r rune) bool { return r == ' ' || r == '\n' || r == '\t' || r == '\r' }
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

// JSONCut is what to leave out of a JSON text so that the rest is JSON, too. Whole elements go from the
// middle of arrays, the largest arrays first; one string element replaces them. A string that is still
// too long is masked. Everything else, white space included, keeps its bytes.
type JSONCut struct {
	Gaps         []Gap // in the order of the text
	OmittedChars int   // characters in the gaps
	Chars        int   // characters of the text

	textBytes int  // bytes of the text
	inString  bool // the gaps are offsets in a JSON string that holds the text
}

// Gap is what is left out of one array, or of one string.
type Gap struct {
	jsonscan.Span           // the elements left out, or a part of a string
	FirstChar, LastChar int // the same as characters of the text, counted from 1

	Path  string // JSON Pointer of the array or string
	Chars int    // its length

	Elements, Dropped int // of an array: all elements, and those left out
	Head, Tail        int // of a string: characters kept at either end

	markers Markers
}

// CutJSON decides how to shorten text, which must be decoded and valid UTF-8, to at most MaxChars
// characters, including the markers with an id of idLen letters. HeadChars and TailChars give the
// proportion of an array's first and last elements in what stays.
//
// It returns false if the text is short enough, is not a JSON array or object, or cannot be shortened
// enough with anything of it left. JSON Lines are treated as the elements of one array.
func (m Mask) CutJSON(text []byte, idLen int) (JSONCut, bool) {
	chars := countChars(text)
	if chars <= m.MaxChars || !isDocuments(text) {
		return JSONCut{}, false
	}
	o := &outline{text: text, ascii: chars == len(text), maxChars: m.MaxChars}
	o.arrayMarkerLen, o.stringMarkerLen = longestMarkers(m.Markers, chars, idLen)
	if !o.measure() {
		return JSONCut{}, false
	}
	f := fitter{outline: o, head: m.HeadChars, tail: m.TailChars}
	f.fitNode(0, m.MaxChars)
	p := JSONCut{Gaps: f.gaps, Chars: chars, textBytes: len(text)}
	slices.SortFunc(p.Gaps, func(a, b Gap) int { return a.Start - b.Start })
	for i := range p.Gaps {
		p.Gaps[i].markers = m.Markers
	}
	p.locateGaps(text)
	return p, !f.dropsEverything()
}

// isDocuments reports whether text is an array or an object, or several on separate lines.
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

// dropsEverything reports whether no element of the text stays; mask would show more than that.
func (f *fitter) dropsEverything() bool {
	root := f.nodes[0]
	if root.count == 1 && len(f.nodes) > 1 && f.nodes[1].kind == '[' {
		root = f.nodes[1]
	}
	return slices.ContainsFunc(f.gaps, func(g Gap) bool { return g.Span == root.inner })
}

// locateGaps sets the gaps' positions in characters.
func (p *JSONCut) locateGaps(text []byte) {
	at, chars := 0, 0
	for i := range p.Gaps {
		g := &p.Gaps[i]
		g.FirstChar = chars + countChars(text[at:g.Start]) + 1
		size := countChars(text[g.Start:g.End])
		g.LastChar = g.FirstChar + size - 1
		at, chars = g.End, g.LastChar
		p.OmittedChars += size
	}
}

// Edits are the cut as splices.
func (p JSONCut) Edits(id string) []jsonscan.Edit {
	edits := make([]jsonscan.Edit, len(p.Gaps))
	for i, g := range p.Gaps {
		text := g.appendJSON(nil, id)
		if p.inString {
			text = jsonscan.AppendEscaped(nil, string(text))
		}
		edits[i] = jsonscan.Edit{Span: g.Span, Text: text}
	}
	return edits
}

// ForString translates the cut to the string of body that holds the text, so that escapes outside of the
// gaps stay as they are. The string is read from its start up to the largest gap and from its end back to
// it, so that most of a long text is not read.
func (p JSONCut) ForString(body []byte, s jsonscan.Span) JSONCut {
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
	at, text = len(raw), p.textBytes
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

// bounds returns the start of a gap and, with both, its end.
func (g *Gap) bounds(both bool) []*int {
	if !both {
		return []*int{&g.Start}
	}
	return []*int{&g.Start, &g.End}
}

// rawOffset returns where in raw the n bytes of text after at end.
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

// rawOffsetBack returns where in raw the n bytes of text before at start.
func rawOffsetBack(raw []byte, at, n int) int {
	for n > 0 {
		r, size := jsonscan.DecodeLastChar(raw[:at])
		at -= size
		n -= utf8.RuneLen(r)
	}
	return at
}
