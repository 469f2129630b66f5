package recall

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"
)

// Range is a span of lines, first and last included, counted from 1.
type Range struct{ First, Last int }

// ParseRanges reads "10-20,35,90-" as a command line has it.
func ParseRanges(s string) ([]Range, error) {
	var ranges []Range
	for _, field := range strings.Split(s, ",") {
		first, last, isSpan := strings.Cut(strings.TrimSpace(field), "-")
		a, err := strconv.Atoi(first)
		b := a
		switch {
		case err == nil && isSpan && last == "":
			b = maxLine
		case err == nil && isSpan:
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 1 || b < a {
			return nil, fmt.Errorf("%q is not a range of lines: write 10-20, 35 or 90-", field)
		}
		ranges = append(ranges, Range{a, b})
	}
	return ranges, nil
}

const maxLine = int(^uint(0) >> 1)

// Lines is a text parted into lines as strings.Split would part it: a break at the very end starts
// a last, empty one, which the pruner counts too (P4).
type Lines struct {
	text  []byte
	start []int // where each begins, and where one after the last would
}

// Split parts a text into lines.
func Split(text []byte) Lines {
	start := make([]int, 1, bytes.Count(text, []byte("\n"))+2)
	for i, c := range text {
		if c == '\n' {
			start = append(start, i+1)
		}
	}
	return Lines{text, append(start, len(text)+1)}
}

// Count is how many lines there are.
func (l Lines) Count() int { return len(l.start) - 1 }

// Size is how many bytes the lines of a range are, each with a line break.
func (l Lines) Size(r Range) int {
	if r.First > l.Count() {
		return 0
	}
	return l.start[min(r.Last, l.Count())] - l.start[r.First-1]
}

// Append appends the lines of a range, each ended by a line break. Numbered lines look like
// "12│ text". A range past the last line gives what there is of it.
func (l Lines) Append(dst []byte, r Range, number bool) []byte {
	for n := r.First; n <= min(r.Last, l.Count()); n++ {
		if number {
			dst = append(strconv.AppendInt(dst, int64(n), 10), "│ "...)
		}
		dst = append(append(dst, l.text[l.start[n-1]:l.start[n]-1]...), '\n')
	}
	return dst
}

// WriteLines writes the asked lines of text in the order asked.
//
// The empty line after a break at the very end is given only to who asks for it by its number: a
// marker may end with it, but nobody takes it for a line.
func WriteLines(w io.Writer, text []byte, ranges []Range, number bool) error {
	if len(text) == 0 {
		return nil
	}
	l := Split(text)
	count := l.Count()
	for _, r := range ranges {
		if r.First < count && r.Last > count {
			r.Last = count
			if l.text[len(text)-1] == '\n' {
				r.Last--
			}
		}
		if _, err := w.Write(l.Append(nil, r, number)); err != nil {
			return err
		}
	}
	return nil
}

// WriteMatches writes the lines of text that match, within ranges when there are any.
func WriteMatches(w io.Writer, text []byte, re *regexp.Regexp, ranges []Range, number bool) error {
	out := bufio.NewWriter(w)
	for n, line := range lines(text) {
		if inAny(n, ranges) && re.Match(line) {
			writeLine(out, n, line, number)
		}
	}
	return out.Flush()
}

func inAny(n int, ranges []Range) bool {
	for _, r := range ranges {
		if n >= r.First && n <= r.Last {
			return true
		}
	}
	return len(ranges) == 0
}

func writeLine(out *bufio.Writer, n int, line []byte, number bool) {
	if number {
		_, _ = out.WriteString(strconv.Itoa(n) + "│ ")
	}
	_, _ = out.Write(line)
	_ = out.WriteByte('\n') // the writer keeps its first error for Flush
}

// lines yields the lines of text with their numbers. A line break at the very end ends the last
// line and starts no other.
func lines(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for n := 1; len(text) > 0; n++ {
			line, rest, _ := bytes.Cut(text, []byte("\n"))
			if !yield(n, line) {
				return
			}
			text = rest
		}
	}
}
