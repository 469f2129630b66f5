package recall

import (
	"bytes"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// resultSize is the size of a tool result, or of a part of it, in the units that clients count.
type resultSize struct {
	chars int // UTF-16 code units
	bytes int
	lines int
}

func (s *resultSize) add(t resultSize) {
	s.chars += t.chars
	s.bytes += t.bytes
	s.lines += t.lines
}

// sharePermille is how much of a limit the size uses, in thousandths: of the unit that uses most.
func (s resultSize) sharePermille(l clients.Result) int {
	share := 0
	for _, u := range [][2]int{{s.chars, l.Chars}, {s.bytes, l.Bytes}, {s.lines, l.Lines}} {
		if size, limit := u[0], u[1]; limit > 0 {
			share = max(share, (size*1000+limit-1)/limit)
		}
	}
	return share
}

// fitPermille is how much of a limit a result may use. The rest is for what clients add, such as the names of
// resources and line breaks between blocks.
const fitPermille = 980

// FitsClient reports whether the tool result in a reply is within what its client passes on.
func FitsClient(body []byte, l clients.Result) bool {
	return l.IsZero() || measureResult(body, l).sharePermille(l) <= fitPermille
}

// mayExceed is a quick look: it is false only for a result that is certainly within the limit, also with a marker in
// each of so many strings.
func mayExceed(body []byte, l clients.Result, markers int) bool {
	size := resultSize{chars: len(body), bytes: len(body), lines: 3 * markers}
	size.chars += 2 * markerRoom * markers
	size.bytes += 2 * markerRoom * markers
	if l.Lines > 0 {
		// Every text has a line more than line breaks, and is in an object of its own.
		size.lines += bytes.Count(body, []byte(`\n`)) + bytes.Count(body, []byte(`\u000`)) + bytes.Count(body, []byte("{"))
	}
	return size.sharePermille(l) > fitPermille
}

// measureResult measures the tool result of a reply as a client counts it; zero for a reply without one.
func measureResult(body []byte, l clients.Result) resultSize {
	res := findResult(body)
	structured := measureJSON(res.structured.Of(body))
	if l.StructuredInstead && res.structured.Len() > 0 {
		return structured
	}
	for _, b := range resultBlocks(body, res, l.AsJSON) {
		structured.add(b.size)
	}
	return structured
}

// block is an element of a tool result's content.
type block struct {
	jsonscan.Span
	size      resultSize
	hasBinary bool // an image, audio or another file: it is never left out
}

// resultBlocks lists the elements of content.
func resultBlocks(body []byte, res toolResult, asJSON bool) []block {
	var blocks []block
	if res.content.Len() == 0 {
		return nil
	}
	// The body has been parsed before: an error is not possible.
	_ = jsonscan.EachElement(body, res.content, func(s jsonscan.Span) error {
		b := block{Span: s, size: measureJSON(s.Of(body))}
		if fields, err := jsonscan.ReadFields(body, s); err == nil { // else no object, and so of no kind that a client knows
			binary := binarySize(body, fields)
			b.hasBinary = binary.bytes > 0
			b.size.chars -= binary.chars
			b.size.bytes -= binary.bytes
			if raw, _ := fields.Get("text"); !asJSON && fields.Text("type") == "text" {
				b.size = measureString(raw)
			}
		}
		b.size.add(resultSize{chars: 1, bytes: 1}) // the comma, or the line break between blocks
		blocks = append(blocks, b)
		return nil
	})
	return blocks
}

// binarySize is the size of the base64 data in a block, which clients do not count as text.
func binarySize(body []byte, block jsonscan.Fields) (size resultSize) {
	for _, f := range block.All() {
		switch f.Key {
		case "data", "blob":
			size.add(resultSize{chars: f.Value.Len(), bytes: f.Value.Len()})
		case "resource":
			if inner, err := jsonscan.ReadFields(body, f.Value); err == nil {
				size.add(binarySize(body, inner))
			}
		}
	}
	return size
}

// measureString measures the text of a JSON string, which may be missing.
func measureString(raw []byte) resultSize {
	if len(raw) < 2 || raw[0] != '"' {
		return resultSize{}
	}
	size := resultSize{lines: 1}
	for chunk := range jsonscan.DecodedChunks(raw[1:len(raw)-1], partSize) {
		size.chars += utf16Len(chunk)
		size.bytes += len(chunk)
		size.lines += bytes.Count(chunk, lineBreak)
	}
	return size
}

// measureJSON measures a JSON value as a client that shows its JSON does. What the client writes may be shorter, as it
// leaves white space and needless escapes out.
func measureJSON(raw []byte) resultSize {
	return resultSize{chars: utf16Len(raw), bytes: len(raw), lines: bytes.Count(raw, []byte(`\n`))}
}

// utf16Len is the length of a text in UTF-16 code units. Blocks of a text that end inside a character count its bytes
// as one unit each, which is never too few.
func utf16Len(text []byte) int {
	n := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			n++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		i += size
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
