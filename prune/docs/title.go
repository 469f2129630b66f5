package docs

import (
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// maxLevel is the deepest level of headings; deeper ones count as this level.
const maxLevel = 7

// maxTitle bounds a heading in bytes: anything longer is text above a rule.
const maxTitle = 200

// markTitles finds the headings: "# Markdown", "== AsciiDoc", text above a rule or between two
// (setext, reStructuredText), "2.1 Numbers", "<h2>".
func (s *Structure) markTitles(l relevance.Lines) {
	var signs []titleStyle
	for i, k := range s.kinds {
		if k != docText {
			continue
		}
		line := strings.TrimRight(l.At(i), " \t\r")
		switch {
		case titleLevel(line) > 0:
			s.setTitle(i, titleLevel(line))
		case i+1 < len(s.kinds) && s.kinds[i+1] == docPunctuation && s.Atoms[i+1] == int32(i+1):
			signs = s.markRuledTitle(l, i, line, signs)
		case s.startsParagraph(i) && (i+1 == len(s.kinds) || s.kinds[i+1] == docBlank):
			if level := numberedTitleLevel(line); level > 0 {
				s.setTitle(i, level)
			}
		}
	}
}

func (s *Structure) setTitle(i, level int) {
	s.kinds[i], s.levels[i] = docTitle, uint8(min(level, maxLevel))
}

// startsParagraph reports whether the line above line i is empty or front matter.
func (s *Structure) startsParagraph(i int) bool {
	return i == 0 || s.kinds[i-1] == docBlank || s.kinds[i-1] == docFrontMatter
}

// markRuledTitle makes line i a heading if the rules around it say so. Each new style of rules is one
// level deeper, as in reStructuredText. It returns the styles found so far.
func (s *Structure) markRuledTitle(l relevance.Lines, i int, line string, signs []titleStyle) []titleStyle {
	below := strings.TrimRight(l.At(i+1), " \t\r")
	if len(line) > maxTitle || !isTitleUnderline(below, line) {
		return signs
	}
	both := i > 0 && s.kinds[i-1] == docPunctuation && strings.TrimRight(l.At(i-1), " \t\r") == below
	if !both && !s.mayBeTitle(i, line, below[0]) {
		return signs
	}
	first := i
	if both {
		first = i - 1
	}
	for k := first; k <= i+1; k++ {
		s.Atoms[k], s.isRule[k] = int32(first), k != i
	}
	sign := titleStyle{below[0], both}
	for at, old := range signs {
		if old == sign {
			s.setTitle(i, at+1)
			return signs
		}
	}
	s.setTitle(i, len(signs)+1)
	return append(signs, sign)
}

// titleStyle is the rules of a heading.
type titleStyle struct {
	char byte
	both bool // also above the title
}

// mayBeTitle reports whether a line with a rule only below it may be a heading. In Markdown a rule of
// = or - may also follow several lines of text.
func (s *Structure) mayBeTitle(i int, line string, sign byte) bool {
	switch {
	case line[0] == ' ' || line[0] == '\t' || isListItem(line) || strings.HasPrefix(line, ".. "):
		return false
	case line[0] == '|' || line[0] == '>':
		return false
	}
	return s.startsParagraph(i) || sign == '=' || sign == '-'
}

// isTitleUnderline reports whether a line repeats one sign, about as often as the title is long. Two
// of = or - are enough, as in Markdown.
func isTitleUnderline(rule, title string) bool {
	if rule == "" || strings.IndexByte("=-~^`\"'*+#:._<>", rule[0]) < 0 || runLength(rule) != len(rule) {
		return false
	}
	if rule[0] == '=' || rule[0] == '-' {
		return len(rule) >= 2
	}
	return len(rule) >= 3 && len(rule)+1 >= utf8.RuneCountInString(strings.TrimSpace(title))
}

// titleLevel returns the level of a heading that begins with signs ("## "), or 0.
func titleLevel(line string) int {
	text := line
	if at := relevance.Indent(line); at > 0 && at <= 3 && at < len(line) && line[at] == '#' {
		text = line[at:]
	}
	switch n := runLength(text); text[0] {
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

// numberedTitleLevel returns the level of a title such as "2.1 Scope"; 0 if the line may be something
// else, such as a list item or a sentence.
func numberedTitleLevel(line string) int {
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
