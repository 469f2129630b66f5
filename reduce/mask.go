package reduce

import (
	"context"
	"fmt"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// maskReducer keeps the head and the tail of a string. It shortens any string.
var maskReducer = Reducer{Name: string(ByMask), Cutter: func(_ context.Context, p Policy) Cutter {
	return func(body []byte, str jsonscan.Str) (Cut, bool) { return p.cut(body, str, p.IDLen) }
}}

// maskWithin is mask for strings of which another reducer keeps MaxChars at most.
var maskWithin = Reducer{Name: string(ByMask), HoldsLimit: true, Cutter: func(_ context.Context, p Policy) Cutter {
	return func(body []byte, str jsonscan.Str) (Cut, bool) { return p.cutWithin(body, str, p.IDLen) }
}}

// cut is CutString as a reducer's cut, with an id of idLen letters.
func (m Mask) cut(body []byte, str jsonscan.Str, idLen int) (Cut, bool) {
	c, ok := m.CutString(body, str)
	if m.Markers == PlainMarkers && ok && str.Chars-c.Head-c.Tail <= len(c.Edit(strings.Repeat("x", idLen)).Text) {
		return Cut{}, false // it would not become shorter
	}
	edits := func(id string) []jsonscan.Edit { return []jsonscan.Edit{c.Edit(id)} }
	return Cut{OmittedChars: str.Chars - c.Head - c.Tail, Edits: edits}, ok
}

// cutWithin is cut, with a head and a tail that leave room for the marker within MaxChars.
func (m Mask) cutWithin(body []byte, str jsonscan.Str, idLen int) (Cut, bool) {
	if marker := longestStringMarker(m.Markers, str.Chars, idLen); m.HeadChars+m.TailChars+marker > m.MaxChars {
		m = m.ScaledTo(m.MaxChars, marker)
	}
	return m.cut(body, str, idLen)
}

// ScaledTo is the mask that fills maxChars characters, of which marker are the marker's, with the same proportion of
// head and tail.
func (m Mask) ScaledTo(maxChars, marker int) Mask {
	kept := max(0, maxChars-marker)
	head := kept / 2
	if sum := m.HeadChars + m.TailChars; sum > 0 {
		head = int(int64(kept) * int64(m.HeadChars) / int64(sum))
	}
	m.MaxChars, m.HeadChars, m.TailChars = maxChars, head, kept-head
	return m
}

// Mask is the policy for one string: longer than MaxChars, it becomes its first HeadChars and
// last TailChars with a marker between. Characters are Unicode code points.
type Mask struct {
	// A string of more characters than this is cut. Default 4000. The threshold is exact: a string of just
	// this length is not cut.
	MaxChars int `key:"max_chars" min:"1"`
	// How many characters to keep from the start. Default 2000; 0 keeps none.
	HeadChars int `key:"head_chars" min:"0"`
	// How many characters to keep from the end. Default 2000; 0 keeps none.
	TailChars int `key:"tail_chars" min:"0"`
	// The wording of the markers that replace what is left out: "document", to the letter of the
	// specification documents, or "plain", shorter and in English: "[… 349,208 characters left out; call
	// recover_text with prune_id=prn_… chars=2001-351208]". With "plain" a text that a cut would not make
	// shorter stays whole. Default "document"; with profile = "agents", "plain".
	Markers Markers `key:"markers"`
}

// DefaultMask is the contract's.
func DefaultMask() Mask {
	return Mask{MaxChars: 4000, HeadChars: 2000, TailChars: 2000, Markers: DocumentMarkers}
}

// Validate reports every problem, each starting with its key.
func (m Mask) Validate() []error {
	var errs []error
	if m.MaxChars < 1 {
		errs = append(errs, fmt.Errorf("max_chars: must be at least 1"))
	}
	if m.HeadChars < 0 {
		errs = append(errs, fmt.Errorf("head_chars: must not be negative"))
	}
	if m.TailChars < 0 {
		errs = append(errs, fmt.Errorf("tail_chars: must not be negative"))
	}
	if len(errs) == 0 && (m.TailChars > m.MaxChars || m.HeadChars > m.MaxChars-m.TailChars) {
		errs = append(errs, fmt.Errorf("max_chars: %d is less than head_chars + tail_chars (%d + %d), so a cut could leave nothing out",
			m.MaxChars, m.HeadChars, m.TailChars))
	}
	return errs
}

// StringCut is what to leave out of one string.
type StringCut struct {
	Str        jsonscan.Str  // the whole string
	Gap        jsonscan.Span // the raw bytes to leave out
	Head, Tail int           // characters kept at either end

	before  int // characters of the text before the string, if that is a part of it
	markers Markers
}

// CutString decides what to leave out of a string of body; false if it is not longer than MaxChars.
func (m Mask) CutString(body []byte, s jsonscan.Str) (StringCut, bool) {
	if s.Chars <= m.MaxChars {
		return StringCut{}, false
	}
	raw := s.Of(body)
	head := jsonscan.CharOffset(raw, m.HeadChars)
	tail := jsonscan.LastCharsOffset(raw, m.TailChars)
	head, lostHead := snapBack(raw, head)
	tail, lostTail := snapForward(raw, tail)
	return StringCut{
		Str:  s,
		Gap:  jsonscan.Span{Start: s.Start + head, End: s.Start + tail},
		Head: m.HeadChars - lostHead,
		Tail: m.TailChars - lostTail,

		markers: m.Markers,
	}, true
}
