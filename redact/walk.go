package redact

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// maxNesting is how many levels of JSON in texts of JSON are read.
const maxNesting = 3

// walk reads one document and collects edits, in order.
type walk struct {
	*jsonscan.Scanner
	set     *Set
	data    []byte
	inTexts []pointer // that apply to JSON in texts
	taken   literals  // what else is taken out of texts
	nesting int
	edits   []jsonscan.Edit

	isCutOff bool // the document ended inside a value that was taken out
}

func newWalk(s *Set, data []byte) *walk {
	return &walk{Scanner: jsonscan.New(data, 0), set: s, data: data}
}

// visitDocument visits a document of one value.
func (w *walk) visitDocument(at []pointer) error {
	if err := w.visitValue(at); err != nil {
		return err
	}
	return w.End()
}

// visitValue visits the value at the cursor, to which pointers apply.
func (w *walk) visitValue(at []pointer) error {
	switch w.Kind() {
	case '{':
		return w.visitObject(at)
	case '[':
		i := 0
		return w.Array(func() error {
			i++
			return w.visitMember(at, strconv.Itoa(i-1))
		})
	case '"':
		return w.visitString("")
	}
	span, err := w.Skip()
	if value := span.Of(w.data); err == nil && (w.matchesPattern(value) || w.taken.has(value)) {
		w.replaceValue(span)
	}
	return err
}

func (w *walk) visitObject(at []pointer) error {
	before, replaced := w.Pos(), 0
	return w.Members(func(key []byte) error {
		name := string(key)
		if w.matchesPattern(key) {
			replaced++
			// Between the value before and this one there are only a comma, a colon, white space and the key.
			start := before + bytes.IndexByte(w.data[before:], '"')
			end := bytes.LastIndexByte(w.data[:w.Pos()], '"') + 1
			w.edits = append(w.edits, jsonscan.Edit{Span: jsonscan.Span{Start: start, End: end}, Text: jsonscan.AppendQuoted(nil, replacedKey(replaced))})
		}
		err := w.visitMember(at, name)
		before = w.Pos()
		return err
	})
}

// replacedKey is the nth key of an object that was replaced: no two are alike.
func replacedKey(n int) string { return Replacement + strings.Repeat("*", n-1) }

// visitMember visits a member of an object or array.
func (w *walk) visitMember(at []pointer, key string) error {
	var below []pointer
	for _, p := range at {
		if p[0] != key && p[0] != "*" {
			continue
		}
		if len(p) == 1 {
			start := w.Pos()
			span, err := w.Skip()
			if err != nil { // cut off: the rest of the text goes
				span = jsonscan.Span{Start: start, End: len(w.data)}
				w.isCutOff = true
			}
			w.replaceValue(span)
			return err
		}
		below = append(below, p[1:])
	}
	if w.Kind() == '"' {
		return w.visitString(key)
	}
	return w.visitValue(below)
}

// visitParams visits the params of a notification or request. What ties it to its call stays.
func (w *walk) visitParams() error {
	if w.Kind() != '{' {
		return w.visitValue(nil)
	}
	return w.Members(func(key []byte) error {
		switch string(key) {
		case "progressToken", "requestId":
			_, err := w.Skip()
			return err
		default:
			return w.visitMember(nil, string(key))
		}
	})
}

// replaceValue replaces a value, unless that was done before.
func (w *walk) replaceValue(span jsonscan.Span) {
	text := jsonscan.AppendQuoted(nil, Replacement)
	if !bytes.Equal(span.Of(w.data), text) {
		w.edits = append(w.edits, jsonscan.Edit{Span: span, Text: text})
	}
}

// visitString visits a string, the value of a key.
func (w *walk) visitString(key string) error {
	str, err := w.Str()
	if err != nil {
		return err
	}
	raw := str.Of(w.data)
	text := raw
	if bytes.IndexByte(raw, '\\') >= 0 {
		text = jsonscan.AppendDecoded(nil, raw)
	}
	if (key == "blob" || key == "data") && w.matchesBinary(text) {
		w.edits = append(w.edits, jsonscan.Edit{Span: str.Span, Text: []byte(binaryReplacement)})
		return nil
	}
	if out, changed := w.redactText(text); changed {
		w.edits = append(w.edits, changedPart(raw, text, out, str.Start))
	}
	return nil
}
