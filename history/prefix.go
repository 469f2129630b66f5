package history

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// Hash identifies a part of a conversation by its content.
type Hash [16]byte

// PrefixHash identifies the conversation up to the results of so many tool turns. It covers roles, calls,
// and the ends of texts and results. It stays the same when a client moves its cache_control, writes a
// string as a list of one text, drops old thinking, or changes the texts beside results, where clients add
// and remove reminders.
func (d *Dialogue) PrefixHash(turns int) Hash { return d.prefixes.upTo(d, turns) }

// prefixSums are the hashes of a conversation's prefixes, as far as they were computed.
type prefixSums struct {
	sums []Hash         // by tool turns
	h    *blake3.Hasher // over the messages before next; nil: none
	next int            // the first message that is not hashed
}

func (s *prefixSums) upTo(d *Dialogue, turns int) Hash {
	if s.h != nil && s.next != d.turnEnd(len(s.sums)-1) {
		*s = prefixSums{} // more results were added to the last turn
	}
	if turns < len(s.sums) {
		return s.sums[turns]
	}
	if s.h == nil {
		*s = prefixSums{h: blake3.New()}
	}
	h := hasher{s.h}
	for len(s.sums) <= turns {
		for end := d.turnEnd(len(s.sums)); s.next < end; s.next++ {
			m := &d.Messages[s.next]
			d.Codec.DigestMessage(h, d.body, m.Span, m.spoken)
		}
		s.sums = append(s.sums, h.sum())
	}
	return s.sums[turns]
}

// PreambleHash identifies the part before the messages: tools and system prompt.
func (d *Dialogue) PreambleHash() Hash {
	h := hasher{h: blake3.New()}
	for _, span := range d.front {
		h.Part("front", span.Of(d.body))
	}
	return h.sum()
}

// turnEnd is the message after the results of a turn, counted from one. For turn 0 it is 0: before the
// first turn it is not known where the next request will continue.
func (d *Dialogue) turnEnd(turn int) int {
	if turn == 0 {
		return 0
	}
	return d.Turns[turn-1].End
}

// hasher is an [llm.Digest].
type hasher struct{ h *blake3.Hasher }

func (h hasher) sum() (out Hash) {
	_, _ = h.h.Digest().Read(out[:])
	return out
}

// Part hashes a text with its label and length, so that different lists of parts never hash alike.
func (h hasher) Part(label string, raw []byte) {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(raw)))
	_, _ = h.h.Write(append(append(size[:], label...), 0))
	_, _ = h.h.Write(raw)
}

// hashedEnd is how many bytes of each end of a long value are hashed. With its length and the ids of the
// calls around it they tell conversations apart, without hashing every request as a whole.
const hashedEnd = 128

// Value hashes a raw JSON value, strings without their quotes.
func (h hasher) Value(label string, raw []byte) {
	if raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if len(raw) <= 2*hashedEnd {
		h.Part(label, raw)
		return
	}
	h.Part(label, binary.LittleEndian.AppendUint64(nil, uint64(len(raw))))
	h.Part("head", raw[:hashedEnd])
	h.Part("tail", raw[len(raw)-hashedEnd:])
}
