package recall

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Range is a span of lines, first and last included, counted from 1.
type Range struct{ First, Last int }

const maxLine = int(^uint(0) >> 1)

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

// eachOnce divides ranges so that every line is in one of them only: the first that asks for it. The
// order stays. It also gives the same lines as ranges in the order of the text that do not overlap.
func eachOnce(ranges []Range) (asked []piece, covered []Range) {
	for _, r := range ranges {
		from, _ := slices.BinarySearchFunc(covered, r.First, func(c Range, line int) int { return cmp.Compare(c.Last, line) })
		to, next, union := from, r.First, r
		for ; to < len(covered) && covered[to].First <= r.Last; to++ {
			c := covered[to]
			if next < c.First {
				asked = append(asked, piece{Range{next, c.First - 1}, r})
			}
			union = Range{min(union.First, c.First), max(union.Last, c.Last)}
			if next = c.Last + 1; c.Last == maxLine {
				next = maxLine
			}
		}
		if next <= r.Last && (to == from || covered[to-1].Last < r.Last) {
			asked = append(asked, piece{Range{next, r.Last}, r})
		}
		covered = slices.Replace(covered, from, to, union)
	}
	return asked, covered
}

// piece is a part of a range that no earlier range has.
type piece struct {
	Range
	of Range
}

// lineReader collects lines of a text that comes in blocks. The text is read once, from the beginning,
// while lines may be asked for in any order, so every piece has a buffer of its own. What they hold
// together is bounded: when it is too much, the pieces that were asked for last lose their end.
type lineReader struct {
	buffer
	number, joined bool

	segments []segment // in the order asked
	order    []int     // segments in the order of the text
	at       int       // in order: the segment that the current line is in or before
	last     int       // the last segment that is not given up
	held     int       // bytes of all segments
	cut      bool      // some was given up

	line  int  // the current one
	begun bool // some of it was read
	chars int  // characters read
	steps int
}

type segment struct {
	piece
	text  []byte
	start int // characters before it
}

func newLineReader(buf buffer, w Wish) *lineReader {
	ranges := w.Ranges
	if len(ranges) == 0 {
		ranges = []Range{{1, maxLine}}
	}
	asked, _ := eachOnce(ranges)
	l := &lineReader{buffer: buf, number: w.Number, joined: w.Joined, line: 1, last: len(asked) - 1}
	for i, p := range asked {
		l.segments = append(l.segments, segment{piece: p})
		l.order = append(l.order, i)
	}
	slices.SortFunc(l.order, func(a, b int) int { return cmp.Compare(asked[a].First, asked[b].First) })
	return l
}

// read reads a block. It ends with errEnough when nothing more is needed.
func (l *lineReader) read(ctx context.Context, block []byte) error {
	for len(block) > 0 {
		if l.steps++; l.steps%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l.advance()
		if l.at == len(l.order) {
			return errEnough
		}
		i := l.order[l.at]
		if n := l.segments[i].First - l.line; n > 0 {
			block = l.skip(block, n)
			continue
		}
		part := block
		end := bytes.IndexByte(block, '\n')
		if end >= 0 {
			part = block[:end+1]
		}
		if err := l.add(i, part); err != nil {
			return err
		}
		block = block[len(part):]
		if l.begun = end < 0; !l.begun {
			l.line++
		}
	}
	return nil
}

// advance goes to the segment that the current line is in or before. Segments that can get no more
// are passed over.
func (l *lineReader) advance() {
	for ; l.at < len(l.order); l.at++ {
		i := l.order[l.at]
		if full := i > l.last || l.cut && i == l.last; !full && l.segments[i].Last >= l.line {
			return
		}
	}
}

// skip passes n line breaks, or as many as there are.
func (l *lineReader) skip(block []byte, n int) (rest []byte) {
	end, passed := passLines(block, n)
	l.line += passed
	l.begun = end > 0 && block[end-1] != '\n'
	l.chars += utf8.RuneCount(block[:end])
	return block[end:]
}

// passLines is where the line after n line breaks begins, and how many there were.
func passLines(block []byte, n int) (end, passed int) {
	if have := bytes.Count(block, []byte{'\n'}); have < n {
		return len(block), have
	}
	for ; passed < n; passed++ {
		end += bytes.IndexByte(block[end:], '\n') + 1
	}
	return end, passed
}

