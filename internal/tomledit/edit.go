package tomledit

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Delete removes what is at a path of names and indexes, with its comments (see Comment). A path that does not exist
// is no error.
func (d *Doc) Delete(path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root cannot be removed")
	}
	if _, ok, err := d.Value(path...); err != nil || !ok {
		return err
	}
	splices := d.ranges(path)
	if len(splices) == 0 {
		for _, e := range d.exprs {
			if e.kind != keyValue || !hasPrefix(path, e.path) {
				continue
			}
			for n := len(path) - 1; n >= len(e.path); n-- {
				if l, ok := d.listAt(e.value, e.path, path[:n]); ok {
					splices = append(splices, d.withoutItems(l, path[n:])...)
					break
				}
			}
		}
	}
	return d.replace(textedit.Apply(d.src, splices...), func(model any) (any, error) { return textedit.DeleteIn(model, path) })
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
	want, err := change(any(before))
	if err != nil {
		return err
	}
	// A table that exists only by its parts goes with the last of them.
	if !reflect.DeepEqual(withoutEmpty(after), withoutEmpty(want)) {
		return errors.New("the edit would change more than was asked; nothing was changed")
	}
	*d = *next
	return nil
}

// withoutEmpty returns a document without empty tables and arrays.
func withoutEmpty(model any) any {
	switch node := model.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range node {
			if v = withoutEmpty(v); v != nil {
				out[k] = v
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(node) == 0 {
			return nil
		}
		out := make([]any, len(node))
		for i, v := range node {
			out[i] = withoutEmpty(v)
		}
		return out
	}
	return model
}

// Set writes a value at a path. A value that is there is replaced; what is missing on the way is made. A
// textedit.Object becomes a table with a header, behind the tables of the same parent; in an inline table, an
// inline table. The index that equals the length of an array (of tables, too) appends.
func (d *Doc) Set(value any, path ...string) error {
	if len(path) == 0 {
		return errors.New("a document's root cannot be replaced")
	}
	value = textedit.Ordered(value)
	plain, err := plainValue(value)
	if err != nil {
		return err
	}
	splices, err := d.splicesFor(value, path)
	if errors.Is(err, errInParts) {
		next := *d
		if err := errors.Join(next.Delete(path...), next.Set(value, path...)); err != nil {
			return err
		}
		*d = next
		return nil
	}
	if err != nil {
		return err
	}
	return d.replace(textedit.Apply(d.src, splices...), func(model any) (any, error) {
		parent := path[:len(path)-1]
		if _, ok := textedit.GetIn(model, parent); !ok && isObject(value) && isNextOfNew(path, len(path)-1, nil) {
			return textedit.SetIn(model, parent, []any{plain})
		}
		return textedit.SetIn(model, path, plain)
	})
}

// Copy writes what another document has at a path, as it is written there, with its comments, behind the tables of the
// same parent. What has the path here must be removed first.
func (d *Doc) Copy(from *Doc, path ...string) error {
	value, ok, err := from.Value(path...)
	if err != nil || !ok {
		return err
	}
	ranges := from.ranges(path)
	first := slices.IndexFunc(from.exprs, func(e expr) bool { return hasPrefix(e.path, path) })
	if len(ranges) == 0 || from.exprs[first].kind == keyValue || len(d.ranges(path)) > 0 {
		return d.Set(value, path...)
	}
	eol := textedit.EOL(d.src)
	var text []byte
	for _, r := range ranges {
		part := bytes.TrimRight(from.src[r.From:r.To], " \t\r\n")
		part = bytes.ReplaceAll(bytes.TrimLeft(part, "\r\n"), []byte("\r\n"), []byte("\n"))
		text = slices.Concat(text, []byte(eol), bytes.ReplaceAll(part, []byte("\n"), []byte(eol)), []byte(eol))
	}
	splices := d.tableAt(path, bytes.TrimPrefix(text, []byte(eol)), eol)
	change := func(model any) (any, error) { return textedit.SetIn(model, path, value) }
	if d.replace(textedit.Apply(d.src, splices...), change) != nil {
		return d.Set(value, path...) // the text means something else here, such as other line endings in a string
	}
	return nil
}

// errInParts says that a value is written in several places, and has to be removed before it is written anew.
var errInParts = errors.New("written in parts")

func isObject(value any) bool {
	_, ok := value.(textedit.Object)
	return ok
}

func (d *Doc) splicesFor(value any, path []string) ([]textedit.Splice, error) {
	eol := textedit.EOL(d.src)
	inline, err := encodeInline(value)
	if err != nil {
		return nil, err
	}
	object, isTable := value.(textedit.Object)
	own := d.ranges(path)
	if len(own) > 0 {
		i := slices.IndexFunc(d.exprs, func(e expr) bool { return hasPrefix(e.path, path) })
		e := d.exprs[i]
		if e.kind == keyValue && len(e.path) == len(path) {
			return []textedit.Splice{textedit.Replace(e.value, e.end, inline)}, nil
		}
		if isTable && e.kind != keyValue && slices.Equal(e.path, path) {
			// The header and the comments above it stay.
			last := i
			for last+1 < len(d.exprs) && hasPrefix(d.exprs[last+1].path, path) {
				last++
			}
			body, err := encodeBody(object, eol)
			own[0] = textedit.Replace(e.lineEnd, max(e.lineEnd, d.exprs[last].lineEnd), body)
			if e.lineEnd == e.end { // no line break behind the header
				own[0].Text = append([]byte(eol), own[0].Text...)
			}
			return own, err
		}
		return nil, errInParts
	}
	// In an inline table or array.
	for _, e := range d.exprs {
		if e.kind != keyValue || !hasPrefix(path, e.path) {
			continue
		}
		for n := len(path) - 1; n >= len(e.path); n-- {
			if l, ok := d.listAt(e.value, e.path, path[:n]); ok {
				return d.inList(l, path[n:], value)
			}
		}
		return nil, fmt.Errorf("line %d: %s is not a table", line(d.src, e.start), e.path[len(e.path)-1])
	}
	if !isTable {
		return d.newKey(path, inline, eol)
	}
	return d.newTable(object, path, eol)
}

// inList returns the splices that set a value in an array or inline table.
func (d *Doc) inList(l list, path []string, value any) ([]textedit.Splice, error) {
	for _, it := range l.items {
		if slices.Equal(it.path, path) {
			text, err := encodeInline(value)
			return []textedit.Splice{textedit.Replace(it.value, it.end, text)}, err
		}
	}
	key := path[0]
	if l.isTable {
		for i := len(path) - 1; i > 0; i-- {
			value = textedit.Object{{Key: path[i], Value: value}}
		}
	} else if len(path) > 1 || key != strconv.Itoa(len(l.items)) {
		return nil, fmt.Errorf("%q is not the index of the next element", key)
	}
	text, err := encodeInline(value)
	if err != nil {
		return nil, err
	}
	if l.isTable {
		text = slices.Concat(encodeKey(key), []byte(" = "), text)
	}
	if len(l.items) == 0 {
		inside := d.src[l.open+1 : l.close]
		if len(bytes.TrimSpace(inside)) > 0 { // comments
			return []textedit.Splice{textedit.Replace(l.close, l.close, append(text, textedit.EOL(d.src)...))}, nil
		}
		if l.isTable {
			text = slices.Concat([]byte(" "), text, []byte(" "))
		}
		return []textedit.Splice{textedit.Replace(l.open+1, l.close, text)}, nil
	}
	last := l.items[len(l.items)-1]
	lineStart := bytes.LastIndexByte(d.src[:last.start], '\n') + 1
	if lineStart <= l.open || !isBlank(d.src[lineStart:last.start]) {
		if last.comma >= 0 {
			return []textedit.Splice{textedit.Replace(last.comma+1, last.comma+1, slices.Concat([]byte(" "), text, []byte(",")))}, nil
		}
		return []textedit.Splice{textedit.Replace(last.end, last.end, slices.Concat([]byte(", "), text))}, nil
	}
	behind := last.end
	var out []textedit.Splice
	if last.comma < 0 {
		out = append(out, textedit.Replace(last.end, last.end, []byte(",")))
	} else {
		behind = last.comma + 1
		text = append(text, ',')
	}
	// Behind a comment on the line of the last one.
	at := behind
	if rest := d.lineAt(behind); bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), []byte("#")) {
		at += len(bytes.TrimRight(rest, "\r\n"))
	}
	text = slices.Concat([]byte(textedit.EOL(d.src)), d.src[lineStart:last.start], text)
	return append(out, textedit.Replace(at, at, text)), nil
}

