// Package textedit has what jsonedit, tomledit and yamledit share: splices of bytes, line endings and the byte
// order mark, objects in order, and edits of decoded documents, with which each editor checks its result.
package textedit

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// MaxBytes is the largest document that is read.
const MaxBytes = 64 << 20

// Member is a name and its value.
type Member struct {
	Key   string
	Value any
}

// Object is a map that keeps the order of its members.
type Object []Member

// Ordered returns a value with its maps as objects, whose members are sorted by name.
func Ordered(value any) any {
	switch v := value.(type) {
	case map[string]any:
		o := make(Object, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o = append(o, Member{Key: key, Value: Ordered(v[key])})
		}
		return o
	case Object:
		o := make(Object, 0, len(v))
		for _, m := range v {
			o = append(o, Member{Key: m.Key, Value: Ordered(m.Value)})
		}
		return o
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = Ordered(e)
		}
		return list
	}
	return value
}

// Plain returns a value with its objects as maps.
func Plain(value any) any {
	switch v := value.(type) {
	case Object:
		m := make(map[string]any, len(v))
		for _, member := range v {
			m[member.Key] = Plain(member.Value)
		}
		return m
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = Plain(e)
		}
		return list
	}
	return value
}

// Splice is a range of bytes and what comes in its place.
type Splice struct {
	From, To int
	Text     []byte
}

// Replace returns the splice of a range by a text.
func Replace(from, to int, text []byte) Splice { return Splice{From: from, To: to, Text: text} }

// Apply returns src with the splices, which do not overlap.
func Apply(src []byte, splices ...Splice) []byte {
	slices.SortStableFunc(splices, func(a, b Splice) int { return a.From - b.From })
	var out []byte
	at := 0
	for _, s := range splices {
		out = append(out, src[at:s.From]...)
		out = append(out, s.Text...)
		at = max(at, s.To)
	}
	return append(out, src[at:]...)
}

var bom = []byte("\xef\xbb\xbf")

// CutBOM returns a copy of the data without a byte order mark, and whether there was one.
func CutBOM(data []byte) ([]byte, bool) {
	src, ok := bytes.CutPrefix(data, bom)
	return bytes.Clone(src), ok
}

// WithBOM returns a copy of src, with a byte order mark if the document has one.
func WithBOM(src []byte, has bool) []byte {
	if has {
		return slices.Concat(bom, src)
	}
	return bytes.Clone(src)
}

// EOL returns the line ending of a document: that of its first line.
func EOL(src []byte) string {
	if i := bytes.IndexByte(src, '\n'); i > 0 && src[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// Line returns the line of an offset, from 1.
func Line(src []byte, offset int) int {
	return 1 + bytes.Count(src[:max(0, min(offset, len(src)))], []byte("\n"))
}

// SetIn sets a value in a decoded document and returns the document. Maps on the way are made; the index that
// equals a list's length appends.
func SetIn(model any, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	switch node := model.(type) {
	case nil:
		return SetIn(map[string]any{}, path, value)
	case map[string]any:
		child, err := SetIn(node[path[0]], path[1:], value)
		if err == nil {
			node[path[0]] = child
		}
		return node, err
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i > len(node) {
			return nil, fmt.Errorf("%q is not an index", path[0])
		}
		if i == len(node) {
			node = append(node, nil)
		}
		child, err := SetIn(node[i], path[1:], value)
		if err == nil {
			node[i] = child
		}
		return node, err
	}
	return nil, fmt.Errorf("%q is not in an object", path[0])
}

// DeleteIn removes what is at a path of a decoded document and returns the document.
func DeleteIn(model any, path []string) (any, error) {
	switch node := model.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(node, path[0])
			return node, nil
		}
		child, err := DeleteIn(node[path[0]], path[1:])
		if err == nil {
			node[path[0]] = child
		}
		return node, err
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i >= len(node) {
			return nil, fmt.Errorf("%q is not an index", path[0])
		}
		if len(path) == 1 {
			return slices.Delete(node, i, i+1), nil
		}
		child, err := DeleteIn(node[i], path[1:])
		if err == nil {
			node[i] = child
		}
		return node, err
	}
	return nil, fmt.Errorf("%q is not in an object", path[0])
}

// GetIn returns what is at a path of a decoded document.
func GetIn(model any, path []string) (any, bool) {
	for _, key := range path {
		switch node := model.(type) {
		case map[string]any:
			child, ok := node[key]
			if !ok {
				return nil, false
			}
			model = child
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			model = node[i]
		default:
			return nil, false
		}
	}
	return model, true
}
