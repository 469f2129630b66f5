// Package relevance measures how much the lines of a text have to do with a goal. It holds what the
// scorers of code, logs and documents share: a [Goal] is the words that are looked for, in the
// forms a text may have them; an [Index] says which line has which of them; signal.go turns that
// into scores. Everything is pure and deterministic.
//
// Path through the files: lines.go and words.go split a text into lines, words and the parts of
// names. goal.go reads a goal and finds its words in a line, with the synonyms and stop words of
// lexicon.go. index.go counts them over a text. signal.go weighs, spreads and sums scores.
package relevance

import "strings"

// Lines are the lines of a text, split at line breaks as strings.Split does: a break at the very
// end starts a last, empty line.
type Lines struct {
	Text  string
	Start []int32 // where each line begins, and where one after the last would
}

// Split finds the lines of a text.
func Split(text string) Lines {
	start := make([]int32, 1, strings.Count(text, "\n")+2)
	for at := 0; ; {
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		start = append(start, int32(at))
	}
	return Lines{text, append(start, int32(len(text)+1))}
}

// Count is the number of lines.
func (l Lines) Count() int { return len(l.Start) - 1 }

// At returns line i, counted from 0, without its line break.
func (l Lines) At(i int) string { return l.Text[l.Start[i] : l.Start[i+1]-1] }

// Indent is how many columns a line is indented by; a tab is four.
func Indent(line string) int {
	n := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			n++
		case '\t':
			n += 4 - n%4
		default:
			return n
		}
	}
	return n
}

// HasAnyPrefix reports whether s begins with one of the prefixes.
func HasAnyPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
