package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Delete removes the entry at a path with its comments (see Comment). A path that does not exist is no error.
func (d *Doc) Delete(path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root cannot be removed")
	}
	c, ok, err := d.find(path[:len(path)-1])
	if err != nil {
		return err
	}
	i := c.index(path[len(path)-1])
	if !ok || i < 0 {
		return nil
	}
	var splices []textedit.Splice
	switch {
	case c.isFlow:
		open := d.opening(c.node)
		items, _, err := d.flowItems(open)
		if err != nil || len(items) != len(c.entries) {
			return fmt.Errorf("line %d: cannot be edited: %w", c.node.Line, errors.Join(err, errLayout))
		}
		splices = d.withoutFlowItem(open, items, i)
	default:
		splices = d.withoutEntry(c, i, path)
	}
	return d.replace(textedit.Apply(d.src, splices...), func(model any) (any, error) { return textedit.DeleteIn(model, path) })
}

var errLayout = errors.New("its layout is not understood")

// opening returns the offset of a flow collection's bracket, behind its anchor or tag.
func (d *Doc) opening(n *yaml.Node) int {
	at := d.offset(n)
	if i := bytes.IndexAny(d.src[at:], "{["); i >= 0 {
		return at + i
	}
	return at
}

// replace takes a new text if it is the old document with one change.
func (d *Doc) replace(src []byte, change func(any) (any, error)) error {
	next, err := parseText(src, d.bom)
	if err != nil {
		return fmt.Errorf("the edit would break the file (%w); nothing was changed", err)
	}
	before, err := decode(d.src)
	if err != nil {
		return err
	}
	after, err := decode(src)
	if err != nil {
		return err
	}
	want, err := change(before)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(after, want) {
		return errors.New("the edit would change more than was asked; nothing was changed")
	}
	*d = *next
	return nil
}

// extent is a range of a block entry.
type extent struct {
	from, to int
	isFirst  bool // of its line: only white space is before it
}

// extentOf returns the range of a block entry: the comments above it in its own column, and its lines with the
// comments that are indented deeper.
func (d *Doc) extentOf(c collection, i int) extent {
	start := c.entries[i].start
	line := d.lineStart(start)
	x := extent{from: line, isFirst: len(bytes.TrimSpace(d.src[line:start])) == 0}
	column := start - line
	limit := c.limitOf(i)
	if limit < len(d.src) {
		limit = d.lineStart(limit)
	}
	// Down: up to the last line that is indented deeper and not blank.
	x.to = min(line+len(d.lineAt(line)), len(d.src))
	for at := x.to; at < limit; {
		l := d.lineAt(at)
		text := bytes.TrimLeft(l, " \t")
		isBlank := len(bytes.TrimSpace(l)) == 0
		isOther := len(text) > 0 && text[0] == '#' && len(l)-len(text) <= column
		at += len(l)
		if !isBlank && !isOther {
			x.to = at
		}
	}
	// Up: comments in the same column, without a blank line between.
	for x.isFirst && x.from > 0 {
		above := d.lineStart(x.from - 1)
		l := d.src[above:x.from]
		if !bytes.HasPrefix(bytes.TrimLeft(l, " \t"), []byte("#")) || len(l)-len(bytes.TrimLeft(l, " \t")) != column {
			break
		}
		x.from = above
	}
	return x
}

// withoutEntry returns the splices that remove a block entry.
func (d *Doc) withoutEntry(c collection, i int, path []string) []textedit.Splice {
	x := d.extentOf(c, i)
	start := c.entries[i].start
	if len(c.entries) == 1 {
		empty := "{}"
		if c.isList {
			empty = "[]"
		}
		if !x.isFirst || len(path) == 1 {
			end := d.src[start:x.to]
			return []textedit.Splice{textedit.Replace(start, start+len(bytes.TrimRight(end, "\r\n")), []byte(empty))}
		}
		return d.emptied(path, x, empty)
	}
	if !x.isFirst {
		// Behind the dash of a list: the next entry takes its place.
		return []textedit.Splice{{From: start, To: c.limitOf(i)}}
	}
	// Of the blank lines around it those on one side go.
	isBlank := func(at int) bool { return at < len(d.src) && len(bytes.TrimSpace(d.lineAt(at))) == 0 }
	if x.from > 0 && isBlank(d.lineStart(x.from-1)) {
		for isBlank(x.to) {
			x.to += len(d.lineAt(x.to))
		}
	}
	return []textedit.Splice{{From: x.from, To: x.to}}
}

