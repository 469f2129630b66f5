// Package tomledit edits TOML documents in place: every byte that is not part of the edit stays as it was written,
// with comments, blank lines, line endings and the form of each table (header, dotted keys, inline).
//
// scan.go finds the expressions of a document and the items of its arrays and inline tables; edit.go replaces, adds
// and removes them by splicing bytes; encode.go writes new values. go-toml reads the document before and after each
// edit: the new one must be the old one with exactly this change, else the edit returns an error and changes nothing.
package tomledit

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Doc is a document that can be edited.
type Doc struct {
	bom   bool
	src   []byte // without the byte order mark
	exprs []expr
}

// Parse reads a document.
func Parse(data []byte) (*Doc, error) {
	if len(data) > textedit.MaxBytes {
		return nil, fmt.Errorf("the file has %d bytes; more than %d are not read", len(data), textedit.MaxBytes)
	}
	src, bom := textedit.CutBOM(data)
	return parseText(src, bom)
}

func parseText(src []byte, bom bool) (*Doc, error) {
	d := &Doc{bom: bom, src: src}
	if _, err := decode(src); err != nil {
		return nil, err
	}
	var err error
	d.exprs, err = scan(src)
	return d, err
}

func decode(src []byte) (map[string]any, error) {
	model := map[string]any{}
	err := toml.Unmarshal(src, &model)
	if e, ok := err.(*toml.DecodeError); ok { //nolint:errorlint // Unmarshal returns it as it is
		row, _ := e.Position()
		return nil, fmt.Errorf("line %d: %s", row, strings.TrimPrefix(e.Error(), "toml: "))
	}
	return model, err
}

// Bytes returns the document.
func (d *Doc) Bytes() []byte { return textedit.WithBOM(d.src, d.bom) }

// Value returns the value at a path of names and indexes, as go-toml decodes it. It reports whether there is one.
func (d *Doc) Value(path ...string) (any, bool, error) {
	model, err := decode(d.src)
	if err != nil {
		return nil, false, err
	}
	v, ok := textedit.GetIn(any(model), path)
	return v, ok, nil
}

// Keys returns the names in the table at a path (or the indexes of the array), in the order of the document; none if
// there is no such value.
func (d *Doc) Keys(path ...string) ([]string, error) {
	v, ok, err := d.Value(path...)
	if err != nil || !ok {
		return nil, err
	}
	if a, ok := v.([]any); ok {
		var keys []string
		for i := range a {
			keys = append(keys, strconv.Itoa(i))
		}
		return keys, nil
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, fmt.Errorf("%s is not a table", strings.Join(path, "."))
	}
	var keys []string
	add := func(full []string) {
		if len(full) > len(path) && hasPrefix(full, path) && !slices.Contains(keys, full[len(path)]) {
			keys = append(keys, full[len(path)])
		}
	}
	for _, e := range d.exprs {
		add(e.path)
		if e.kind == keyValue && hasPrefix(path, e.path) {
			if l, ok := d.listAt(e.value, e.path, path); ok {
				for _, it := range l.items {
					add(append(slices.Clone(path), it.path...))
				}
			}
		}
	}
	return keys, nil
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// listAt returns the array or inline table at a path within a value.
func (d *Doc) listAt(value int, at, path []string) (list, bool) {
	for {
		if c := d.src[value]; c != '{' && c != '[' {
			return list{}, false
		}
		l := (&scanner{src: d.src}).list(value)
		if len(at) == len(path) {
			return l, true
		}
		i := slices.IndexFunc(l.items, func(it item) bool { return hasPrefix(path[len(at):], it.path) })
		if i < 0 {
			return list{}, false
		}
		value, at = l.items[i].value, path[:len(at)+len(l.items[i].path)]
	}
}

// Line returns the line on which the value at a path starts, from 1, or 0.
func (d *Doc) Line(path ...string) int {
	for _, e := range d.exprs {
		if hasPrefix(e.path, path) {
			return line(d.src, e.start)
		}
		if e.kind == keyValue && hasPrefix(path, e.path) {
			if l, ok := d.listAt(e.value, e.path, path[:len(path)-1]); ok {
				for _, it := range l.items {
					if hasPrefix(it.path, path[len(path)-1:]) {
						return line(d.src, it.start)
					}
				}
			}
		}
	}
	return 0
}

// Comment returns the comments that Delete removes with what is at a path: on the lines directly above it, behind it,
// and within it. Comment signs are left out.
func (d *Doc) Comment(path ...string) string {
	var lines []string
	for _, r := range d.ranges(path) {
		s := &scanner{src: d.src[:r.To], at: r.From}
		for s.at < len(s.src) {
			switch s.peek() {
			case '#':
				start := s.at
				s.skipComment()
				lines = append(lines, strings.TrimSpace(string(bytes.TrimLeft(s.src[start:s.at], "#"))))
			case '"', '\'':
				s.skipString()
			default:
				s.at++
			}
		}
	}
	return strings.Join(lines, "\n")
}
