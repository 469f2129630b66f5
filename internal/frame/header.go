package frame

import (
	"bytes"
	"io"
	"strconv"
	"strings"
)

const (
	maxHeaderBytes = 512     // of a header line
	maxHeaders     = 16      // lines of one block
	maxLength      = 1 << 40 // a larger Content-Length is an error
	lengthName     = "content-length"
)

// headerBlock is the headers before a message, as far as they were read.
type headerBlock struct {
	lines     int
	length    int64
	hasLength bool
}

// addLine adds a line to the block, and returns false if it is not part of one. Only a Content-… header starts a block:
// children print many lines that look like a header.
func (b *headerBlock) addLine(line []byte) bool {
	name, value, ok := splitHeader(line)
	if !ok || b.lines == maxHeaders || (b.lines == 0 && !strings.HasPrefix(name, "content-")) {
		return false
	}
	if name == lengthName {
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || n > maxLength || (b.hasLength && int64(n) != b.length) {
			return false
		}
		b.length, b.hasLength = int64(n), true
	}
	b.lines++
	return true
}

// splitHeader splits "Name: value"; the name is returned in lower case.
func splitHeader(line []byte) (name, value string, ok bool) {
	n, v, ok := bytes.Cut(line, []byte(":"))
	n = bytes.TrimRight(n, " \t")
	if !ok || len(n) == 0 || len(n) > 64 {
		return "", "", false
	}
	for _, c := range n {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && c != '-' && c != '_' && (c < '0' || c > '9') {
			return "", "", false
		}
	}
	return strings.ToLower(string(n)), string(bytes.TrimSpace(v)), true
}

// cutTrailingHeader finds a Content-Length header at the end of a line that starts with something else. A reader that
// lost count sees headers like that, since a body in that framing does not end with a line end. No JSON text ends with a
// number after a colon, so no message is mistaken for one.
func cutTrailingHeader(line []byte) (before []byte, b headerBlock) {
	for i := len(line) - len(lengthName); i >= max(0, len(line)-2*len(lengthName)-24); i-- {
		if !strings.EqualFold(string(line[i:i+len(lengthName)]), lengthName) {
			continue
		}
		if !b.addLine(line[i:]) {
			break
		}
		return trimEnd(line[:i]), b
	}
	return line, headerBlock{}
}

// readAhead is as much as a pipe returns in one read. A message that fits is copied once, to its size.
const readAhead = 64 << 10

// buffer is the read-ahead buffer of a Reader.
type buffer struct {
	from       io.Reader
	buf        []byte
	start, end int
	err        error // of from; returned once the buffered bytes are used up
}

// window is what was read and not yet skipped. It is valid until the next call of fill.
func (s *buffer) window() []byte { return s.buf[s.start:s.end] }

func (s *buffer) skip(n int) { s.start += n }

// isFull reports whether nothing can be added to the window.
func (s *buffer) isFull() bool { return s.end-s.start == len(s.buf) }

// fill adds at least one byte to a window that is not full.
func (s *buffer) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.start == s.end || s.end == len(s.buf) {
		s.end = copy(s.buf, s.window())
		s.start = 0
	}
	for range 100 {
		n, err := s.from.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.err = io.ErrNoProgress
	return s.err
}
