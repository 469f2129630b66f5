package chat

import (
	"io"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The bodies whose rooms are used again. Smaller ones are made as quickly, and nobody should hold
// so much while a model thinks.
const (
	roomLeast = 32 << 10
	roomMost  = 4 << 20
)

// room is where the body of a request is. When the last who looks into it has left, it is used for
// another: to clear as much memory for each would cost more than to read the request.
type room struct {
	body   []byte
	guests atomic.Int32
}

// rooms are those that nobody is in, by the bits of their size: no room is twice as large as what
// is in it.
var rooms [32]sync.Pool

// enterRoom is a room for a body that is to be so long.
func enterRoom(size int64) *room {
	r := &room{}
	if size >= roomLeast && size <= roomMost {
		if old, ok := rooms[bits.Len64(uint64(size))].Get().(*room); ok && int64(cap(old.body)) >= size {
			r = old
		}
	}
	r.guests.Store(1)
	return r
}

func (r *room) leave() {
	if size := cap(r.body); r.guests.Add(-1) == 0 && size >= roomLeast && size <= roomMost {
		rooms[bits.Len64(uint64(size))].Put(r)
	}
}

// settle is called when the provider has answered: what the request said is not needed any more,
// unless the model reads back. A stream may be long.
func (c *call) settle() {
	if c.reads == nil {
		c.memory.Give(int64(len(c.body)))
	}
	c.body, c.edits = nil, nil
	if c.reads == nil {
		c.told = nil
		c.vacate()
	}
}

func (c *call) vacate() {
	if c.room != nil {
		c.room.leave()
		c.room = nil
	}
}

// outgoing is a body on its way to a provider. The transport may go on with it after the call is
// over, and close it while it reads: the room is left when it is closed, and not read after that.
type outgoing struct {
	mu   sync.Mutex
	text *jsonscan.Spliced
	left int   // bytes that are not read yet
	in   *room // nil once it is closed
	sent *delivery
}

// send is the call's body as it goes out.
func (c *call) send(sent *delivery) io.ReadCloser {
	c.room.guests.Add(1)
	return &outgoing{text: jsonscan.NewSpliced(c.body, c.edits), left: jsonscan.SplicedLen(c.body, c.edits), in: c.room, sent: sent}
}

func (o *outgoing) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.in == nil {
		return 0, io.ErrClosedPipe
	}
	n, err := o.text.Read(p)
	if o.left -= n; o.left <= 0 {
		o.sent.read.Store(true)
	}
	return n, err
}

func (o *outgoing) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.in != nil {
		o.in.leave()
		o.in, o.text = nil, nil
	}
	return nil
}
