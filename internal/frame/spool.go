package frame

import (
	"runtime"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

const (
	smallest = 128 << 10
	largest  = 4 << 20
	large    = 16 << 20 // from here on a message is worth a collection of its own
)

// spool holds a message that is longer than the read-ahead buffer: in pieces, joined once, so
// that there are at most two copies and half as much again at a time. Over the limit, the pieces
// are dropped and only the ends are kept.
type spool struct {
	limit int64
	size  int64 // all bytes added
	over  bool

	full [][]byte
	last []byte
	held int64 // bytes of capacity in full and last

	head, tail []byte // once over

	charge  membudget.Charge // for what is held
	refused error            // why no more can be held
}

func (s *spool) add(p []byte) {
	s.size += int64(len(p))
	if !s.over && s.size > s.limit {
		s.drop()
	}
	if s.over {
		s.keepEnds(p)
		return
	}
	for len(p) > 0 {
		if len(s.last) == cap(s.last) && !s.grow() {
			s.keepEnds(p)
			return
		}
		n := copy(s.last[len(s.last):cap(s.last)], p)
		s.last = s.last[:len(s.last)+n]
		p = p[n:]
	}
}

// grow makes room for the next piece. It is false where there is no memory for it.
func (s *spool) grow() bool {
	next := min(max(s.held/2, smallest), largest, s.limit-s.held)
	if !s.take(next) {
		return false
	}
	if s.last != nil {
		s.full = append(s.full, s.last)
	}
	s.last = make([]byte, 0, next)
	s.held += next
	return true
}

// take asks for memory. Where there is none, the message is dropped.
func (s *spool) take(bytes int64) bool {
	if s.refused = s.charge.Take(bytes); s.refused != nil {
		s.drop()
	}
	return s.refused == nil
}

// drop gives the memory back as soon as it is known that the message is of no use.
func (s *spool) drop() {
	s.over = true
	for _, p := range s.full {
		s.keepEnds(p)
	}
	s.keepEnds(s.last)
	s.full, s.last, s.held = nil, nil, 0
	s.charge.Keep(0)
}

func (s *spool) keepEnds(p []byte) {
	if room := ends - len(s.head); room > 0 {
		s.head = append(s.head, p[:min(room, len(p))]...)
	}
	p = p[max(0, len(p)-ends):]
	if len(s.tail)+len(p) > 2*ends {
		s.tail = s.tail[:copy(s.tail, s.tail[len(s.tail)-ends:])]
	}
	s.tail = append(s.tail, p...)
}

func (s *spool) tooLarge() *TooLarge {
	return &TooLarge{Size: s.size, Head: s.head, Tail: s.tail[max(0, len(s.tail)-ends):], Err: s.refused}
}

// text joins the pieces; the spool is empty afterwards.
func (s *spool) text() ([]byte, error) {
	if s.over || !s.take(s.size) {
		return nil, s.tooLarge()
	}
	out := make([]byte, 0, s.size)
	for _, p := range s.full {
		out = append(out, p...)
	}
	out = append(out, s.last...)
	s.full, s.last = nil, nil
	s.charge.Keep(s.size)
	if s.size >= large {
		// The pieces are as large as the message. Left to itself, the collector would come only
		// after as much again; now costs it a few milliseconds.
		runtime.GC()
	}
	return out, nil
}

// counted is text, with the size that the message's header gave.
func (s *spool) counted(n int64) ([]byte, error) {
	s.size = n
	return s.text()
}
