package frame

import (
	"runtime"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

const (
	minPiece = 128 << 10
	maxPiece = 4 << 20
	gcBytes  = 16 << 20 // a message of this size is worth a garbage collection
)

// spool holds a message that is longer than the read-ahead buffer: in pieces, joined once at the end, so that it never
// takes more than two and a half times its size. Once the message is over the limit, only its ends are kept.
type spool struct {
	limit    int64
	size     int64 // all bytes added
	isOver   bool
	pieces   [][]byte // full ones
	last     []byte
	capacity int64 // of pieces and last

	head, tail []byte // once it is over the limit

	charge   membudget.Charge // for capacity
	noMemory error            // why the message cannot be held
}

func (s *spool) addBytes(p []byte) {
	s.size += int64(len(p))
	if !s.isOver && s.size > s.limit {
		s.dropPieces()
	}
	if s.isOver {
		s.keepEnds(p)
		return
	}
	for len(p) > 0 {
		if len(s.last) == cap(s.last) && !s.addPiece() {
			s.keepEnds(p)
			return
		}
		n := copy(s.last[len(s.last):cap(s.last)], p)
		s.last = s.last[:len(s.last)+n]
		p = p[n:]
	}
}

// addPiece allocates the next piece. It returns false if there is no memory for it.
func (s *spool) addPiece() bool {
	next := min(max(s.capacity/2, minPiece), maxPiece, s.limit-s.capacity)
	if !s.reserve(next) {
		return false
	}
	if s.last != nil {
		s.pieces = append(s.pieces, s.last)
	}
	s.last = make([]byte, 0, next)
	s.capacity += next
	return true
}

// reserve reserves memory. If there is none, the message is dropped.
func (s *spool) reserve(bytes int64) bool {
	if s.noMemory = s.charge.Reserve(bytes); s.noMemory != nil {
		s.dropPieces()
	}
	return s.noMemory == nil
}

// dropPieces frees the memory as soon as the message cannot be returned.
func (s *spool) dropPieces() {
	s.isOver = true
	for _, p := range s.pieces {
		s.keepEnds(p)
	}
	s.keepEnds(s.last)
	s.pieces, s.last, s.capacity = nil, nil, 0
	s.charge.ShrinkTo(0)
}

func (s *spool) keepEnds(p []byte) {
	if room := endBytes - len(s.head); room > 0 {
		s.head = append(s.head, p[:min(room, len(p))]...)
	}
	p = p[max(0, len(p)-endBytes):]
	if len(s.tail)+len(p) > 2*endBytes {
		s.tail = s.tail[:copy(s.tail, s.tail[len(s.tail)-endBytes:])]
	}
	s.tail = append(s.tail, p...)
}

// join returns the message, or a *TooLargeError of the given size. The spool is empty afterwards.
func (s *spool) join(size int64) ([]byte, error) {
	s.size = size
	if s.isOver || !s.reserve(s.size) {
		return nil, &TooLargeError{Size: s.size, Head: s.head, Tail: s.tail[max(0, len(s.tail)-endBytes):], Err: s.noMemory}
	}
	out := make([]byte, 0, s.size)
	for _, p := range s.pieces {
		out = append(out, p...)
	}
	out = append(out, s.last...)
	s.pieces, s.last = nil, nil
	s.charge.ShrinkTo(s.size)
	if s.size >= gcBytes {
		// The pieces are as large as the message. By itself the collector would run only after as much again; now it
		// takes a few milliseconds.
		runtime.GC()
	}
	return out, nil
}
