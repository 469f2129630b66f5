package readback

import (
	"bytes"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/llm"
)

// Merger makes one reply of several rounds. It is for one goroutine.
//
// For each round the caller writes the provider's reply (of status 200, not compressed) with
// [Merger.Write] and then calls [Merger.EndRound]. If that returns a round that is not Mixed, the caller
// may ask the provider again and write the next reply. Otherwise, or when it does not want to, or when the
// provider fails before the next reply's first byte, it calls [Merger.Finish], once. What Write and Finish
// return goes to the client; it is valid until the next call.
type Merger struct {
	reply mergedReply
	out   []byte
	ended bool // the round has; the next byte is of another
}

// mergedReply is the replies of all rounds, streamed or not.
type mergedReply interface {
	nextRound()
	appendPiece(out, piece []byte) ([]byte, error) // appends what the client is shown of it
	endRound() *llm.Round
	appendRest(out []byte) []byte // appends what is left for the client
}

// NewMerger merges replies of a shape. stream says whether the replies are event streams, all of them,
// which is known from their Content-Type.
func NewMerger(codec llm.ReadbackCodec, stream bool) *Merger {
	return newMerger(codec, stream, MaxKept)
}

func newMerger(codec llm.ReadbackCodec, stream bool, limit int) *Merger {
	if !stream {
		return &Merger{reply: &documentReply{merger: codec.NewDocumentMerger(), limit: limit}}
	}
	buffer := llm.NewEventBuffer(limit)
	return &Merger{reply: &streamReply{
		EventBuffer: buffer, merger: codec.NewStreamMerger(buffer), splitter: sse.Splitter{MaxEvent: limit}, atStart: true,
	}}
}

// Write reads a piece of a provider's reply, wherever it was cut, and returns what of it the client is
// shown at once: of a stream all events that are no part of a hidden call, nor the end of a round that has
// one; of a document nothing before [Merger.Finish]. The first piece after [Merger.EndRound] begins the
// next round.
//
// A first round with more than can be kept, in one event or in one document, passes as it is from there
// on. In a later round, whose numbers would contradict those before, it is ErrTooLong. After a round with
// more than that in many events the model is only not asked again.
func (m *Merger) Write(piece []byte) (out []byte, err error) {
	if m.ended {
		m.ended = false
		m.reply.nextRound()
	}
	m.out, err = m.reply.appendPiece(m.out[:0], piece)
	return m.out, err
}

// EndRound says that the round's reply has ended as its connection should. It returns what the model said
// if it called recover_text, and nil when there is nothing to ask again: it did not, or was cut off, or
// the reply broke off, failed or was not understood.
func (m *Merger) EndRound() *llm.Round {
	m.ended = true
	return m.reply.endRound()
}

// Finish returns the rest of the reply when no other round is asked for: what was held, as the end of one
// reply of all rounds. Of a reply that broke off it is what had come of it.
func (m *Merger) Finish() []byte {
	m.out = m.reply.appendRest(m.out[:0])
	return m.out
}

// streamReply is a reply that comes as events.
type streamReply struct {
	*llm.EventBuffer
	splitter    sse.Splitter
	merger      llm.StreamMerger
	late        []byte // what became of an event that only the end of the reply ended
	atStart     bool   // no event of the round has come
	passThrough bool
}

func (s *streamReply) nextRound() {
	s.merger.NextRound()
	s.NextRound()
	s.atStart = true
	s.splitter.Reset()
	if len(s.late) > 0 {
		s.late = append(s.late, "\n\n"...)
	}
}

func (s *streamReply) appendPiece(out, piece []byte) ([]byte, error) {
	s.Out = out
	s.Out = append(s.Out, s.late...)
	s.late = nil
	if s.passThrough {
		return append(s.Out, piece...), nil
	}
	err := s.splitter.Write(piece, s.addEvent, s.LateLF)
	if err != nil || s.Overflow {
		err = ErrTooLong
	}
	if err != nil && s.Round == 0 && !s.HidesCall {
		s.passThrough, s.Lost, err = true, true, nil
		s.Out = append(s.Out, s.splitter.Reset()...)
	}
	return s.Out, err
}

var byteOrderMark = []byte("\ufeff")

func (s *streamReply) addEvent(raw []byte) {
	if s.atStart && s.Round > 0 {
		raw = bytes.TrimPrefix(raw, byteOrderMark) // in the middle of a stream it is part of a name
	}
	e := sse.ParseRaw(raw, s.atStart)
	s.atStart = false
	s.merger.AddEvent(&e)
}

// flush reads an event whose empty line did not come: some providers leave it out at the very end.
func (s *streamReply) flush() {
	if rest := s.splitter.Reset(); len(rest) > 0 {
		s.Out = nil
		s.addEvent(rest)
		s.late = s.Out
	}
}

func (s *streamReply) endRound() *llm.Round {
	s.flush()
	if s.Lost || !s.Ended || !s.HidesCall {
		return nil
	}
	return s.merger.Said()
}

func (s *streamReply) appendRest(out []byte) []byte {
	s.flush()
	s.Out = out
	s.Out = append(s.Out, s.late...)
	s.late = nil
	for _, raw := range s.TakeHeld() {
		e := sse.ParseRaw(raw, false)
		s.merger.EndEvent(&e)
	}
	return s.Out
}

// documentReply is a reply that comes in one piece.
type documentReply struct {
	merger      llm.DocumentMerger
	body        []byte
	limit       int
	round       int
	hidesCall   bool
	wasRead     bool
	passThrough bool // it is too long to be read
}

func (d *documentReply) nextRound() {
	d.merger.NextRound()
	d.round++
	d.body, d.hidesCall, d.wasRead = nil, false, false
}

func (d *documentReply) appendPiece(out, piece []byte) ([]byte, error) {
	if d.passThrough {
		return append(out, piece...), nil
	}
	d.body = append(d.body, piece...)
	if len(d.body) <= d.limit {
		return out, nil
	}
	if d.round > 0 {
		return out, ErrTooLong
	}
	d.passThrough = true
	out = append(out, d.body...)
	d.body = nil
	return out, nil
}

func (d *documentReply) endRound() (r *llm.Round) {
	if !rawjson.IsObject(d.body) {
		return nil
	}
	d.wasRead = true
	r, d.hidesCall = d.merger.ReadRound(d.body)
	return r
}

func (d *documentReply) appendRest(out []byte) []byte {
	if d.wasRead && (d.round > 0 || d.hidesCall) {
		if merged := d.merger.Compose(); merged != nil {
			return append(out, merged...)
		}
	}
	return append(out, d.body...)
}
