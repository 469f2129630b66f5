package logs

import (
	"bytes"
	"math"
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// A line is read from a cleaned copy: no colours, lower case, and at most maxScan bytes, which bounds
// the cost of a line of a megabyte.
const (
	maxScan     = 1024 // bytes read of a line: from its start and its end
	endScan     = 256  // of those, from the end, where exit codes are
	maxTemplate = 80   // bytes of a line that make its template
)

// Lines are counted by template in a hash table of fixed size. Two templates may share a counter; that
// changes their scores a little and bounds the memory for a log in which every line is new.
const (
	minTemplates = 1 << 8
	maxTemplates = 1 << 18
)

// readLines reads every line and counts how many there are of each template.
func readLines(l relevance.Lines) ([]logLine, []uint32) {
	n := l.Count()
	size := minTemplates
	for size < 4*n && size < maxTemplates {
		size <<= 1
	}
	ls, counts := make([]logLine, n), make([]uint32, size)
	r := &lineReader{buf: make([]byte, 0, maxScan+1)}
	for i := range ls {
		r.readLine(l.At(i))
		p := &ls[i]
		p.role = r.classifyRole()
		if p.role == roleBlank {
			continue
		}
		p.template = uint32(templateHash(r.line) & uint64(size-1))
		counts[p.template]++
		p.severity = r.ownSeverity(p.role)
		p.testHash = testNameHash(r.line, p.role)
	}
	return ls, counts
}

// fadeRepeats makes each further line of a template less severe than the one before.
func fadeRepeats(ls []logLine, kinds int) {
	seen := make([]uint32, kinds)
	for i := range ls {
		p := &ls[i]
		if p.severity == 0 {
			continue
		}
		if k := seen[p.template]; k > 0 {
			p.severity /= float32(math.Sqrt(1 + repeatFade*float64(k)))
		}
		seen[p.template]++
	}
}

// lineReader reads one line after another into the same buffer.
type lineReader struct {
	buf  []byte
	line []byte // the cleaned line without its timestamp; a part of buf
	red  bool   // some of it is coloured red
	over bool   // it overwrites a line above: a progress bar
}

// readLine cleans a line.
func (r *lineReader) readLine(line string) {
	r.buf, r.red, r.over = r.buf[:0], false, false
	if len(line) > maxScan {
		r.appendClean(line[:maxScan-endScan])
		r.buf = append(r.buf, ' ')
		line = line[len(line)-endScan:]
	}
	r.appendClean(line)
	r.line = bytes.TrimRight(r.buf[timestampEnd(r.buf):], " ")
}

// timestampEnd returns where the timestamp of a line ends, with the space after it; 0 for none.
// Indentation and marks are read from there.
func timestampEnd(line []byte) int {
	if len(line) < 9 || line[0] != '[' && byteKind[line[0]] != byteDigit {
		return 0
	}
	i, colons := 1, 0
	for ; i < len(line) && i < maxTimestamp && isTimestampByte[line[i]]; i++ {
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

// maxTimestamp bounds a timestamp: 2026-03-14T10:00:00.123456789+00:00, in brackets.
const maxTimestamp = 40

var isTimestampByte = func() (is [256]bool) {
	for _, c := range "0123456789-/.,:+tz " {
		is[c] = true
	}
	return is
}()

const (
	escape  = 0x1b
	symbols = 0xe2 // first of the three bytes of quotes, arrows, bars and marks
)

// Check marks and crosses in a cleaned line; all other symbols become spaces.
const (
	markCross = 0x01
	markCheck = 0x02
)

func (r *lineReader) appendClean(line string) {
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
			r.buf = append(r.buf, symbolMark(line[i:i+3]))
			i += 2
		case c == '\r':
			r.buf = append(r.buf, ' ')
		default:
			r.buf = append(r.buf, lowerByte[c])
		}
	}
}

func symbolMark(symbol string) byte {
	switch symbol {
	case "✗", "✖", "✘", "❌", "⨯":
		return markCross
	case "✓", "✔", "✅", "√":
		return markCheck
	}
	return ' '
}

// skipEscape returns where the ANSI escape sequence at i ends.
func (r *lineReader) skipEscape(line string, i int) int {
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

// isRed reports whether an ANSI colour code is red: 31, 1;31, 91.
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

// The kinds of bytes.
const (
	byteOther  uint8 = iota
	byteLetter       // a letter of any script
	byteDigit
)

var byteKind = func() (is [256]uint8) {
	for c := range is {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
			is[c] = byteLetter
		case c >= '0' && c <= '9':
			is[c] = byteDigit
		}
	}
	return is
}()

// templateHash hashes a line, with all words that have a digit taken for the same word.
func templateHash(line []byte) uint64 {
	h := uint64(fnvOffset)
	line = line[:min(len(line), maxTemplate)]
	for i := 0; i < len(line); {
		c := line[i]
		if byteKind[c] == byteOther {
			if c != ' ' && c != '\t' {
				h = (h ^ uint64(c)) * fnvPrime
			}
			i++
			continue
		}
		word, digits := h^' ', false
		for ; i < len(line) && byteKind[line[i]] != byteOther; i++ {
			digits = digits || byteKind[line[i]] == byteDigit
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
