package recall

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/linesearch"
)

// lineSearcher collects the lines of a text that match a pattern.
type lineSearcher struct {
	buffer
	matcher     *linesearch.Matcher
	withNumbers bool
	ranges      []Range // to search, in the order of the text; they do not overlap
	at          int     // the range that the current line is in or before

	out       []byte
	outChars  int
	beforeCut int // bytes of out that leave room for a hint
	resume    int // the first line after those

	line        int
	inLine      bool // a part of the current line was read, and is at the end of out
	lineStart   int  // where the line begins in out
	charsBefore int  // characters before the current line, counted until a line matches
	lineChars   int  // characters of the current line
	matchStart  int  // characters before the first line that matched
	hasMatch    bool // some line matched
	linesDone   int  // lines searched to their end

	next *Continuation
}

func newLineSearcher(buf buffer, req ReadRequest) *lineSearcher {
	s := &lineSearcher{buffer: buf, matcher: linesearch.NewMatcher(req.Pattern, buf.limit.SearchWork), withNumbers: req.LineNumbers, ranges: []Range{{1, maxLine}}, line: 1}
	if len(req.Ranges) > 0 {
		_, s.ranges = splitOverlaps(req.Ranges)
	}
	return s
}

func (s *lineSearcher) readBlock(ctx context.Context, block []byte) error {
	for len(block) > 0 {
		for s.at < len(s.ranges) && s.ranges[s.at].Last < s.line {
			s.at++
		}
		if s.at == len(s.ranges) {
			return errEnough
		}
		if n := s.ranges[s.at].First - s.line; n > 0 {
			end, passed := skipLines(block, n)
			s.line += passed
			s.countChars(block[:end])
			s.charsBefore, s.lineChars = s.charsBefore+s.lineChars, 0
			block = block[end:]
			continue
		}
		end := bytes.IndexByte(block, '\n')
		part := block
		if end >= 0 {
			part = block[:end]
		}
		if err := s.searchPart(ctx, part, end >= 0); err != nil {
			return err
		}
		block = block[min(len(part)+1, len(block)):]
	}
	return nil
}

// searchPart reads a part of a line, or all of it.
func (s *lineSearcher) searchPart(ctx context.Context, part []byte, isLast bool) error {
	if !s.inLine {
		s.matcher.StartLine()
		s.lineStart = len(s.out)
	}
	if err := s.matcher.Feed(ctx, part); errors.Is(err, linesearch.ErrWorkLimit) {
		return s.stopAtWorkLimit()
	} else if err != nil {
		return err
	}
	s.countChars(part)
	if isLast {
		return s.endLine(part)
	}
	if !s.inLine {
		s.inLine = true
		if err := s.addNumber(); err != nil {
			return err
		}
	}
	return s.addOutput(part)
}

func (s *lineSearcher) addNumber() error {
	if !s.withNumbers {
		return nil
	}
	s.scratch = appendLineNumber(s.scratch[:0], s.line)
	return s.addOutput(s.scratch)
}

// addOutput adds as much as the limit allows, and one byte more, to show that there is more.
func (s *lineSearcher) addOutput(part []byte) (err error) {
	if s.limit.Bytes > 0 {
		part = part[:min(len(part), max(s.limit.Bytes+1-len(s.out), 0))]
	}
	s.out, err = s.appendTo(s.out, part...)
	return err
}

// countChars counts only until a line matches: the count says where that line begins.
func (s *lineSearcher) countChars(text []byte) {
	if !s.hasMatch && !s.matcher.Matched() {
		s.lineChars += utf8.RuneCount(text)
	}
}

// endLine adds the line to the output if it matches. part is its end.
func (s *lineSearcher) endLine(part []byte) error {
	hasNumber := s.inLine
	s.inLine = false
	s.linesDone++
	if !s.matcher.EndLine() {
		s.out = s.out[:s.lineStart]
	} else if err := s.addMatch(part, hasNumber); err != nil {
		return err
	}
	s.charsBefore, s.lineChars = s.charsBefore+s.lineChars+1, 0
	s.line++
	return nil
}

// addMatch adds the current line, and ends the read when it does not fit.
func (s *lineSearcher) addMatch(part []byte, hasNumber bool) error {
	if !s.hasMatch {
		s.hasMatch, s.matchStart = true, s.charsBefore
	}
	if !hasNumber {
		if err := s.addNumber(); err != nil {
			return err
		}
	}
	if err := s.addOutput(part); err != nil {
		return err
	}
	if err := s.addOutput(lineBreak); err != nil {
		return err
	}
	if s.limit.Chars > 0 {
		s.outChars += utf8.RuneCount(s.out[s.lineStart:])
	}
	switch {
	case s.limit.withoutHint().allows(len(s.out), s.outChars):
		s.beforeCut, s.resume = len(s.out), 0
		return nil
	case s.resume == 0:
		s.resume = s.line
	}
	if s.limit.allows(len(s.out), s.outChars) {
		return nil
	}
	return s.stopAtSizeLimit()
}

// stopAtSizeLimit ends the read before the first line that leaves no room for the hint, or inside
// that line when none was before it.
func (s *lineSearcher) stopAtSizeLimit() error {
	s.next = &Continuation{Line: s.resume, IsSearch: true}
	if s.beforeCut > 0 {
		s.next.NextLines, s.next.MoreRanges = s.rangesFrom(s.resume)
		s.out = s.out[:s.beforeCut]
		return errEnough
	}
	s.out = s.out[:s.limit.withoutHint().prefixLen(s.out)]
	s.next.InsideLine = true
	s.next.NextChars.First = s.matchStart + charsOfLine(s.out, s.withNumbers, s.resume) + 1
	return errEnough
}

// stopAtWorkLimit ends the read before the line at which the search took too much work, or inside it
// when it is the first.
func (s *lineSearcher) stopAtWorkLimit() error {
	s.next = &Continuation{Line: s.line, IsSearch: true, WorkExceeded: true}
	s.out = s.out[:s.lineStart]
	if s.linesDone > 0 {
		s.next.NextLines, s.next.MoreRanges = s.rangesFrom(s.line)
		return errEnough
	}
	s.next.InsideLine = true
	s.next.NextChars.First = s.charsBefore + 1
	return errEnough
}

// rangesFrom returns the range to ask for next to go on at a line, and how many follow it.
func (s *lineSearcher) rangesFrom(line int) (Range, int) {
	at := slices.IndexFunc(s.ranges, func(r Range) bool { return line <= r.Last })
	return Range{line, min(s.ranges[at].Last, pastLast)}, len(s.ranges) - at - 1
}

func (s *lineSearcher) finishText() error {
	if s.inLine {
		return s.endLine(nil)
	}
	return nil
}

func (s *lineSearcher) result(totalChars int64) ReadResult {
	if s.next == nil {
		return ReadResult{Text: s.out}
	}
	if s.next.WorkExceeded && !s.limit.withoutHint().allows(len(s.out), s.outChars) {
		_ = s.stopAtSizeLimit() // what was found leaves no room for the hint
	}
	if s.next.InsideLine {
		s.next.NextChars.Last = int(totalChars)
	}
	return ReadResult{Text: s.out, Next: s.next}
}
