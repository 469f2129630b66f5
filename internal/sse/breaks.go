package sse

import "bytes"

// breaks finds the line ends of a text, one after another. It remembers the next LF: a text whose
// lines end in CR would otherwise be searched for it to its end, again for every line.
type breaks struct {
	lf int // one more than the LF's offset, or than the text's length; 0 when not looked for
}

// next is the offset of the first CR or LF of p from at on, -1 when there is none. Between two
// calls at only grows; for another text, start with a new breaks.
func (b *breaks) next(p []byte, at int) int {
	if b.lf <= at {
		b.lf = len(p) + 1
		if i := bytes.IndexByte(p[at:], '\n'); i >= 0 {
			b.lf = at + i + 1
		}
	}
	if i := bytes.IndexByte(p[at:b.lf-1], '\r'); i >= 0 {
		return at + i
	}
	if b.lf <= len(p) {
		return b.lf - 1
	}
	return -1
}
