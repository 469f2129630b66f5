package history

import (
	"bytes"

	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	// focusKey is the argument of the hub's tools that states what the caller wants from the result.
	focusKey = "context_focus_question"

	maxGoal  = 1 << 10 // bytes of each part of a goal: only its beginning counts
	maxArg   = 1 << 9  // bytes of a text argument: a longer one is content to write, not a search
	maxArgs  = 1 << 16 // bytes of arguments that are read
	maxDepth = 64      // nesting depth of the arguments
)

// Goals finds the goals of a conversation's tool calls in one pass over the results, in order.
type Goals struct {
	d        *Dialogue
	next     int    // the first message that was not read yet
	lastUser string // the beginning of the last user message before it
}

// Goals starts a pass.
func (d *Dialogue) Goals() *Goals { return &Goals{d: d} }

// Of is the goal of a result's call: its context_focus_question, or else the texts among its arguments and the
// last user message. All of it precedes the result, so that later messages cannot change it. Texts beside
// results do not count, and a text as a list of one block counts like a string.
func (g *Goals) Of(result int) string {
	r := &g.d.Results[result]
	texts, focus := argumentTexts(g.d.arguments(r))
	if focus != "" {
		return focus
	}
	g.readUserMessages(r.Message)
	return string(bytes.TrimSpace(append(texts, g.lastUser...)))
}

// readUserMessages reads the user messages before a message.
func (g *Goals) readUserMessages(message int) {
	for ; g.next < message; g.next++ {
		if m := &g.d.Messages[g.next]; m.byUser {
			g.lastUser = g.d.beginning(m.prompt)
		}
	}
}

// beginning returns at most maxGoal bytes of a JSON string's decoded text.
func (d *Dialogue) beginning(str jsonscan.Span) string {
	if str.Len() == 0 {
		return ""
	}
	for piece := range jsonscan.DecodedChunks(d.body[str.Start+1:str.End-1], maxGoal) {
		return string(piece)
	}
	return ""
}

// arguments returns the arguments of a result's call, as JSON or as free text; nil if there are none.
func (d *Dialogue) arguments(r *Result) []byte {
	if r.Turn < 0 {
		return nil
	}
	turn := d.Turns[r.Turn]
	first, end := turn.Message, min(turn.End, r.Message)
	if d.wire().ResultsByName {
		first, end = r.callMessage, r.callMessage+1
	}
	for _, m := range d.Messages[first:end] {
		if args, found := d.Codec.CallArguments(d.body, m.Span, r.CallID, maxArgs); found {
			return args
		}
	}
	return nil
}

// argumentTexts returns the strings among arguments, one per line, and the context_focus_question. Arguments
// that are not a JSON object count as one text.
func argumentTexts(args []byte) (lines []byte, focus string) {
	s := jsonscan.New(args, maxDepth)
	var texts []jsonscan.Str
	err := s.Members(func(key []byte) error {
		before := len(texts)
		var err error
		texts, _, err = s.LongStrings(texts, 0)
		if string(key) == focusKey && len(texts) == before+1 {
			focus = string(bytes.TrimSpace(jsonscan.AppendDecoded(nil, texts[before].Of(args))))
		}
		return err
	})
	if err != nil {
		return append(bytes.ToValidUTF8(args[:min(len(args), maxGoal)], nil), '\n'), ""
	}
	for _, t := range texts {
		if t.Len() <= maxArg && len(lines)+t.Len() <= maxGoal {
			lines = append(jsonscan.AppendDecoded(lines, t.Of(args)), '\n')
		}
	}
	return lines, focus
}
