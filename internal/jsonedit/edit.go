package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Set writes a value at a path of names (and, within arrays, indexes). A value that is there is replaced; a
// missing member is added behind the last one, and missing objects on the way are made. The index that equals
// an array's length appends. The value is what encoding/json would encode, a textedit.Object to keep the order of its
// members, or a json.RawMessage, which is written byte for byte.
func (d *Doc) Set(value any, path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root cannot be replaced")
	}
	for i := range path {
		v, err := d.find(path[:i+1])
		if err != nil {
			return err
		}
		if v != nil && (i == len(path)-1 || !isNull(v)) {
			continue
		}
		for j := len(path) - 1; j > i; j-- {
			value = textedit.Object{{Key: path[j], Value: value}}
		}
		path = path[:i+1]
		break
	}
	plain, err := plainValue(value)
	if err != nil {
		return err
	}
	parent, err := d.find(path[:len(path)-1])
	if err != nil {
		return err
	}
	l, ok := d.listOf(parent)
	if !ok {
		return fmt.Errorf("%s is not an object", strings.Join(path[:len(path)-1], "."))
	}
	key := path[len(path)-1]
	next, err := d.withValue(l, key, value)
	if err != nil {
		return err
	}
	return d.replace(l, next, func(model any) (any, error) { return textedit.SetIn(model, []string{key}, plain) })
}

func isNull(v *hujson.Value) bool {
	literal, ok := v.Value.(hujson.Literal)
	return ok && string(literal) == "null"
}

// Copy writes the member that another document has at a path, as it is written there, with its comments, behind the last
// member. One that is here is replaced, without comments.
func (d *Doc) Copy(from *Doc, path ...string) error {
	raw := json.RawMessage(from.Raw(path...))
	if raw == nil {
		return nil
	}
	parent := path[:len(path)-1]
	source, err := from.find(parent)
	if err != nil {
		return err
	}
	target, err := d.find(parent)
	if err != nil {
		return err
	}
	if target == nil || d.Has(path...) || !d.syntax.Comments {
		return d.Set(raw, path...)
	}
	key := path[len(path)-1]
	from0, _ := from.listOf(source)
	to, ok := d.listOf(target)
	i := from0.index(key)
	x := from.extentOf(from0, i)
	style := d.styleOf(to)
	if !ok || !to.isObject || !x.ownLine || !style.multiline {
		return d.Set(raw, path...)
	}
	plain, err := plainValue(raw)
	if err != nil {
		return err
	}
	it := from0.items[i]
	member := memberText{
		above:  bytes.TrimLeft(from.src[x.start:it.start], " \t"),
		text:   from.src[it.start:it.end],
		behind: bytes.TrimSpace(bytes.Replace(from.src[it.end:x.end], []byte(","), nil, 1)),
	}
	if it.comma < 0 {
		member.behind = bytes.TrimSpace(from.src[it.end:x.end])
	}
	member.toEOL(style.eol)
	change := func(model any) (any, error) { return textedit.SetIn(model, []string{key}, plain) }
	if d.replace(to, d.withMember(to, style, member), change) != nil {
		return d.Set(raw, path...) // the comments do not fit, such as one before a bracket on the same line
	}
	return nil
}

// Delete removes the member or element at a path with the comments that belong to it (see Comment). A path that
// does not exist is no error.
func (d *Doc) Delete(path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root cannot be removed")
	}
	v, err := d.find(path)
	if err != nil || v == nil {
		return err
	}
	parent, err := d.find(path[:len(path)-1])
	if err != nil {
		return err
	}
	l, _ := d.listOf(parent)
	key := path[len(path)-1]
	return d.replace(l, d.without(l, l.index(key)), func(model any) (any, error) { return textedit.DeleteIn(model, []string{key}) })
}

// Rename gives the member at a path another name, in its place. A name that is there already is an error.
func (d *Doc) Rename(name string, path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root has no name")
	}
	parent, err := d.find(path[:len(path)-1])
	if err != nil || parent == nil {
		return err
	}
	l, ok := d.listOf(parent)
	i := l.index(path[len(path)-1])
	if !ok || !l.isObject || i < 0 || l.index(name) >= 0 {
		return fmt.Errorf("%s cannot be renamed to %q", strings.Join(path, "."), name)
	}
	text, err := encodeString(name)
	if err != nil {
		return err
	}
	next := textedit.Apply(d.src, textedit.Replace(l.items[i].start, l.items[i].nameEnd, text))
	return d.replace(l, next, func(model any) (any, error) {
		value, _ := textedit.GetIn(model, []string{l.items[i].key})
		if model, err = textedit.DeleteIn(model, []string{l.items[i].key}); err != nil {
			return nil, err
		}
		return textedit.SetIn(model, []string{name}, value)
	})
}

