package llmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// fields are the members of an object, unread. Bodies grow to megabytes and are split once a level:
// jsontext does that in one pass where encoding/json takes two slow ones. As the providers do, the
// last of two members of a name is taken.
type fields map[string]json.RawMessage

func fieldsOf(raw json.RawMessage) (fields, bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, false
	}
	f := fields{}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		key := name.String()
		value, ok := nextValue(d, raw)
		if !ok {
			return nil, false
		}
		f[key] = value
	}
	return f, ended(d)
}

// listOf reads an array; a null, or anything else, is none.
func listOf(raw json.RawMessage) ([]json.RawMessage, bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, false
	}
	l := []json.RawMessage{}
	for d.PeekKind() != ']' {
		value, ok := nextValue(d, raw)
		if !ok {
			return nil, false
		}
		l = append(l, value)
	}
	return l, ended(d)
}

// nextValue is the next value as a part of raw: what the decoder gives lives only until it reads on.
func nextValue(d *jsontext.Decoder, raw json.RawMessage) (json.RawMessage, bool) {
	v, err := d.ReadValue()
	if err != nil {
		return nil, false
	}
	end := int(d.InputOffset())
	return raw[end-len(v) : end : end], true
}

// ended says that the value closes and nothing follows it.
func ended(d *jsontext.Decoder) bool {
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

func textOf(raw json.RawMessage) (string, bool) {
	if kindOf(raw) != "string" {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(raw))
	return string(s), err == nil
}

func numberOf(raw json.RawMessage) int {
	var n int
	_ = json.Unmarshal(raw, &n)
	return n
}

// kindOf is what a value is, in the words of the providers' messages.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "string"
	case '[':
		return "array"
	case '{':
		return "object"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// given says that the member is there and not null.
func (f fields) given(key string) bool {
	raw, ok := f[key]
	return ok && kindOf(raw) != "null"
}

func (f fields) text(key string) string {
	s, _ := textOf(f[key])
	return s
}

func (f fields) is(key string) bool { return string(bytes.TrimSpace(f[key])) == "true" }

// unknown is the first member, by name, that is not among the known ones.
func (f fields) unknown(known ...string) (string, bool) {
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, key) {
			return key, true
		}
	}
	return "", false
}

// words splits a list that is written as a line.
func words(line string) []string { return strings.Fields(line) }

// quoted joins names as OpenAI's messages do: 'a', 'b', and 'c'.
func quoted(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		if i > 0 && i == len(names)-1 {
			b.WriteString("and ")
		}
		b.WriteString("'" + n + "'")
	}
	return b.String()
}

// encode writes JSON as the providers do: without escapes that only HTML needs.
func encode[T any](v T) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only our own types come here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
