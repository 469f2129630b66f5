package reduce

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions of this file move forwards and backwards within text that a Scanner has validated. They
// read at most a given number of bytes, so that finding the last elements of an array takes time
// proportional to their length.

// stringEnd returns the offset of the quote that closes the string around text[i], its first byte, or
// len(text) if there is none.
func stringEnd(text []byte, i int) int {
	for i < len(text) {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			break
		}
		if i += n; !escaped(text, i) {
			return i
		}
		i++
	}
	return len(text)
}

// stringStart returns the offset of the quote that opens the string whose closing quote is text[i], or -1
// if it is before low. Quotes inside strings are always escaped, opening ones never.
func stringStart(text []byte, i, low int) int {
	for {
		n := bytes.LastIndexByte(text[low:i], '"')
		if n < 0 {
			return -1
		}
		if i = low + n; !escaped(text, i) {
			return i
		}
	}
}

// escaped reports whether an odd number of backslashes precedes text[i].
func escaped(text []byte, i int) bool {
	n := 0
	for n < i && text[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// valueEnd returns where the value that starts at text[i] ends, if it has at most most bytes.
func valueEnd(text []byte, i, most int) (end int, ok bool) {
	start, limit := i, min(len(text), i+most+1)
	for depth := 0; i < limit; {
		switch text[i] {
		case '"':
			i = min(stringEnd(text[:limit], i+1)+1, limit+1)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			i++
			continue // inside a container: no value ends here
		default:
			i = scalarEnd(text[:limit], i)
		}
		if depth == 0 {
			return i, i-start <= most
		}
	}
	return 0, false
}

// valueStart returns where the value that ends before text[end] starts, if it has at most most bytes.
func valueStart(text []byte, end, most int) (start int, ok bool) {
	low := max(0, end-most)
	for i, depth := end, 0; i > low; {
		i--
		switch text[i] {
		case '"':
			if i = stringStart(text, i, low); i < 0 {
				return 0, false
			}
		case '}', ']':
			depth++
		case '{', '[':
			depth--
		case ',', ':', ' ', '\n', '\t', '\r':
			continue
		default:
			for i > low && !delimits(text[i-1]) {
				i--
			}
			if i > 0 && !delimits(text[i-1]) {
				return 0, false // it begins before low
			}
		}
		if depth == 0 {
			return i, true
		}
	}
	return 0, false
}

// scalarEnd returns where the number or literal at text[i] ends.
func scalarEnd(text []byte, i int) int {
	for i < len(text) && !delimits(text[i]) {
		i++
	}
	return i
}

// delimits reports whether c ends a number or a literal.
func delimits(c byte) bool {
	switch c {
	case ',', ':', '[', ']', '{', '}', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipSpace returns the first offset from i without white space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && isSpace(text[i]) {
		i++
	}
	return i
}

// skipSpaceBack returns the last offset up to i without white space before it.
func skipSpaceBack(text []byte, i int) int {
	for i > 0 && isSpace(text[i-1]) {
		i--
	}
	return i
}

// nextElement returns where the element after the one that ends at text[end] starts. JSON Lines have no
// comma between them.
func nextElement(text []byte, end int) int {
	if end = skipSpace(text, end); end < len(text) && text[end] == ',' {
		return skipSpace(text, end+1)
	}
	return end
}

// previousElement returns where the element before the one that starts at text[start] ends.
func previousElement(text []byte, start int) int {
	if start = skipSpaceBack(text, start); start > 0 && text[start-1] == ',' {
		return skipSpaceBack(text, start-1)
	}
	return start
}

// countChars counts the characters of text, which must be valid UTF-8: all bytes but continuation bytes.
func countChars(text []byte) int {
	const low = 0x0101010101010101
	n, i := len(text), 0
	for ; i <= len(text)-8; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		n -= bits.OnesCount64(w >> 7 &^ (w >> 6) & low)
	}
	for ; i < len(text); i++ {
		if text[i]&0xC0 == 0x80 {
			n--
		}
	}
	return n
}