// add adds a part of the current line to a segment, with its number where the line begins.
func (l *lineReader) add(i int, part []byte) error {
	s := &l.segments[i]
	before := len(s.text)
	if before == 0 {
		s.start = l.chars
	}
	l.chars += utf8.RuneCount(part)
	var err error
	if l.number && !l.begun {
		l.scratch = appendNumber(l.scratch[:0], l.line)
		s.text, err = l.append(s.text, l.scratch...)
	}
	if err == nil {
		s.text, err = l.append(s.text, part...)
	}
	l.held += len(s.text) - before
	l.trim()
	return err
}

func appendNumber(dst []byte, n int) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), "│ "...)
}

// trim gives up what was asked for last until the rest is within the limit. One byte more is kept, so
// that it shows that there is more.
func (l *lineReader) trim() {
	if l.limit.Bytes == 0 {
		return
	}
	for excess := l.held - l.limit.Bytes - 1; excess > 0; excess = l.held - l.limit.Bytes - 1 {
		l.cut = true
		s := &l.segments[l.last]
		n := min(excess, len(s.text))
		s.text = s.text[:len(s.text)-n]
		l.held -= n
		if len(s.text) == 0 && l.last > 0 {
			l.free(s.text)
			s.text = nil
			l.last--
		}
	}
}

// finish is told that the text has ended. The empty line after a line break at the very end counts:
// markers may name it. But unless lines are joined, as the pruner gives them, only who asks for it by
// its number gets it: nobody takes it for a line.
func (l *lineReader) finish() error {
	l.advance()
	if l.at == len(l.order) || l.segments[l.order[l.at]].First > l.line {
		return nil
	}
	i := l.order[l.at]
	of := l.segments[i].of
	switch {
	case l.begun, l.joined, l.line > 1 && (of.First == l.line || of.Last == l.line):
		return l.add(i, lineBreak)
	}
	return nil
}

// result puts the segments together, as far as they fit.
func (l *lineReader) result(chars int64) Reading {
	var all []byte
	if len(l.segments) == 1 {
		all = l.segments[0].text
	} else {
		all = make([]byte, 0, l.held)
		for _, s := range l.segments {
			all = append(all, s.text...)
		}
	}
	out := all
	if l.joined {
		out = bytes.TrimSuffix(out, []byte("\n"))
	}
	if !l.cut && l.limit.fits(out) {
		return Reading{Text: out}
	}
	return l.shortened(all, int(chars))
}

// shortened cuts after the last line that fits beside the note, or inside of the first.
func (l *lineReader) shortened(all []byte, chars int) Reading {
	room := l.limit.besideNote()
	used, usedChars := 0, 0
	for i, s := range l.segments {
		line := s.First
		for rest := s.text; ; line++ {
			end := bytes.IndexByte(rest, '\n') + 1
			n := 0
			if room.Chars > 0 {
				n = utf8.RuneCount(rest[:end])
			}
			if end > 0 && room.holds(used+end, usedChars+n) {
				used, usedChars = used+end, usedChars+n
				rest = rest[end:]
				continue
			}
			if end == 0 && len(rest) == 0 && (i < l.last || i == l.last && !l.cut) {
				break // this segment is whole
			}
			if used > 0 {
				return Reading{Text: l.ended(all[:used]), Rest: &Rest{Line: line, Lines: Range{line, min(s.Last, pastLast)}, More: len(l.segments) - i - 1}}
			}
			return l.insideLine(s, chars)
		}
	}
	return Reading{Text: l.ended(all[:used])} // not reached: something did not fit
}

func (l *lineReader) ended(text []byte) []byte {
	if l.joined {
		return bytes.TrimSuffix(text, []byte("\n"))
	}
	return text
}

// insideLine cuts the first line of a segment.
func (l *lineReader) insideLine(s segment, chars int) Reading {
	text := s.text[:l.limit.besideNote().prefix(s.text)]
	number := 0
	if l.number {
		number = utf8.RuneCount(appendNumber(nil, s.First))
	}
	next := s.start + max(utf8.RuneCount(text)-number, 0) + 1
	return Reading{Text: text, Rest: &Rest{Line: s.First, Inside: true, Chars: Range{next, chars}}}
}
