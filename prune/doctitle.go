package prune

import (
	"strings"
	"unicode/utf8"
)

// maxLevel is how deep headings nest; deeper ones count as this deep.
const maxLevel = 7

// maxTitle is how many bytes a heading may have: what is longer is text over a rule.
const maxTitle = 200

// markTitles finds the headings: "# Markdown", "== AsciiDoc", text above a rule or between two
// (setext, reStructuredText), "2.1 Numbers", "<h2>".
func (s *docShape) markTitles(l lines) {
	var signs []titleSign
	for i, k := range s.kind {
		if k != docText {
			continue
		}
		line := strings.TrimRight(l.at(i), " \t\r")
		switch {
		case titleLevel(line) > 0:
			s.title(i, titleLevel(line))
		case i+1 < len(s.kind) && s.kind[i+1] == docBare && s.atom[i+1] == int32(i+1):
			signs = s.ruled(l, i, line, signs)
		case s.startsText(i) && (i+1 == len(s.kind) || s.kind[i+1] == docBlank):
			if level := numberLevel(line); level > 0 {
				s.title(i, level)
			}
		}
	}
}

func (s *docShape) title(i, level int) {
	s.kind[i], s.level[i] = docTitle, uint8(min(level, maxLevel))
}

// startsText says whether nothing stands right above line i.
func (s *docShape) startsText(i int) bool {
	return i == 0 || s.kind[i-1] == docBlank || s.kind[i-1] == docFront
}

// ruled makes line i a heading when the rules around it say so. Each new sort of rule is a level
// deeper, as reStructuredText has it.
func (s *docShape) ruled(l lines, i int, line string, signs []titleSign) []titleSign {
	below := strings.TrimRight(l.at(i+1), " \t\r")
	if len(line) > maxTitle || !underlines(below, line) {
		return signs
	}
	both := i > 0 && s.kind[i-1] == docBare && strings.TrimRight(l.at(i-1), " \t\r") == below
	if !both && !s.mayHead(i, line, below[0]) {
		return signs
	}
	first := i
	if both {
		first = i - 1
	}
	for k := first; k <= i+1; k++ {
		s.atom[k], s.under[k] = int32(first), k != i
	}
	sign := titleSign{below[0], both}
	for at, old := range signs {
		if old == sign {
			s.title(i, at+1)
			return signs
		}
	}
	s.title(i, len(signs)+1)
	return append(signs, sign)
}

// titleSign is how a heading is marked by rules.
type titleSign struct {
	char byte
	both bool // above it too
}

// mayHead says whether a line with a rule below it only may be a heading. Markdown has them under
// more lines of text too, but of = and - alone.
func (s *docShape) mayHead(i int, line string, sign byte) bool {
	switch {
	case line[0] == ' ' || line[0] == '\t' || isListItem(line) || strings.HasPrefix(line, ".. "):
		return false
	case line[0] == '|' || line[0] == '>':
		return false
	}
	return s.startsText(i) || sign == '=' || sign == '-'
}

// underlines says whether a line is one sign again and again, about as long as the title. Of = and -
// two are enough, as Markdown has it.
func underlines(rule, title string) bool {
	if rule == "" || strings.IndexByte("=-~^`\"'*+#:._<>", rule[0]) < 0 || runOf(rule) != len(rule) {
		return false
	}
	if rule[0] == '=' || rule[0] == '-' {
		return len(rule) >= 2
	}
	return len(rule) >= 3 && len(rule)+1 >= utf8.RuneCountInString(strings.TrimSpace(title))
}

// titleLevel is the level of a heading that begins with its sign; 0 for other lines.
func titleLevel(line string) int {
	text := line
	if at := indent(line); at > 0 && at <= 3 && at < len(line) && line[at] == '#' {
		text = line[at:]
	}
	switch n := runOf(text); text[0] {
	case '#':
		if n <= 6 && (n == len(text) || text[n] == ' ' || text[n] == '\t') {
			return n
		}
	case '=':
		if n <= 6 && n < len(text) && text[n] == ' ' {
			return n
		}
	case '<':
		if len(text) > 3 && text[1]|0x20 == 'h' && text[2] >= '1' && text[2] <= '6' && (text[3] == '>' || text[3] == ' ') {
			return int(text[2] - '0')
		}
	}
	return 0
}

// numberLevel is the level of a title such as "2.1 Scope", by its numbers; 0 when it may be
// something else: an item of a list, a sentence.
func numberLevel(line string) int {
	at, level := 0, 0
	for at < len(line) && isDigit(line[at]) {
		for at < len(line) && isDigit(line[at]) {
			at++
		}
		level++
		if at < len(line) && line[at] == '.' {
			at++
		}
	}
	if level < 2 || at+1 >= len(line) || line[at] != ' ' || len(line) > 80 {
		return 0
	}
	first, last := line[at+1], line[len(line)-1]
	if first >= 'a' && first <= 'z' || !hasWord(line[at:]) || strings.IndexByte(".,;:!?", last) >= 0 {
		return 0
	}
	return level
}
