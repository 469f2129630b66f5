package reduce

import (
	"unicode"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// snapBack moves a cut at raw[at] back to the nearest place that splits no grapheme, and returns by how
// many characters.
func snapBack(raw []byte, at int) (to, chars int) {
	for at > 0 && at < len(raw) && splitsGrapheme(raw, at) {
		_, n := jsonscan.DecodeLastChar(raw[:at])
		at -= n
		chars++
	}
	return at, chars
}

// snapForward is snapBack in the other direction.
func snapForward(raw []byte, at int) (to, chars int) {
	for at > 0 && at < len(raw) && splitsGrapheme(raw, at) {
		_, n := jsonscan.DecodeChar(raw[at:])
		at += n
		chars++
	}
	return at, chars
}

// splitsGrapheme reports whether a cut at raw[at] splits a grapheme. It implements the part of UAX #29 that
// changes what a reader sees: marks stay with their base, joiners with both sides, flags and Hangul
// syllables whole. A line break may be split from its carriage return.
func splitsGrapheme(raw []byte, at int) bool {
	before, _ := jsonscan.DecodeLastChar(raw[:at])
	after, _ := jsonscan.DecodeChar(raw[at:])
	if before < firstMark && after < firstMark {
		return false
	}
	switch {
	case before == zeroWidthJoiner, isExtending(after):
		return true
	case isRegional(before) && isRegional(after):
		return oddRegionals(raw[:at])
	}
	return joinsHangul(before, after)
}

const (
	firstMark       = 0x300 // nothing below it combines
	zeroWidthJoiner = 0x200D
)

// isExtending reports whether r is drawn onto the character before it.
func isExtending(r rune) bool {
	switch {
	case r < firstMark:
		return false
	case r == zeroWidthJoiner || r == 0x200C: // the two joiners
		return true
	case r >= 0x1F3FB && r <= 0x1F3FF: // skin tones
		return true
	case r >= 0xE0020 && r <= 0xE007F: // tags, of subdivision flags
		return true
	case r == 0xFF9E || r == 0xFF9F: // half-width voicing marks
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc)
}

func isRegional(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }

// oddRegionals reports whether raw ends in an odd number of regional indicators: the last is half a flag.
func oddRegionals(raw []byte) bool {
	n := 0
	for len(raw) > 0 {
		r, size := jsonscan.DecodeLastChar(raw)
		if !isRegional(r) {
			break
		}
		raw = raw[:len(raw)-size]
		n++
	}
	return n%2 == 1
}

// joinsHangul is UAX #29's GB6 to GB8: leading consonants join what follows, vowels and
// trailing consonants what comes before.
func joinsHangul(before, after rune) bool {
	switch {
	case isLeading(before):
		return isLeading(after) || isVowel(after) || isSyllable(after)
	case isVowel(after):
		return isVowel(before) || isSyllable(before) && (before-0xAC00)%28 == 0
	case isTrailing(after):
		return isVowel(before) || isTrailing(before) || isSyllable(before)
	}
	return false
}

func isLeading(r rune) bool  { return r >= 0x1100 && r <= 0x115F || r >= 0xA960 && r <= 0xA97C }
func isVowel(r rune) bool    { return r >= 0x1160 && r <= 0x11A7 || r >= 0xD7B0 && r <= 0xD7C6 }
func isTrailing(r rune) bool { return r >= 0x11A8 && r <= 0x11FF || r >= 0xD7CB && r <= 0xD7FB }
func isSyllable(r rune) bool { return r >= 0xAC00 && r <= 0xD7A3 }
