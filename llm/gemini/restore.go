package gemini

import (
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Restore implements [llm.ReadbackCodec]. Clients join texts that follow each other, also across hidden calls, and
// drop thoughts: the rounds are separated by their texts.
func (Codec) Restore(r *llm.Restoration) ([]jsonscan.Edit, bool) {
	message := r.Messages[0]
	content, err := jsonscan.ReadFields(r.Body, message)
	if err != nil {
		return nil, false
	}
	c := cursor{body: r.Body, parts: partSpans(r.Body, content)}
	for _, s := range r.Whole {
		for _, raw := range rawjson.Elements(s.Said) {
			if !c.skip(readOutput(raw)) {
				return nil, false
			}
		}
	}
	switch {
	case r.Mixed != nil:
		return restoreMixed(r, message, content)
	case c.isAtEnd():
		return r.Replace(message)
	}
	edits := r.InsertHidden(message.Start)
	if c.at > 0 {
		edits = append(edits, jsonscan.Edit{Span: jsonscan.Span{Start: c.parts[0].Start, End: c.parts[c.at].Start}})
	}
	if c.rest != "" {
		fields, err := jsonscan.ReadFields(r.Body, c.parts[c.at])
		text, ok := fields.Field("text")
		if err != nil || !ok {
			return nil, false
		}
		edits = append(edits, jsonscan.Edit{Span: text.Value, Text: jsonscan.AppendQuoted(nil, c.rest)})
	}
	return edits, true
}

// cursor is a place in the parts of a content as the client repeats it.
type cursor struct {
	body  []byte
	parts []jsonscan.Span
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

// restoreMixed restores a content whose calls the client has answered. The answers to hidden calls are inserted
// before the client's, in the next content.
func restoreMixed(r *llm.Restoration, message jsonscan.Span, content jsonscan.Fields) ([]jsonscan.Edit, bool) {
	parts, ok := content.Field("parts")
	if r.Next.Len() == 0 || !ok {
		return nil, false
	}
	next, err := jsonscan.ReadFields(r.Body, r.Next)
	theirs, ok := next.Field("parts")
	results := rawjson.ElementSpans(r.Body, theirs.Value)
	if err != nil || !ok || next.Text("role") == "model" || len(results) == 0 {
		return nil, false
	}
	edits := append(r.InsertHidden(message.Start), jsonscan.Edit{Span: parts.Value, Text: r.Mixed.Said})
	return append(edits, llm.InsertElements(results[0].Start, appendResults(nil, r.Mixed.Answers))...), true
}
