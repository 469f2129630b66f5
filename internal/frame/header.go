package frame

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	maxHeader  = 512     // bytes of a header line
	maxHeaders = 16      // lines of one block
	maxLength  = 1 << 40 // a larger Content-Length is a mistake, not a size
	lengthName = "content-length"
)

// block is the headers before a message, as far as they were read.
type block struct {
	lines  int
	length int64
	known  bool // length was given
}

// add takes a line into the block, or says that it is no part of one. Only a Content-… header
// opens a block: programs print many lines that look like a header.
func (b *block) add(line []byte) bool {
	name, value, ok := header(line)
	if !ok || b.lines == maxHeaders || (b.lines == 0 && !strings.HasPrefix(name, "content-")) {
		return false
	}
	if name == lengthName {
		n, ok := length(value)
		if !ok || (b.known && n != b.length) {
			return false
		}
		b.length, b.known = n, true
	}
	b.lines++
	return true
}

// header splits "Name: value"; the name comes in lower case.
func header(line []byte) (name, value string, ok bool) {
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

func length(value string) (int64, bool) {
	n, err := strconv.ParseUint(value, 10, 63)
	return int64(n), err == nil && n <= maxLength
}

// glued finds a Content-Length header at the end of a line that began as something else. That
// is how a header looks to a reader that lost count: a body in that framing ends without a line
// end. No JSON text ends in a number after a colon, so nothing is taken from one by mistake.
func glued(line []byte) (before []byte, b block) {
	for i := len(line) - len(lengthName); i >= max(0, len(line)-2*len(lengthName)-24); i-- {
		if !strings.EqualFold(string(line[i:i+len(lengthName)]), lengthName) {
			continue
		}
		if !b.add(line[i:]) {
			break
		}
		return trimEnd(line[:i]), b
	}
	return line, block{}
}