// replace takes a new text, of which only a list was edited. The text of the list alone must be one value again: the old
// one with one change. Then nothing else can have changed.
func (d *Doc) replace(l list, src []byte, change func(any) (any, error)) error {
	root, err := parseText(src, d.syntax)
	if err != nil {
		return fmt.Errorf("the edit would break the file (%w); nothing was changed", err)
	}
	end := len(d.src) - (l.close + 1) // what follows the list
	isSame := len(src) >= l.open+end && bytes.Equal(src[:l.open], d.src[:l.open]) && bytes.Equal(src[len(src)-end:], d.src[len(d.src)-end:])
	if !isSame {
		return errElsewhere
	}
	before, err := decodeText(d.src[l.open : l.close+1])
	if err != nil {
		return err
	}
	after, err := decodeText(src[l.open : len(src)-end])
	if err != nil {
		return err
	}
	want, err := change(before)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(after, want) {
		return errElsewhere
	}
	*d = Doc{bom: d.bom, syntax: d.syntax, src: src, root: root}
	return nil
}

var errElsewhere = errors.New("the edit would change more than was asked; nothing was changed")

// decodeText decodes the text of one value.
func decodeText(text []byte) (any, error) {
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	return decodeValue(&v)
}

// withValue returns the document with a value in a list.
func (d *Doc) withValue(l list, key string, value any) ([]byte, error) {
	style := d.styleOf(l)
	if i := l.index(key); i >= 0 {
		text, err := style.encode(value, style.childIndent)
		v := l.items[i].value
		return textedit.Apply(d.src, textedit.Replace(v.StartOffset, v.EndOffset, text)), err
	}
	text, err := style.encode(value, style.childIndent)
	if err != nil {
		return nil, err
	}
	if l.isObject {
		name, err := encodeString(key)
		if err != nil {
			return nil, err
		}
		text = slices.Concat(name, []byte(style.colon), text)
	} else if key != strconv.Itoa(len(l.items)) {
		return nil, fmt.Errorf("%q is not the index of an element, nor of the next one", key)
	}
	return d.withMember(l, style, memberText{text: text}), nil
}

// memberText is a member or element with the comments above it (the last line's end is the indentation before it) and
// behind it.
type memberText struct{ above, text, behind []byte }

func (m *memberText) toEOL(eol string) {
	for _, part := range []*[]byte{&m.above, &m.text, &m.behind} {
		*part = bytes.ReplaceAll(*part, []byte("\r\n"), []byte("\n"))
		*part = bytes.ReplaceAll(*part, []byte("\n"), []byte(eol))
	}
}

// lines returns the member on lines of its own, with or without a comma.
func (m memberText) lines(style style, comma string) []byte {
	out := slices.Concat([]byte(style.eol+style.childIndent), m.above, m.text, []byte(comma))
	if len(m.behind) > 0 {
		out = slices.Concat(out, []byte(" "), m.behind)
	}
	return out
}

// withMember returns the document with a member behind the last one of a list.
func (d *Doc) withMember(l list, style style, m memberText) []byte {
	if len(l.items) == 0 {
		return d.addFirst(l, style, m)
	}
	last := l.items[len(l.items)-1]
	switch {
	case !style.multiline && l.trailingComma:
		return textedit.Apply(d.src, textedit.Replace(last.comma+1, last.comma+1, slices.Concat([]byte(style.space), m.text, []byte(","))))
	case !style.multiline:
		return textedit.Apply(d.src, textedit.Replace(last.end, last.end, slices.Concat([]byte(","+style.space), m.text)))
	case l.trailingComma:
		at := d.lineEnd(last.comma+1, l.close)
		return textedit.Apply(d.src, textedit.Replace(at, at, m.lines(style, ",")))
	}
	at := d.lineEnd(last.end, l.close)
	return textedit.Apply(d.src, textedit.Replace(last.end, last.end, []byte(",")), textedit.Replace(at, at, m.lines(style, "")))
}

// addFirst returns the document with the first item of an empty list. Comments in the list stay before it.
func (d *Doc) addFirst(l list, style style, m memberText) []byte {
	inside := d.src[l.open+1 : l.close]
	if !style.multiline {
		return textedit.Apply(d.src, textedit.Replace(l.open+1+len(bytes.TrimRight(inside, " \t")), l.close, m.text))
	}
	kept := bytes.TrimRight(inside, " \t\r\n")
	text := append(m.lines(style, ""), style.eol+style.indent...)
	return textedit.Apply(d.src, textedit.Replace(l.open+1+len(kept), l.close, text))
}

