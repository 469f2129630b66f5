package reduce

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions here find their way in text that a Scanner has accepted, forwards and backwards,
// and decide nothing: where a value ends is already settled. They look at no more than most
// bytes, so that finding the last elements of an array costs what those elements are long.

// stringEnd is where the string whose first byte inside its quotes is text[i] ends: the offset
// of its closing quote, or len(text) when text is cut short.
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

// stringStart is the offset of the quote that opens the string whose closing quote is text[i],
// or -1 when it is before low. A quote inside a string is always escaped, and one that opens a
// string never is.
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

// escaped says whether an odd number of backslashes stands before text[i].
func escaped(text []byte, i int) bool {
	n := 0
	for n < i && text[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// valueEnd is where the value that starts at text[i] ends, when it has at most most bytes.
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

// valueStart is where the value that ends before text[end] starts, when it has at most most
// bytes.
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
				return 0, false // it goes on before low
			}
		}
		if depth == 0 {
			return i, true
		}
	}
	return 0, false
}

// scalarEnd is where the number or literal at text[i] ends.
func scalarEnd(text []byte, i int) int {
	for i < len(text) && !delimits(text[i]) {
		i++
	}
	return i
}

// delimits says whether c is what can stand beside a number or a literal.
func delimits(c byte) bool {
	switch c {
	case ',', ':', '[', ']', '{', '}', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipSpace is the first offset from i that holds no white space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && isSpace(text[i]) {
		i++
	}
	return i
}

// skipSpaceBack is the last offset up to i that has no white space before it.
func skipSpaceBack(text []byte, i int) int {
	for i > 0 && isSpace(text[i-1]) {
		i--
	}
	return i
}

// following is where the element after the one that ends at text[end] starts. Documents that
// stand one to a line have no comma between them.
func following(text []byte, end int) int {
	if end = skipSpace(text, end); end < len(text) && text[end] == ',' {
		return skipSpace(text, end+1)
	}
	return end
}

// preceding is where the element before the one that starts at text[start] ends.
func preceding(text []byte, start int) int {
	if start = skipSpaceBack(text, start); start > 0 && text[start-1] == ',' {
		return skipSpaceBack(text, start-1)
	}
	return start
}

// countChars is how many characters text has, which must be valid UTF-8: all its bytes but those
// that go on with a character.
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
