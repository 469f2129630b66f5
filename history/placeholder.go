package history

import (
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// pruneIDBytes is the length of a prune_id: "prn_" and 26 digits. It is a constant because what is masked
// must not depend on the id.
const pruneIDBytes = 30

// laterBlockText replaces the blocks of a masked result after the first. No block may be empty.
const laterBlockText = "…"

// field is a part of a template that is filled in for each result.
type field uint8

const (
	literal field = iota
	toolCallID
	toolName
	originalChars
	pruneID
)

var fieldNames = map[string]field{
	"{tool_call_id}": toolCallID, "{tool_name}": toolName, "{original_chars}": originalChars, "{prune_id}": pruneID,
}

type templatePart struct {
	field field
	raw   string // a literal, escaped for JSON
}

// template is the text of a placeholder, split at its fields, so that a value is never taken for a field.
type template struct {
	text   string
	pieces []templatePart
}

func parseTemplate(text string) template {
	t := template{text: text}
	lit := func(s string) {
		if s != "" {
			t.pieces = append(t.pieces, templatePart{literal, string(jsonscan.AppendEscaped(nil, s))})
		}
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	for start := 0; ; {
		open := strings.IndexByte(text[start:], '{')
		if open < 0 {
			lit(text)
			return t
		}
		open += start
		end := strings.IndexByte(text[open:], '}')
		f, known := fieldNames[text[open:open+end+1]]
		if !known {
			start = open + 1
			continue
		}
		lit(text[:open])
		t.pieces = append(t.pieces, templatePart{field: f})
		text, start = text[open+end+1:], 0
	}
}

// appendTo appends the placeholder of a result as the inside of a JSON string.
func (t template) appendTo(dst []byte, r *Result, name, id string) []byte {
	for _, p := range t.pieces {
		switch p.field {
		case literal:
			dst = append(dst, p.raw...)
		case toolCallID:
			dst = jsonscan.AppendEscaped(dst, r.CallID)
		case toolName:
			dst = jsonscan.AppendEscaped(dst, name)
		case originalChars:
			dst = strconv.AppendInt(dst, int64(r.Chars), 10)
		case pruneID:
			dst = jsonscan.AppendEscaped(dst, id)
		}
	}
	return dst
}

var sampleID = strings.Repeat("0", pruneIDBytes)

// savedBytes is what masking a result saves, if its placeholder lists no identifiers. A result that saves
// nothing is not masked (I5), except by the document's window (H2).
func (t template) savedBytes(r *Result, name string) int {
	var buf [512]byte
	left := len(t.appendTo(buf[:0], r, name, sampleID)) + len(laterBlockText)*(len(r.Texts)-1)
	return max(0, r.textBytes()-left)
}

// textBytes is the size of a result's text as it would be sent.
func (r *Result) textBytes() int {
	n := -r.reducedBy
	for _, span := range r.Texts {
		n += span.Len()
	}
	return n
}

// placeholderText is what replaced a result, and everything it was made from.
type placeholderText struct {
	template, name, id string
	handles, end, less int
	short              bool   // masked even if it does not get shorter
	text               []byte // nil: it would not be shorter, so the result stays
}

func (p *placeholderText) isSame(q *placeholderText) bool {
	return p != nil && p.id == q.id && p.end == q.end && p.less == q.less && p.handles == q.handles && p.short == q.short && p.name == q.name && p.template == q.template
}

// AppendEdits appends the edits that replace the plan's cut number i with its placeholder, whose prune_id is
// id. It appends nothing if the placeholder would not be shorter, except for the document's window (H2).
func (p *Plan) AppendEdits(dst []jsonscan.Edit, i int, id string) []jsonscan.Edit {
	m := p.Cuts[i]
	r := &p.d.Results[m.Result]
	now := placeholderText{template: p.template.text, name: p.toolName(r), id: id, handles: p.policy.KeepHandles, end: p.d.Turns[m.AtTurn-1].End, less: r.reducedBy, short: p.masksShort}
	if !r.placeholder.isSame(&now) {
		fresh := now // now itself stays on the stack
		fresh.text = p.placeholderFor(m, r, now.name, id)
		r.placeholder = &fresh
	}
	if r.placeholder.text == nil {
		return dst
	}
	for n, span := range r.Texts {
		text := r.placeholder.text
		if n > 0 {
			text = []byte(laterBlockText)
		}
		dst = append(dst, jsonscan.Edit{Span: span, Text: text})
	}
	return dst
}

// placeholderFor makes the placeholder of a result; nil if it would not be shorter and must be.
func (p *Plan) placeholderFor(m Cut, r *Result, name, id string) []byte {
	text := p.template.appendTo([]byte{}, r, name, id)
	room := r.textBytes() - len(text) - len(laterBlockText)*(len(r.Texts)-1)
	switch {
	case room <= 0 && p.masksShort:
		return text
	case room <= 0:
		return nil
	}
	return p.appendIdentifiers(text, m, room-1)
}
