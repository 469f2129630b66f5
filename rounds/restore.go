package rounds

import (
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Restore gives the edits that put what the client was not shown of a reply back into a request
// that repeats the reply, so that the provider gets what it said and was told: the rounds stand
// before what the last of them said, and a call that the client was not shown beside its own calls,
// with its answer.
//
// False means that the client's message is not what it was shown: then it stays as it came.
func (rec *Record) Restore(d *history.Dialogue, body []byte, r history.Reply) ([]jsonscan.Edit, bool) {
	m := mender{d: d, body: body, reply: r, rec: rec}
	if len(rec.Steps) == 0 || rec.Reply != (history.Sum{}) && rec.Reply != r.Name() || !m.split() {
		return nil, false
	}
	switch d.Shape {
	case history.Chat:
		return m.chat()
	case history.Messages:
		return m.messages()
	case history.Responses:
		return m.responses()
	}
	return nil, false
}

// mender mends one reply.
type mender struct {
	d     *history.Dialogue
	body  []byte
	reply history.Reply
	rec   *Record

	whole []Step // the rounds that came before what the client was shown last
	mixed *Step  // the round that the client answers too, nil for none
}

// split tells the rounds apart. A call of the last one that the client dropped, or added, makes it
// another reply.
func (m *mender) split() bool {
	m.whole = m.rec.Steps
	last := len(m.whole) - 1
	if m.whole[last].Mixed {
		m.mixed, m.whole = &m.whole[last], m.whole[:last]
		return slices.Equal(m.reply.Calls, m.mixed.Others)
	}
	return true
}

// before are the rounds as elements of the conversation.
func (m *mender) before() []byte {
	var out []byte
	for i, s := range m.whole {
		if i > 0 {
			out = append(out, ',')
		}
		out = exchange(out, m.d.Shape, s.Said, s.Answers)
	}
	return out
}

// put makes an edit that puts elements before what is at offset at.
func put(at int, elements []byte) []jsonscan.Edit {
	if len(elements) == 0 {
		return nil
	}
	return []jsonscan.Edit{{Span: jsonscan.Span{Start: at, End: at}, Text: append(elements, ',')}}
}

// instead puts the rounds, and the mixed one, in the place of something.
func (m *mender) instead(of jsonscan.Span) ([]jsonscan.Edit, bool) {
	text := m.before()
	if m.mixed != nil {
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = append(spoken(text, m.d.Shape, m.mixed.Said), ',')
		text = results(text, m.d.Shape, m.mixed.Answers)
	}
	return []jsonscan.Edit{{Span: of, Text: text}}, true
}

// chat mends a message of chat completions, whose rounds are told apart by their texts alone.
func (m *mender) chat() ([]jsonscan.Edit, bool) {
	message := m.d.Messages[m.reply.First].Span
	fields, err := jsonscan.ReadFields(m.body, message)
	if err != nil {
		return nil, false
	}
	shown, ok := m.said()
	if !ok {
		return nil, false
	}
	content, _ := fields.Field("content")
	at, rest, ok := m.after(content.Value, shown)
	switch {
	case !ok:
		return nil, false
	case m.mixed != nil, rest == "" && len(m.reply.Calls) == 0:
		return m.instead(message)
	case shown == "":
		return put(message.Start, m.before()), true
	case rest == "":
		return append(put(message.Start, m.before()), jsonscan.Edit{Span: content.Value, Text: []byte("null")}), true
	}
	return append(put(message.Start, m.before()), jsonscan.Edit{Span: at, Text: jsonscan.AppendString(nil, rest)}), true
}

// said is the text of the rounds before the last.
func (m *mender) said() (string, bool) {
	var text strings.Builder
	for _, s := range m.whole {
		fields, err := jsonscan.FieldsOf(s.Said)
		if err != nil {
			return "", false
		}
		text.WriteString(fields.Text("content"))
	}
	return text.String(), true
}

// after finds the text of a content, and what of it comes after what was shown before. A list that
// is more than one text is not taken apart.
func (m *mender) after(content jsonscan.Span, shown string) (at jsonscan.Span, rest string, ok bool) {
	at = content
	if list := elementsOf(m.body, content); len(list) > 0 {
		block, err := jsonscan.ReadFields(m.body, list[0])
		text, _ := block.Field("text")
		if err != nil || len(list) > 1 && shown != "" {
			return at, "", false
		}
		at = text.Value
	}
	rest, ok = strings.CutPrefix(jsonscan.TextOf(at.Of(m.body)), shown)
	return at, rest, ok
}

// messages mends a message of Anthropic's.
func (m *mender) messages() ([]jsonscan.Edit, bool) {
	message := m.d.Messages[m.reply.First].Span
	fields, err := jsonscan.ReadFields(m.body, message)
	content, ok := fields.Field("content")
	if err != nil || !ok {
		return nil, false
	}
	if m.mixed != nil {
		return m.answered(message, content.Value)
	}
	if m.body[content.Value.Start] == '"' {
		return m.plain(message, content.Value)
	}
	blocks := elementsOf(m.body, content.Value)
	n, ok := m.pass(blocks)
	switch {
	case !ok:
		return nil, false
	case n == len(blocks):
		return m.instead(message)
	}
	edits := put(message.Start, m.before())
	if n > 0 {
		edits = append(edits, jsonscan.Edit{Span: jsonscan.Span{Start: blocks[0].Start, End: blocks[n].Start}})
	}
	return edits, true
}

// plain mends a message whose blocks the client made one string of.
func (m *mender) plain(message, content jsonscan.Span) ([]jsonscan.Edit, bool) {
	var said strings.Builder
	for _, s := range m.whole {
		for _, p := range s.pieces(m.d.Shape) {
			if p.kind == "text" {
				said.WriteString(p.what)
			}
		}
	}
	shown := said.String()
	rest, ok := strings.CutPrefix(jsonscan.TextOf(content.Of(m.body)), shown)
	switch {
	case !ok:
		return nil, false
	case rest == "":
		return m.instead(message)
	case shown == "":
		return put(message.Start, m.before()), true
	}
	return append(put(message.Start, m.before()), jsonscan.Edit{Span: content, Text: jsonscan.AppendString(nil, rest)}), true
}

// answered mends a message whose calls the client has answered: the answers that it does not know
// of go before its own, in the next message.
func (m *mender) answered(message, content jsonscan.Span) ([]jsonscan.Edit, bool) {
	next := m.reply.First + 1
	if next == len(m.d.Messages) || m.body[content.Start] != '[' {
		return nil, false
	}
	fields, err := jsonscan.ReadFields(m.body, m.d.Messages[next].Span)
	theirs, _ := fields.Field("content")
	blocks := elementsOf(m.body, theirs.Value)
	if err != nil || fields.Text("role") != "user" || len(blocks) == 0 {
		return nil, false
	}
	// What was shown before must be there; what the last round said is known to the byte.
	if _, ok := m.pass(elementsOf(m.body, content)); !ok {
		return nil, false
	}
	edits := append(put(message.Start, m.before()), jsonscan.Edit{Span: content, Text: m.mixed.Said})
	return append(edits, put(blocks[0].Start, results(nil, m.d.Shape, m.mixed.Answers))...), true
}

// responses mends the items of a reply.
func (m *mender) responses() ([]jsonscan.Edit, bool) {
	var items []jsonscan.Span
	for _, message := range m.d.Messages[m.reply.First:m.reply.End] {
		items = append(items, message.Span)
	}
	n, ok := m.pass(items)
	switch {
	case !ok:
		return nil, false
	case m.mixed != nil || n == len(items):
		return m.instead(jsonscan.Span{Start: items[0].Start, End: items[len(items)-1].End})
	case n == 0:
		return put(items[0].Start, m.before()), true
	}
	text := append(m.before(), ',')
	return []jsonscan.Edit{{Span: jsonscan.Span{Start: items[0].Start, End: items[n].Start}, Text: text}}, true
}

// pass says how many of the client's blocks, or items, are of the rounds before the last. False
// means that they are not there.
func (m *mender) pass(theirs []jsonscan.Span) (n int, ok bool) {
	for _, s := range m.whole {
		for _, want := range s.pieces(m.d.Shape) {
			for want.kind != thought && n < len(theirs) && pieceAt(m.body, theirs[n]).blank() {
				n++
			}
			has := n < len(theirs) && pieceAt(m.body, theirs[n]).same(want)
			if !has && want.kind != thought { // clients drop what the model thought when they please
				return 0, false
			}
			if has {
				n++
			}
		}
	}
	return n, true
}

// piece is what a block, or an item, is about.
type piece struct{ kind, what string }

const thought = "thinking"

// blank is what no request may hold, and some replies do.
func (p piece) blank() bool { return p.kind == "text" && strings.TrimSpace(p.what) == "" }

func (p piece) same(as piece) bool {
	return p.kind == as.kind && (p.kind == thought || p.what == as.what)
}

// pieceAt reads a block of a message, or an item.
func pieceAt(body []byte, at jsonscan.Span) piece {
	fields, err := jsonscan.ReadFields(body, at)
	if err != nil {
		return piece{}
	}
	switch kind := fields.Text("type"); kind {
	case "thinking", "redacted_thinking", "reasoning":
		return piece{kind: thought}
	case "text", "output_text":
		return piece{"text", fields.Text("text")}
	case "", "message":
		return piece{"text", textOf(body, fields)}
	case "tool_use":
		return piece{kind, fields.Text("id")}
	case "function_call":
		return piece{kind, fields.Text("call_id")}
	default:
		return piece{kind: kind}
	}
}

// textOf is the text of an item that is a message.
func textOf(body []byte, message jsonscan.Fields) string {
	var text strings.Builder
	text.WriteString(message.Text("content"))
	content, _ := message.Field("content")
	for _, s := range elementsOf(body, content.Value) {
		if fields, err := jsonscan.ReadFields(body, s); err == nil {
			text.WriteString(fields.Text("text"))
		}
	}
	return text.String()
}

// pieces are what the client was shown of a round.
func (s Step) pieces(shape history.Shape) []piece {
	var out []piece
	if shape == history.Chat {
		return nil
	}
	for _, at := range elementsOf(s.Said, jsonscan.Span{End: len(s.Said)}) {
		p := pieceAt(s.Said, at)
		hidden := slices.ContainsFunc(s.Answers, func(a Answer) bool { return a.ID == p.what })
		if !hidden || p.kind != "tool_use" && p.kind != "function_call" {
			out = append(out, p)
		}
	}
	return out
}

func elementsOf(body []byte, list jsonscan.Span) []jsonscan.Span {
	var out []jsonscan.Span
	_ = jsonscan.Elements(body, list, func(s jsonscan.Span) error {
		out = append(out, s)
		return nil
	})
	return out
}
