package fakeprovider

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

// fields holds an object's members, undecoded. Bodies are megabytes long: jsontext splits a level in one
// pass where encoding/json needs two slower ones. Of duplicate members the last wins, as at the providers.
type fields map[string]json.RawMessage

func parseObject(raw json.RawMessage) (fields, bool) {
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
	return f, atEnd(d)
}

// parseArray splits an array; ok is false for any other value.
func parseArray(raw json.RawMessage) ([]json.RawMessage, bool) {
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
	return l, atEnd(d)
}

// nextValue returns the next value as a slice of raw, because the decoder reuses its own.
func nextValue(d *jsontext.Decoder, raw json.RawMessage) (json.RawMessage, bool) {
	v, err := d.ReadValue()
	if err != nil {
		return nil, false
	}
	end := int(d.InputOffset())
	return raw[end-len(v) : end : end], true
}

// atEnd reports whether the value closes and nothing follows it.
func atEnd(d *jsontext.Decoder) bool {
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

func parseString(raw json.RawMessage) (string, bool) {
	if jsonType(raw) != "string" {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(raw))
	return string(s), err == nil
}

func parseInt(raw json.RawMessage) int {
	var n int
	_ = json.Unmarshal(raw, &n)
	return n
}

// jsonType names the type of a value as the providers' messages do.
func jsonType(raw json.RawMessage) string {
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

// has reports whether the member is present and not null.
func (f fields) has(key string) bool {
	raw, ok := f[key]
	return ok && jsonType(raw) != "null"
}

func (f fields) text(key string) string {
	s, _ := parseString(f[key])
	return s
}

func (f fields) isTrue(key string) bool { return string(bytes.TrimSpace(f[key])) == "true" }

// firstUnknown returns the first member, by name, that is not known.
func (f fields) firstUnknown(known ...string) (string, bool) {
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, key) {
			return key, true
		}
	}
	return "", false
}

// joinQuoted joins names as OpenAI's messages do: 'a', 'b', and 'c'.
func joinQuoted(names []string) string {
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

// encodeJSON encodes as the providers do: without HTML escapes.
func encodeJSON[T any](v T) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only our own types come here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
