package gemini

import (
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Restore implements [llm.ReadbackCodec]. Clients join texts that follow each other, also across hidden calls, or
// repeat each event of a stream as a content, and drop thoughts: the rounds are separated by their texts.
func (Codec) Restore(r *llm.Restoration) ([]jsonscan.Edit, bool) {
	whole := jsonscan.Span{Start: r.Messages[0].Start, End: r.Messages[len(r.Messages)-1].End}
	c := cursor{body: r.Body}
	for i, message := range r.Messages {
		content, err := jsonscan.ReadFields(r.Body, message)
		if err != nil {
			return nil, false
		}
		for n, at := range partSpans(r.Body, content) {
			c.parts = append(c.parts, shownPart{at, i, n == 0})
		}
	}
	for _, s := range r.Whole {
		for _, raw := range rawjson.Elements(s.Said) {
			if !c.skip(readOutput(raw)) {
				return nil, false
			}
		}
	}
	switch {
	case r.Mixed != nil:
		return restoreMixed(r, whole)
	case c.isAtEnd():
		return r.Replace(whole)
	}
	// The hidden rounds take the place of the contents before the cursor, and of the parts before it in its own.
	at := c.parts[c.at]
	edits := []jsonscan.Edit{{Span: jsonscan.Span{Start: whole.Start, End: r.Messages[at.message].Start}, Text: append(r.HiddenMessages(), ',')}}
	first := c.at
	for !c.parts[first].isFirst {
		first--
	}
	if first < c.at {
		edits = append(edits, jsonscan.Edit{Span: jsonscan.Span{Start: c.parts[first].Start, End: at.Start}})
	}
	if c.rest != "" {
		fields, err := jsonscan.ReadFields(r.Body, at.Span)
		text, ok := fields.Field("text")
		if err != nil || !ok {
			return nil, false
		}
		edits = append(edits, jsonscan.Edit{Span: text.Value, Text: jsonscan.AppendQuoted(nil, c.rest)})
	}
	return edits, true
}

// shownPart is a part as the client repeats it.
type shownPart struct {
	jsonscan.Span
	message int  // its content
	isFirst bool // of the content
}

// cursor is a place in the parts of a reply as the client repeats it.
type cursor struct {
	body  []byte
	parts []shownPart
	at    int    // the part
	rest  string // what is left of its text; "": all of the part
}

// skip moves behind a part that the client was shown. False means that it is missing.
func (c *cursor) skip(want output) bool {
	switch {
	case want.kind == thoughtPart || want.isRecoverCall():
		return true
	case want.kind != textPart:
		have, ok := c.next()
		if ok = ok && c.rest == "" && have.kind == want.kind && have.id == want.id && have.name == want.name; ok {
			c.at++
		}
		return ok
	}
	for text := want.text; text != ""; {
		have, ok := c.next()
		if !ok || have.kind != textPart {
			return false
		}
		theirs := have.text
		if c.rest != "" {
			theirs = c.rest
		}
		switch {
		case strings.HasPrefix(theirs, text) && theirs != text:
			c.rest = theirs[len(text):]
			return true
		case !strings.HasPrefix(text, theirs):
			return false
		}
		text = text[len(theirs):]
		c.at, c.rest = c.at+1, ""
	}
	return true
}

// next returns the part at the cursor, after thoughts and empty texts.
func (c *cursor) next() (output, bool) {
	for ; c.at < len(c.parts); c.at++ {
		p := readOutput(c.parts[c.at].Of(c.body))
		if p.kind == thoughtPart || p.kind == textPart && p.text == "" {
			continue
		}
		return p, true
	}
	return output{}, false
}

// isAtEnd says that only thoughts and empty texts follow.
func (c *cursor) isAtEnd() bool {
	after := *c
	_, more := after.next()
	return !more
}

// restoreMixed restores a reply whose calls the client has answered. The answers to hidden calls are inserted
// before the client's, in the next content.
func restoreMixed(r *llm.Restoration, whole jsonscan.Span) ([]jsonscan.Edit, bool) {
	if r.Next.Len() == 0 {
		return nil, false
	}
	next, err := jsonscan.ReadFields(r.Body, r.Next)
	theirs, ok := next.Field("parts")
	results := rawjson.ElementSpans(r.Body, theirs.Value)
	if err != nil || !ok || next.Text("role") == "model" || len(results) == 0 {
		return nil, false
	}
	text := r.HiddenMessages()
	if len(text) > 0 {
		text = append(text, ',')
	}
	edits := []jsonscan.Edit{{Span: whole, Text: Codec{}.AppendSaid(text, r.Mixed.Said)}}
	return append(edits, llm.InsertElements(results[0].Start, appendResults(nil, r.Mixed.Answers))...), true
}
