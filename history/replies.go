package history

import (
	"encoding/binary"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Reply is what the model said in one go, as a client sends it again: one message or, of responses,
// all items up to what somebody else says.
type Reply struct {
	First, End int      // its messages, or items
	Number     int      // how many replies there are before it
	Before     Sum      // what was said before it, up to the last results
	Calls      []string // the ids of the calls it makes
	Text       string   // what it says
}

// Place names the place of the reply in its conversation. It is known before anything is said, and
// does not change when a client moves its cache_control, or drops what the model thought.
func (r Reply) Place() Sum {
	h := hasher{h: blake3.New()}
	h.part("place", binary.AppendUvarint(r.Before[:], uint64(r.Number)))
	return h.sum()
}

// Name names what is said in that place; white space around it does not count.
func (r Reply) Name() Sum {
	h := hasher{h: blake3.New()}
	place := r.Place()
	h.part("reply", place[:])
	for _, id := range r.Calls {
		h.part("call", []byte(id))
	}
	h.part("text", []byte(strings.TrimSpace(r.Text)))
	return h.sum()
}

// Replies are what the model said, in order.
func (d *Dialogue) Replies() []Reply {
	var out []Reply
	turn := 0
	for i, m := range d.Messages {
		fields, err := jsonscan.ReadFields(d.body, m.Span)
		if err != nil || !d.byModel(fields) {
			continue
		}
		for turn < len(d.Turns) && d.Turns[turn].Message < i {
			turn++
		}
		if n := len(out); n == 0 || d.Shape != Responses || out[n-1].End != i {
			out = append(out, Reply{First: i, Number: n, Before: d.Prefix(turn)})
		}
		last := &out[len(out)-1]
		last.End = i + 1
		last.hear(d.body, d.Shape, fields)
	}
	return out
}

// Next is the reply to this request, given those before it.
func (d *Dialogue) Next(before []Reply) Reply {
	n := len(d.Messages)
	return Reply{First: n, End: n, Number: len(before), Before: d.Prefix(len(d.Turns))}
}

// byModel says whether a message, or an item, is the model's.
func (d *Dialogue) byModel(fields jsonscan.Fields) bool {
	if d.Shape != Responses {
		return fields.Text("role") == "assistant"
	}
	switch kind := fields.Text("type"); kind {
	case "", "message":
		return fields.Text("role") == "assistant"
	default: // what tools and clients say has a kind of its own
		return kind != "item_reference" && kind != "mcp_approval_response" && !strings.HasSuffix(kind, "_output")
	}
}

// hear adds what a message, or an item, says.
func (r *Reply) hear(body []byte, shape Shape, fields jsonscan.Fields) {
	switch shape {
	case Chat:
		r.speak(body, fields)
		f, _ := fields.Field("tool_calls")
		_ = jsonscan.Elements(body, f.Value, func(s jsonscan.Span) error {
			call, err := jsonscan.ReadFields(body, s)
			r.call(call.Text("id"))
			return err
		})
	case Messages:
		r.speak(body, fields)
	case Responses:
		if fields.Text("type") == "function_call" {
			r.call(fields.Text("call_id"))
			return
		}
		r.speak(body, fields)
	}
}

func (r *Reply) call(id string) {
	if id != "" {
		r.Calls = append(r.Calls, id)
	}
}

// speak adds the content of a message: a string, or a list of blocks.
func (r *Reply) speak(body []byte, fields jsonscan.Fields) {
	content, ok := fields.Field("content")
	if !ok {
		return
	}
	if body[content.Value.Start] != '[' {
		r.Text += jsonscan.TextOf(content.Value.Of(body))
		return
	}
	r.blocks(body, content.Value)
}

func (r *Reply) blocks(body []byte, list jsonscan.Span) {
	_ = jsonscan.Elements(body, list, func(s jsonscan.Span) error {
		block, err := jsonscan.ReadFields(body, s)
		switch block.Text("type") {
		case "text", "output_text":
			r.Text += block.Text("text")
		case "tool_use":
			r.call(block.Text("id"))
		}
		return err
	})
}

// Hear adds what the model said, as a request repeats it: of chat completions a message, of messages
// the blocks of one, of responses its items.
func (r *Reply) Hear(shape Shape, said []byte) {
	switch all := (jsonscan.Span{End: len(said)}); shape {
	case Messages:
		r.blocks(said, all)
	case Responses:
		_ = jsonscan.Elements(said, all, func(s jsonscan.Span) error {
			fields, err := jsonscan.ReadFields(said, s)
			r.hear(said, shape, fields)
			return err
		})
	case Chat:
		if fields, err := jsonscan.FieldsOf(said); err == nil {
			r.hear(said, shape, fields)
		}
	}
}
