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

// Range is a range of lines, first and last included, counted from 1.
type Range struct{ First, Last int }

const maxLine = int(^uint(0) >> 1)

// ParseRanges reads ranges as the command line has them: "10-20,35,90-".
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

// splitOverlaps divides ranges so that every line is in one of them only: the first that asks for it.
// The order stays. covered is the same lines as ranges in the order of the text that do not overlap.
func splitOverlaps(ranges []Range) (asked []subrange, covered []Range) {
	for _, r := range ranges {
		from, _ := slices.BinarySearchFunc(covered, r.First, func(c Range, line int) int { return cmp.Compare(c.Last, line) })
		to, next, union := from, r.First, r
		for ; to < len(covered) && covered[to].First <= r.Last; to++ {
			c := covered[to]
			if next < c.First {
				asked = append(asked, subrange{Range{next, c.First - 1}, r})
			}
			union = Range{min(union.First, c.First), max(union.Last, c.Last)}
			if next = c.Last + 1; c.Last == maxLine {
				next = maxLine
			}
		}
		if next <= r.Last && (to == from || covered[to-1].Last < r.Last) {
			asked = append(asked, subrange{Range{next, r.Last}, r})
		}
		covered = slices.Replace(covered, from, to, union)
	}
	return asked, covered
}

// subrange is a part of a range that no earlier range has.
type subrange struct {
	Range
	of Range
}

// lineReader collects ranges of lines. The text is read once, from the beginning, while lines may be
// asked for in any order, so every subrange has a segment with its own buffer. The limit bounds what
// they hold together: when it is too much, the segments that were asked for last are cut.
type lineReader struct {
	buffer
	withNumbers, joinLines bool

	segments []segment // in the order asked
	order    []int     // segments in the order of the text
	at       int       // in order: the segment that the current line is in or before
	last     int       // the last segment that is not dropped
	held     int       // bytes of all segments
	isCut    bool      // a segment was cut or dropped

	line      int  // the current line
	inLine    bool // a part of it was read
	charsRead int
	steps     int
}

type segment struct {
	subrange
	text        []byte
	charsBefore int // in the whole text
}

func newLineReader(buf buffer, req ReadRequest) *lineReader {
	ranges := req.Ranges
	if len(ranges) == 0 {
		ranges = []Range{{1, maxLine}}
	}
	asked, _ := splitOverlaps(ranges)
	l := &lineReader{buffer: buf, withNumbers: req.LineNumbers, joinLines: req.JoinLines, line: 1, last: len(asked) - 1}
	for i, s := range asked {
		l.segments = append(l.segments, segment{subrange: s})
		l.order = append(l.order, i)
	}
	slices.SortFunc(l.order, func(a, b int) int { return cmp.Compare(asked[a].First, asked[b].First) })
	return l
}

func (l *lineReader) readBlock(ctx context.Context, block []byte) error {
	for len(block) > 0 {
		if l.steps++; l.steps%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l.nextSegment()
		if l.at == len(l.order) {
			return errEnough
		}
		i := l.order[l.at]
		if n := l.segments[i].First - l.line; n > 0 { // skip the lines before it
			end, passed := skipLines(block, n)
			l.line += passed
			l.inLine = end > 0 && block[end-1] != '\n'
			l.charsRead += utf8.RuneCount(block[:end])
			block = block[end:]
			continue
		}
		part := block
		end := bytes.IndexByte(block, '\n')
		if end >= 0 {
			part = block[:end+1]
		}
		if err := l.addPart(i, part); err != nil {
			return err
		}
		block = block[len(part):]
		if l.inLine = end < 0; !l.inLine {
			l.line++
		}
	}
	return nil
}

// nextSegment moves to the segment that the current line is in or before, past those that can hold no
// more.
func (l *lineReader) nextSegment() {
	for ; l.at < len(l.order); l.at++ {
		i := l.order[l.at]
		if isFull := i > l.last || l.isCut && i == l.last; !isFull && l.segments[i].Last >= l.line {
			return
		}
	}
}

// skipLines returns where the line after n line breaks begins, and how many line breaks there were.
func skipLines(block []byte, n int) (end, passed int) {
	if have := bytes.Count(block, []byte{'\n'}); have < n {
		return len(block), have
	}
	for ; passed < n; passed++ {
		end += bytes.IndexByte(block[end:], '\n') + 1
	}
	return end, passed
}