// newKey returns the splices that add a key with a value to a table that has a header, or to the root.
func (d *Doc) newKey(path []string, inline []byte, eol string) ([]textedit.Splice, error) {
	at := -1 // behind the last key of the longest table on the way
	var table []string
	var isArray bool
	for i, e := range d.exprs {
		if e.kind == arrayHeader && hasPrefix(path[:len(path)-1], e.path[:len(e.path)-1]) {
			isArray = true
		}
		if e.kind != keyValue && hasPrefix(path[:len(path)-1], e.path) && (at < 0 || len(e.path) > len(table)) {
			at, table = i, e.path
		}
	}
	if at < 0 && isArray {
		return nil, fmt.Errorf("%v: there is no such table", path)
	}
	last := at
	for last+1 < len(d.exprs) && d.exprs[last+1].kind == keyValue {
		last++
	}
	text := slices.Concat(encodeKey(path[len(table):]...), []byte(" = "), inline, []byte(eol))
	var offset int
	switch {
	case last >= 0:
		offset = d.exprs[last].lineEnd
		indent := d.src[bytes.LastIndexByte(d.src[:d.exprs[last].start], '\n')+1 : d.exprs[last].start]
		text = slices.Concat(indent, text)
		if offset > 0 && d.src[offset-1] != '\n' {
			text = append([]byte(eol), text[:len(text)-len(eol)]...)
		}
	case len(d.exprs) > 0:
		text = append(text, eol...)
		offset = d.commentStart(d.exprs[0].start, 0)
	default:
		offset = len(d.src)
		if offset > 0 && d.src[offset-1] != '\n' {
			text = append([]byte(eol), text...)
		}
	}
	return []textedit.Splice{textedit.Replace(offset, offset, text)}, nil
}

