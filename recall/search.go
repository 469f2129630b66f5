package recall

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/linesearch"
)

// searcher collects the lines that match a pattern of a text that comes in blocks.
type searcher struct {
	buffer
	search *linesearch.Search
	number bool
	within []Range // in the order of the text; they do not overlap
	at     int     // the one of them that the current line is in or before

	out      []byte
	outChars int
	safe     int // how much of out fits beside a note
	resume   int // the first line of those after it

	line    int
	begun   bool // some of the current line was read, and is at the end of out
	start   int  // where it begins there
	chars   int  // characters before the current line, until a line matches
	current int  // characters of the current line
	first   int  // characters before the first line that matched
	matched bool // some line did
	done    int  // lines that were searched to their end

	rest *Rest
}

func newSearcher(buf buffer, w Wish) *searcher {
	s := &searcher{buffer: buf, search: linesearch.New(w.Pattern, buf.limit.Work), number: w.Number, within: []Range{{1, maxLine}}, line: 1}
	if len(w.Ranges) > 0 {
		_, s.within = eachOnce(w.Ranges)
	}
	return s
}

// read reads a block. It ends with errEnough when nothing more is needed.
func (s *searcher) read(ctx context.Context, block []byte) error {
	for len(block) > 0 {
		for s.at < len(s.within) && s.within[s.at].Last < s.line {
			s.at++
		}
		if s.at == len(s.within) {
			return errEnough
		}
		if n := s.within[s.at].First - s.line; n > 0 {
			end, passed := passLines(block, n)
			s.line += passed
			s.count(block[:end])
			s.chars, s.current = s.chars+s.current, 0
			block = block[end:]
			continue
		}
		end := bytes.IndexByte(block, '\n')
		part := block
		if end >= 0 {
			part = block[:end]
		}
		if err := s.feed(ctx, part, end >= 0); err != nil {
			return err
		}
		block = block[min(len(part)+1, len(block)):]
	}
	return nil
}

// feed reads a part of a line, or all of it.
func (s *searcher) feed(ctx context.Context, part []byte, last bool) error {
	if !s.begun {
		s.search.Begin()
		s.start = len(s.out)
	}
	if err := s.search.Feed(ctx, part); errors.Is(err, linesearch.ErrWork) {
		return s.stop()
	} else if err != nil {
		return err
	}
	s.count(part)
	if last {
		return s.endLine(part)
	}
	if !s.begun {
		s.begun = true
		if err := s.addNumber(); err != nil {
			return err
		}
	}
	return s.add(part)
}

func (s *searcher) addNumber() error {
	if !s.number {
		return nil
	}
	s.scratch = appendNumber(s.scratch[:0], s.line)
	return s.add(s.scratch)
}

// add adds to the output as much as may be given, and one byte more, which shows that it does not fit.
func (s *searcher) add(part []byte) (err error) {
	if s.limit.Bytes > 0 {
		part = part[:min(len(part), max(s.limit.Bytes+1-len(s.out), 0))]
	}
	s.out, err = s.append(s.out, part...)
	return err
}

// count counts characters as long as it is of use: where the first line begins that matches.
func (s *searcher) count(text []byte) {
	if !s.matched && !s.search.Matched() {
		s.current += utf8.RuneCount(text)
	}
}

// endLine takes the line if it matches. part is its end.
func (s *searcher) endLine(part []byte) error {
	begun := s.begun
	s.begun = false
	s.done++
	if !s.search.End() {
		s.out = s.out[:s.start]
	} else if err := s.take(part, begun); err != nil {
		return err
	}
	s.chars, s.current = s.chars+s.current+1, 0
	s.line++
	return nil
}

// take adds the current line, or ends the reading when it does not fit.
func (s *searcher) take(part []byte, begun bool) error {
	if !s.matched {
		s.matched, s.first = true, s.chars
	}
	if !begun {
		if err := s.addNumber(); err != nil {
			return err
		}
	}
	if err := s.add(part); err != nil {
		return err
	}
	if err := s.add(lineBreak); err != nil {
		return err
	}
	if s.limit.Chars > 0 {
		s.outChars += utf8.RuneCount(s.out[s.start:])
	}
	switch {
	case s.limit.besideNote().holds(len(s.out), s.outChars):
		s.safe, s.resume = len(s.out), 0
		return nil
	case s.resume == 0:
		s.resume = s.line
	}
	if s.limit.holds(len(s.out), s.outChars) {
		return nil
	}
	return s.overflow()
}

// overflow ends the reading before the first line that does not fit beside the note, or inside of it
// when there is none before.
func (s *searcher) overflow() error {
	s.rest = &Rest{Line: s.resume, Search: true}
	if s.safe > 0 {
		s.rest.Lines, s.rest.More = s.from(s.resume)
		s.out = s.out[:s.safe]
		return errEnough
	}
	s.out = s.out[:s.limit.besideNote().prefix(s.out)]
	number := 0
	if s.number {
		number = utf8.RuneCount(appendNumber(nil, s.resume))
	}
	s.rest.Inside = true
	s.rest.Chars.First = s.first + max(utf8.RuneCount(s.out)-number, 0) + 1
	return errEnough
}

// stop ends the reading where the work was too much.
func (s *searcher) stop() error {
	s.rest = &Rest{Line: s.line, Search: true, Work: true}
	s.out = s.out[:s.start]
	if s.done > 0 {
		s.rest.Lines, s.rest.More = s.from(s.line)
		return errEnough
	}
	s.rest.Inside = true
	s.rest.Chars.First = s.chars + 1
	return errEnough
}

// from is the range to ask for next to go on at a line, and how many follow it.
func (s *searcher) from(line int) (Range, int) {
	at := slices.IndexFunc(s.within, func(r Range) bool { return line <= r.Last })
	return Range{line, min(s.within[at].Last, pastLast)}, len(s.within) - at - 1
}

func (s *searcher) finish() error {
	if s.begun {
		return s.endLine(nil)
	}
	return nil
}

func (s *searcher) result(chars int64) Reading {
	if s.rest == nil {
		return Reading{Text: s.out}
	}
	if s.rest.Work && !s.limit.besideNote().holds(len(s.out), s.outChars) {
		_ = s.overflow() // what was found does not fit beside the note about the rest
	}
	if s.rest.Inside {
		s.rest.Chars.Last = int(chars)
	}
	return Reading{Text: s.out, Rest: s.rest}
}
