package reduce

import (
	"math"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The marker's wording is the contract's (G3, G+1), to the byte. The marker of an array is of
// the same family and on one line, because it stands in a JSON text, where a line break would be
// two letters:
//
//	... [KIMI_PROXY_OBSERVATION_MASKED original_chars=48211 elements=150 dropped=120] ... [recover: prune_id=prn_… chars=1201-46010]
//
// original_chars is the array's, and chars says which characters of the kept original are
// missing here: exactly the elements left out, with what stands between them.
const markerWord = "KIMI_PROXY_OBSERVATION_MASKED"

// Marker is the text that stands in the gap: what is missing and, with an id, how to read it
// back. An empty id leaves the recover line out.
func (c Cut) Marker(id string) string {
	return stringMarker(c.Str.Chars, c.Head, c.Tail, id, c.Head+1, c.Str.Chars-c.Tail)
}

func stringMarker(chars, head, tail int, id string, from, to int) string {
	b := appendNumbers(make([]byte, 0, 192), "\n... ["+markerWord+" original_chars=", chars, " head=", head, " tail=", tail, "] ...\n")
	if id == "" {
		return string(b)
	}
	return string(append(appendRecover(b, id, from, to), '\n'))
}

// Marker is the text that stands in the gap, as an element of its own or inside a string.
func (g Gap) Marker(id string) string {
	if g.Elements == 0 {
		return stringMarker(g.Chars, g.Head, g.Tail, id, g.From, g.To)
	}
	b := appendNumbers(make([]byte, 0, 192), "... ["+markerWord+" original_chars=", g.Chars, " elements=", g.Elements, " dropped=", g.Dropped, "] ...")
	if id == "" {
		return string(b)
	}
	return string(appendRecover(append(b, ' '), id, g.From, g.To))
}

// appendJSON appends what stands in the gap of a JSON text.
func (g Gap) appendJSON(dst []byte, id string) []byte {
	if g.Elements == 0 {
		return jsonscan.AppendRaw(dst, g.Marker(id))
	}
	return jsonscan.AppendString(dst, g.Marker(id))
}

// appendNumbers appends words and the numbers between them.
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

// longestMarkers is how long a marker may get, in a text of so many characters, for an array and
// for a string. None of its numbers is larger than that.
func longestMarkers(chars, idLen int) (gap, cut int) {
	id := strings.Repeat("x", idLen)
	n := 1
	for n <= chars && n <= math.MaxInt/10 {
		n *= 10
	}
	n-- // as many digits, all nines
	array := Gap{Chars: n, Elements: n, Dropped: n, From: n, To: n}
	str := Gap{Chars: n, Head: n, Tail: n, From: n, To: n}
	return len(array.appendJSON(nil, id)), len(str.appendJSON(nil, id))
}

// Edit is the cut as a splice of the body it was made for.
func (c Cut) Edit(id string) jsonscan.Edit {
	return jsonscan.Edit{Span: c.Gap, Text: jsonscan.AppendRaw(nil, c.Marker(id))}
}
