package tomledit

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/pelletier/go-toml/v2"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// kind is the kind of an expression.
type kind int

const (
	keyValue kind = iota
	tableHeader
	arrayHeader
)

// expr is a key with its value, or a header. A document is a list of these, with comments and blank lines between.
type expr struct {
	kind       kind
	path       []string // from the root; an index follows the name of an array of tables
	start      int      // of the key or the first bracket
	value      int      // of a keyValue: where the value starts
	end        int      // of the value or the last bracket
	lineEnd    int      // behind the comment and the line break that follow
	headerPath []string // of the header that it is under
}

// scanner finds the expressions of a valid document.
type scanner struct {
	src    []byte
	at     int
	arrays map[string]int // number of elements of the arrays of tables
}

func scan(src []byte) ([]expr, error) {
	s := &scanner{src: src, arrays: map[string]int{}}
	var out []expr
	var header []string
	for {
		s.skipBlank()
		if s.at >= len(src) {
			return out, nil
		}
		e := expr{start: s.at}
		if src[s.at] == '[' {
			e.kind = tableHeader
			if bytes.HasPrefix(src[s.at:], []byte("[[")) {
				e.kind = arrayHeader
				s.at++
			}
			s.at++
			key, err := s.key()
			if err != nil {
				return nil, err
			}
			s.at += int(e.kind) // one bracket or two
			e.path = s.resolve(key, e.kind)
			header = e.path
		} else {
			key, err := s.key()
			if err != nil {
				return nil, err
			}
			s.at++ // =
			s.skipSpace()
			e.path = append(append([]string(nil), header...), key...)
			e.value = s.at
			s.skipValue()
		}
		e.end, e.headerPath = s.at, header
		s.skipLine()
		e.lineEnd = s.at
		out = append(out, e)
	}
}

// resolve returns the path of a header: behind an array of tables its last element is meant.
func (s *scanner) resolve(key []string, k kind) []string {
	var path []string
	for i, name := range key {
		path = append(path, name)
		id := joinPath(path)
		switch n := s.arrays[id]; {
		case i == len(key)-1 && k == arrayHeader:
			s.arrays[id] = n + 1
			path = append(path, strconv.Itoa(n))
		case n > 0:
			path = append(path, strconv.Itoa(n-1))
		}
	}
	return path
}

func joinPath(path []string) string { return fmt.Sprintf("%q", path) }

func (s *scanner) peek() byte {
	if s.at < len(s.src) {
		return s.src[s.at]
	}
	return 0
}

func (s *scanner) skipSpace() {
	for s.peek() == ' ' || s.peek() == '\t' {
		s.at++
	}
}

// skipBlank skips white space, line breaks and comments.
func (s *scanner) skipBlank() {
	for s.at < len(s.src) {
		switch s.src[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		case '#':
			s.skipComment()
		default:
			return
		}
	}
}

// skipComment moves to the line break.
func (s *scanner) skipComment() {
	for s.at < len(s.src) && s.src[s.at] != '\n' {
		s.at++
	}
}

// skipLine moves behind the line break.
func (s *scanner) skipLine() {
	s.skipComment()
	s.at = min(s.at+1, len(s.src))
}

// key reads a dotted key such as a."b c".d, with the white space around it.
func (s *scanner) key() ([]string, error) {
	var parts []string
	for {
		s.skipSpace()
		start := s.at
		switch s.peek() {
		case '"', '\'':
			s.skipString()
			var v struct{ K string }
			if err := toml.Unmarshal(append([]byte("K="), s.src[start:s.at]...), &v); err != nil {
				return nil, err
			}
			parts = append(parts, v.K)
		default:
			for s.at < len(s.src) && bytes.IndexByte([]byte(" \t=.],\r\n"), s.src[s.at]) < 0 {
				s.at++
			}
			parts = append(parts, string(s.src[start:s.at]))
		}
		s.skipSpace()
		if s.peek() != '.' {
			return parts, nil
		}
		s.at++
	}
}

// skipValue moves behind a value.
func (s *scanner) skipValue() {
	switch s.peek() {
	case '"', '\'':
		s.skipString()
	case '[', '{':
		s.at = s.list(s.at).close + 1
	default:
		for s.at < len(s.src) && bytes.IndexByte([]byte(",]}#\r\n"), s.src[s.at]) < 0 {
			s.at++
		}
		s.at -= len(s.src[:s.at]) - len(bytes.TrimRight(s.src[:s.at], " \t"))
	}
}

func (s *scanner) skipString() {
	q := s.src[s.at]
	triple := []byte{q, q, q}
	if bytes.HasPrefix(s.src[s.at:], triple) {
		for s.at += 3; s.at < len(s.src) && !bytes.HasPrefix(s.src[s.at:], triple); s.at++ {
			if q == '"' && s.src[s.at] == '\\' {
				s.at++
			}
		}
		s.at = min(s.at+3, len(s.src))
		for s.peek() == q { // up to two quotes may end the text
			s.at++
		}
		return
	}
	for s.at++; s.at < len(s.src) && s.src[s.at] != q && s.src[s.at] != '\n'; s.at++ {
		if q == '"' && s.src[s.at] == '\\' {
			s.at++
		}
	}
	s.at = min(s.at+1, len(s.src))
}

// item is an element of an array or a key with its value in an inline table.
type item struct {
	path              []string
	start, value, end int
	comma             int // -1 without one
}

// list is an array or inline table.
type list struct {
	open, close int
	isTable     bool
	items       []item
}

// list reads the array or inline table at an offset.
func (s *scanner) list(open int) list {
	l := list{open: open, isTable: s.src[open] == '{'}
	for s.at = open + 1; ; {
		s.skipBlank()
		switch s.peek() {
		case 0, ']', '}':
			l.close = min(s.at, len(s.src)-1)
			return l
		case ',':
			if n := len(l.items); n > 0 {
				l.items[n-1].comma = s.at
			}
			s.at++
			continue
		}
		it := item{start: s.at, value: s.at, comma: -1, path: []string{strconv.Itoa(len(l.items))}}
		if l.isTable {
			key, err := s.key()
			if err != nil {
				s.at = len(s.src)
				return l
			}
			s.at++
			s.skipBlank()
			it.path, it.value = key, s.at
		}
		s.skipValue()
		it.end = s.at
		if it.end == it.start { // cannot happen in a valid document
			s.at++
		}
		l.items = append(l.items, it)
	}
}

func line(src []byte, at int) int { return textedit.Line(src, at) }
