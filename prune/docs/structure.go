package docs

import (
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// docKind is the kind of a line.
type docKind uint8

const (
	docText        docKind = iota
	docBlank               // empty
	docPunctuation         // no letter or digit: an underline, the end of a block
	docTitle               // a heading
	docFence               // the line that opens a fenced block
	docCode                // inside a fenced block
	docLink                // only a link: its address, a badge, an entry of a table of contents
	docFrontMatter         // settings before the document
	docComment             // a multi-line comment
)

// Structure says what each line of a document is and what it is nested in. Markdown, reStructuredText
// and AsciiDoc are read by the same rules: a text does not say which of them it is.
type Structure struct {
	kinds   []docKind
	levels  []uint8 // of headings, from 1
	isRule  []bool  // it is the rule below or above a heading
	parents []int32 // the enclosing list item, directive or heading; -1 for none
	Atoms   []int32 // the first line of the run that a line cannot be separated from
}

// Parse reads a text as a document.
func Parse(l relevance.Lines) *Structure {
	n := l.Count()
	room := make([]int32, 2*n)
	s := &Structure{
		kinds:   make([]docKind, n),
		levels:  make([]uint8, n),
		isRule:  make([]bool, n),
		parents: room[:n],
		Atoms:   room[n:],
	}
	for i := range s.Atoms {
		s.Atoms[i] = int32(i)
	}
	s.markBlocks(l)
	s.markTitles(l)
	s.findParents(l)
	return s
}

// MustKeep returns the lines that stay whatever the budget (P8): headings with their rules.
func (s *Structure) MustKeep() []bool {
	must := make([]bool, len(s.kinds))
	for i, k := range s.kinds {
		must[i] = s.isRule[i] || k == docTitle
	}
	return must
}

// markBlocks finds fenced blocks, comments and table heads, and classifies all other lines.
func (s *Structure) markBlocks(l relevance.Lines) {
	comments := strings.Contains(l.Text, "-->")
	for i := s.parseFrontMatter(l); i < l.Count(); {
		line := strings.TrimSpace(l.At(i))
		switch f := s.openingFence(l, i, line); {
		case f.len > 0:
			i = s.parseFenced(l, i, f)
		case comments && strings.HasPrefix(line, "<!--"):
			i, comments = s.parseComment(l, i)
		default:
			s.kinds[i] = classifyLine(line)
			if i > 0 && isTableRule(line) && strings.IndexByte(l.At(i-1), '|') >= 0 {
				s.Atoms[i] = s.Atoms[i-1]
			}
			i++
		}
	}
}

// joinLines makes the lines first to last one atom of a kind.
func (s *Structure) joinLines(first, last int, kind docKind) {
	for i := first; i <= last; i++ {
		s.Atoms[i], s.kinds[i] = int32(first), kind
	}
}

// maxFront bounds front matter: anything longer is text between two rules.
const maxFront = 100

// parseFrontMatter returns the first line after the front matter; 0 if there is none.
func (s *Structure) parseFrontMatter(l relevance.Lines) int {
	mark := strings.TrimRight(l.At(0), " \r")
	if mark != "---" && mark != "+++" || l.Count() < 2 || strings.TrimSpace(l.At(1)) == "" {
		return 0
	}
	for i := 1; i < min(l.Count(), maxFront); i++ {
		if strings.TrimRight(l.At(i), " \r") == mark {
			s.joinLines(0, i, docFrontMatter)
			return i + 1
		}
	}
	return 0
}

// parseComment returns the first line after the comment that begins on line i. more is false if the
// comment has no end: then no later one has, and the text need not be searched again.
func (s *Structure) parseComment(l relevance.Lines, i int) (next int, more bool) {
	n := strings.Index(l.Text[l.Start[i]:], "-->")
	if n < 0 {
		return i, false
	}
	last, end := i, int(l.Start[i])+n
	for int(l.Start[last+1]) <= end {
		last++
	}
	switch {
	case last > i:
		s.joinLines(i, last, docComment)
	case strings.HasSuffix(strings.TrimSpace(l.At(i)), "-->"):
		s.kinds[i] = docLink
	}
	return last + 1, true
}

// findParents finds the parent of each line: the nearest line above that is indented less, in the same
// section, or else the heading of the section. The parent of a heading is the next higher one.
func (s *Structure) findParents(l relevance.Lines) {
	heads := newHeadingPath()
	var open []indentedLine
	for i, k := range s.kinds {
		switch {
		case k == docTitle:
			s.parents[i] = heads.enterSection(int32(i), int(s.levels[i]))
			open = open[:0]
		case k == docBlank || s.isRule[i]:
			s.parents[i] = heads.last
		default:
			in := relevance.Indent(l.At(i))
			for len(open) > 0 && open[len(open)-1].indent >= in {
				open = open[:len(open)-1]
			}
			s.parents[i] = heads.last
			if len(open) > 0 {
				s.parents[i] = open[len(open)-1].line
			}
			open = append(open, indentedLine{int32(i), in})
		}
	}
}

// indentedLine is a line that lines below it may be nested in.
type indentedLine struct {
	line   int32
	indent int
}

// headingPath is the headings above the current line, by level.
type headingPath struct {
	heads [maxLevel + 1]int32 // by level; -1 for none
	last  int32
}

func newHeadingPath() *headingPath {
	o := &headingPath{last: -1}
	for v := range o.heads {
		o.heads[v] = -1
	}
	return o
}

// enterSection adds a heading and returns the next higher one, or -1.
func (o *headingPath) enterSection(head int32, level int) int32 {
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
