package rounds

import (
	"bytes"

	"github.com/ctxgate/ctxgate/history"
)

// stream is a reply that comes as events.
type stream struct {
	tape
	cut     cutter
	shape   voice
	late    []byte // what became of an event that only the end of the reply ended
	fresh   bool   // no event of the round has come
	through bool   // everything passes
}

// voice is how a shape streams.
type voice interface {
	next()         // another round begins
	take(e *event) // reads an event and says on the tape what becomes of it
	last(e *event) // puts an event that was held back at the end of the reply
	said() *Round  // what the model said, if it called the tool that reads back
}

func newStream(shape history.Shape, limit int) *stream {
	s := &stream{fresh: true}
	s.limit, s.cut.limit = limit, limit
	switch shape {
	case history.Messages:
		s.shape = &messagesStream{tape: &s.tape}
	case history.Responses:
		s.shape = &responsesStream{tape: &s.tape}
	default:
		s.shape = &chatStream{tape: &s.tape}
	}
	return s
}

func (s *stream) next() {
	s.shape.next()
	s.fresh = true
	s.round++
	s.hid, s.over = false, false
	s.held, s.back, s.kept = nil, 0, 0
	s.cut.cr = false
	if len(s.late) > 0 {
		s.late = append(s.late, "\n\n"...)
	}
}

func (s *stream) write(out, piece []byte) ([]byte, error) {
	s.out = out
	s.out = append(s.out, s.late...)
	s.late = nil
	if s.through {
		return append(s.out, piece...), nil
	}
	err := s.cut.write(piece, s.event, s.tail)
	if s.full {
		err = ErrTooLong
	}
	if err != nil && s.round == 0 && !s.hid {
		s.through, s.lost, err = true, true, nil
		s.out = append(s.out, s.cut.rest()...)
	}
	return s.out, err
}

// event takes one event off the wire.
func (s *stream) event(raw []byte) {
	if s.fresh && bytes.HasPrefix(raw, byteOrderMark) && s.round > 0 {
		raw = raw[len(byteOrderMark):] // only at the very beginning it is no part of a name
	}
	e := parseEvent(raw, s.fresh)
	s.fresh = false
	s.shape.take(&e)
}

// flush takes an event whose empty line did not come: some leave it out at the very end.
func (s *stream) flush() {
	if rest := s.cut.rest(); len(rest) > 0 {
		s.out = nil
		s.event(rest)
		s.late = s.out
	}
}

func (s *stream) end() *Round {
	s.flush()
	if s.lost || !s.over || !s.hid {
		return nil
	}
	return s.shape.said()
}

func (s *stream) finish(out []byte) []byte {
	s.flush()
	s.out = out
	s.out = append(s.out, s.late...)
	for _, raw := range s.held {
		e := parseEvent(raw, false)
		s.shape.last(&e)
	}
	s.held, s.late = nil, nil
	return s.out
}

// tape is what becomes of the events of a stream.
type tape struct {
	out   []byte   // for the client
	held  [][]byte // events that end the round, unless another follows
	round int
	hid   bool // a call was hidden in this round
	over  bool // the model has said that it is done
	lost  bool // something was not understood, or failed: no other round is asked
	full  bool // there is more to hold back than can be
	back  int  // bytes that are held back
	kept  int  // bytes of what the model said
	limit int
	fate  fate // of the last event
}

type fate uint8

const (
	passed fate = iota
	dropped
	heldBack
)

// pass gives the event to the client as it came, or holds it back if it belongs to an end.
func (t *tape) pass(e *event) {
	if t.hid && t.over {
		t.hold(e)
		return
	}
	t.show(e)
}

func (t *tape) show(e *event) {
	t.fate = passed
	t.out = append(t.out, e.raw...)
}

// change gives the event to the client with other data.
func (t *tape) change(e *event, data []byte) {
	t.fate = passed
	t.out = e.appendWith(t.out, data)
}

func (t *tape) drop() { t.fate = dropped }

func (t *tape) hold(e *event) {
	t.fate = heldBack
	if t.back += len(e.raw); t.back > t.limit {
		t.full = true
		return
	}
	t.held = append(t.held, bytes.Clone(e.raw))
}

// tail is the second half of the line end of the last event, which came too late to be part of it.
func (t *tape) tail(lf byte) {
	switch {
	case t.fate == passed:
		t.out = append(t.out, lf)
	case t.fate == heldBack && len(t.held) > 0:
		at := len(t.held) - 1
		t.held[at] = append(t.held[at], lf)
	}
}

// begin counts the things that a reply numbers.
func (t *tape) begin(before int) {
	if before >= maxNumbered {
		t.lost, t.full = true, true
	}
}

// maxNumbered is how many calls, blocks or items a round may have. No model comes near.
const maxNumbered = 4096

// keep appends what the model said to what is kept of it, as long as there is room.
func (t *tape) keep(dst, said []byte) []byte {
	if t.kept += len(said); t.kept > t.limit {
		t.lost = true
		return dst
	}
	return append(dst, said...)
}

// cutter cuts a stream into events. An event is cut off when the line that ends it has come.
type cutter struct {
	pending []byte // of an event that has not ended
	line    int    // where its last line begins
	at      int    // how far it was searched for line ends
	cr      bool   // the last event ended in CR: a LF right after it belongs to it
	limit   int
}

func (c *cutter) write(piece []byte, event func([]byte), tail func(byte)) error {
	if c.cr && len(piece) > 0 {
		c.cr = false
		if piece[0] == '\n' {
			tail('\n')
			piece = piece[1:]
		}
	}
	if len(c.pending) > 0 {
		n := c.first(piece, event)
		if n < 0 {
			return c.room()
		}
		piece = piece[n:]
	}
	for {
		n := c.find(piece)
		if n < 0 {
			break
		}
		event(piece[:n])
		piece = piece[n:]
	}
	c.pending = append(c.pending[:0], piece...)
	return c.room()
}

// first completes the pending event, and says how much of the piece that took; -1: all, and it has
// not ended.
func (c *cutter) first(piece []byte, event func([]byte)) int {
	before := len(c.pending)
	c.pending = append(c.pending, piece...)
	n := c.find(c.pending)
	if n < 0 {
		return -1
	}
	event(c.pending[:n])
	c.pending = c.pending[:0]
	return n - before
}

func (c *cutter) room() error {
	if len(c.pending) > c.limit {
		return ErrTooLong
	}
	return nil
}

// find is where the event that p begins with ends, -1 if it does not. It goes on where it stopped.
func (c *cutter) find(p []byte) int {
	for {
		i := c.at
		for i < len(p) && p[i] != '\n' && p[i] != '\r' {
			i++
		}
		if i == len(p) {
			c.at = i
			return -1
		}
		blank, end := i == c.line, i+1
		if p[i] == '\r' {
			if end < len(p) && p[end] == '\n' {
				end++
			} else if end == len(p) {
				if !blank {
					c.at = i
					return -1 // a LF may follow
				}
				c.cr = true
			}
		}
		c.line, c.at = end, end
		if blank {
			c.line, c.at = 0, 0
			return end
		}
	}
}

// rest is what has come of an event that did not end.
func (c *cutter) rest() []byte {
	rest := c.pending
	c.pending, c.line, c.at = nil, 0, 0
	return rest
}
