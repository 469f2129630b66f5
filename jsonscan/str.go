package jsonscan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// specialBytes looks at eight bytes at once. A byte's high bit in the result is set where w holds what
// plain text does not: a quote, a backslash, a control character, or part of a longer UTF-8
// sequence. The subtractions may borrow, which can set the bit of a lane above a real hit, never below
// one: the lowest bit set is always exact.
func specialBytes(w uint64) uint64 {
	quote, slash := w^ones*'"', w^ones*'\\'
	return (w | (quote - ones) | (slash - ones) | (w - ones*0x20)) & highs
}

// shortString is how many bytes into a string, and past a non-ASCII character, words are scanned before
// blocks are tried.
const shortString = 64

// scanString returns the offset of the quote that ends the string whose first byte is data[i],
// and by how many bytes its raw form exceeds its count of code points. When why is not 0, end is the
// offset of the error.
func scanString(data []byte, i int) (end, extra int, why Reason) {
	// Most strings are keys and short values with nothing special in them.
	j := i
	for j <= min(i+shortString, len(data))-8 {
		m := specialBytes(binary.LittleEndian.Uint64(data[j : j+8]))
		if m != 0 {
			j += bits.TrailingZeros64(m) >> 3
			if data[j] == '"' {
				return j, 0, 0
			}
			break
		}
		j += 8 // a constant, so that the next load need not wait for this word's bits
	}
	return scanRest(data, j, i+shortString)
}

// scanRest continues a string at data[i] that has special bytes, is long, or is near the end of the
// document. Blocks are tried from blocksFrom on.
func scanRest(data []byte, i, blocksFrom int) (end, extra int, why Reason) {
	for {
		if haveBlocks && i >= blocksFrom && len(data)-i >= 64 {
			var escapes int
			i, escapes = scanBlocks(data, i)
			extra += escapes
			blocksFrom = i + shortString
		}
		for i <= len(data)-8 {
			m := specialBytes(binary.LittleEndian.Uint64(data[i : i+8]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(data) && plain[data[i]] {
			i++
		}
		if i >= len(data) {
			return len(data), 0, Truncated
		}
		switch c := data[i]; {
		case c == '"':
			return i, extra, 0
		case c == '\\':
			n, why := scanEscape(data, i)
			if why != 0 {
				return i, 0, why
			}
			i += n
			extra += n - 1
		case c < 0x20:
			return i, 0, Control
		default:
			n, over, ok := scanRunes(data[i:])
			i += n
			if !ok {
				return i, 0, BadUTF8
			}
			extra += over
			blocksFrom = i + shortString
		}
	}
}

// plain marks the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// scanRunes skips a run of non-ASCII characters: n bytes, over more than there are characters. The two
// and three byte forms are spelled out because most of the world's text is one of them; the rest,
// and everything malformed, is left to unicode/utf8.
func scanRunes(p []byte) (n, over int, ok bool) {
	for n < len(p) && p[n] >= utf8.RuneSelf {
		switch c := p[n]; {
		case c >= 0xC2 && c <= 0xDF && n+1 < len(p) && p[n+1]&0xC0 == 0x80:
			n += 2
			over++
		case c >= 0xE1 && c <= 0xEC && n+2 < len(p) && p[n+1]&0xC0 == 0x80 && p[n+2]&0xC0 == 0x80:
			n += 3
			over += 2
		default:
			r, size := utf8.DecodeRune(p[n:])
			if r == utf8.RuneError && size == 1 {
				return n, 0, false
			}
			n += size
			over += size - 1
		}
	}
	return n, over, true
}

// scanEscape returns the length n of the escape at data[i], which is one character; a surrogate pair
// is one escape of twelve bytes.
func scanEscape(data []byte, i int) (n int, why Reason) {
	if i+1 >= len(data) {
		return 0, Truncated
	}
	if simpleEscape[data[i+1]] != 0 {
		return 2, 0
	}
	if data[i+1] != 'u' {
		return 0, BadEscape
	}
	r, ok := hex4(data, i+2)
	switch {
	case !ok && i+6 > len(data):
		return 0, Truncated
	case !ok:
		return 0, BadEscape
	case r < 0xD800 || r > 0xDFFF:
		return 6, 0
	case r >= 0xDC00 || i+7 >= len(data) || data[i+6] != '\\' || data[i+7] != 'u':
		return 0, LoneSurrogate
	}
	if low, ok := hex4(data, i+8); !ok || low < 0xDC00 || low > 0xDFFF {
		return 0, LoneSurrogate
	}
	return 12, 0
}

// simpleEscape maps the letter of a two-byte escape to the byte it stands for.
var simpleEscape = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

func hex4(data []byte, i int) (rune, bool) {
	if i+4 > len(data) {
		return 0, false
	}
	var r rune
	for _, c := range data[i : i+4] {
		d := hexDigit[c]
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

var hexDigit = func() (t [256]int8) {
	for c := range t {
		switch {
		case c >= '0' && c <= '9':
			t[c] = int8(c - '0')
		case c >= 'a' && c <= 'f':
			t[c] = int8(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			t[c] = int8(c - 'A' + 10)
		default:
			t[c] = -1
		}
	}
	return t
}()
