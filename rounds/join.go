package rounds

import (
	"slices"

	"github.com/ctxgate/ctxgate/history"
)

// MaxKept is how much is kept of one round of a reply.
const MaxKept = 8 << 20

// Join makes one reply of several rounds; see [NewJoin]. It is for one goroutine.
type Join struct {
	reply reply
	out   []byte
	ended bool // the round has; the next byte is of another
}

// reply is the replies of one conversation's turn, streamed or not.
type reply interface {
	next()                                   // another round begins
	write(out, piece []byte) ([]byte, error) // appends what is for the client
	end() *Round                             // the round is over
	finish(out []byte) []byte                // appends what is left for the client
}

// Write takes a piece of a provider's reply, wherever it was cut, and gives what of it is for the
// client at once: of a stream all events that are no part of a hidden call, nor the end of a round
// that has one; of a document nothing before [Join.Finish]. The first piece after [Join.End] begins
// the next round.
//
// A first round that says more than can be kept, in one event or in one document, passes as it is
// from there on. In a later round, whose numbers would contradict those before, it is ErrTooLong.
// Whoever says more than that in many events is only not asked again.
func (j *Join) Write(piece []byte) (out []byte, err error) {
	if j.ended {
		j.ended = false
		j.reply.next()
	}
	j.out, err = j.reply.write(j.out[:0], piece)
	return j.out, err
}

// End says that the round's reply has ended as its connection should. It gives what the model said
// if it called the tool that reads back, and nil when there is nothing to ask again: it did not, or
// was cut off, or the reply broke off, failed or was not understood.
func (j *Join) End() *Round {
	j.ended = true
	return j.reply.end()
}

// Finish gives the rest of the reply when no other round is asked: what was held back, as the end
// of one reply of all rounds. Of a reply that broke off it gives what had come of it.
func (j *Join) Finish() []byte {
	j.out = j.reply.finish(j.out[:0])
	return j.out
}

func newReply(shape history.Shape, stream bool, limit int) reply {
	if stream {
		return newStream(shape, limit)
	}
	return newDocument(shape, limit)
}

// checked is the round if its calls can be answered.
func (r *Round) checked() *Round {
	r.Mixed = len(r.Others) > 0
	nameless := func(c Call) bool { return c.ID == "" }
	if len(r.Calls) == 0 || slices.ContainsFunc(r.Calls, nameless) {
		return nil
	}
	return r
}
