// Package jsonedit edits JSON and JSONC documents in place: every byte that is not part of the edit stays as it
// was written, with comments, indentation, line endings and byte order mark.
//
// doc.go finds values (parsed by hujson, which knows the offset of everything), edit.go replaces, adds and
// removes members and elements by splicing bytes, encode.go writes new values the way the document is written.
// Each edit is checked before it is kept: the new document must parse, and must be the old one with exactly
// this change. An edit that fails the check returns an error and changes nothing.
package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// maxDepth is how deep a document may be nested; the parser recurses.
const maxDepth = 1000

// Syntax says what the reader of a document accepts beyond JSON.
type Syntax struct {
	Comments       bool
	TrailingCommas bool
}

// Strict is plain JSON; JSONC also has comments and trailing commas.
var (
	Strict = Syntax{}
	JSONC  = Syntax{Comments: true, TrailingCommas: true}
)

// Doc is a document that can be edited.
type Doc struct {
	bom    bool
	syntax Syntax
	src    []byte // without the byte order mark
	root   hujson.Value
	lists  map[*hujson.Value]list // those that were looked at
}

// Parse reads a document. A document that goes beyond the given syntax is an error that names the line. An empty
// document (white space and comments only) reads as an empty object.
func Parse(data []byte, syntax Syntax) (*Doc, error) {
	if len(data) > textedit.MaxBytes {
		return nil, fmt.Errorf("the file has %d bytes; more than %d are not read", len(data), textedit.MaxBytes)
	}
	d := &Doc{syntax: syntax}
	d.src, d.bom = textedit.CutBOM(data)
	if isBlank(d.src) {
		if n := len(d.src); n > 0 && d.src[n-1] != '\n' {
			d.src = append(d.src, textedit.EOL(d.src)...)
		}
		d.src = append(d.src, "{}"+textedit.EOL(d.src)...)
	}
	root, err := parseText(d.src, syntax)
	if err != nil {
		return nil, err
	}
	d.root = root
	return d, nil
}

func parseText(src []byte, syntax Syntax) (hujson.Value, error) {
	if err := checkDepth(src); err != nil {
		return hujson.Value{}, err
	}
	root, err := hujson.Parse(src)
	if err != nil {
		return root, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	return root, checkSyntax(src, root, syntax)
}

// isBlank says that a text has only white space and comments.
func isBlank(src []byte) bool {
	for at := 0; at < len(src); {
		switch next := skipComment(src, at); {
		case next > at:
			at = next
		case bytes.IndexByte([]byte(" \t\r\n"), src[at]) >= 0:
			at++
		default:
			return false
		}
	}
	return true
}

// checkDepth counts open brackets outside strings and comments. It may count too many in a document that does
// not parse, never too few.
func checkDepth(src []byte) error {
	depth := 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("line %d: nested deeper than %d levels", textedit.Line(src, i), maxDepth)
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case '/':
			i = max(i, skipComment(src, i)-1)
		}
	}
	return nil
}

// checkSyntax reports comments and trailing commas that the syntax does not have.
func checkSyntax(src []byte, root hujson.Value, syntax Syntax) error {
	if syntax == JSONC || json.Valid(src) {
		return nil
	}
	var err error
	for v := range root.All() {
		list, ok := listOf(v)
		for _, x := range []struct {
			extra hujson.Extra
			at    int
		}{{v.BeforeExtra, v.StartOffset - len(v.BeforeExtra)}, {v.AfterExtra, v.EndOffset}, {list.after, list.close - len(list.after)}} {
			if !syntax.Comments && len(bytes.TrimSpace(x.extra)) > 0 && err == nil {
				err = fmt.Errorf("line %d: a comment, which this file may not have", textedit.Line(src, x.at+bytes.IndexByte(x.extra, '/')))
			}
		}
		if !syntax.TrailingCommas && ok && list.trailingComma && err == nil {
			err = fmt.Errorf("line %d: a comma after the last entry, which this file may not have", textedit.Line(src, list.items[len(list.items)-1].end))
		}
	}
	return err
}

// Bytes returns the document.
func (d *Doc) Bytes() []byte {
	return textedit.WithBOM(d.src, d.bom)
}

// item is a member of an object or an element of an array.
type item struct {
	key        string
	start, end int // of the member: name to value
	nameEnd    int
	value      *hujson.Value
	comma      int // offset of the comma that follows, or -1
}

// list is an object or array as its items.
type list struct {
	open, close   int // offsets of the brackets
	isObject      bool
	items         []item
	after         hujson.Extra // before the closing bracket
	trailingComma bool
	first, twice  map[string]int // the items of a name, of a Doc's lists
}

func listOf(v *hujson.Value) (list, bool) {
	l := list{open: v.StartOffset, close: v.EndOffset - 1}
	switch node := v.Value.(type) {
	case *hujson.Object:
		l.isObject, l.after = true, node.AfterExtra
		for i := range node.Members {
			m := &node.Members[i]
			key := m.Name.Value.(hujson.Literal).String()
			l.items = append(l.items, item{key, m.Name.StartOffset, m.Value.EndOffset, m.Name.EndOffset, &m.Value, m.Value.EndOffset + len(m.Value.AfterExtra)})
		}
	case *hujson.Array:
		l.after = node.AfterExtra
		for i := range node.Elements {
			e := &node.Elements[i]
			l.items = append(l.items, item{strconv.Itoa(i), e.StartOffset, e.EndOffset, e.StartOffset, e, e.EndOffset + len(e.AfterExtra)})
		}
	default:
		return l, false
	}
	if n := len(l.items); n > 0 {
		// The parser keeps what is before the closing bracket apart, and marks a trailing comma by an extra that is not nil.
		last := &l.items[n-1]
		if l.close-len(l.after) > last.comma {
			l.trailingComma = true
		} else {
			last.comma = -1
		}
	}
	return l, true
}

