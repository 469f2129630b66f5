package history

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Sum names what was said in a conversation up to some turn.
type Sum [16]byte

// Prefix is the sum of the conversation up to and with so many tool turns and their results. It
// is made of who said what: roles, calls, and the ends of texts and results. It does not change when a client
// moves its cache_control, makes a list of one text of a string, or drops old thinking; nor by
// what a client says beside results, where it puts reminders that come and go.
func (d *Dialogue) Prefix(turns int) Sum { return d.said.upTo(d, turns) }

// said are the prefixes of a conversation, made as far as they were asked for, each byte once.
type said struct {
	sums    []Sum
	at      hashed
	earlier []hashed // where that was in earlier requests, the latest last
}

// hashed is how far a conversation is hashed.
type hashed struct {
	h       *blake3.Hasher // nil: not at all
	message int            // the next to hash
	sums    int            // how many were made
}

// mostEarlier is how many requests back a client may change its marks without all being hashed anew.
const mostEarlier = 3

func (s *said) upTo(d *Dialogue, turns int) Sum {
	if s.at.h != nil && s.at.message != d.endOf(s.at.sums-1) {
		s.back(func(h hashed) bool { return h.message == d.endOf(h.sums-1) }) // a turn has gone on that seemed to be over
	}
	if turns < len(s.sums) {
		return s.sums[turns]
	}
	if s.at.h == nil {
		s.sums, s.at = nil, hashed{h: blake3.New()}
	} else {
		s.earlier = append(s.earlier[max(0, len(s.earlier)+1-mostEarlier):], hashed{s.at.h.Clone(), s.at.message, s.at.sums})
	}
	h := hasher{h: s.at.h, body: d.body}
	for ; len(s.sums) <= turns; s.at.sums++ {
		for end := d.endOf(len(s.sums)); s.at.message < end; s.at.message++ {
			h.message(d.Messages[s.at.message].Span, d.Shape == Messages && !d.Messages[s.at.message].spoken)
		}
		s.sums = append(s.sums, h.sum())
	}
	return s.sums[turns]
}

// forget goes back to where no more than so many messages were hashed.
func (s *said) forget(messages int) {
	if s.at.message > messages {
		s.back(func(h hashed) bool { return h.message <= messages })
	}
}

// back goes back to the latest request of which something is true, or to the beginning.
func (s *said) back(to func(hashed) bool) {
	for i, h := range slices.Backward(s.earlier) {
		if to(h) {
			*s = said{sums: slices.Clip(s.sums[:h.sums]), at: h, earlier: slices.Clip(s.earlier[:i])}
			return
		}
	}
	*s = said{}
}

// Front is the sum of what stands before the messages: tools and system prompt.
func (d *Dialogue) Front() Sum {
	h := hasher{h: blake3.New(), body: d.body}
	for _, span := range d.front {
		h.part("front", span.Of(d.body))
	}
	return h.sum()
}

// endOf is the message after the results of a turn, counted from one. Before the first there is
// no telling where the next request will go on.
func (d *Dialogue) endOf(turn int) int {
	if turn == 0 {
		return 0
	}
	return d.Turns[turn-1].End
}

type hasher struct {
	h    *blake3.Hasher
	body []byte
}

func (h hasher) sum() (out Sum) {
	_, _ = h.h.Digest().Read(out[:])
	return out
}

// part hashes one piece of text under a label, so that no two lists of pieces look the same.
func (h hasher) part(label string, raw []byte) {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(raw)))
	_, _ = h.h.Write(append(append(size[:], label...), 0))
	_, _ = h.h.Write(raw)
}

// ends is how much of each end of a long value is hashed. With its length, and the ids of calls
// around it, that tells conversations apart; every request would else be hashed as a whole.
const ends = 128

// text hashes a value, strings without their quotes.
func (h hasher) text(label string, span jsonscan.Span) {
	raw := span.Of(h.body)
	if raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if len(raw) <= 2*ends {
		h.part(label, raw)
		return
	}
	h.part(label, binary.LittleEndian.AppendUint64(nil, uint64(len(raw))))
	h.part("head", raw[:ends])
	h.part("tail", raw[len(raw)-ends:])
}

// message hashes the members that are the same whenever a client sends this message again.
func (h hasher) message(span jsonscan.Span, beside bool) {
	fields, err := jsonscan.ReadFields(h.body, span)
	if err != nil || fields.Text("type") == "reasoning" {
		return
	}
	h.part("message", nil)
	for _, f := range fields.All() {
		switch f.Key {
		case "role", "tool_calls", "tool_call_id", "type", "call_id", "name", "arguments":
			h.text(f.Key, f.Value)
		case "content", "output":
			h.content(f.Value, beside)
		}
	}
}

// content hashes a string as the list of one text that it is.
func (h hasher) content(span jsonscan.Span, beside bool) {
	if h.body[span.Start] != '[' {
		h.text("text", span)
		return
	}
	_ = jsonscan.Elements(h.body, span, func(s jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(h.body, s)
		if err != nil {
			return err
		}
		switch kind := fields.Text("type"); kind {
		case "thinking", "redacted_thinking":
		case "text", "input_text", "output_text":
			if f, ok := fields.Field("text"); ok && !beside {
				h.text("text", f.Value)
			}
		default:
			h.part("block", []byte(kind))
			h.members(fields)
		}
		return nil
	})
}

func (h hasher) members(fields jsonscan.Fields) {
	for _, f := range fields.All() {
		switch f.Key {
		case "type", "cache_control":
		case "content":
			h.content(f.Value, false)
		default:
			h.text(f.Key, f.Value)
		}
	}
}
