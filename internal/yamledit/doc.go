// Package yamledit edits YAML documents in place: every byte that is not part of the edit stays as it was written,
// with comments, indentation, line endings and quotes.
//
// doc.go finds entries by the positions that yaml.v3 gives its nodes, flow.go reads {…} and […], edit.go replaces,
// adds and removes entries by splicing bytes, and encode.go writes new ones. Each edit is checked: the new document
// must parse, and must be the old one with exactly this change, else the edit returns an error and changes nothing.
// So a document whose anchors or layout an edit would break is refused, not damaged. Aliases are never edited.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Doc is a document that can be edited.
type Doc struct {
	bom   bool
	src   []byte // without the byte order mark
	lines []int  // offsets of the line starts
	root  *yaml.Node
	limit int // where the document ends
}

// Parse reads a document. A file with several documents is an error.
func Parse(data []byte) (*Doc, error) {
	if len(data) > textedit.MaxBytes {
		return nil, fmt.Errorf("the file has %d bytes; more than %d are not read", len(data), textedit.MaxBytes)
	}
	src, bom := textedit.CutBOM(data)
	return parseText(src, bom)
}

func parseText(src []byte, bom bool) (*Doc, error) {
	d := &Doc{bom: bom, src: src, lines: []int{0}, limit: len(src)}
	for i, c := range src {
		if c == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var node yaml.Node
	err := dec.Decode(&node)
	if errors.Is(err, io.EOF) {
		return d, nil
	}
	if err != nil {
		return nil, plainError(err)
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one YAML document")
	}
	if _, err := decode(src); err != nil {
		return nil, err
	}
	if len(node.Content) == 1 {
		d.root = node.Content[0]
	}
	for _, start := range d.lines {
		if start > 0 && bytes.Equal(bytes.TrimRight(d.lineAt(start), "\r\n \t"), []byte("...")) {
			d.limit = start
			break
		}
	}
	return d, nil
}

func plainError(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "yaml: ")) }

// decode returns a document with string keys.
func decode(src []byte) (any, error) {
	var model any
	if err := yaml.Unmarshal(src, &model); err != nil {
		return nil, plainError(err)
	}
	return stringKeys(model), nil
}

func stringKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = stringKeys(e)
		}
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[fmt.Sprint(k)] = stringKeys(e)
		}
		return m
	case []any:
		for i, e := range v {
			v[i] = stringKeys(e)
		}
	}
	return v
}

// Bytes returns the document.
func (d *Doc) Bytes() []byte { return textedit.WithBOM(d.src, d.bom) }

// Value returns the value at a path of names and indexes, as yaml.v3 decodes it. It reports whether there is one.
func (d *Doc) Value(path ...string) (any, bool, error) {
	model, err := decode(d.src)
	if err != nil {
		return nil, false, err
	}
	v, ok := textedit.GetIn(model, path)
	return v, ok, nil
}

// offset returns where a node starts.
func (d *Doc) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(d.lines) {
		return len(d.src)
	}
	at := d.lines[n.Line-1]
	for range n.Column - 1 { // columns count characters
		if at >= len(d.src) {
			break
		}
		at++
		for at < len(d.src) && d.src[at]&0xc0 == 0x80 {
			at++
		}
	}
	return at
}

// lineAt returns the line that starts at an offset, with its line break.
func (d *Doc) lineAt(at int) []byte {
	if n := bytes.IndexByte(d.src[at:], '\n'); n >= 0 {
		return d.src[at : at+n+1]
	}
	return d.src[at:]
}

func (d *Doc) lineStart(at int) int { return bytes.LastIndexByte(d.src[:at], '\n') + 1 }

// entry is a member of a mapping or an item of a sequence.
type entry struct {
	key   string
	start int // of the key or the dash; of a flow item, of the item
	value *yaml.Node
}

// collection is a mapping or sequence as its entries.
type collection struct {
	node    *yaml.Node
	isFlow  bool
	isList  bool
	entries []entry
	limit   int // where what follows it starts; of a flow collection nothing
}

func (d *Doc) collectionOf(n *yaml.Node, limit int) (collection, bool) {
	c := collection{node: n, isFlow: n.Style&yaml.FlowStyle != 0, limit: limit}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			c.entries = append(c.entries, entry{n.Content[i].Value, d.offset(n.Content[i]), n.Content[i+1]})
		}
	case yaml.SequenceNode:
		c.isList = true
		for i, item := range n.Content {
			c.entries = append(c.entries, entry{strconv.Itoa(i), d.offset(item), item})
		}
		if !c.isFlow {
			d.findDashes(c)
		}
	default:
		return c, false
	}
	return c, true
}

