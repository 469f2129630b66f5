package prune

import (
	"bytes"
	"math"
	"strings"
)

// A log line is read once, from a cleaned copy: without colours, in lower case, and no more of it
// than maxScan bytes, so that a line of a megabyte costs what a long line costs.
const (
	maxScan = 1024 // how much of a line is read: its beginning, and its end
	endScan = 256  // how much of that is the end, where exit codes stand
	maxMold = 80   // how much of a line makes its kind
)

// Lines are told apart by kind in a table of counters. Two kinds may share one; that costs a little
// of their score and bounds what a log of ever new lines takes.
const (
	minKinds = 1 << 8
	maxKinds = 1 << 18
)

// readLog reads every line, and counts how many there are of each kind.
func readLog(l lines) ([]logLine, []uint32) {
	n := l.count()
	size := minKinds
	for size < 4*n && size < maxKinds {
		size <<= 1
	}
	ls, counts := make([]logLine, n), make([]uint32, size)
	r := &logReader{buf: make([]byte, 0, maxScan+1)}
	for i := range ls {
		r.read(l.at(i))
		p := &ls[i]
		p.role = r.role()
		if p.role == roleBlank {
			continue
		}
		p.kind = uint32(mold(r.line) & uint64(size-1))
		counts[p.kind]++
		p.own = r.own(p.role)
		p.test = testOf(r.line, p.role)
	}
	return ls, counts
}

// fadeRepeats makes the second line of a kind count less than the first, and the third less again.
func fadeRepeats(ls []logLine, kinds int) {
	seen := make([]uint32, kinds)
	for i := range ls {
		p := &ls[i]
		if p.own == 0 {
			continue
		}
		if k := seen[p.kind]; k > 0 {
			p.own /= float32(math.Sqrt(1 + logRepeat*float64(k)))
		}
		seen[p.kind]++
	}
}

// logReader holds what reading one line after another needs; nothing of a line outlives the next.
type logReader struct {
	buf  []byte
	line []byte // the line, cleaned, without the time it begins with; a part of buf
	red  bool   // some of it is painted red
	over bool   // it is drawn over what stood there before: a progress bar
}

// read cleans a line.
func (r *logReader) read(line string) {
	r.buf, r.red, r.over = r.buf[:0], false, false
	if len(line) > maxScan {
		r.clean(line[:maxScan-endScan])
		r.buf = append(r.buf, ' ')
		line = line[len(line)-endScan:]
	}
	r.clean(line)
	r.line = bytes.TrimRight(r.buf[stampEnd(r.buf):], " ")
}

// stampEnd is where the time that a line begins with ends, and the space after it; 0 for no time.
// Indentation and all marks are counted from there.
func stampEnd(line []byte) int {
	if len(line) < 9 || line[0] != '[' && logByte[line[0]] != isNumber {
		return 0
	}
	i, colons := 1, 0
	for ; i < len(line) && i < maxStamp && isStamp[line[i]]; i++ {
		if line[i] == ':' {
			colons++
		}
		if line[i] == ' ' && colons > 0 {
			break
		}
	}
	if i < len(line) && line[i] == ']' {
		i++
	}
	if colons < 2 || colons > 3 || i < len(line) && line[i] != ' ' {
		return 0
	}
	return min(i+1, len(line))
}

// maxStamp is how long a time is at most: 2026-03-14T10:00:00.123456789+00:00, in brackets.
const maxStamp = 40

var isStamp = func() (is [256]bool) {
	for _, c := range "0123456789-/.,:+tz " {
		is[c] = true
	}
	return is
}()

const (
	escape  = 0x1b
	symbols = 0xe2 // begins quotes, arrows, bars and marks, of three bytes each
)

// What marks become in a cleaned line; all other symbols become spaces.
const (
	markCross = 0x01
	markCheck = 0x02
)

func (r *logReader) clean(line string) {
	if strings.IndexByte(line, escape) < 0 && strings.IndexByte(line, symbols) < 0 && strings.IndexByte(line, '\r') < 0 {
		at := len(r.buf)
		r.buf = append(r.buf, line...)
		for i, c := range r.buf[at:] {
			r.buf[at+i] = lowerByte[c]
		}
		return
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == escape:
			i = r.skipEscape(line, i)
		case c == symbols && i+2 < len(line):
			r.buf = append(r.buf, markOf(line[i:i+3]))
			i += 2
		case c == '\r':
			r.buf = append(r.buf, ' ')
		default:
			r.buf = append(r.buf, lowerByte[c])
		}
	}
}

func markOf(symbol string) byte {
	switch symbol {
	case "✗", "✖", "✘", "❌", "⨯":
		return markCross
	case "✓", "✔", "✅", "√":
		return markCheck
	}
	return ' '
}

// skipEscape is where the escape sequence at i ends.
func (r *logReader) skipEscape(line string, i int) int {
	if i+1 >= len(line) || line[i+1] != '[' {
		return i
	}
	for j := i + 2; j < len(line); j++ {
		c := line[j]
		if c < '@' || c > '~' {
			continue
		}
		switch c {
		case 'm':
			r.red = r.red || isRed(line[i+2:j])
		case 'A', 'F':
			r.over = true
		}
		return j
	}
	return len(line)
}

// isRed says whether a colour code is what programs paint failures with: 31, 1;31, 91.
func isRed(code string) bool {
	for i := 0; i+1 < len(code); i++ {
		if (code[i] == '3' || code[i] == '9') && code[i+1] == '1' && (i == 0 || code[i-1] == ';') {
			return i+2 == len(code) || code[i+2] == ';'
		}
	}
	return false
}

var lowerByte = func() (to [256]byte) {
	for c := range to {
		to[c] = byte(c)
		if c >= 'A' && c <= 'Z' {
			to[c] |= 0x20
		}
	}
	return to
}()

// What a byte is to a log line.
const (
	isOther uint8 = iota
	isAlpha       // a letter of any script
	isNumber
)

var logByte = func() (is [256]uint8) {
	for c := range is {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
			is[c] = isAlpha
		case c >= '0' && c <= '9':
			is[c] = isNumber
		}
	}
	return is
}()

// mold is a hash of what a line has in common with others of its kind: all words that have a digit
// stand for one another.
func mold(line []byte) uint64 {
	h := uint64(fnvOffset)
	line = line[:min(len(line), maxMold)]
	for i := 0; i < len(line); {
		c := line[i]
		if logByte[c] == isOther {
			if c != ' ' && c != '\t' {
				h = (h ^ uint64(c)) * fnvPrime
			}
			i++
			continue
		}
		word, digits := h^' ', false
		for ; i < len(line) && logByte[line[i]] != isOther; i++ {
			digits = digits || logByte[line[i]] == isNumber
			word = (word ^ uint64(line[i])) * fnvPrime
		}
		if digits {
			word = (h ^ '0') * fnvPrime
		}
		h = word
	}
	return h ^ h>>32
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)
