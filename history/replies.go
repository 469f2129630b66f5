package history

import (
	"bytes"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Reply is one reply of the model as a client repeats it: one message or, in the responses shape, a run of
// consecutive items by the model.
type Reply struct {
	First, End    int  // the range of its messages, or items
	Number        int  // the number of replies before it
	Before        Hash // hash of the conversation before it, up to the last results
	llm.Statement      // its text and calls
}

// Place identifies the reply's position in its conversation. It is known before the reply begins, and does not
// change when a client moves its cache_control or drops thinking.
func (r Reply) Place() Hash {
	h := hasher{h: blake3.New()}
	h.Part("place", varint.AppendUint(r.Before[:], r.Number))
	return h.sum()
}

// Identity identifies the reply by its place, text and calls; white space around the text does not count.
func (r Reply) Identity() Hash {
	h := hasher{h: blake3.New()}
	place := r.Place()
	h.Part("reply", place[:])
	for _, id := range r.Calls {
		h.Part("call", []byte(id))
	}
	h.Part("text", []byte(strings.TrimSpace(r.Text)))
	return h.sum()
}

// Replies returns the replies in the conversation; nil if the codec cannot find them.
func (d *Dialogue) Replies() []Reply {
	codec, ok := d.Codec.(llm.ReadbackCodec)
	if !ok {
		return nil
	}
	var out []Reply
	turn := 0
	for i, m := range d.Messages {
		var st llm.Statement
		if !codec.ReadStatement(&st, d.body, m.Span) {
			continue
		}
		for turn < len(d.Turns) && d.Turns[turn].Message < i {
			turn++
		}
		if n := len(out); n == 0 || !d.wire().ReplyIsItems || out[n-1].End != i {
			out = append(out, Reply{First: i, Number: n, Before: d.PrefixHash(turn)})
		}
		last := &out[len(out)-1]
		last.End = i + 1
		last.Text += st.Text
		last.Calls = append(last.Calls, st.Calls...)
	}
	return out
}

// Next returns the reply to this request, still without text and calls, given the replies before it.
func (d *Dialogue) Next(before []Reply) Reply {
	n := len(d.Messages)
	return Reply{First: n, End: n, Number: len(before), Before: d.PrefixHash(len(d.Turns))}
}

// OffersRecovery says whether the request offers the model the gateway's recover_text. Clients of the hub add
// a prefix to its name, such as mcp__ctxgate__recover_text. A tool of that name without a prune_id is a
// different one.
func (d *Dialogue) OffersRecovery() bool {
	if !bytes.Contains(d.tools.Of(d.body), []byte(recovertool.Name)) {
		return false
	}
	found := false
	d.eachTool(func(tool jsonscan.Span) {
		found = found || recovertool.IsName(d.Codec.ToolName(d.body, tool)) && bytes.Contains(tool.Of(d.body), []byte("prune_id"))
	})
	return found
}

// Offers says whether the request offers a tool of exactly this name.
func (d *Dialogue) Offers(name string) bool {
	found := false
	d.eachTool(func(tool jsonscan.Span) { found = found || d.Codec.ToolName(d.body, tool) == name })
	return found
}

// eachTool calls each for every tool of the request.
func (d *Dialogue) eachTool(each func(tool jsonscan.Span)) {
	for _, list := range d.toolLists() {
		_ = jsonscan.EachElement(d.body, list, func(tool jsonscan.Span) error {
			each(tool)
			return nil
		})
	}
}

// toolLists returns the lists of tools: the member tools, or the lists in its elements.
func (d *Dialogue) toolLists() []jsonscan.Span {
	keys := d.wire().ToolLists
	switch {
	case d.tools.Len() == 0:
		return nil
	case keys == nil:
		return []jsonscan.Span{d.tools}
	}
	var lists []jsonscan.Span
	_ = jsonscan.EachElement(d.body, d.tools, func(element jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(d.body, element)
		for _, key := range keys {
			if f, ok := fields.Field(key); ok && d.body[f.Value.Start] == '[' {
				lists = append(lists, f.Value)
			}
		}
		return err
	})
	return lists
}

// Tools is the span of the list to which a tool can be added; empty if the request offers none.
func (d *Dialogue) Tools() jsonscan.Span {
	lists := d.toolLists()
	if len(lists) == 0 {
		return jsonscan.Span{}
	}
	return lists[len(lists)-1]
}

// Other is the raw value of a member that is not part of the conversation, such as n; nil if it is missing or
// null.
func (d *Dialogue) Other(key string) []byte {
	for _, f := range d.others {
		if raw := f.Value.Of(d.body); f.Key == key && string(raw) != "null" {
			return raw
		}
	}
	return nil
}

// HasReadBack says whether the model may have read something back in the conversation.
func (d *Dialogue) HasReadBack() bool { return d.hasReadBack }

// EndsWithReadBack says whether the newest tool turn read something back.
func (d *Dialogue) EndsWithReadBack() bool {
	for i := len(d.Results) - 1; d.hasReadBack && i >= 0 && d.Results[i].Turn == len(d.Turns)-1; i-- {
		if recovertool.IsName(d.Results[i].Name) {
			return true
		}
	}
	return false
}