// findDashes moves the start of each item to its dash: in the sequence's column, on the item's line or above.
func (d *Doc) findDashes(c collection) {
	column := c.node.Column
	lower := d.offset(c.node)
	for i := range c.entries {
		e := &c.entries[i]
		if i == 0 {
			e.start = lower
			continue
		}
		for line := min(e.value.Line, len(d.lines)); line >= 1; line-- {
			at := d.offset(&yaml.Node{Line: line, Column: column})
			if at <= c.entries[i-1].start {
				break
			}
			isFirst := len(bytes.TrimSpace(d.src[d.lines[line-1]:min(at, len(d.src))])) == 0
			if at < len(d.src) && d.src[at] == '-' && isFirst {
				e.start = at
				break
			}
		}
	}
}

func (c collection) index(key string) int {
	return slices.IndexFunc(c.entries, func(e entry) bool { return e.key == key })
}

// limitOf returns where what follows an entry starts.
func (c collection) limitOf(i int) int {
	if i+1 < len(c.entries) {
		return c.entries[i+1].start
	}
	return c.limit
}

// find returns the collection at a path; ok is false if there is none.
func (d *Doc) find(path []string) (c collection, ok bool, err error) {
	if d.root == nil {
		return collection{}, false, nil
	}
	n, limit := d.root, d.limit
	for i := 0; ; i++ {
		if n.Kind == yaml.AliasNode {
			return c, false, fmt.Errorf("line %d: an alias (*%s) is not edited", n.Line, n.Value)
		}
		c, ok = d.collectionOf(n, limit)
		if i == len(path) || !ok {
			return c, ok, nil
		}
		at := c.index(path[i])
		if at < 0 {
			return c, false, nil
		}
		limit = c.limitOf(at)
		n = c.entries[at].value
	}
}

// Keys returns the names in the mapping at a path (or the indexes of the sequence), in order; none if there is none.
func (d *Doc) Keys(path ...string) ([]string, error) {
	c, ok, err := d.find(path)
	if err != nil {
		return nil, err
	}
	if !ok {
		if v, has, _ := d.Value(path...); has && v != nil {
			return nil, fmt.Errorf("%s is not a mapping or sequence", strings.Join(path, "."))
		}
		return nil, nil
	}
	var keys []string
	for _, e := range c.entries {
		if e.key != "<<" {
			keys = append(keys, e.key)
		}
	}
	return keys, nil
}

// Line returns the line on which the entry at a path starts, from 1, or 0.
func (d *Doc) Line(path ...string) int {
	c, ok, err := d.find(path[:len(path)-1])
	if i := c.index(path[len(path)-1]); ok && err == nil && i >= 0 {
		return textedit.Line(d.src, c.entries[i].start)
	}
	return 0
}

// Comment returns the comments that Delete removes with the entry at a path: directly above it, and within it.
func (d *Doc) Comment(path ...string) string {
	c, ok, err := d.find(path[:len(path)-1])
	i := c.index(path[len(path)-1])
	if !ok || err != nil || i < 0 || c.isFlow {
		return ""
	}
	var lines []string
	r := d.extentOf(c, i)
	start := c.entries[i].start
	// Above it there are only comments; within it the parser knows which are.
	for at := r.from; at < d.lineStart(start); at += len(d.lineAt(at)) {
		lines = append(lines, trimComment(string(d.lineAt(at))))
	}
	above := len(lines)
	collect := func(n *yaml.Node, isKey bool) {
		for i, text := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			if isKey && i != 1 {
				continue // of another entry
			}
			for line := range strings.Lines(text) {
				if line = trimComment(line); !slices.Contains(lines[:above], line) {
					lines = append(lines, line)
				}
			}
		}
	}
	var walk func(n *yaml.Node, isTop bool)
	walk = func(n *yaml.Node, isTop bool) {
		collect(n, isTop && c.isList)
		if n.Kind == yaml.AliasNode {
			return
		}
		for _, child := range n.Content {
			walk(child, false)
		}
	}
	if !c.isList {
		collect(c.node.Content[2*i], true)
	}
	walk(c.entries[i].value, true)
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "\n")
}

func trimComment(line string) string {
	return strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "#"))
}
