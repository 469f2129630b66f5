package relevance

import (
	"unicode"
	"unicode/utf8"
)

// eachWord calls each for every word of a line: a run of letters, digits and underscores. In scripts
// without spaces between words, every two neighbouring letters count as a word.
func eachWord(line string, each func(word string)) {
	for at := 0; at < len(line); {
		if c := line[at]; c < utf8.RuneSelf {
			if !IsWordByte[c] {
				at++
				continue
			}
		} else if r, n := utf8.DecodeRuneInString(line[at:]); IsUnspaced(r) {
			next, m := utf8.DecodeRuneInString(line[at+n:])
			if IsUnspaced(next) {
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

// wordEnd returns where the word that begins at at ends.
func wordEnd(line string, at int) int {
	for at < len(line) {
		if c := line[at]; c < utf8.RuneSelf {
			if !IsWordByte[c] {
				return at
			}
			at++
			continue
		}
		r, n := utf8.DecodeRuneInString(line[at:])
		if IsUnspaced(r) || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) {
			return at
		}
		at += n
	}
	return at
}

// IsWordByte tells the ASCII letters, digits and the underscore.
var IsWordByte = func() (is [utf8.RuneSelf]bool) {
	for c := range is {
		r := rune(c)
		is[c] = r == '_' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	return is
}()

// IsUnspaced reports whether a letter belongs to a script that is written without spaces.
func IsUnspaced(r rune) bool {
	return r >= 0x2E80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

// Byte classes: words and the parts of names end where the class changes.
const (
	classUnderscore = iota
	classDigit
	classUpper
	classLower
	classNonASCII // may be part of a letter
	classOther    // not in a word
)

var byteClass = func() (is [256]uint8) {
	for c := range is {
		switch b := byte(c); {
		case b >= utf8.RuneSelf:
			is[c] = classNonASCII
		case !IsWordByte[b]:
			is[c] = classOther
		case b == '_':
			is[c] = classUnderscore
		case b <= '9':
			is[c] = classDigit
		case b <= 'Z':
			is[c] = classUpper
		default:
			is[c] = classLower
		}
	}
	return is
}()

// partClass treats letters beyond ASCII as lower case.
func partClass(c byte) uint8 { return min(byteClass[c], classLower) }

// eachNamePart calls each for the parts of a name: read, HTTP and Body for readHTTPBody. It calls
// nothing for a word of one part.
func eachNamePart(word string, each func(part string)) {
	start, found := 0, false
	for i := 0; i < len(word); i++ {
		end, next := partBoundary(word, start, i)
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

// partBoundary returns where the part that began at start ends and where the next one begins, if
// word[i] shows a boundary; otherwise end is -1.
func partBoundary(word string, start, i int) (end, next int) {
	c := partClass(word[i])
	if c == classUnderscore {
		return i, i + 1
	}
	if i == start {
		return -1, 0
	}
	switch was := partClass(word[i-1]); {
	case was == c || was == classUnderscore:
		return -1, 0
	case was == classUpper && c == classLower: // the last capital begins the next part: HTTPBody
		if i-1 == start {
			return -1, 0
		}
		return i - 1, i - 1
	}
	return i, i
}

// lowerWord writes a word in lower case into buf; ASCII words do not allocate.
func lowerWord(word string, buf []byte) []byte {
	buf = buf[:0]
	for i := 0; i < len(word); i++ {
		c := word[i]
		if c >= utf8.RuneSelf {
			return appendLowerRunes(buf[:0], word)
		}
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		buf = append(buf, c)
	}
	return buf
}

func appendLowerRunes(buf []byte, word string) []byte {
	for _, r := range word {
		buf = utf8.AppendRune(buf, unicode.ToLower(r))
	}
	return buf
}
