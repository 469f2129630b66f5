// Package jsonscan reads JSON as bytes: one strict pass, no tree, no copies. It locates values
// (string spans, member spans, offsets) so that callers can splice what they change and forward the
// rest untouched.
//
// Path through the files: scan.go holds the cursor and the loop that checks one value; str.go
// the string scanner, which is where the time goes, and block.go its fast path; object.go iterates
// objects and arrays and refuses duplicate and case-folded keys (keys.go); fields.go lists the members
// of one object and edits them; text.go decodes and escapes strings; splice.go writes a body with some
// spans replaced.
//
// Invariants: whatever Scanner accepts is valid by RFC 8259 and UTF-8, with every escaped
// surrogate paired, and nested no deeper than the limit. It reads each byte once to decide that, and
// allocates only what the caller asks to keep. It depends on nothing, and its only failure is to
// refuse a document.
package jsonscan

import (
	"fmt"
)

// MaxDepth is the deepest nesting a Scanner can be allowed.
const MaxDepth = 1024

// Error says why and where a document was refused.
type Error struct {
	Offset int
	Reason Reason
}

// Reason is the rule a document broke.
type Reason uint8

// The reasons a document is refused.
const (
	Truncated     Reason = iota + 1 // the document ends inside a value
	Unexpected                      // a byte that the grammar does not allow here
	BadNumber                       // leading zero, bare minus, empty fraction or exponent
	BadEscape                       // an unknown escape or a broken \u
	BadUTF8                         // bytes that are not UTF-8
	LoneSurrogate                   // an escaped surrogate without its other half
	Control                         // a control character inside a string
	TooDeep                         // nesting over the limit
	TooMany                         // members over the limit, in an object read by ReadFields
	Trailing                        // bytes after the value
	DuplicateKey                    // a key twice in one object
	FoldedKey                       // a protocol key in other letters, such as "Method"
)

var reasons = [...]string{
	Truncated:     "unexpected end",
	Unexpected:    "unexpected byte",
	BadNumber:     "malformed number",
	BadEscape:     "malformed escape",
	BadUTF8:       "invalid UTF-8",
	LoneSurrogate: "lone surrogate",
	Control:       "control character in string",
	TooDeep:       "nested too deep",
	TooMany:       "an object has too many members",
	Trailing:      "data after the value",
	DuplicateKey:  "duplicate key",
	FoldedKey:     "protocol key in the wrong case",
}

