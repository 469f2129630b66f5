package sse

import "bytes"

var byteOrderMark = []byte("\xEF\xBB\xBF")

// Field is the meaning of a line of an event stream.
type Field uint8

// The fields that mean something.
const (
	OtherField Field = iota // a comment, or unknown
	NameField
	DataField
	IDField
	RetryField
)

func fieldOf(name []byte) Field {
	switch string(name) {
	case "event":
		return NameField
	case "data":
		return DataField
	case "id":
		return IDField
	case "retry":
		return RetryField
	}
	return OtherField
}

// Token is what [Scanner.Next] found.
type Token uint8

// The tokens.
const (
	NeedMore Token = iota // the piece is used up
	Value                 // a part of the value of a field
	EndField              // the end of a field's line
	EndEvent              // the empty line that ends an event
)

type scanState uint8

const (
	lineStart scanState = iota
	inName
	afterColon
	inValue
	inOther
)

// Scanner reads an event stream that comes in pieces. It does not depend on how the stream was cut, and
// keeps nothing but the name of the field at hand. The zero Scanner is at the beginning of a stream.
type Scanner struct {
	state scanState
	field Field
	name  [len("event")]byte
	size  int  // of name
	cr    bool // the last line ended in CR: an LF right after it belongs to that end
	mark  int  // bytes of the byte order mark that have come; afterMark when it cannot come any more
	noLF  int  // how many of the next bytes are known to have no LF, so that none is searched twice
}

const afterMark = 4

// Field is the field that the last Value or EndField belongs to.
func (s *Scanner) Field() Field { return s.field }

// InLine says whether the stream stands inside a line.
func (s *Scanner) InLine() bool { return s.state != lineStart || s.mark > 0 && s.mark < afterMark }

// Next reads p, which goes on where the last call ended, up to the first token. It returns how many
// bytes it has used; value is the part of them that a Value is about. A line is passed as soon as its CR
// or LF has come: the LF after a CR may be a keep-alive away.
func (s *Scanner) Next(p []byte) (token Token, value []byte, n int) {
	token, value, n = s.scan(p)
	s.noLF = max(0, s.noLF-n)
	return token, value, n
}

func (s *Scanner) scan(p []byte) (Token, []byte, int) {
	for n := 0; n < len(p); {
		c := p[n]
		if s.cr {
			if s.cr = false; c == '\n' {
				n++
				continue
			}
		}
		if s.mark < afterMark {
			if s.mark < len(byteOrderMark) && c == byteOrderMark[s.mark] {
				s.mark++
				n++
				continue
			}
			if s.mark > 0 && s.mark < len(byteOrderMark) {
				s.state = inOther // a name that begins like the mark
			}
			s.mark = afterMark
		}
		switch s.state {
		case lineStart, inName:
			n++
			if c != '\n' && c != '\r' {
				s.addToName(c)
				continue
			}
			empty := s.state == lineStart
			s.field = fieldOf(s.name[:s.size])
			s.endLine(c)
			if empty {
				return EndEvent, nil, n
			}
			if s.field != OtherField {
				return EndField, nil, n
			}
		case afterColon:
			if s.state = inValue; c == ' ' {
				n++
			}
		case inValue:
			end := s.lineEnd(p, n)
			if end > n {
				return Value, p[n:end], end
			}
			s.endLine(c)
			return EndField, nil, n + 1
		case inOther:
			if n = s.lineEnd(p, n); n < len(p) {
				s.endLine(p[n])
				n++
			}
		}
	}
	return NeedMore, nil, len(p)
}

func (s *Scanner) addToName(c byte) {
	switch {
	case c == ':':
		if s.field = fieldOf(s.name[:s.size]); s.field == OtherField {
			s.state = inOther
		} else {
			s.state = afterColon
		}
	case s.size == len(s.name):
		s.state = inOther
	default:
		s.state = inName
		s.name[s.size] = c
		s.size++
	}
}

func (s *Scanner) endLine(c byte) { s.state, s.size, s.cr = lineStart, 0, c == '\r' }

// lineEnd is the offset of the first CR or LF of p from at on, or the length of p.
func (s *Scanner) lineEnd(p []byte, at int) int {
	from := min(max(at, s.noLF), len(p))
	s.noLF = len(p)
	if i := bytes.IndexByte(p[from:], '\n'); i >= 0 {
		s.noLF = from + i
	}
	if i := bytes.IndexByte(p[at:s.noLF], '\r'); i >= 0 {
		return at + i
	}
	return s.noLF
}
