package prune

import "strings"

// docKind is what a line of a document is.
type docKind uint8

const (
	docText  docKind = iota
	docBlank         // no text at all
	docBare          // no letter or digit: an underline, the end of a block
	docTitle         // a heading
	docFence         // the line that opens a fenced block
	docCode          // inside of one
	docAside         // says nothing by itself: the address of a link, a badge, an entry of a contents list
	docFront         // the settings before a document
	docNote          // a comment of several lines
)

// docShape is how a document is built: what each line is, and what it stands under. Markdown,
// reStructuredText and AsciiDoc are read alike: nothing says which of them a text is.
type docShape struct {
	kind   []docKind
	level  []uint8 // of headings, from 1
	under  []bool  // the line is the rule below or above a heading
	parent []int32 // the line that a line stands under: the item, the directive, the heading; -1 for none
	atom   []int32 // the first line of what a line cannot be cut from
}

func newDocShape(l lines) *docShape {
	n := l.count()
	room := make([]int32, 2*n)
	s := &docShape{
		kind:   make([]docKind, n),
		level:  make([]uint8, n),
		under:  make([]bool, n),
		parent: room[:n],
		atom:   room[n:],
	}
	for i := range s.atom {
		s.atom[i] = int32(i)
	}
	s.markBlocks(l)
	s.markTitles(l)
	s.nest(l)
	return s
}

// shape says what of a document stays, and what stays together (P8): headings with their rules; a
// fenced block, the settings before a document, a comment, the head of a table.
func (s *docShape) shape() shape {
	must := make([]bool, len(s.kind))
	for i, k := range s.kind {
		must[i] = s.under[i] || k == docTitle
	}
	return shape{must: must, atom: s.atom}
}

// markBlocks finds what is closed in itself, and what all other lines are by their looks.
func (s *docShape) markBlocks(l lines) {
	notes := strings.Contains(l.text, "-->")
	for i := s.front(l); i < l.count(); {
		line := strings.TrimSpace(l.at(i))
		switch f := s.opens(l, i, line); {
		case f.len > 0:
			i = s.fenced(l, i, f)
		case notes && strings.HasPrefix(line, "<!--"):
			i, notes = s.note(l, i)
		default:
			s.kind[i] = docKindOf(line)
			if i > 0 && isTableRule(line) && strings.IndexByte(l.at(i-1), '|') >= 0 {
				s.atom[i] = s.atom[i-1]
			}
			i++
		}
	}
}

// join makes first to last one atom, and says what its lines are.
func (s *docShape) join(first, last int, kind docKind) {
	for i := first; i <= last; i++ {
		s.atom[i], s.kind[i] = int32(first), kind
	}
}

// maxFront is how many lines the settings before a document may have: what is longer is a text
// between two rules.
const maxFront = 100

// front gives the first line after the settings that a document may begin with.
func (s *docShape) front(l lines) int {
	mark := strings.TrimRight(l.at(0), " \r")
	if mark != "---" && mark != "+++" || l.count() < 2 || strings.TrimSpace(l.at(1)) == "" {
		return 0
	}
	for i := 1; i < min(l.count(), maxFront); i++ {
		if strings.TrimRight(l.at(i), " \r") == mark {
			s.join(0, i, docFront)
			return i + 1
		}
	}
	return 0
}

// note gives the first line after the comment that line i begins with, and whether there may be
// another: when nothing ends one, nothing ends the next, and looking again would be for nothing.
func (s *docShape) note(l lines, i int) (next int, more bool) {
	n := strings.Index(l.text[l.start[i]:], "-->")
	if n < 0 {
		return i, false
	}
	last, end := i, int(l.start[i])+n
	for int(l.start[last+1]) <= end {
		last++
	}
	switch {
	case last > i:
		s.join(i, last, docNote)
	case strings.HasSuffix(strings.TrimSpace(l.at(i)), "-->"):
		s.kind[i] = docAside
	}
	return last + 1, true
}

// nest finds what each line stands under: the nearest line above that is indented less, in the same
// section; else the heading of the section; of a heading the one of the section around it.
func (s *docShape) nest(l lines) {
	heads := newOutline()
	var open []docOpener
	for i, k := range s.kind {
		switch {
		case k == docTitle:
			s.parent[i] = heads.open(int32(i), int(s.level[i]))
			open = open[:0]
		case k == docBlank || s.under[i]:
			s.parent[i] = heads.last
		default:
			in := indent(l.at(i))
			for len(open) > 0 && open[len(open)-1].indent >= in {
				open = open[:len(open)-1]
			}
			s.parent[i] = heads.last
			if len(open) > 0 {
				s.parent[i] = open[len(open)-1].line
			}
			open = append(open, docOpener{int32(i), in})
		}
	}
}

// docOpener is a line that lines below it may stand under.
type docOpener struct {
	line   int32
	indent int
}

// outline is the path of headings to where one reads.
type outline struct {
	heads [maxLevel + 1]int32 // by level; -1 for none
	last  int32
}

func newOutline() *outline {
	o := &outline{last: -1}
	for v := range o.heads {
		o.heads[v] = -1
	}
	return o
}

// open enters the section of a heading, and gives the heading of the section around it.
func (o *outline) open(head int32, level int) int32 {
	around := int32(-1)
	for v := level - 1; v > 0 && around < 0; v-- {
		around = o.heads[v]
	}
	o.heads[level], o.last = head, head
	for v := level + 1; v <= maxLevel; v++ {
		o.heads[v] = -1
	}
	return around
}
