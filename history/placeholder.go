package history

import (
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// idBytes is how long a prune_id is: "prn_" and 26 digits. What is masked must not depend on the
// id, so its length is taken as given.
const idBytes = 30

// further stands in the blocks of a masked result after the first. No block may be empty.
const further = "…"

// field is a place in a template that is filled for each result.
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

type piece struct {
	field field
	raw   string // a literal, as JSON has it
}

// template is a placeholder's text, and that cut at its fields, so that a value is never read as a
// field.
type template struct {
	text   string
	pieces []piece
}

func parseTemplate(text string) template {
	t := template{text: text}
	lit := func(s string) {
		if s != "" {
			t.pieces = append(t.pieces, piece{literal, string(jsonscan.AppendRaw(nil, s))})
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
		t.pieces = append(t.pieces, piece{field: f})
		text, start = text[open+end+1:], 0
	}
}

// append writes the placeholder of a result as the inside of a JSON string.
func (t template) append(dst []byte, r *Result, name, id string) []byte {
	for _, p := range t.pieces {
		switch p.field {
		case literal:
			dst = append(dst, p.raw...)
		case toolCallID:
			dst = jsonscan.AppendRaw(dst, r.CallID)
		case toolName:
			dst = jsonscan.AppendRaw(dst, name)
		case originalChars:
			dst = strconv.AppendInt(dst, int64(r.Chars), 10)
		case pruneID:
			dst = jsonscan.AppendRaw(dst, id)
		}
	}
	return dst
}

var anyID = strings.Repeat("0", idBytes)

// gain is how many bytes masking a result saves, without handles. One that saves none is not masked
// (I5), but for the document's window (H2).
func (t template) gain(r *Result, name string) int {
	if g := &r.gained; g.name != name || g.less != r.less || g.template != t.text {
		var buf [512]byte
		left := len(t.append(buf[:0], r, name, anyID)) + len(further)*(len(r.Texts)-1)
		*g = gained{t.text, name, r.less, max(0, r.raw()-left)}
	}
	return r.gained.bytes
}

// gained is what masking a result saves, and what that depends on.
type gained struct {
	template, name string
	less           int
	bytes          int
}

// raw is how many bytes a result's text takes, as it would be sent.
func (r *Result) raw() int {
	n := -r.less
	for _, span := range r.Texts {
		n += span.Len()
	}
	return n
}

// placed is the text that stood in a result's place, and all that it was made of.
type placed struct {
	template, name, id string
	handles, end, less int
	short              bool   // it is masked though it does not get shorter
	text               []byte // nil: it would not be shorter
}

func (p *placed) same(q *placed) bool {
	return p != nil && p.id == q.id && p.end == q.end && p.less == q.less && p.handles == q.handles && p.short == q.short && p.name == q.name && p.template == q.template
}

// AppendEdits appends what puts the placeholder in the place of the plan's cut number i, with id for
// its prune_id. There is nothing when that would not be shorter, but for the document's window (H2).
func (p *Plan) AppendEdits(dst []jsonscan.Edit, i int, id string) []jsonscan.Edit {
	m := p.Cuts[i]
	r := &p.d.Results[m.Result]
	now := placed{template: p.template.text, name: p.name(r), id: id, handles: p.policy.KeepHandles, end: p.d.Turns[m.At-1].End, less: r.less, short: p.short}
	if !r.placed.same(&now) {
		fresh := now // its own, so that what is the same again takes no room
		fresh.text = p.place(m, r, now.name, id)
		r.placed = &fresh
	}
	if r.placed.text == nil {
		return dst
	}
	for n, span := range r.Texts {
		text := r.placed.text
		if n > 0 {
			text = []byte(further)
		}
		dst = append(dst, jsonscan.Edit{Span: span, Text: text})
	}
	return dst
}

// place writes what stands in a result's place; nil when that would not be shorter and must be.
func (p *Plan) place(m Cut, r *Result, name, id string) []byte {
	text := p.template.append([]byte{}, r, name, id)
	room := r.raw() - len(text) - len(further)*(len(r.Texts)-1)
	switch {
	case room <= 0 && p.short:
		return text
	case room <= 0:
		return nil
	}
	return p.appendHandles(text, m, room-1)
}
