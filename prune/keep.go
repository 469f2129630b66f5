package prune

import (
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// keepRules say which lines of a text stay, and which only together.
type keepRules struct {
	must      []bool                                  // stays, whatever the budget (P8)
	protected []int32                                 // the lines that the text itself marks so
	atoms     []int32                                 // the first line of the run that a line cannot be separated from; nil if lines are independent
	requires  func(line int32, lines []int32) []int32 // appends the lines that a line cannot be read without; nil for none
}

// addCommonRules adds the rules for every kind of text.
func (s *keepRules) addCommonRules(l relevance.Lines) {
	if s.must == nil {
		s.must = make([]bool, l.Count())
	}
	s.keepProtected(l)
	s.joinHunks(l)
	if last := l.Count() - 1; l.At(last) == "" {
		s.must[last] = true // the text ends with a line break, which stays
	}
	s.completeAtoms()
}

// completeAtoms keeps all of an atom if a part of it must stay.
func (s *keepRules) completeAtoms() {
	if s.atoms == nil {
		return
	}
	for first := 0; first < len(s.atoms); {
		end, must := first, false
		for ; end < len(s.atoms) && s.atoms[end] == s.atoms[first]; end++ {
			must = must || s.must[end]
		}
		for i := first; must && i < end; i++ {
			s.must[i] = true
		}
		first = end
	}
}

const (
	noPruneBegin = "⟦NO_PRUNE_BEGIN⟧"
	noPruneEnd   = "⟦NO_PRUNE_END⟧"
)

// keepProtected keeps what the text marks as protected, with the marks.
func (s *keepRules) keepProtected(l relevance.Lines) {
	if !strings.Contains(l.Text, noPruneBegin) {
		return
	}
	inside := false
	for i := range s.must {
		line := l.At(i)
		inside = inside || strings.Contains(line, noPruneBegin)
		if inside {
			s.must[i] = true
			s.protected = append(s.protected, int32(i))
		}
		if inside && strings.Contains(line, noPruneEnd) {
			inside = false
		}
	}
}

// joinHunks makes every hunk of a diff an atom, since half of one cannot be applied, and keeps the lines
// above it that name the files.
func (s *keepRules) joinHunks(l relevance.Lines) {
	if !strings.Contains(l.Text, "@@ -") {
		return
	}
	for i := 0; i < l.Count(); i++ {
		left, right, ok := parseHunkHeader(l.At(i))
		if s.ensureAtoms(l.Count()); !ok || s.atoms[i] != int32(i) || i+1 < l.Count() && s.atoms[i+1] == int32(i) {
			continue // no hunk, or part of a larger atom such as a fenced block
		}
		for j := i - 1; j >= 0 && isDiffHeader(l.At(j)); j-- {
			s.must[j] = true
		}
		first := int32(i)
		for ; i+1 < l.Count() && (left > 0 || right > 0 || strings.HasPrefix(l.At(i+1), `\`)); i++ {
			s.atoms[i+1] = first
			switch line := l.At(i + 1); {
			case strings.HasPrefix(line, "-"):
				left--
			case strings.HasPrefix(line, "+"):
				right--
			default:
				left--
				right--
			}
		}
	}
}

// parseHunkHeader reads "@@ -12,7 +12,9 @@" and returns how many lines of the old and the new file follow.
func parseHunkHeader(line string) (left, right int, ok bool) {
	rest, ok := strings.CutPrefix(line, "@@ -")
	if !ok {
		return 0, 0, false
	}
	from, rest, ok1 := strings.Cut(rest, " +")
	to, _, ok2 := strings.Cut(rest, " @@")
	left, ok3 := parseHunkRange(from)
	right, ok4 := parseHunkRange(to)
	return left, right, ok1 && ok2 && ok3 && ok4
}

// parseHunkRange returns how many lines "12,7" covers; "12" is one line.
func parseHunkRange(s string) (n int, ok bool) {
	start, many, found := strings.Cut(s, ",")
	if !found {
		many = "1"
	}
	if len(start) == 0 || len(many) == 0 || len(many) > 6 {
		return 0, false
	}
	for _, c := range []byte(start) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	for _, c := range []byte(many) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

func isDiffHeader(line string) bool {
	return relevance.HasAnyPrefix(line, "diff ", "--- ", "+++ ", "index ", "new file", "deleted file", "similarity ", "rename ", "old mode", "new mode", "Index: ", "====")
}

// ensureAtoms makes every line an atom of its own if there are no atoms yet.
func (s *keepRules) ensureAtoms(n int) {
	if s.atoms != nil {
		return
	}
	s.atoms = make([]int32, n)
	for i := range s.atoms {
		s.atoms[i] = int32(i)
	}
}

// atomOf returns the first and the last line of the run that a line cannot be separated from.
func (s *keepRules) atomOf(i int32) (first, last int32) {
	if s.atoms == nil {
		return i, i
	}
	for last = i; int(last)+1 < len(s.atoms) && s.atoms[last+1] == s.atoms[i]; {
		last++
	}
	return s.atoms[i], last
}

// keptLines collects the lines that stay.
type keptLines struct {
	*keepRules
	keep       []bool
	isComplete []bool // lines that are kept with everything they require
	todo       []int32
}

// keepLine keeps a line with its atom and everything it requires.
func (k *keptLines) keepLine(i int32) {
	if k.atoms == nil && k.requires == nil {
		k.keep[i] = true
		return
	}
	k.todo = append(k.todo[:0], i)
	for len(k.todo) > 0 {
		i = k.todo[len(k.todo)-1]
		k.todo = k.todo[:len(k.todo)-1]
		if k.isComplete[i] {
			continue
		}
		k.isComplete[i], k.keep[i] = true, true
		if k.atoms != nil {
			first := k.atoms[i]
			for j := first; int(j) < len(k.atoms) && k.atoms[j] == first; j++ {
				k.keep[j], k.isComplete[j] = true, true
			}
		}
		if k.requires != nil {
			k.todo = k.requires(i, k.todo)
		}
	}
}
