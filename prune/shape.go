package prune

import "strings"

// shape is what of a text stays together.
type shape struct {
	must []bool  // stays, whatever the budget (P8)
	atom []int32 // the first line of what a line cannot be cut from; nil when lines stand alone
	code *code   // for what a line of code cannot be read without
}

// finish adds what holds for every kind of text.
func (s *shape) finish(l lines) {
	if s.must == nil {
		s.must = make([]bool, l.count())
	}
	s.protect(l)
	s.hunks(l)
	if last := l.count() - 1; l.at(last) == "" {
		s.must[last] = true // it is the line break that the text ends with
	}
	s.round()
}

// round keeps the whole of an atom of which a part must stay.
func (s *shape) round() {
	if s.atom == nil {
		return
	}
	for first := 0; first < len(s.atom); {
		end, must := first, false
		for ; end < len(s.atom) && s.atom[end] == s.atom[first]; end++ {
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

// protect keeps what the text itself says must be kept, and the lines that say so.
func (s *shape) protect(l lines) {
	if !strings.Contains(l.text, noPruneBegin) {
		return
	}
	inside := false
	for i := range s.must {
		line := l.at(i)
		inside = inside || strings.Contains(line, noPruneBegin)
		s.must[i] = s.must[i] || inside
		if inside && strings.Contains(line, noPruneEnd) {
			inside = false
		}
	}
}

// hunks keeps every hunk of a diff in one piece: half of one cannot be applied, nor understood.
// What says which files differ stays.
func (s *shape) hunks(l lines) {
	if !strings.Contains(l.text, "@@ -") {
		return
	}
	for i := 0; i < l.count(); i++ {
		left, right, ok := hunk(l.at(i))
		if s.atoms(l.count()); !ok || s.atom[i] != int32(i) || i+1 < l.count() && s.atom[i+1] == int32(i) {
			continue // or it is part of something larger, a fenced block say
		}
		for j := i - 1; j >= 0 && isDiffHead(l.at(j)); j-- {
			s.must[j] = true
		}
		first := int32(i)
		for ; i+1 < l.count() && (left > 0 || right > 0 || strings.HasPrefix(l.at(i+1), `\`)); i++ {
			s.atom[i+1] = first
			switch line := l.at(i + 1); {
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

// hunk reads "@@ -12,7 +12,9 @@": how many lines of the old and of the new file follow.
func hunk(line string) (left, right int, ok bool) {
	rest, ok := strings.CutPrefix(line, "@@ -")
	if !ok {
		return 0, 0, false
	}
	from, rest, ok1 := strings.Cut(rest, " +")
	to, _, ok2 := strings.Cut(rest, " @@")
	left, ok3 := span(from)
	right, ok4 := span(to)
	return left, right, ok1 && ok2 && ok3 && ok4
}

// span is how many lines "12,7" are; "12" is one.
func span(s string) (n int, ok bool) {
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

func isDiffHead(line string) bool {
	return hasAnyPrefix(line, "diff ", "--- ", "+++ ", "index ", "new file", "deleted file", "similarity ", "rename ", "old mode", "new mode", "Index: ", "====")
}

// atoms makes every line an atom of its own, unless they are known already.
func (s *shape) atoms(n int) {
	if s.atom != nil {
		return
	}
	s.atom = make([]int32, n)
	for i := range s.atom {
		s.atom[i] = int32(i)
	}
}

// keeper collects the lines that stay.
type keeper struct {
	*shape
	keep  []bool
	taken []bool // stay with all that they cannot be read without
	todo  []int32
}

// take keeps a line and all that it cannot be read without.
func (k *keeper) take(i int32) {
	if k.atom == nil && k.code == nil {
		k.keep[i] = true
		return
	}
	k.todo = append(k.todo[:0], i)
	for len(k.todo) > 0 {
		i = k.todo[len(k.todo)-1]
		k.todo = k.todo[:len(k.todo)-1]
		if k.taken[i] {
			continue
		}
		k.taken[i], k.keep[i] = true, true
		if k.atom != nil {
			k.whole(i)
		}
		if k.code != nil {
			k.todo = k.code.needs(i, k.todo)
		}
	}
}

// whole keeps the atom of a line.
func (k *keeper) whole(i int32) {
	first := k.atom[i]
	for j := first; int(j) < len(k.atom) && k.atom[j] == first; j++ {
		k.keep[j], k.taken[j] = true, true
	}
}
