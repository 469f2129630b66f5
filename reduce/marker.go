package reduce

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Markers is the wording of what replaces text that was left out.
type Markers string

// The wordings. DocumentMarkers is the contract's (G3, G+1, P4), to the byte. The marker of an array is like it but on
// one line, because in a JSON text a line break is an escape:
//
//	... [KIMI_PROXY_OBSERVATION_MASKED original_chars=48211 elements=150 dropped=120] ... [recover: prune_id=prn_… chars=1201-46010]
//
// original_chars is the array's length, and chars names the characters of the stored original that are
// missing: exactly the elements left out, with what separates them.
//
// PlainMarkers say in English what to do. They are shorter than the document's:
//
//	[… 349,208 characters left out; call recover_text with prune_id=prn_… chars=2001-351208]
//	[… 120 of 150 elements left out; call recover_text with prune_id=prn_… chars=1201-46010]
//	[lines 12-53 left out; call recover_text with prune_id=prn_…]
//
// A text that they would not make shorter stays whole.
const (
	DocumentMarkers Markers = "document"
	PlainMarkers    Markers = "plain"
)

// OneOf lists the wordings, for the configuration.
func (Markers) OneOf() []string { return []string{string(DocumentMarkers), string(PlainMarkers)} }

const markerWord = "KIMI_PROXY_OBSERVATION_MASKED"

// HasMarker says whether a text, or the inside of a JSON string, may have a marker. Any text can have one.
func HasMarker(text []byte) bool {
	return bytes.Contains(text, []byte("prune_id=")) || bytes.Contains(text, []byte(" left out]")) || bytes.Contains(text, []byte(markerWord))
}

// Marker is the text that replaces the gap: what is missing and, with an id, how to read it back. An
// empty id leaves the recover line out.
func (c StringCut) Marker(id string) string {
	return stringMarker(c.markers, c.Str.Chars, c.Head, c.Tail, id, c.before+c.Head+1, c.before+c.Str.Chars-c.Tail)
}

func stringMarker(style Markers, chars, head, tail int, id string, from, to int) string {
	if style == PlainMarkers {
		b := appendGrouped([]byte("\n[… "), to-from+1)
		return string(append(appendCall(append(b, " characters left out"...), id, from, to), '\n'))
	}
	b := appendNumbers(make([]byte, 0, 192), "\n... ["+markerWord+" original_chars=", chars, " head=", head, " tail=", tail, "] ...\n")
	if id == "" {
		return string(b)
	}
	return string(append(appendRecover(b, id, from, to), '\n'))
}

// Marker is the text that replaces the gap, as an element of its own or inside a string.
func (g Gap) Marker(id string) string {
	if g.Elements == 0 {
		return stringMarker(g.markers, g.Chars, g.Head, g.Tail, id, g.FirstChar, g.LastChar)
	}
	if g.markers == PlainMarkers {
		b := appendGrouped([]byte("[… "), g.Dropped)
		b = appendGrouped(append(b, " of "...), g.Elements)
		return string(appendCall(append(b, " elements left out"...), id, g.FirstChar, g.LastChar))
	}
	b := appendNumbers(make([]byte, 0, 192), "... ["+markerWord+" original_chars=", g.Chars, " elements=", g.Elements, " dropped=", g.Dropped, "] ...")
	if id == "" {
		return string(b)
	}
	return string(appendRecover(append(b, ' '), id, g.FirstChar, g.LastChar))
}

// appendCall appends the end of a plain marker: how to read the text back, if there is an id.
func appendCall(b []byte, id string, from, to int) []byte {
	if id != "" {
		b = append(append(b, "; call recover_text with prune_id="...), id...)
		b = strconv.AppendInt(append(b, " chars="...), int64(from), 10)
		b = strconv.AppendInt(append(b, '-'), int64(to), 10)
	}
	return append(b, ']')
}

// appendGrouped appends a number with commas between thousands.
func appendGrouped(b []byte, n int) []byte {
	digits := strconv.Itoa(n)
	for i, c := range []byte(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b = append(b, ',')
		}
		b = append(b, c)
	}
	return b
}

// appendJSON appends what replaces the gap of a JSON text.
func (g Gap) appendJSON(dst []byte, id string) []byte {
	if g.Elements == 0 {
		return jsonscan.AppendEscaped(dst, g.Marker(id))
	}
	return jsonscan.AppendQuoted(dst, g.Marker(id))
}

// appendNumbers appends words with numbers between them.
func appendNumbers(b []byte, before string, x int, between string, y int, then string, z int, after string) []byte {
	b = strconv.AppendInt(append(b, before...), int64(x), 10)
	b = strconv.AppendInt(append(b, between...), int64(y), 10)
	b = strconv.AppendInt(append(b, then...), int64(z), 10)
	return append(b, after...)
}

func appendRecover(b []byte, id string, from, to int) []byte {
	b = append(append(b, "[recover: prune_id="...), id...)
	b = strconv.AppendInt(append(b, " chars="...), int64(from), 10)
	b = strconv.AppendInt(append(b, '-'), int64(to), 10)
	return append(b, ']')
}

// longestStringMarker returns the length of the longest marker of a string, in characters, in a text of so many.
func longestStringMarker(style Markers, chars, idLen int) int {
	n := allNines(chars)
	digits := len(strconv.Itoa(n)) - 1 // that the place of a string may have more than 1
	return utf8.RuneCountInString(stringMarker(style, n, n, n, strings.Repeat("x", idLen), 1, n)) + digits
}

// allNines is the largest number with as many digits as n.
func allNines(n int) int {
	nines := 9
	for nines < n && nines <= math.MaxInt/10-1 {
		nines = 10*nines + 9
	}
	return nines
}

// longestMarkers returns the longest marker of an array and of a string in a text of so many characters, as
// JSON in bytes: no number in them is larger than that.
func longestMarkers(style Markers, chars, idLen int) (gap, cut int) {
	id := strings.Repeat("x", idLen)
	n := allNines(chars)
	array := Gap{Chars: n, Elements: n, Dropped: n, FirstChar: n, LastChar: n, markers: style}
	str := Gap{Chars: n, Head: n, Tail: n, FirstChar: 1, LastChar: n, markers: style}
	from := len(strconv.Itoa(n)) - 1 // the digits that the place of a string has more than 1
	return len(array.appendJSON(nil, id)), len(str.appendJSON(nil, id)) + from
}

// Edit is the cut as a splice of its body.
func (c StringCut) Edit(id string) jsonscan.Edit {
	return jsonscan.Edit{Span: c.Gap, Text: jsonscan.AppendEscaped(nil, c.Marker(id))}
}