func (r Reason) String() string {
	if int(r) < len(reasons) && reasons[r] != "" {
		return reasons[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset) }

// Span is a range of bytes of the document.
type Span struct{ Start, End int }

// Of is the span's bytes in data.
func (s Span) Of(data []byte) []byte { return data[s.Start:s.End] }

// Len is the number of bytes.
func (s Span) Len() int { return s.End - s.Start }

// Str is a string of the document: the raw bytes between its quotes, and how many code points
// they decode to.
type Str struct {
	Span
	Chars int
}

// Scanner is a cursor over one document.
type Scanner struct {
	data  []byte
	pos   int
	depth int // containers open around pos
	limit int
}

// New starts at the first byte of data. A depth of 0, or one over MaxDepth, means MaxDepth.
func New(data []byte, depth int) *Scanner {
	if depth <= 0 || depth > MaxDepth {
		depth = MaxDepth
	}
	return &Scanner{data: data, limit: depth}
}

// NewAt starts at an offset of data that is inside open containers. The caller has checked what is
// before it.
func NewAt(data []byte, offset, open, depth int) *Scanner {
	s := New(data, depth)
	s.pos, s.depth = offset, open
	return s
}

// Pos is the offset of the next byte to read.
func (s *Scanner) Pos() int { return s.pos }

// Kind is the first byte of the next value: one of {["tfn-0123456789, or 0 at the end.
func (s *Scanner) Kind() byte {
	s.pos = skipSpace(s.data, s.pos)
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// End refuses anything but white space after the value.
func (s *Scanner) End() error {
	if s.pos = skipSpace(s.data, s.pos); s.pos < len(s.data) {
		return s.errorAt(s.pos, Trailing)
	}
	return nil
}

// Skip checks the next value and moves past it.
func (s *Scanner) Skip() (Span, error) {
	s.Kind()
	start := s.pos
	err := s.scanValue(nil, noStrings)
	return Span{start, s.pos}, err
}

// LongStrings is Skip, and appends to dst every string value, at any depth, of more than chars code
// points. Object keys are not values.
func (s *Scanner) LongStrings(dst []Str, chars int) ([]Str, Span, error) {
	s.Kind()
	start := s.pos
	err := s.scanValue(&dst, chars)
	return dst, Span{start, s.pos}, err
}

// Str is Skip for a value that must be a string.
func (s *Scanner) Str() (Str, error) {
	if c := s.Kind(); c != '"' {
		return Str{}, s.unexpected(s.pos)
	}
	end, extra, why := scanString(s.data, s.pos+1)
	if why != 0 {
		return Str{}, s.errorAt(end, why)
	}
	str := Str{Span{s.pos + 1, end}, end - s.pos - 1 - extra}
	s.pos = end + 1
	return str, nil
}

func (s *Scanner) errorAt(at int, why Reason) error { return &Error{Offset: at, Reason: why} }

func (s *Scanner) unexpected(at int) error {
	if at >= len(s.data) {
		return s.errorAt(at, Truncated)
	}
	return s.errorAt(at, Unexpected)
}

func skipSpace(data []byte, i int) int {
	for i < len(data) {
		switch data[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

const noStrings = int(^uint(0) >> 1) // a threshold that no string exceeds

// containers has one bit a level: whether the open container is an object.
type containers [MaxDepth / 64]uint64

func (c *containers) set(level int, object bool) {
	bit := uint64(1) << (level & 63)
	if object {
		c[level>>6&(len(c)-1)] |= bit
	} else {
		c[level>>6&(len(c)-1)] &^= bit
	}
}

func (c *containers) isObject(level int) bool {
	return c[level>>6&(len(c)-1)]>>(level&63)&1 != 0
}

// scanValue checks the value at pos and moves past it. It is one loop with its state in local
// variables: the three labels are the grammar's "value", "member" and "what follows a value".
// This is the gateway's hottest code, and long on purpose.
func (s *Scanner) scanValue(dst *[]Str, chars int) error {
	data, i, depth := s.data, s.pos, s.depth
	base := depth
	var open containers

value:
	if i < len(data) && data[i] <= ' ' {
		i = skipSpace(data, i)
	}
	if i >= len(data) {
		return s.errorAt(i, Truncated)
	}
	switch c := data[i]; c {
	case '"':
		end, extra, why := scanString(data, i+1)
		if why != 0 {
			return s.errorAt(end, why)
		}
		if n := end - i - 1 - extra; n > chars {
			*dst = append(*dst, Str{Span{i + 1, end}, n})
		}
		i = end + 1
	case '{', '[':
		if depth >= s.limit {
			return s.errorAt(i, TooDeep)
		}
		open.set(depth, c == '{')
		depth++
		i++
		if i < len(data) && data[i] <= ' ' {
			i = skipSpace(data, i)
		}
		if i < len(data) && data[i] == c+2 { // ']' is '['+2 and '}' is '{'+2
			depth--
			i++
			break
		}
		if c == '{' {
			goto member
		}
		goto value
	case 't':
		if !hasWord(data, i, "true") {
			return s.badLiteral(i, "true")
		}
		i += len("true")
	case 'f':
		if !hasWord(data, i, "false") {
			return s.badLiteral(i, "false")
		}
		i += len("false")
	case 'n':
		if !hasWord(data, i, "null") {
			return s.badLiteral(i, "null")
		}
		i += len("null")
	default:
		end, ok := scanNumber(data, i)
		if !ok {
			return s.badNumber(i, end)
		}
		i = end
	}

after:
	if depth == base {
		s.pos = i
		return nil
	}
	if i < len(data) && data[i] <= ' ' {
		i = skipSpace(data, i)
	}
	if i >= len(data) {
		return s.errorAt(i, Truncated)
	}
	if open.isObject(depth - 1) {
		switch data[i] {
		case ',':
			i++
			if i < len(data) && data[i] <= ' ' {
				i = skipSpace(data, i)
			}
			goto member
		case '}':
			depth--
			i++
			goto after
		}
	} else {
		switch data[i] {
		case ',':
			i++
			goto value
		case ']':
			depth--
			i++
			goto after
		}
	}
	return s.errorAt(i, Unexpected)

member:
	if i >= len(data) || data[i] != '"' {
		return s.unexpected(i)
	}
	end, _, why := scanString(data, i+1)
	if why != 0 {
		return s.errorAt(end, why)
	}
	i = end + 1
	if i < len(data) && data[i] <= ' ' {
		i = skipSpace(data, i)
	}
	if i >= len(data) || data[i] != ':' {
		return s.unexpected(i)
	}
	i++
	goto value
}

func hasWord(data []byte, i int, word string) bool {
	return len(data)-i >= len(word) && string(data[i:i+len(word)]) == word
}

// badLiteral finds the first byte that differs from word.
func (s *Scanner) badLiteral(i int, word string) error {
	for j := 0; j < len(word); j++ {
		if i+j >= len(s.data) || s.data[i+j] != word[j] {
			return s.unexpected(i + j)
		}
	}
	return s.unexpected(i)
}

func (s *Scanner) badNumber(start, at int) error {
	switch {
	case at >= len(s.data):
		return s.errorAt(at, Truncated)
	case at == start:
		return s.errorAt(at, Unexpected)
	}
	return s.errorAt(at, BadNumber)
}

// scanNumber returns the end of the number at i, or the offset of the error.
func scanNumber(data []byte, i int) (end int, ok bool) {
	if i < len(data) && data[i] == '-' {
		i++
	}
	switch {
	case i >= len(data) || data[i]-'0' > 9:
		return i, false
	case data[i] == '0':
		i++
	default:
		i = skipDigits(data, i)
	}
	if i < len(data) && data[i] == '.' {
		start := i + 1
		if i = skipDigits(data, start); i == start {
			return i, false
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start := i
		if i = skipDigits(data, start); i == start {
			return i, false
		}
	}
	// A digit here can only follow a leading zero.
	if i < len(data) && data[i]-'0' <= 9 {
		return i, false
	}
	return i, true
}

func skipDigits(data []byte, i int) int {
	for i < len(data) && data[i]-'0' <= 9 {
		i++
	}
	return i
}
