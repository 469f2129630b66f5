package sse

import "github.com/ctxgate/ctxgate/internal/membudget"

const (
	smallest = 512     // of the pieces after the first
	largest  = 4 << 20 // a piece may be this much longer than its bytes
)

// gather collects bytes whose number is not known. The first piece is made to measure, so that a
// short value costs one allocation; the others double; a long value is joined once, at its end.
type gather struct {
	full [][]byte
	last []byte
	n    int64

	charge  membudget.Charge // for what is held
	refused error            // why no more can be held
}

func (g *gather) write(p []byte) {
	for len(p) > 0 {
		n := copy(g.space(len(p)), p)
		g.commit(n)
		p = p[n:]
	}
}

// space is where the next bytes go: at most want of them, at least one.
func (g *gather) space(want int) []byte {
	if len(g.last) == cap(g.last) {
		size := want
		if g.last != nil {
			g.full = append(g.full, g.last)
			size = max(want, smallest, min(2*cap(g.last), largest))
		}
		if g.refused == nil {
			g.refused = g.charge.Take(int64(size))
		}
		g.last = make([]byte, 0, size) // also where it was refused: the reader looks at refused next
	}
	free := g.last[len(g.last):cap(g.last)]
	return free[:min(want, len(free))]
}

// commit says that the first n bytes of the space are there.
func (g *gather) commit(n int) {
	g.last = g.last[:len(g.last)+n]
	g.n += int64(n)
}

// take is all that was collected, in a slice without slack. It is never nil but where there is no
// memory for it.
func (g *gather) take() []byte {
	if g.full == nil && g.last != nil && len(g.last) == cap(g.last) {
		return g.last
	}
	if g.refused = g.charge.Take(g.n); g.refused != nil {
		return nil
	}
	defer g.charge.Keep(g.n)
	all := make([]byte, 0, g.n)
	for _, piece := range g.full {
		all = append(all, piece...)
	}
	return append(all, g.last...)
}
