package rounds

import (
	"github.com/ctxgate/ctxgate/history"
)

// document is a reply that comes in one piece.
type document struct {
	shape   page
	body    []byte
	limit   int
	round   int
	hid     bool // it has a call that the client must not see
	known   bool // it was read
	through bool // it is too long to be looked at
}

// page is how a shape writes a whole reply.
type page interface {
	// read notes what a reply says, and whether the model called the tool that reads back.
	read(body []byte) (r *Round, hid bool)
	// next keeps what the client is shown of the reply that was read last.
	next()
	// compose makes one reply of all rounds; nil if the last was none.
	compose() []byte
}

func newDocument(shape history.Shape, limit int) *document {
	d := &document{limit: limit}
	switch shape {
	case history.Messages:
		d.shape = &messagesPage{}
	case history.Responses:
		d.shape = &responsesPage{}
	default:
		d.shape = &chatPage{}
	}
	return d
}

func (d *document) next() {
	d.shape.next()
	d.round++
	d.body, d.hid, d.known = nil, false, false
}

func (d *document) write(out, piece []byte) ([]byte, error) {
	if d.through {
		return append(out, piece...), nil
	}
	d.body = append(d.body, piece...)
	if len(d.body) <= d.limit {
		return out, nil
	}
	if d.round > 0 {
		return out, ErrTooLong
	}
	d.through = true
	out = append(out, d.body...)
	d.body = nil
	return out, nil
}

func (d *document) end() *Round {
	if !isObject(d.body) {
		return nil
	}
	d.known = true
	r, hid := d.shape.read(d.body)
	d.hid = hid
	return r
}

func (d *document) finish(out []byte) []byte {
	if d.known && (d.round > 0 || d.hid) {
		if whole := d.shape.compose(); whole != nil {
			return append(out, whole...)
		}
	}
	return append(out, d.body...)
}
