package recall

import (
	"context"
	"iter"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// cut is a text to shorten, with everything in the reply that is shortened along with it.
type cut struct {
	parts     []part                          // the first is the original; the others say the same
	metaEdits func(id string) []jsonscan.Edit // describe the cut elsewhere in the reply; nil when the parts do
	chars     int                             // length of the original
	charsCut  int                             // characters left out
	needsID   bool                            // its markers always name the id
	withoutID *cut                            // replaces one that needs an id where none can be shown; nil for none
	json      *reduce.JSONCut                 // of a text shortened as JSON: the cut for copies of the value
}

// cutFunc cuts a string of a reply. It reports false when the string stays whole.
type cutFunc func(jsonscan.Str) (cut, bool)

// cutFunc tries the reducers that the policy chooses on strings of body, in their order.
func (p Policy) cutFunc(ctx context.Context, body []byte) cutFunc {
	rp := reduce.Policy{Mask: p.Mask, Choice: p.Choice, JSON: p.JSON, IDLen: p.markerIDLen()}
	chain := rp.Chain()
	cutters := make([]reduce.Cutter, len(chain))
	for i, r := range chain {
		cutters[i] = r.Cutter(ctx, rp)
	}
	return func(str jsonscan.Str) (c cut, ok bool) {
		if str.Chars <= p.MaxChars {
			return cut{}, false
		}
		for i, cutter := range cutters {
			if c.needsID && chain[i].NeedsRecovery {
				continue // looking for the cut without an id
			}
			got, ok := cutter(body, str)
			if !ok {
				continue
			}
			only := part{Span: str.Span, decoded: got.Decoded, shorten: got.Edits}
			found := cut{parts: []part{only}, chars: str.Chars, charsCut: got.OmittedChars, needsID: chain[i].NeedsRecovery, json: got.JSON}
			switch {
			case c.needsID:
				c.withoutID = &found
				return c, true
			case !found.needsID:
				return found, true
			}
			c = found
		}
		return c, c.needsID
	}
}

// part is a place in the body that is shortened.
type part struct {
	jsonscan.Span
	isValue bool                            // a JSON value; otherwise the inside of a string
	decoded []byte                          // the string's text, if it was decoded already
	shorten func(id string) []jsonscan.Edit // in order
}

func (c cut) edits(id string) []jsonscan.Edit {
	var edits []jsonscan.Edit
	for _, p := range c.parts {
		edits = append(edits, p.shorten(id)...)
	}
	if c.metaEdits != nil {
		edits = append(edits, c.metaEdits(id)...)
	}
	return edits
}

// chunks is the text before the cut, in chunks of at most partSize.
func (p part) chunks(body []byte) iter.Seq[[]byte] {
	if p.decoded != nil {
		return slices.Chunk(p.decoded, partSize)
	}
	return p.decode(p.Of(body))
}

// shortenedChunks is the text after the cut.
func (p part) shortenedChunks(body []byte, id string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := p.Start
		for _, e := range append(p.shorten(id), jsonscan.Edit{Span: jsonscan.Span{Start: p.End, End: p.End}}) {
			for _, raw := range [][]byte{body[at:e.Start], e.Text} {
				for chunk := range p.decode(raw) {
					if !yield(chunk) {
						return
					}
				}
			}
			at = e.End
		}
	}
}

func (p part) decode(raw []byte) iter.Seq[[]byte] {
	if p.isValue {
		return slices.Chunk(raw, partSize)
	}
	return jsonscan.DecodedChunks(raw, partSize)
}

// markerIDLen is the length of the id in a marker.
func (p Policy) markerIDLen() int {
	if !p.RecoverLine {
		return 0
	}
	return len(idPrefix) + idLen
}
