package jsonscan

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendDecoded appends the text of a string's raw bytes. raw must have been accepted by a Scanner.
func AppendDecoded(dst, raw []byte) []byte {
	n := len(dst)
	out := slices.Grow(dst, len(raw)+8)[:n+len(raw)+8] // text is never longer than its raw form
	for i := 0; i < len(raw); {
		if i <= len(raw)-8 {
			// Copy eight bytes, and count those before a backslash as done.
			w := binary.LittleEndian.Uint64(raw[i : i+8])
			binary.LittleEndian.PutUint64(out[n:n+8], w)
			slash := w ^ ones*'\\'
			m := (slash - ones) &^ slash & highs
			k := bits.TrailingZeros64(m) >> 3
			i += k
			n += k
			if m == 0 {
				continue
			}
		}
		switch c := raw[i]; {
		case c != '\\':
			out[n] = c
			i++
			n++
		case simpleEscape[raw[i+1]] != 0:
			out[n] = simpleEscape[raw[i+1]]
			i += 2
			n++
		default:
			r, size := DecodeChar(raw[i:])
			i += size
			n += utf8.EncodeRune(out[n:], r)
		}
	}
	return out[:n]
}

// DecodedChunks yields the text of raw in chunks of at most size bytes that split no character. A chunk
// is valid only until the next one. Without escapes the chunks are slices of raw: a large plain string
// is never copied.
func DecodedChunks(raw []byte, size int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buf []byte
		for rest := raw; len(rest) > 0; {
			n := charBoundary(rest, size)
			chunk := rest[:n]
			rest = rest[n:]
			if bytes.IndexByte(chunk, '\\') >= 0 {
				buf = AppendDecoded(buf[:0], chunk)
				chunk = buf
			}
			if !yield(chunk) {
				return
			}
		}
	}
}

// charBoundary is the largest offset of at most size at which a character of raw starts, or
// the end of the first character when it does not fit.
func charBoundary(raw []byte, size int) int {
	if len(raw) <= size {
		return len(raw)
	}
	at := size
	for at > 0 && !utf8.RuneStart(raw[at]) {
		at--
	}
	// The longest escape is a surrogate pair of twelve bytes: only a backslash among the last
	// eleven can start one that reaches past at.
	for j := at - 1; j >= max(0, at-11); j-- {
		if raw[j] != '\\' || !endsInEscape(raw[:j+1]) {
			continue
		}
		if low, ok := hex4(raw, j+2); raw[j+1] == 'u' && ok && low >= 0xDC00 && low <= 0xDFFF {
			j -= 6
		}
		if _, n := DecodeChar(raw[j:]); j+n > at {
			at = j
		}
		break
	}
	if at == 0 {
		_, at = DecodeChar(raw)
	}
	return at
}

// DecodeChar returns the first character of a string's raw bytes, escaped or not, and its length in
// raw. raw must be a non-empty tail, starting at a character, of what a Scanner accepted.
func DecodeChar(raw []byte) (r rune, n int) {
	if raw[0] != '\\' {
		return utf8.DecodeRune(raw)
	}
	if c := simpleEscape[raw[1]]; c != 0 {
		return rune(c), 2
	}
	hi, _ := hex4(raw, 2)
	if !utf16.IsSurrogate(hi) {
		return hi, 6
	}
	lo, _ := hex4(raw, 8)
	return utf16.DecodeRune(hi, lo), 12
}

// DecodeLastChar returns the last character of a string's raw bytes and its length in raw. It looks back
// only past a run of backslashes, to find out whether the last of them escapes or is escaped.
func DecodeLastChar(raw []byte) (r rune, n int) {
	end := len(raw)
	if raw[end-1] >= utf8.RuneSelf {
		return utf8.DecodeLastRune(raw)
	}
	if end >= 6 && raw[end-6] == '\\' && raw[end-5] == 'u' && endsInEscape(raw[:end-5]) {
		r, _ := hex4(raw, end-4)
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		hi, _ := hex4(raw, end-10)
		return utf16.DecodeRune(hi, r), 12
	}
	// A backslash at the end of a whole string can only be the second of a pair.
	if end >= 2 && raw[end-2] == '\\' && (raw[end-1] == '\\' || endsInEscape(raw[:end-1])) {
		return rune(simpleEscape[raw[end-1]]), 2
	}
	return rune(raw[end-1]), 1
}

// endsInEscape says whether p ends in an odd number of backslashes, so that the last one starts
// an escape.
func endsInEscape(p []byte) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// AppendQuoted appends text as a quoted JSON string. text must be valid UTF-8.
func AppendQuoted(dst []byte, text string) []byte {
	return append(AppendEscaped(append(dst, '"'), text), '"')
}

// AppendEscaped appends text as the inside of a JSON string.
func AppendEscaped(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// EscapedLen is how many bytes [AppendEscaped] appends for a text.
func EscapedLen(text []byte) int {
	n := len(text)
	for _, c := range text {
		switch {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			n++
		case c < 0x20:
			n += len(`u0000`)
		}
	}
	return n
}

// CharOffset is the offset in raw of its nth character, or its length when it has fewer.
func CharOffset(raw []byte, n int) int {
	i := 0
	for n >= 8 && i <= len(raw)-8 {
		m := specialBytes(binary.LittleEndian.Uint64(raw[i : i+8]))
		k := bits.TrailingZeros64(m) >> 3
		i += k
		n -= k
		if m != 0 {
			_, size := DecodeChar(raw[i:])
			i += size
			n--
		}
	}
	for ; n > 0 && i < len(raw); n-- {
		_, size := DecodeChar(raw[i:])
		i += size
	}
	return i
}

// CountChars is how many characters raw has.
func CountChars(raw []byte) int {
	n := 0
	for i := 0; i < len(raw); {
		if i <= len(raw)-8 {
			m := specialBytes(binary.LittleEndian.Uint64(raw[i : i+8]))
			k := bits.TrailingZeros64(m) >> 3
			i += k
			n += k
			if m == 0 {
				continue
			}
		}
		_, size := DecodeChar(raw[i:])
		i += size
		n++
	}
	return n
}

// LastCharsOffset is the offset in raw at which its last n characters start, 0 when it has fewer. It
// reads only as much of raw's end as it must.
func LastCharsOffset(raw []byte, n int) int {
	for back := n + n/4 + 64; back < len(raw); back *= 4 {
		from := charBoundary(raw, len(raw)-back)
		if have := CountChars(raw[from:]); have >= n {
			return from + CharOffset(raw[from:], have-n)
		}
	}
	return CharOffset(raw, max(0, CountChars(raw)-n))
}