// newTable returns the splices that add a table behind those of the same parent, or at the end.
func (d *Doc) newTable(object textedit.Object, path []string, eol string) ([]textedit.Splice, error) {
	text, err := d.tableText(object, path, eol)
	if err != nil {
		return nil, err
	}
	return d.tableAt(path, text, eol), nil
}

// tableAt returns the splices that add the text of a table behind those of the same parent, or at the end.
func (d *Doc) tableAt(path []string, text []byte, eol string) []textedit.Splice {
	last := len(d.exprs) - 1
	for i, e := range d.exprs {
		if hasPrefix(e.path, path[:1]) {
			last = i
		}
	}
	for last+1 < len(d.exprs) && d.exprs[last+1].kind == keyValue {
		last++
	}
	if last+1 >= len(d.exprs) {
		at := len(d.src)
		switch {
		case len(bytes.TrimSpace(d.src)) == 0:
		case d.src[at-1] != '\n':
			text = slices.Concat([]byte(eol+eol), text[:len(text)-len(eol)])
		case !bytes.HasSuffix(d.src, []byte("\n\n")) && !bytes.HasSuffix(d.src, []byte("\n\r\n")):
			text = slices.Concat([]byte(eol), text)
		}
		return []textedit.Splice{textedit.Replace(at, at, text)}
	}
	at := d.commentStart(d.exprs[last+1].start, d.exprs[last].lineEnd)
	if !isBlank(d.lineBefore(at)) {
		text = slices.Concat([]byte(eol), text)
	}
	return []textedit.Splice{textedit.Replace(at, at, append(text, eol...))}
}

// tableText returns a table with its header.
func (d *Doc) tableText(object textedit.Object, path []string, eol string) ([]byte, error) {
	var names []string
	isArray := false
	at := []string{}
	for i, part := range path {
		model, _, _ := d.Value(at...)
		at = append(at, part)
		a, ok := model.([]any)
		switch {
		case !ok && isNextOfNew(path, i, model):
			isArray = true
		case !ok:
			names = append(names, part)
		case i == len(path)-1 && part == strconv.Itoa(len(a)):
			isArray = true
		case part != strconv.Itoa(len(a)-1):
			return nil, fmt.Errorf("%v: only the last element of an array of tables can get a table", path)
		}
	}
	header := slices.Concat([]byte("["), encodeKey(names...), []byte("]"))
	if isArray {
		header = slices.Concat([]byte("["), header, []byte("]"))
	}
	body, err := encodeBody(object, eol)
	return slices.Concat(header, []byte(eol), body), err
}

// isNextOfNew says that the last part of a path is the first index of an array of tables that does not exist yet.
func isNextOfNew(path []string, i int, model any) bool {
	return i == len(path)-1 && i > 0 && path[i] == "0" && model == nil
}
