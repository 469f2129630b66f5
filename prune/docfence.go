package prune

import "strings"

// fenceMark is the mark at both ends of a fenced block.
type fenceMark struct {
	char   byte
	len    int  // 0 for no mark
	bare   bool // nothing follows: it may end a block
	quoted bool // it stands in a quotation: "> ```"
}

// fenceOf reads the mark that a line begins with, if it does.
func fenceOf(line string) fenceMark {
	text := strings.TrimLeft(line, "> ")
	if len(text) < 3 || text[0] != '`' && text[0] != '~' && text[0] != '-' {
		return fenceMark{}
	}
	n := runOf(text)
	rest := strings.TrimSpace(text[n:])
	if n < 3 || text[0] == '`' && strings.IndexByte(rest, '`') >= 0 { // ```code``` in a line of text
		return fenceMark{}
	}
	return fenceMark{text[0], n, rest == "", line[0] == '>'}
}

// ends says whether f ends the block that o opened.
func (f fenceMark) ends(o fenceMark) bool {
	return f.char == o.char && f.len >= o.len && f.bare && f.quoted == o.quoted
}

// opens gives the mark of the block that line i opens, if it does: at its start, or as the text of
// an item.
func (s *docShape) opens(l lines, i int, line string) fenceMark {
	text := line
	if line != "" && isListItem(line) {
		_, text, _ = strings.Cut(line, " ")
		text = strings.TrimSpace(text)
	}
	f := fenceOf(text)
	if f.char == '-' && !s.lists(l, i, f) || f.len > 0 && f.char != '-' && s.adorns(l, i, line) {
		return fenceMark{}
	}
	return f
}

// lists says whether the dashes of line i open a listing of AsciiDoc: "----" under "[source,java]".
func (s *docShape) lists(l lines, i int, f fenceMark) bool {
	if i == 0 || f.len < 4 || !f.bare {
		return false
	}
	above := strings.TrimSpace(l.at(i - 1))
	return strings.HasPrefix(above, "[") && strings.HasSuffix(above, "]")
}

// adorns says whether line i, of nothing but ` or ~, is the rule below or above a title of
// reStructuredText, and opens no block.
func (s *docShape) adorns(l lines, i int, line string) bool {
	if len(line) < 4 || runOf(line) != len(line) {
		return false
	}
	if i > 0 && s.kind[i-1] == docText && (i == 1 || s.kind[i-2] == docBlank || s.kind[i-2] == docBare) {
		return underlines(line, l.at(i-1))
	}
	return len(line) > 4 && i+2 < l.count() && strings.TrimSpace(l.at(i+2)) == line &&
		hasWord(l.at(i+1)) && underlines(line, l.at(i+1))
}

// fenced gives the first line after the block that line i opens. One that nothing ends goes on to
// the end of the text, or of the quotation that it stands in.
func (s *docShape) fenced(l lines, i int, open fenceMark) int {
	last, done := i, false
	for !done && last+1 < l.count() {
		line := strings.TrimSpace(l.at(last + 1))
		if open.quoted && !strings.HasPrefix(line, ">") {
			break
		}
		done = fenceOf(line).ends(open)
		last++
	}
	s.join(i, last, docCode)
	for k := i + 1; k <= last; k++ {
		if kind := docKindOf(strings.TrimSpace(l.at(k))); kind == docBlank || kind == docBare {
			s.kind[k] = kind
		}
	}
	s.kind[i] = docFence
	return last + 1
}

// runOf is how often the first byte of a line is repeated at its start. The line is not empty.
func runOf(line string) int {
	n := 1
	for n < len(line) && line[n] == line[0] {
		n++
	}
	return n
}
