package sse

import "github.com/ctxgate/ctxgate/internal/membudget"

const (
	minChunk = 512     // of the chunks after the first
	maxSlack = 4 << 20 // a chunk may be this much longer than its bytes
)

// chunks collects bytes whose number is not known. The first chunk is made to measure, so that a
// short value costs one allocation; the others double; a long value is joined once, at its end.
type chunks struct {
	full [][]byte
	last []byte
	size int64

	charge  membudget.Charge // for what is held
	refused error            // why no more can be held
}

func (c *chunks) write(p []byte) {
	for len(p) > 0 {
		if len(c.last) == cap(c.last) {
			c.grow(len(p))
		}
		n := min(len(p), cap(c.last)-len(c.last))
		c.last = append(c.last, p[:n]...)
		c.size += int64(n)
		p = p[n:]
	}
}

// grow begins a new chunk, for want bytes at least.
func (c *chunks) grow(want int) {
	size := want
	if c.last != nil {
		c.full = append(c.full, c.last)
		size = max(want, minChunk, min(2*cap(c.last), maxSlack))
	}
	if c.refused == nil {
		c.refused = c.charge.Reserve(int64(size))
	}
	c.last = make([]byte, 0, size) // also where it was refused: the reader looks at refused next
}

// join is all that was collected, in a slice without slack. It is never nil but where there is no
// memory for it.
func (c *chunks) join() []byte {
	if c.full == nil && c.last != nil && len(c.last) == cap(c.last) {
		return c.last
	}
	if c.refused = c.charge.Reserve(c.size); c.refused != nil {
		return nil
	}
	defer c.charge.ShrinkTo(c.size)
	all := make([]byte, 0, c.size)
	for _, piece := range c.full {
		all = append(all, piece...)
	}
	return append(all, c.last...)
}

// takeString is all that was collected, which is not charged. It leaves c empty.
func (c *chunks) takeString() string {
	if c.full != nil {
		text := string(c.join())
		*c = chunks{}
		return text
	}
	text := string(c.last)
	c.last, c.size = c.last[:0], 0
	return text
}
