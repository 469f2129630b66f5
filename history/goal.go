package history

import (
	"bytes"
	"errors"

	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	// focusKey is the argument by which a call says what it looks for in its result, as the tools
	// of the hub have it.
	focusKey = "context_focus_question"

	maxGoal  = 1 << 10 // bytes of each part of a goal: only its first words count
	maxArg   = 1 << 9  // bytes of a text among arguments: a longer one is what to write, not what to look for
	maxArgs  = 1 << 16 // bytes of arguments that are read
	maxDepth = 64      // how deep these may nest
)

// Goals tells what the calls of a conversation were looking for. It is for one pass over the
// results, in order.
type Goals struct {
	d     *Dialogue
	next  int    // the first message that was not looked at
	asked string // the last thing the user said before it
}

// Goals begins a pass.
func (d *Dialogue) Goals() *Goals { return &Goals{d: d} }

// Of is what the call of a result was looking for: what it says in context_focus_question, or else
// the texts among its arguments and what the user said last. All that stands before the result, so
// that nothing that comes later can change it. What a client says beside results does not count,
// nor does it matter whether it writes a text as a string or as a list of one.
func (g *Goals) Of(result int) string {
	r := &g.d.Results[result]
	said, focus := wanted(g.d.arguments(r))
	if focus != "" {
		return focus
	}
	g.upTo(r.Message)
	return string(bytes.TrimSpace(append(said, g.asked...)))
}

func (g *Goals) upTo(message int) {
	for ; g.next < message; g.next++ {
		if m := g.d.Messages[g.next]; m.spoken && g.d.byUser(m.Span) {
			g.asked = g.d.saidIn(m.Span)
		}
	}
}

var errFound = errors.New("found")

// byUser says whether the user said a message. The role most often comes first, and then nothing
// else of the message is read.
func (d *Dialogue) byUser(m jsonscan.Span) bool {
	s := jsonscan.New(m.Of(d.body), 0)
	user := false
	_ = s.Members(func(key []byte) error {
		if string(key) != "role" {
			return nil
		}
		value, _ := s.Skip()
		user = jsonscan.TextOf(value.Of(m.Of(d.body))) == "user"
		return errFound
	})
	return user
}

// saidIn is the last text of a message, or rather how that begins: what clients put before a user's
// words are reminders and files.
func (d *Dialogue) saidIn(m jsonscan.Span) string {
	fields, err := jsonscan.ReadFields(d.body, m)
	content, ok := fields.Field("content")
	if err != nil || !ok {
		return ""
	}
	if d.body[content.Value.Start] == '"' {
		return d.beginning(content.Value)
	}
	var last jsonscan.Span
	_ = jsonscan.Elements(d.body, content.Value, func(s jsonscan.Span) error {
		block, err := jsonscan.ReadFields(d.body, s)
		if text, ok := block.Field("text"); ok && d.body[text.Value.Start] == '"' {
			last = text.Value
		}
		return err
	})
	if last.Len() == 0 {
		return ""
	}
	return d.beginning(last)
}

// beginning is how the text of a JSON string begins.
func (d *Dialogue) beginning(str jsonscan.Span) string {
	for piece := range jsonscan.Texts(d.body[str.Start+1:str.End-1], maxGoal) {
		return string(piece)
	}
	return ""
}

// arguments are those of a result's call, as JSON or as free text; nil where there are none.
func (d *Dialogue) arguments(r *Result) []byte {
	if r.Turn < 0 {
		return nil
	}
	turn := d.Turns[r.Turn]
	switch d.Shape {
	case Messages:
		return d.argumentsIn(d.Messages[turn.Message].Span, "content", "id", r.CallID)
	case Chat:
		return d.argumentsIn(d.Messages[turn.Message].Span, "tool_calls", "id", r.CallID)
	}
	for _, m := range d.Messages[turn.Message:min(turn.End, r.Message)] {
		if item, err := jsonscan.ReadFields(d.body, m.Span); err == nil && item.Text("type") == "function_call" && item.Text("call_id") == r.CallID {
			return given(item)
		}
	}
	return nil
}

// argumentsIn looks for a call in a list that a message has.
func (d *Dialogue) argumentsIn(m jsonscan.Span, list, key, id string) (args []byte) {
	fields, err := jsonscan.ReadFields(d.body, m)
	calls, ok := fields.Field(list)
	if err != nil || !ok || d.body[calls.Value.Start] != '[' {
		return nil
	}
	_ = jsonscan.Elements(d.body, calls.Value, func(s jsonscan.Span) error {
		call, err := jsonscan.ReadFields(d.body, s)
		if err != nil || call.Text(key) != id {
			return err
		}
		for _, inner := range []string{"function", "custom"} {
			if f, ok := call.Field(inner); ok {
				call, err = jsonscan.ReadFields(d.body, f.Value)
			}
		}
		args = given(call)
		return errors.Join(err, errFound)
	})
	return args
}

// given are the arguments of a call; none where they are too long to be words of a goal.
func given(call jsonscan.Fields) []byte {
	for _, key := range []string{"arguments", "input"} {
		raw, ok := call.Get(key)
		switch {
		case !ok || len(raw) > maxArgs:
		case raw[0] == '"':
			return jsonscan.AppendText(nil, raw[1:len(raw)-1])
		default:
			return raw
		}
	}
	return nil
}

// wanted are the texts among arguments, one a line, and what they say of the result that is wanted.
// Arguments that are no JSON are such a text themselves.
func wanted(args []byte) (said []byte, focus string) {
	s := jsonscan.New(args, maxDepth)
	var texts []jsonscan.Str
	err := s.Members(func(key []byte) error {
		before := len(texts)
		var err error
		texts, _, err = s.Long(texts, 0)
		if string(key) == focusKey && len(texts) == before+1 {
			focus = string(bytes.TrimSpace(jsonscan.AppendText(nil, texts[before].Of(args))))
		}
		return err
	})
	if err != nil {
		return append(bytes.ToValidUTF8(args[:min(len(args), maxGoal)], nil), '\n'), ""
	}
	for _, t := range texts {
		if t.Len() <= maxArg && len(said)+t.Len() <= maxGoal {
			said = append(jsonscan.AppendText(said, t.Of(args)), '\n')
		}
	}
	return said, focus
}
