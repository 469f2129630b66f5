// Package reduce decides what to leave out. Its functions are pure: text in, cuts out; no
// clock, no store, no network. What a cut needs before it may be shown (its original kept) is
// recall's business.
//
// Path through the files: reduce.go shortens one long string to its head and tail, grapheme.go
// keeps a cut from falling inside a character that a reader sees as one, marker.go writes what
// stands in the gap. A text that is JSON can be thinned instead: json.go says what that is,
// outline.go measures the text in one pass, fit.go divides the room, value.go finds its way in
// text that is known to be valid. twin.go gives the same plan for another spelling of the same
// value, typed.go the form of it that keeps every value's type.
//
// The laws, checked over goldens, properties and fuzz in laws_test.go: bytes outside a cut are
// untouched; head, gap and tail join to the original; the result is at most the limit plus the
// marker; the same input gives the same bytes; valid JSON stays valid. Those of thinning, in
// thin_test.go: the result is JSON, and at most the limit with its markers, whenever it can be;
// each marker names the very characters it stands for; what stays keeps its bytes.
package reduce

import (
	"fmt"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Mask is the policy for one string: longer than MaxChars, it becomes its first HeadChars and
// last TailChars with a marker between. Characters are Unicode code points.
type Mask struct {
	// A string of more characters than this is cut. Default 4000. The contract's threshold is
	// exact: a string of just this length is left alone.
	MaxChars int `key:"max_chars" min:"1"`
	// How many characters to keep from the start. Default 2000; 0 keeps none.
	HeadChars int `key:"head_chars" min:"0"`
	// How many characters to keep from the end. Default 2000; 0 keeps none.
	TailChars int `key:"tail_chars" min:"0"`
}

// DefaultMask is the contract's.
func DefaultMask() Mask { return Mask{MaxChars: 4000, HeadChars: 2000, TailChars: 2000} }

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

// Cut is what to leave out of one string.
type Cut struct {
	Str        jsonscan.Str  // the whole string
	Gap        jsonscan.Span // the raw bytes to leave out
	Head, Tail int           // how many characters stay on either side
}

// Cut says what to leave out of a string of body, and whether it is long enough for any cut.
func (m Mask) Cut(body []byte, s jsonscan.Str) (Cut, bool) {
	if s.Chars <= m.MaxChars {
		return Cut{}, false
	}
	raw := s.Of(body)
	head := jsonscan.SkipChars(raw, m.HeadChars)
	tail := jsonscan.LastChars(raw, m.TailChars)
	head, lostHead := retreat(raw, head)
	tail, lostTail := advance(raw, tail)
	return Cut{
		Str:  s,
		Gap:  jsonscan.Span{Start: s.Start + head, End: s.Start + tail},
		Head: m.HeadChars - lostHead,
		Tail: m.TailChars - lostTail,
	}, true
}