// emptied returns the splices that leave an empty collection behind the key or dash of its parent.
func (d *Doc) emptied(path []string, x extent, empty string) []textedit.Splice {
	parent, _, _ := d.find(path[:len(path)-2])
	i := parent.index(path[len(path)-2])
	at := parent.entries[i].start + 1 // behind the dash
	if !parent.isList {
		at = d.keyEnd(parent.node.Content[2*i])
	}
	return []textedit.Splice{textedit.Replace(at, at, []byte(" "+empty)), {From: x.from, To: x.to}}
}

// keyEnd returns the offset behind the colon of a key.
func (d *Doc) keyEnd(key *yaml.Node) int {
	at := d.offset(key)
	if key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		at = d.stringEnd(at)
	} else {
		at += len(key.Value)
	}
	if i := bytes.IndexByte(d.src[min(at, len(d.src)):], ':'); i >= 0 {
		return at + i + 1
	}
	return at
}

// Set writes a value at a path. A value that is there is replaced; what is missing on the way is made. New entries come
// behind the last one. The index that equals the length of a sequence appends.
func (d *Doc) Set(value any, path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root cannot be replaced")
	}
	value = textedit.Ordered(value)
	plain, err := plainValue(value)
	if err != nil {
		return err
	}
	change := func(model any) (any, error) { return textedit.SetIn(model, path, plain) }
	// The longest part of the path that is a collection with entries.
	for n := len(path) - 1; n >= 0; n-- {
		c, ok, err := d.find(path[:n])
		if err != nil {
			return err
		}
		if !ok || len(c.entries) == 0 {
			continue
		}
		rest := path[n:]
		i := c.index(rest[0])
		for j := len(rest) - 1; j > 0; j-- {
			value = textedit.Object{{Key: rest[j], Value: value}}
		}
		if i >= 0 && len(rest) > 1 {
			if v, _, _ := d.Value(path[:n+1]...); v != nil && !isEmpty(v) {
				return fmt.Errorf("line %d: %s is not a mapping", c.entries[i].value.Line, rest[0])
			}
		}
		splices, err := d.splicesFor(c, i, rest[0], value)
		if err != nil {
			return err
		}
		return d.replace(textedit.Apply(d.src, splices...), change)
	}
	// A document without entries.
	if d.root != nil && d.root.Kind == yaml.ScalarNode && d.root.Value != "" {
		return errors.New("the document is not a mapping")
	}
	object := value
	for i := len(path) - 1; i >= 0; i-- {
		object = textedit.Object{{Key: path[i], Value: object}}
	}
	eol := textedit.EOL(d.src)
	text := joinLines(encodeBlock(object, 0, 2), "", eol)
	if d.root != nil {
		at := d.offset(d.root)
		end := at
		if d.root.Kind == yaml.MappingNode {
			if _, close, err := d.flowItems(at); err == nil {
				end = close + 1
			}
		}
		return d.replace(textedit.Apply(d.src, textedit.Replace(at, end, bytes.TrimSuffix(text, []byte(eol)))), change)
	}
	if n := len(d.src); n > 0 && d.src[n-1] != '\n' {
		text = append([]byte(eol), text...)
	}
	return d.replace(append(bytes.Clone(d.src), text...), change)
}

