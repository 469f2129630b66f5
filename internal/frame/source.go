package frame

import "io"

// ahead is as much as a pipe gives in one read. A message that fits is copied once, to its size.
const ahead = 64 << 10

// source is the read-ahead buffer.
type source struct {
	from       io.Reader
	buf        []byte
	start, end int
	err        error // what from ended with; said once the buffered bytes are used up
}

// window is what was read and not yet taken. It is valid until the next call of more.
func (s *source) window() []byte { return s.buf[s.start:s.end] }

func (s *source) take(n int) { s.start += n }

// full says that nothing can be added to the window.
func (s *source) full() bool { return s.end-s.start == len(s.buf) }

// more adds at least one byte to a window that is not full.
func (s *source) more() error {
	if s.err != nil {
		return s.err
	}
	if s.start == s.end || s.end == len(s.buf) {
		s.end = copy(s.buf, s.window())
		s.start = 0
	}
	for range 100 {
		n, err := s.from.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.err = io.ErrNoProgress
	return s.err
}
