package docs

import (
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// fenceMark opens or closes a fenced block.
type fenceMark struct {
	char   byte
	len    int  // 0 if there is none
	bare   bool // nothing follows: it may close a block
	quoted bool // it is in a quotation: "> ```"
}

// parseFence reads the mark that a line may begin with.
func parseFence(line string) fenceMark {
	text := strings.TrimLeft(line, "> ")
	if len(text) < 3 || text[0] != '`' && text[0] != '~' && text[0] != '-' {
		return fenceMark{}
	}
	n := runLength(text)
	rest := strings.TrimSpace(text[n:])
	if n < 3 || text[0] == '`' && strings.IndexByte(rest, '`') >= 0 { // ```code``` in a line of text
		return fenceMark{}
	}
	return fenceMark{text[0], n, rest == "", line[0] == '>'}
}

// closes reports whether f closes the block that o opened.
func (f fenceMark) closes(o fenceMark) bool {
	return f.char == o.char && f.len >= o.len && f.bare && f.quoted == o.quoted
}

// openingFence returns the mark of the block that line i may open, at its start or as the text of a
// list item.
func (s *Structure) openingFence(l relevance.Lines, i int, line string) fenceMark {
	text := line
	if line != "" && isListItem(line) {
		_, text, _ = strings.Cut(line, " ")
		text = strings.TrimSpace(text)
	}
	f := parseFence(text)
	if f.char == '-' && !s.opensListing(l, i, f) || f.len > 0 && f.char != '-' && s.isTitleRule(l, i, line) {
		return fenceMark{}
	}
	return f
}

// opensListing reports whether the dashes of line i open a listing of AsciiDoc: "----" under "[source,java]".
func (s *Structure) opensListing(l relevance.Lines, i int, f fenceMark) bool {
	if i == 0 || f.len < 4 || !f.bare {
		return false
	}
	above := strings.TrimSpace(l.At(i - 1))
	return strings.HasPrefix(above, "[") && strings.HasSuffix(above, "]")
}

// isTitleRule reports whether line i, of nothing but ` or ~, is the rule below or above a title of
// reStructuredText and not a fence.
func (s *Structure) isTitleRule(l relevance.Lines, i int, line string) bool {
	if len(line) < 4 || runLength(line) != len(line) {
		return false
	}
	if i > 0 && s.kinds[i-1] == docText && (i == 1 || s.kinds[i-2] == docBlank || s.kinds[i-2] == docPunctuation) {
		return isTitleUnderline(line, l.At(i-1))
	}
	return len(line) > 4 && i+2 < l.Count() && strings.TrimSpace(l.At(i+2)) == line &&
		hasWord(l.At(i+1)) && isTitleUnderline(line, l.At(i+1))
}

// parseFenced makes the block that line i opens one atom and returns the line after it. A block without
// an end goes to the end of the text, or of the quotation around it.
func (s *Structure) parseFenced(l relevance.Lines, i int, open fenceMark) int {
	last, done := i, false
	for !done && last+1 < l.Count() {
		line := strings.TrimSpace(l.At(last + 1))
		if open.quoted && !strings.HasPrefix(line, ">") {
			break
		}
		done = parseFence(line).closes(open)
		last++
	}
	s.joinLines(i, last, docCode)
	for k := i + 1; k <= last; k++ {
		if kind := classifyLine(strings.TrimSpace(l.At(k))); kind == docBlank || kind == docPunctuation {
			s.kinds[k] = kind
		}
	}
	s.kinds[i] = docFence
	return last + 1
}

// runLength is how often the first byte of a line, which is not empty, is repeated at its start.
func runLength(line string) int {
	n := 1
	for n < len(line) && line[n] == line[0] {
		n++
	}
	return n
}
