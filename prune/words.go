package prune

import (
	"unicode"
	"unicode/utf8"
)

// letters calls each for every word of a line: runs of letters, digits and underscores, and every
// two neighbouring letters of a script that does not part its words.
func letters(line string, each func(word string)) {
	for at := 0; at < len(line); {
		if c := line[at]; c < utf8.RuneSelf {
			if !isWordByte[c] {
				at++
				continue
			}
		} else if r, n := utf8.DecodeRuneInString(line[at:]); isUnparted(r) {
			next, m := utf8.DecodeRuneInString(line[at+n:])
			if isUnparted(next) {
				each(line[at : at+n+m])
			}
			at += n
			continue
		} else if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			at += n
			continue
		}
		end := wordEnd(line, at)
		each(line[at:end])
		at = end
	}
}

// wordEnd is where the word that begins at at ends.
func wordEnd(line string, at int) int {
	for at < len(line) {
		if c := line[at]; c < utf8.RuneSelf {
			if !isWordByte[c] {
				return at
			}
			at++
			continue
		}
		r, n := utf8.DecodeRuneInString(line[at:])
		if isUnparted(r) || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) {
			return at
		}
		at += n
	}
	return at
}

var isWordByte = func() (is [utf8.RuneSelf]bool) {
	for c := range is {
		r := rune(c)
		is[c] = r == '_' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	return is
}()

// isUnparted says whether a letter is of a script that is written without spaces.
func isUnparted(r rune) bool {
	return r >= 0x2E80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

// What a byte is to a boundary of a word, or inside a name.
const (
	joint = iota
	digit
	upper
	lower
	wide  // of a letter beyond ASCII, perhaps
	other // of no word
)

var classes = func() (is [256]uint8) {
	for c := range is {
		switch b := byte(c); {
		case b >= utf8.RuneSelf:
			is[c] = wide
		case !isWordByte[b]:
			is[c] = other
		case b == '_':
			is[c] = joint
		case b <= '9':
			is[c] = digit
		case b <= 'Z':
			is[c] = upper
		default:
			is[c] = lower
		}
	}
	return is
}()

// classOf takes letters beyond ASCII for small ones.
func classOf(c byte) uint8 { return min(classes[c], lower) }

// parts calls each for the parts of a name: readHTTPBody is read, HTTP and Body. A word of one
// part has none.
func parts(word string, each func(part string)) {
	start, found := 0, false
	for i := 0; i < len(word); i++ {
		end, next := boundary(word, start, i)
		if end < 0 {
			continue
		}
		if end > start {
			each(word[start:end])
		}
		start, found = next, true
	}
	if found && start < len(word) {
		each(word[start:])
	}
}

// boundary says where the part that began at start ends, when word[i] shows it, and where the next
// begins.
func boundary(word string, start, i int) (end, next int) {
	c := classOf(word[i])
	if c == joint {
		return i, i + 1
	}
	if i == start {
		return -1, 0
	}
	switch was := classOf(word[i-1]); {
	case was == c || was == joint:
		return -1, 0
	case was == upper && c == lower: // the last capital begins the next part: HTTPBody
		if i-1 == start {
			return -1, 0
		}
		return i - 1, i - 1
	}
	return i, i
}

// lowered is a word in lower case; ASCII without allocating beyond buf.
func lowered(word string, buf []byte) []byte {
	buf = buf[:0]
	for i := 0; i < len(word); i++ {
		c := word[i]
		if c >= utf8.RuneSelf {
			return appendLower(buf[:0], word)
		}
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		buf = append(buf, c)
	}
	return buf
}

func appendLower(buf []byte, word string) []byte {
	for _, r := range word {
		buf = utf8.AppendRune(buf, unicode.ToLower(r))
	}
	return buf
}
