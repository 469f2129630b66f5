package reduce

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Twin is the plan for another text that says the same: the same value with other white space
// and other escapes. False means that other says something else. A tool's result often holds its
// data twice, as the text of a content block and as structuredContent, written by two encoders.
//
// The characters that a gap names (From, To) stay those of the text the plan was made for: that
// is the original that is kept.
func (p Plan) Twin(text, other []byte) (Plan, bool) {
	if bytes.Equal(text, other) {
		return p, true
	}
	p.Gaps, p.size = slices.Clone(p.Gaps), len(other)
	w := pairWalk{a: text, b: other, gaps: p.Gaps}
	return p, w.run()
}

// Same says whether two texts are the same JSON value, to the spelling of its numbers and the
// order of its members.
func Same(a, b []byte) bool {
	_, ok := Plan{}.Twin(a, b)
	return ok
}

// pairWalk goes through two valid texts token by token, side by side.
type pairWalk struct {
	a, b []byte
	gaps []Gap // those of a; each bound becomes that of b as it is passed
	done int   // how many bounds are
}

func (w *pairWalk) run() bool {
	for i, j := skipSpace(w.a, 0), skipSpace(w.b, 0); i < len(w.a) && j < len(w.b); {
		from := [2]int{i, j}
		i, j = token(w.a, i), token(w.b, j)
		if !sameToken(w.a[from[0]:i], w.b[from[1]:j]) {
			return false
		}
		w.pass(from, [2]int{i, j})
		i, j = skipSpace(w.a, i), skipSpace(w.b, j)
		if i == len(w.a) || j == len(w.b) {
			return i == len(w.a) && j == len(w.b)
		}
	}
	return false
}

// token is where the token at text[i] ends.
func token(text []byte, i int) int {
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

// pass translates the bounds of gaps that lie on or in a pair of tokens. A gap starts with a
// token and ends with one, unless it is inside a string.
func (w *pairWalk) pass(from, to [2]int) {
	for w.done < 2*len(w.gaps) {
		g := &w.gaps[w.done/2]
		bound, edge := &g.Start, from
		if w.done%2 == 1 {
			bound, edge = &g.End, to
		}
		switch {
		case *bound == edge[0]:
			*bound = edge[1]
		case *bound > from[0] && *bound < to[0]:
			raw := w.a[from[0]+1 : *bound]
			*bound = from[1] + 1 + jsonscan.SkipChars(w.b[from[1]+1:to[1]-1], jsonscan.CountChars(raw))
		default:
			return
		}
		w.done++
	}
}
