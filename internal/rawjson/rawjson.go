// Package rawjson reads and writes parts of JSON documents as raw bytes. It does not report errors: what
// it is given was checked before, and what is not there is empty.
package rawjson

import (
	"bytes"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// IsObject says whether data is one JSON object in which no key comes twice: it would be unclear which
// one counts.
func IsObject(data []byte) bool {
	s := jsonscan.New(data, 0)
	if s.Kind() != '{' {
		return false
	}
	if _, err := s.SkipStrict(); err != nil {
		return false
	}
	return s.End() == nil
}

// All is the span of all of data.
func All(data []byte) jsonscan.Span { return jsonscan.Span{End: len(data)} }

// EachMember calls member for the members of the object at a span.
func EachMember(data []byte, at jsonscan.Span, member func(key []byte, value jsonscan.Span)) {
	s := jsonscan.New(at.Of(data), 0)
	if s.Kind() != '{' {
		return
	}
	_ = s.Members(func(key []byte) error {
		value, err := s.Skip()
		member(key, jsonscan.Span{Start: value.Start + at.Start, End: value.End + at.Start})
		return err
	})
}

// FindMembers finds some members of the object at a span; the span of one that is not there is empty.
func FindMembers(data []byte, at jsonscan.Span, keys []string, into []jsonscan.Span) {
	clear(into)
	EachMember(data, at, func(key []byte, value jsonscan.Span) {
		for i, want := range keys {
			if string(key) == want {
				into[i] = value
				return
			}
		}
	})
}

// MemberSpan is where the value of a member of an object stands.
func MemberSpan(object []byte, key string) jsonscan.Span {
	var at [1]jsonscan.Span
	FindMembers(object, All(object), []string{key}, at[:])
	return at[0]
}

// Member is the value of a member of an object, nil when it is not there.
func Member(object []byte, key string) []byte {
	at := MemberSpan(object, key)
	if at.Len() == 0 {
		return nil
	}
	return at.Of(object)
}

// Inner is a value inside values, by keys; empty where it is not there, or a document is not valid.
func Inner(data []byte, keys ...string) []byte {
	for _, key := range keys {
		fields, err := jsonscan.FieldsOf(data)
		if err != nil {
			return nil
		}
		data, _ = fields.Get(key)
	}
	return data
}

// Elements are the elements of an array.
func Elements(array []byte) [][]byte {
	var out [][]byte
	for _, at := range ElementSpans(array, All(array)) {
		out = append(out, at.Of(array))
	}
	return out
}

// ElementSpans are where the elements of an array stand.
func ElementSpans(data []byte, array jsonscan.Span) []jsonscan.Span {
	var out []jsonscan.Span
	_ = jsonscan.EachElement(data, array, func(at jsonscan.Span) error {
		out = append(out, at)
		return nil
	})
	return out
}

// IsSet says that a value is there and not null.
func IsSet(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

// IsEmpty says that a value is not there, is null, or holds nothing.
func IsEmpty(raw []byte) bool {
	switch string(raw) {
	case "", "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// IsString says whether a value is the string word, however it is escaped.
func IsString(raw []byte, word string) bool {
	if len(raw) == len(word)+2 {
		return raw[0] == '"' && string(raw[1:len(raw)-1]) == word
	}
	return len(raw) > len(word)+2 && bytes.IndexByte(raw, '\\') >= 0 && jsonscan.DecodeString(raw) == word
}

// Int is a whole number.
func Int(raw []byte) (int, bool) {
	n, err := strconv.Atoi(string(raw))
	return n, err == nil
}

// FromInt is a number as JSON.
func FromInt(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

// Array is the array of some values.
func Array(values ...[]byte) []byte {
	out := append([]byte{'['}, bytes.Join(values, []byte{','})...)
	return append(out, ']')
}

// Unwrap is what stands between the quotes or the brackets of a value.
func Unwrap(raw []byte) []byte { return raw[1 : len(raw)-1] }

// With is an object with some members changed. Another value stays as it is.
func With(object []byte, changes ...jsonscan.Change) []byte {
	f, err := jsonscan.FieldsOf(object)
	if err != nil || jsonscan.New(object, 0).Kind() != '{' {
		return object
	}
	return f.With(changes...)
}

// SkipSpace is the offset of the first byte from at on that is no white space.
func SkipSpace(data []byte, at int) int {
	for data[at] <= ' ' {
		at++
	}
	return at
}