// addPart adds a part of the current line to a segment, with the line's number where it begins. Over
// the limit it cuts what was asked for last; one byte more than the limit stays, to show that there is
// more.
func (l *lineReader) addPart(i int, part []byte) error {
	s := &l.segments[i]
	before := len(s.text)
	if before == 0 {
		s.charsBefore = l.charsRead
	}
	l.charsRead += utf8.RuneCount(part)
	var err error
	if l.withNumbers && !l.inLine {
		l.scratch = appendLineNumber(l.scratch[:0], l.line)
		s.text, err = l.appendTo(s.text, l.scratch...)
	}
	if err == nil {
		s.text, err = l.appendTo(s.text, part...)
	}
	l.held += len(s.text) - before
	if l.limit.Bytes == 0 {
		return err
	}
	for excess := l.held - l.limit.Bytes - 1; excess > 0; excess = l.held - l.limit.Bytes - 1 {
		l.isCut = true
		s := &l.segments[l.last]
		n := min(excess, len(s.text))
		s.text = s.text[:len(s.text)-n]
		l.held -= n
		if len(s.text) == 0 && l.last > 0 {
			l.scope.Free(int64(cap(s.text)))
			s.text = nil
			l.last--
		}
	}
	return err
}

func appendLineNumber(dst []byte, n int) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), "│ "...)
}

// finishText adds the line break of the last line. The empty line after a line break at the very end
// counts: markers may name it. But unless lines are joined, as the pruner asks for them, it is
// returned only when asked for by its number: no other reader takes it for a line.
func (l *lineReader) finishText() error {
	l.nextSegment()
	if l.at == len(l.order) || l.segments[l.order[l.at]].First > l.line {
		return nil
	}
	i := l.order[l.at]
	of := l.segments[i].of
	if l.inLine || l.joinLines || l.line > 1 && (of.First == l.line || of.Last == l.line) {
		return l.addPart(i, lineBreak)
	}
	return nil
}

// result joins the segments, as far as they fit.
func (l *lineReader) result(totalChars int64) ReadResult {
	var all []byte
	if len(l.segments) == 1 {
		all = l.segments[0].text
	} else {
		all = make([]byte, 0, l.held)
		for _, s := range l.segments {
			all = append(all, s.text...)
		}
	}
	if out := l.withoutLastBreak(all); !l.isCut && l.limit.allowsText(out) {
		return ReadResult{Text: out}
	}
	return l.shortened(all, int(totalChars))
}

// shortened cuts after the last line that leaves room for the hint, or inside the first line.
func (l *lineReader) shortened(all []byte, totalChars int) ReadResult {
	limit := l.limit.withoutHint()
	used, usedChars := 0, 0
	for i, s := range l.segments {
		line := s.First
		for rest := s.text; ; line++ {
			end := bytes.IndexByte(rest, '\n') + 1
			n := 0
			if limit.Chars > 0 {
				n = utf8.RuneCount(rest[:end])
			}
			if end > 0 && limit.allows(used+end, usedChars+n) {
				used, usedChars = used+end, usedChars+n
				rest = rest[end:]
				continue
			}
			if end == 0 && len(rest) == 0 && (i < l.last || i == l.last && !l.isCut) {
				break // this segment is whole
			}
			if used > 0 {
				return ReadResult{Text: l.withoutLastBreak(all[:used]), Next: &Continuation{Line: line, NextLines: Range{line, min(s.Last, pastLast)}, MoreRanges: len(l.segments) - i - 1}}
			}
			text := s.text[:limit.prefixLen(s.text)]
			next := s.charsBefore + charsOfLine(text, l.withNumbers, s.First) + 1
			return ReadResult{Text: text, Next: &Continuation{Line: s.First, InsideLine: true, NextChars: Range{next, totalChars}}}
		}
	}
	return ReadResult{Text: l.withoutLastBreak(all[:used])} // not reached: something did not fit
}

func (l *lineReader) withoutLastBreak(text []byte) []byte {
	if l.joinLines {
		return bytes.TrimSuffix(text, []byte("\n"))
	}
	return text
}

// charsOfLine counts the characters of the beginning of a line, without its number.
func charsOfLine(text []byte, hasNumber bool, line int) int {
	number := 0
	if hasNumber {
		number = utf8.RuneCount(appendLineNumber(nil, line))
	}
	return max(utf8.RuneCount(text)-number, 0)
}
