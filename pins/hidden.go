package pins

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// hiddenRanges are the characters that nobody sees in a text, or that change how the text around them is shown.
var hiddenRanges = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0000, 0x0008, 1}, {0x000B, 0x001F, 1}, // controls but tab and line feed
		{0x007F, 0x009F, 1}, // delete, and the C1 controls
		{0x00AD, 0x00AD, 1}, // soft hyphen
		{0x034F, 0x034F, 1}, // combining grapheme joiner
		{0x061C, 0x061C, 1}, // Arabic letter mark
		{0x115F, 0x1160, 1}, // Hangul fillers
		{0x17B4, 0x17B5, 1}, // Khmer inherent vowels
		{0x180B, 0x180F, 1}, // Mongolian selectors and vowel separator
		{0x200B, 0x200F, 1}, // zero width, direction marks
		{0x2028, 0x202E, 1}, // line and paragraph separators, bidirectional embeddings and overrides
		{0x2060, 0x206F, 1}, // word joiner, invisible operators, bidirectional isolates
		{0x3164, 0x3164, 1}, // Hangul filler
		{0xFEFF, 0xFEFF, 1}, // byte order mark
		{0xFFA0, 0xFFA0, 1}, // Hangul filler, half width
		{0xFFF9, 0xFFFB, 1}, // interlinear annotations
	},
	R32: []unicode.Range32{
		{0x1BCA0, 0x1BCA3, 1}, // shorthand format controls
		{0x1D173, 0x1D17A, 1}, // musical format controls
		{0xE0000, 0xE0FFF, 1}, // tags, and variation selectors beyond the first sixteen
	},
	LatinOffset: 4,
}

// IsHidden reports whether nobody sees a character.
func IsHidden(r rune) bool { return unicode.Is(hiddenRanges, r) }

// HasHidden reports whether a name has a hidden character, or a tab or line break, which no name needs.
func HasHidden(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool { return IsHidden(r) || r == '\t' || r == '\n' })
}

const (
	zeroWidthNonJoiner = 0x200C
	zeroWidthJoiner    = 0x200D
)

// hiddenAt reports whether the character at i of a text is hidden where it stands: joiners belong to emoji and to some
// scripts, and a carriage return to a line break.
func hiddenAt(text []rune, i int) bool {
	r := text[i]
	switch {
	case !IsHidden(r):
		return false
	case i == 0 || i+1 == len(text):
		return true
	case r == '\r':
		return text[i+1] != '\n'
	case r == zeroWidthJoiner && isPictograph(text[i-1]) && isPictograph(text[i+1]):
		return false
	case r == zeroWidthJoiner || r == zeroWidthNonJoiner:
		return !needsJoiners(text[i-1]) || !needsJoiners(text[i+1])
	}
	return true
}

// isPictograph reports whether a character may be part of an emoji.
func isPictograph(r rune) bool {
	return r == 0xFE0F || r >= 0x2190 && r <= 0x2BFF || r >= 0x1F000 && r <= 0x1FAFF
}

// needsJoiners reports whether a character is of a script that writes with joiners.
func needsJoiners(r rune) bool {
	return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
		unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Mongolian, unicode.Myanmar)
}

// maxMarked is the longest run of hidden characters that is marked one by one: a long one is a message of its own.
const maxMarked = 8

// MarkHidden returns a text with its hidden characters made visible, and how many there were.
func MarkHidden(text string) (marked string, count int) {
	if !strings.ContainsFunc(text, IsHidden) {
		return text, 0
	}
	var b strings.Builder
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		if !hiddenAt(runes, i) {
			b.WriteRune(runes[i])
			continue
		}
		end := i + 1
		for end < len(runes) && hiddenAt(runes, end) {
			end++
		}
		count += end - i
		if n := end - i; n > maxMarked {
			fmt.Fprintf(&b, "<U+%04X and %d more hidden characters>", runes[i], n-1)
		} else {
			for _, r := range runes[i:end] {
				fmt.Fprintf(&b, "<U+%04X>", r)
			}
		}
		i = end - 1
	}
	return b.String(), count
}

// mayHide reports whether the strings of a JSON document can have hidden characters. Most have only ASCII, and line
// breaks are the only controls in them.
func mayHide(raw []byte) bool {
	for i, c := range raw {
		if c >= 0x7F || c == '\\' && i+1 < len(raw) && bytes.IndexByte([]byte("ubfr"), raw[i+1]) >= 0 {
			return true
		}
	}
	return false
}

// markTool returns a tool with the hidden characters of its pinned members made visible, but for its name, and how many
// there were. Every other byte stays.
func markTool(raw []byte) (marked []byte, count int) {
	if !mayHide(raw) {
		return raw, 0
	}
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return raw, 0
	}
	var edits []jsonscan.Edit
	for _, f := range fields.All() {
		if isPinned(f.Key) && f.Key != "name" {
			edits = appendMarks(edits, raw, f.Value, &count)
		}
	}
	if len(edits) == 0 {
		return raw, 0
	}
	return jsonscan.AppendSpliced(nil, raw, edits), count
}

// markValue returns a JSON value with the hidden characters of its strings made visible, and how many there were.
func markValue(raw []byte) (marked []byte, count int) {
	edits := appendMarks(nil, raw, jsonscan.Span{End: len(raw)}, &count)
	return jsonscan.AppendSpliced(nil, raw, edits), count
}

// appendMarks appends the edits that make hidden characters of all strings of a value visible, keys included.
func appendMarks(edits []jsonscan.Edit, data []byte, at jsonscan.Span, count *int) []jsonscan.Edit {
	for i := at.Start; i < at.End; i++ {
		if data[i] != '"' {
			continue
		}
		end := i + 1
		for data[end] != '"' {
			if data[end] == '\\' {
				end++
			}
			end++
		}
		span := jsonscan.Span{Start: i, End: end + 1}
		if raw := span.Of(data); mayHide(raw) {
			if text, n := MarkHidden(jsonscan.DecodeString(raw)); n > 0 {
				edits = append(edits, jsonscan.Edit{Span: span, Text: jsonscan.AppendQuoted(nil, text)})
				*count += n
			}
		}
		i = end
	}
	return edits
}
