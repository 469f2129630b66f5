package reduce

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// ForCopy translates the cut to another encoding of the same value, with other white space and escapes;
// false if other is a different value. A tool's result often has its data twice, as the text of a content
// block and as structuredContent, written by two encoders.
//
// FirstChar and LastChar stay those of text, which is the stored original.
func (p JSONCut) ForCopy(text, other []byte) (JSONCut, bool) {
	if bytes.Equal(text, other) {
		return p, true
	}
	p.Gaps, p.textBytes = slices.Clone(p.Gaps), len(other)
	w := pairWalk{a: text, b: other, gaps: p.Gaps}
	return p, w.walkPairs()
}

// EqualJSON reports whether two texts are the same JSON value, with the same spelling of numbers and order
// of members.
func EqualJSON(a, b []byte) bool {
	_, ok := JSONCut{}.ForCopy(a, b)
	return ok
}

// pairWalk reads two valid texts token by token, side by side.
type pairWalk struct {
	a, b       []byte
	gaps       []Gap // of a; their bounds are translated to b one by one
	translated int   // number of bounds translated
}

func (w *pairWalk) walkPairs() bool {
	for i, j := skipSpace(w.a, 0), skipSpace(w.b, 0); i < len(w.a) && j < len(w.b); {
		from := [2]int{i, j}
		i, j = tokenEnd(w.a, i), tokenEnd(w.b, j)
		if !sameToken(w.a[from[0]:i], w.b[from[1]:j]) {
			return false
		}
		w.translateBounds(from, [2]int{i, j})
		i, j = skipSpace(w.a, i), skipSpace(w.b, j)
		if i == len(w.a) || j == len(w.b) {
			return i == len(w.a) && j == len(w.b)
		}
	}
	return false
}

// tokenEnd returns where the token at text[i] ends.
func tokenEnd(text []byte, i int) int {
	switch c := text[i]; {
	case c == '"':
		return stringEnd(text, i+1) + 1
	case delimits(c):
		return i + 1
	}
	return scalarEnd(text, i)
}

func sameToken(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if a[0] != '"' || b[0] != '"' {
		return false
	}
	a, b = a[1:len(a)-1], b[1:len(b)-1]
	for len(a) > 0 && len(b) > 0 {
		r, n := jsonscan.DecodeChar(a)
		s, m := jsonscan.DecodeChar(b)
		if r != s {
			return false
		}
		a, b = a[n:], b[m:]
	}
	return len(a) == len(b)
}

// translateBounds translates the bounds of gaps at or inside a pair of tokens. A gap starts and ends with
// a token, unless it is inside a string.
func (w *pairWalk) translateBounds(from, to [2]int) {
	for w.translated < 2*len(w.gaps) {
		g := &w.gaps[w.translated/2]
		bound, edge := &g.Start, from
		if w.translated%2 == 1 {
			bound, edge = &g.End, to
		}
		switch {
		case *bound == edge[0]:
			*bound = edge[1]
		case *bound > from[0] && *bound < to[0]:
			raw := w.a[from[0]+1 : *bound]
			*bound = from[1] + 1 + jsonscan.CharOffset(w.b[from[1]+1:to[1]-1], jsonscan.CountChars(raw))
		default:
			return
		}
		w.translated++
	}
}
