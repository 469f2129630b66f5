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

// WriteLines writes the asked lines of text in the order asked, each ended by a line break.
// Numbered lines look like "12│ text". A range past the last line gives what there is of it.
//
// The empty line after a break at the very end is given only to who asks for it by its number:
// the pruner counts it, and a marker may end with it (P4), but nobody takes it for a line.
func WriteLines(w io.Writer, text []byte, ranges []Range, number bool) error {
	out := bufio.NewWriter(w)
	for _, r := range ranges {
		next := 1
		for n, line := range lines(text) {
			if n > r.Last {
				break
			}
			if n >= r.First {
				writeLine(out, n, line, number)
			}
			next = n + 1
		}
		if bytes.HasSuffix(text, []byte("\n")) && (next == r.First || next == r.Last) {
			writeLine(out, next, nil, number)
		}
	}
	return out.Flush()
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