// index returns the first item of a name, or -1.
func (l list) index(key string) int {
	if i, ok := l.first[key]; ok {
		return i
	}
	return -1
}

// listOf returns an object or array of the document as its items.
func (d *Doc) listOf(v *hujson.Value) (list, bool) {
	if l, ok := d.lists[v]; ok {
		return l, true
	}
	l, ok := listOf(v)
	if ok {
		l.first, l.twice = make(map[string]int, len(l.items)), map[string]int{}
		for i, it := range l.items {
			if _, has := l.first[it.key]; !has {
				l.first[it.key] = i
			} else if l.twice[it.key] == 0 {
				l.twice[it.key] = i
			}
		}
		if d.lists == nil {
			d.lists = map[*hujson.Value]list{}
		}
		d.lists[v] = l
	}
	return l, ok
}

// find returns the value at a path of names and indexes, or nil. A name that an object on the way has twice is
// an error: readers disagree about which one counts.
func (d *Doc) find(path []string) (*hujson.Value, error) {
	v := &d.root
	for i, key := range path {
		if isNull(v) {
			return nil, nil
		}
		l, ok := d.listOf(v)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", strings.Join(path[:i], "."))
		}
		at := l.index(key)
		if at < 0 {
			return nil, nil
		}
		if second, ok := l.twice[key]; ok {
			return nil, fmt.Errorf("line %d: %q is there twice", textedit.Line(d.src, l.items[second].start), key)
		}
		v = l.items[at].value
	}
	return v, nil
}

// Keys returns the names of the object's members (or the indexes of the array's elements) at a path, in order;
// none if there is no such value, or null. A name that is there twice is an error.
func (d *Doc) Keys(path ...string) ([]string, error) {
	v, err := d.find(path)
	if err != nil || v == nil || isNull(v) {
		return nil, err
	}
	l, ok := d.listOf(v)
	if !ok {
		return nil, fmt.Errorf("%s is not an object", strings.Join(path, "."))
	}
	var keys []string
	for i, it := range l.items {
		if l.twice[it.key] == i && i > 0 {
			return nil, fmt.Errorf("line %d: %q is there twice", textedit.Line(d.src, it.start), it.key)
		}
		keys = append(keys, it.key)
	}
	return keys, nil
}

// Has says whether there is a value at a path.
func (d *Doc) Has(path ...string) bool {
	v, err := d.find(path)
	return err == nil && v != nil
}

// Value returns the value at a path as encoding/json decodes it, with numbers as json.Number. It reports whether there
// is one.
func (d *Doc) Value(path ...string) (any, bool, error) {
	v, err := d.find(path)
	if err != nil || v == nil {
		return nil, false, err
	}
	value, err := decodeValue(v)
	if err != nil {
		return nil, true, fmt.Errorf("line %d: %w", textedit.Line(d.src, v.StartOffset), err)
	}
	return value, true, nil
}

func decodeValue(v *hujson.Value) (any, error) {
	plain := v.Clone()
	plain.BeforeExtra, plain.AfterExtra = nil, nil
	plain.Standardize()
	dec := json.NewDecoder(bytes.NewReader(plain.Pack()))
	dec.UseNumber()
	var value any
	err := dec.Decode(&value)
	return value, err
}

// Raw returns the bytes of the value at a path as they are written, or nil.
func (d *Doc) Raw(path ...string) []byte {
	v, err := d.find(path)
	if err != nil || v == nil {
		return nil
	}
	return bytes.Clone(d.src[v.StartOffset:v.EndOffset])
}

// Line returns the line of the value at a path, from 1, or 0.
func (d *Doc) Line(path ...string) int {
	v, err := d.find(path)
	if err != nil || v == nil {
		return 0
	}
	return textedit.Line(d.src, v.StartOffset)
}

// Comment returns the comments that belong to a member: on the lines directly above it, and behind it on its
// last line, without the comment signs. Delete removes these with the member.
func (d *Doc) Comment(path ...string) string {
	v, err := d.find(path[:len(path)-1])
	if err != nil || v == nil {
		return ""
	}
	l, _ := d.listOf(v)
	i := l.index(path[len(path)-1])
	if i < 0 {
		return ""
	}
	x := d.extentOf(l, i)
	var lines []string
	for _, r := range [][2]int{{x.start, x.name}, {x.value, x.end}} {
		for at := r[0]; at < r[1]; {
			end := skipComment(d.src, at)
			if end == at {
				at++
				continue
			}
			lines = append(lines, commentLines(d.src[at:end])...)
			at = end
		}
	}
	return strings.Join(lines, "\n")
}

// skipComment returns the offset behind the comment that starts at an offset (a line comment without its line
// end), or the offset itself.
func skipComment(src []byte, at int) int {
	switch {
	case bytes.HasPrefix(src[at:], []byte("//")):
		if n := bytes.IndexByte(src[at:], '\n'); n >= 0 {
			return at + len(bytes.TrimSuffix(src[at:at+n], []byte("\r")))
		}
		return len(src)
	case bytes.HasPrefix(src[at:], []byte("/*")):
		if n := bytes.Index(src[at+2:], []byte("*/")); n >= 0 {
			return at + 2 + n + 2
		}
		return len(src)
	}
	return at
}

func commentLines(text []byte) []string {
	s := string(text)
	if rest, ok := strings.CutPrefix(s, "//"); ok {
		return []string{strings.TrimSpace(rest)}
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "/*"), "*/")
	var out []string
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "*"))
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}
