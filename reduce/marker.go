package reduce

import (
	"bytes"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The marker's wording is the contract's (G3, G+1), to the byte.
const markerWord = "KIMI_PROXY_OBSERVATION_MASKED"

// Marker is the text that stands in the gap: what is missing and, with an id, how to read it
// back. An empty id leaves the recover line out.
func (c Cut) Marker(id string) string {
	b := make([]byte, 0, 192)
	b = append(b, "\n... ["+markerWord+" original_chars="...)
	b = strconv.AppendInt(b, int64(c.Str.Chars), 10)
	b = append(b, " head="...)
	b = strconv.AppendInt(b, int64(c.Head), 10)
	b = append(b, " tail="...)
	b = strconv.AppendInt(b, int64(c.Tail), 10)
	b = append(b, "] ...\n"...)
	if id == "" {
		return string(b)
	}
	b = append(b, "[recover: prune_id="...)
	b = append(b, id...)
	b = append(b, " chars="...)
	b = strconv.AppendInt(b, int64(c.Head+1), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(c.Str.Chars-c.Tail), 10)
	return string(append(b, "]\n"...))
}

// Edit is the cut as a splice of the body it was made for.
func (c Cut) Edit(id string) jsonscan.Edit {
	return jsonscan.Edit{Span: c.Gap, Text: jsonscan.AppendRaw(nil, c.Marker(id))}
}

// Marked says whether raw, the inside of a JSON string, holds the marker's word, so that it may
// be text that was cut before. Anyone can write the word: only a store that knows the text can
// tell.
func Marked(raw []byte) bool { return bytes.Contains(raw, []byte(markerWord)) }