// Copy writes the entry that another document has at a path, as it is written there, with its comments, behind the last
// entry. What has the path here must be removed first. In a list, it is appended.
func (d *Doc) Copy(from *Doc, path ...string) error {
	value, ok, err := from.Value(path...)
	if err != nil || !ok {
		return err
	}
	parent, key := path[:len(path)-1], path[len(path)-1]
	source, _, err := from.find(parent)
	if err != nil {
		return err
	}
	target, ok, err := d.find(parent)
	if err != nil {
		return err
	}
	i, at := source.index(key), slices.Clone(path)
	if target.isList {
		at[len(at)-1] = strconv.Itoa(len(target.entries))
	}
	if !ok || i < 0 || len(target.entries) == 0 || source.isFlow || target.isFlow || target.index(at[len(at)-1]) >= 0 {
		return d.Set(value, at...)
	}
	x := from.extentOf(source, i)
	last := target.entries[len(target.entries)-1].start
	if !x.isFirst || source.entries[i].start-from.lineStart(source.entries[i].start) != last-d.lineStart(last) {
		return d.Set(value, at...)
	}
	eol := textedit.EOL(d.src)
	text := bytes.ReplaceAll(bytes.TrimRight(from.src[x.from:x.to], "\r\n"), []byte("\r\n"), []byte("\n"))
	text = append(bytes.ReplaceAll(text, []byte("\n"), []byte(eol)), eol...)
	end := d.extentOf(target, len(target.entries)-1).to
	if end > 0 && d.src[end-1] != '\n' {
		text = append([]byte(eol), bytes.TrimSuffix(text, []byte(eol))...)
	}
	next := textedit.Apply(d.src, textedit.Replace(end, end, text))
	if d.replace(next, func(model any) (any, error) { return textedit.SetIn(model, at, value) }) != nil {
		return d.Set(value, at...) // the text means something else here
	}
	return nil
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// splicesFor returns the splices that set an entry of a collection: entry i, or a new one if i is negative.
func (d *Doc) splicesFor(c collection, i int, key string, value any) ([]textedit.Splice, error) {
	if c.isList && i < 0 && key != strconv.Itoa(len(c.entries)) {
		return nil, fmt.Errorf("%q is not the index of the next item", key)
	}
	if c.isFlow {
		open := d.opening(c.node)
		items, end, err := d.flowItems(open)
		if err != nil || len(items) != len(c.entries) {
			return nil, fmt.Errorf("line %d: cannot be edited: %w", c.node.Line, errors.Join(err, errLayout))
		}
		text := encodeFlow(value)
		if !c.isList {
			text = encodeScalar(key) + ": " + text
		}
		if i >= 0 {
			return []textedit.Splice{textedit.Replace(items[i].start, items[i].end, []byte(text))}, nil
		}
		return d.withFlowItem(open, end, items, []byte(text)), nil
	}
	eol := textedit.EOL(d.src)
	unit := d.indentUnit(c)
	if i >= 0 {
		return d.replacedEntry(c, i, key, value, unit, eol), nil
	}
	last := len(c.entries) - 1
	x := d.extentOf(c, last)
	column := c.entries[last].start - d.lineStart(c.entries[last].start)
	text := joinLines(d.entryLines(c, key, value, unit), strings.Repeat(" ", column), eol)
	if x.to > 0 && d.src[x.to-1] != '\n' {
		text = append([]byte(eol), bytes.TrimSuffix(text, []byte(eol))...)
	}
	return []textedit.Splice{textedit.Replace(x.to, x.to, text)}, nil
}

// entryLines returns the lines of a block entry.
func (d *Doc) entryLines(c collection, key string, value any, unit int) []string {
	if c.isList {
		return encodeBlock([]any{value}, 0, unit)
	}
	return encodeBlock(textedit.Object{{Key: key, Value: value}}, 0, unit)
}

// replacedEntry returns the splices that give a block entry another value. A plain value on one line is replaced alone,
// so that the comment behind it stays.
func (d *Doc) replacedEntry(c collection, i int, key string, value any, unit int, eol string) []textedit.Splice {
	e := c.entries[i]
	if isScalar(value) && e.value.Kind == yaml.ScalarNode {
		at := d.offset(e.value)
		switch {
		case e.value.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 && at < len(d.src):
			return []textedit.Splice{textedit.Replace(at, d.stringEnd(at), []byte(encodeFlow(value)))}
		case e.value.Style == 0 && e.value.Value != "" && bytes.HasPrefix(d.src[at:], []byte(e.value.Value)):
			return []textedit.Splice{textedit.Replace(at, at+len(e.value.Value), []byte(encodeFlow(value)))}
		}
	}
	x := d.extentOf(c, i)
	column := e.start - d.lineStart(e.start)
	lines := d.entryLines(c, key, value, unit)
	if comment := e.value.LineComment; comment != "" && len(lines) > 1 && !c.isList {
		lines[0] += " " + comment
	}
	text := joinLines(lines, strings.Repeat(" ", column), eol)
	text = bytes.TrimLeft(text, " ") // the first line is indented already
	if x.to > 0 && d.src[x.to-1] != '\n' {
		text = bytes.TrimSuffix(text, []byte(eol))
	}
	return []textedit.Splice{textedit.Replace(e.start, x.to, text)}
}

// indentUnit returns by how much the entries of nested collections are indented.
func (d *Doc) indentUnit(c collection) int {
	for _, e := range c.entries {
		if nested, ok := d.collectionOf(e.value, 0); ok && !nested.isFlow && !nested.isList && !c.isList && len(nested.entries) > 0 {
			if unit := e.value.Column - c.node.Column; unit > 0 {
				return unit
			}
		}
	}
	if root, ok := d.collectionOf(d.root, 0); ok && d.root != c.node {
		return d.indentUnit(root)
	}
	return 2
}

func joinLines(lines []string, indent, eol string) []byte {
	var out []byte
	for _, l := range lines {
		out = slices.Concat(out, []byte(indent), []byte(l), []byte(eol))
	}
	return out
}