// lineEnd returns the end of the line at an offset behind an item (before the line break), if only white space and
// comments follow up to there; otherwise the offset of what follows, without the white space before it.
func (d *Doc) lineEnd(at, limit int) int {
	end := at
	for at < limit {
		switch d.src[at] {
		case '\n':
			return end
		case ' ', '\t', '\r':
			at++
		default:
			next := skipComment(d.src, at)
			if next == at {
				return end
			}
			at, end = next, next
		}
	}
	return end
}

// extent is what goes when an item is removed: the item, from name to value, within its comments.
type extent struct {
	start, name, value, end int
	ownLine                 bool // nothing else is on the lines of start and end
	head                    int  // end of the previous item's line, if ownLine
}

// extentOf finds the comments of an item. Comments above it belong to it unless a blank line is between.
func (d *Doc) extentOf(l list, i int) extent {
	it := l.items[i]
	x := extent{name: it.start, value: it.end}
	from := l.open + 1
	if i > 0 {
		from = l.items[i-1].comma + 1
	}
	// Above: the line start behind the previous item's line, then again behind each blank line.
	x.start, x.head = -1, from
	for at, blank := from, false; at < it.start; {
		switch next := skipComment(d.src, at); {
		case next > at:
			if x.start < 0 {
				x.head = next
			}
			at, blank = next, false
		case d.src[at] == '\n':
			at++
			if x.start < 0 || blank {
				x.start = at
			}
			blank = true
		default:
			at++
		}
	}
	// Behind: comments on the line of its end, before and behind the comma.
	limit := l.close
	if i+1 < len(l.items) {
		limit = l.items[i+1].start
	}
	behind := it.end
	if it.comma >= 0 {
		behind = it.comma + 1
	}
	x.end = d.lineEnd(behind, limit)
	rest := x.end
	for rest < limit && (d.src[rest] == ' ' || d.src[rest] == '\t' || d.src[rest] == '\r') {
		rest++
	}
	x.ownLine = x.start >= 0 && rest < len(d.src) && d.src[rest] == '\n'
	if x.ownLine {
		x.end = rest + 1
		return x
	}
	if x.start < 0 {
		x.start = it.start
	}
	return x
}

// without returns the document without an item.
func (d *Doc) without(l list, i int) []byte {
	it, x := l.items[i], d.extentOf(l, i)
	isLast := i == len(l.items)-1
	var edits []textedit.Splice
	switch {
	case x.ownLine:
		edits = append(edits, textedit.Splice{From: x.start, To: x.end})
	case isLast && i > 0:
		// The line goes on with the closing bracket, or begins with another item.
		from := l.items[i-1].comma
		if l.trailingComma {
			from++
		}
		edits = append(edits, textedit.Splice{From: from, To: max(x.end, it.comma+1)})
		return textedit.Apply(d.src, edits...)
	case isLast:
		edits = append(edits, textedit.Splice{From: it.start, To: max(x.end, it.comma+1)})
	default:
		to := l.items[i+1].start
		if bytes.ContainsRune(d.src[x.end:to], '\n') {
			to = x.end
		}
		from := it.start
		if to == x.end && i > 0 {
			from = l.items[i-1].comma + 1
		}
		edits = append(edits, textedit.Splice{From: from, To: to})
	}
	if isLast && i > 0 && !l.trailingComma {
		comma := l.items[i-1].comma
		edits = append(edits, textedit.Splice{From: comma, To: comma + 1})
	}
	if len(l.items) == 1 {
		// An empty list without comments closes on the line where it opens.
		inside := slices.Concat(d.src[l.open+1:edits[0].From], d.src[edits[0].To:l.close])
		if len(bytes.TrimSpace(inside)) == 0 {
			edits = []textedit.Splice{{From: l.open + 1, To: l.close}}
		}
	}
	return textedit.Apply(d.src, edits...)
}

// plainValue returns a value as encoding/json decodes it, for comparison.
func plainValue(value any) (any, error) {
	text, ok := value.(json.RawMessage)
	if !ok {
		var err error
		if text, err = marshal(value); err != nil {
			return nil, err
		}
	}
	d, err := Parse(slices.Concat([]byte(`{"v":`), text, []byte("\n}")), JSONC)
	if err != nil {
		return nil, err
	}
	plain, _, err := d.Value("v")
	return plain, err
}
