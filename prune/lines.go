package prune

import "strings"

// lines are the lines of a text, as strings.Split would part it at line breaks: a break at the
// very end starts a last, empty line.
type lines struct {
	text  string
	start []int32 // where each line begins, and where one after the last would
}

func split(text string) lines {
	start := make([]int32, 1, strings.Count(text, "\n")+2)
	for at := 0; ; {
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		start = append(start, int32(at))
	}
	return lines{text, append(start, int32(len(text)+1))}
}

func (l lines) count() int { return len(l.start) - 1 }

// at is line i, counted from 0, without its line break.
func (l lines) at(i int) string { return l.text[l.start[i] : l.start[i+1]-1] }

// indent is how far a line is indented, a tab as four columns.
func indent(line string) int {
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
