package history

import (
	"bytes"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// CacheMark is an edit that marks the end of what no move of the boundary changes: the message that calls for the
// first result that can be masked.
//
// A provider that caches only what is marked reads an entry only where one was written, and finds it only near a
// mark. The client's marks are on the system prompt and at the end. Without one more, a move makes the provider
// write again all that precedes the first masked result, too. The mark is there from the first request with that
// result on: then its entry is written along with the rest, and every request keeps it alive. It never moves, and
// changes nothing else: a cache_control is not part of what the provider compares.
//
// A mark that followed the boundary would save less: where the boundary was, an entry exists only if its mark was
// set by the request that moved it there, and that request needs the mark at the old place to read.
//
// There is none where the client leaves no mark free, or has none behind this one.
func (p *Plan) CacheMark() (jsonscan.Edit, bool) {
	d := p.d
	codec, ok := d.Codec.(llm.CacheMarkCodec)
	if !ok || p.replay == nil || p.isRolling || p.policy.Advance != AdvanceAuto || !p.policy.PastBreakpoints || d.Breakpoint < 0 {
		return jsonscan.Edit{}, false
	}
	turn := p.firstMaskableTurn()
	if turn < 0 || d.LeavesNoMark() {
		return jsonscan.Edit{}, false
	}
	at, ttl := d.Turns[turn].Message, d.BreakpointTTL
	if d.Messages[at].End >= d.breakpointEnd {
		return jsonscan.Edit{}, false
	}
	for _, m := range d.Messages[at:] { // a mark that lives longer may not come after one that lives shorter
		ttl = max(ttl, m.mark.TTL)
	}
	return codec.MarkMessage(d.body, d.Messages[at].Span, ttl)
}

// LeavesNoMark says whether the client sets as many marks as a request may have. Where a text only mentions them
// it may say so wrongly.
func (d *Dialogue) LeavesNoMark() bool {
	return d.wire().MarkedCacheOnly && d.Breakpoint >= 0 && bytes.Count(d.body, []byte(`"cache_control"`)) >= llm.MaxCacheMarks
}

// UnmarkedEvent records that the client leaves no mark free, from this request on.
func (d *Dialogue) UnmarkedEvent() Event {
	return Event{Kind: Unmarked, Turn: len(d.Turns), Prefix: d.PrefixHash(len(d.Turns))}
}

// firstMaskableTurn is the turn of the first result that is masked once it is old enough; -1 if there is none.
func (p *Plan) firstMaskableTurn() int {
	d := p.d
	for i := range d.Results {
		r := &d.Results[i]
		if r.Turn >= 0 && p.policy.readsAsText(r) && p.template.savedBytes(r, r.Name) > 0 && (!p.policy.KeepErrors || !d.looksFailed(p.policy, i)) {
			return r.Turn
		}
	}
	return -1
}
