package yamledit

import (
	"bytes"
	"errors"
	"slices"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// flowItem is an item of a flow collection.
type flowItem struct {
	start, end int
	comma      int // -1 without one
}

// flowItems reads the {…} or […] that starts at an offset, and returns its items and the offset of its end.
func (d *Doc) flowItems(open int) (items []flowItem, end int, err error) {
	depth := 0
	isStart := true // a quote starts a string only where a token starts
	current := flowItem{start: -1, comma: -1}
	finish := func() {
		if current.start >= 0 {
			items = append(items, current)
		}
		current = flowItem{start: -1, comma: -1}
	}
	for at := open; at < len(d.src); at++ {
		c := d.src[at]
		if depth == 1 && current.start < 0 && bytes.IndexByte([]byte(" \t\r\n,]}#"), c) < 0 {
			current.start = at
		}
		switch {
		case isStart && (c == '"' || c == '\''):
			at = d.stringEnd(at) - 1
			isStart = false
		case c == '#' && (at == 0 || bytes.IndexByte([]byte(" \t\n"), d.src[at-1]) >= 0):
			at += len(bytes.TrimRight(d.lineAt(at), "\r\n")) - 1
			continue
		case c == '{' || c == '[':
			depth++
			isStart = true
		case c == '}' || c == ']':
			depth--
			if depth == 0 {
				finish()
				return items, at, nil
			}
			isStart = false
		case c == ',':
			if depth == 1 {
				current.comma = at
				finish()
			}
			isStart = true
			continue
		case c == ':' || c == '?':
			isStart = true
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			isStart = false
		}
		if depth >= 1 && current.start >= 0 && bytes.IndexByte([]byte(" \t\r\n"), c) < 0 {
			current.end = at + 1
		}
	}
	return nil, 0, errors.New("a bracket is not closed")
}

// stringEnd returns the offset behind the quoted string at an offset.
func (d *Doc) stringEnd(at int) int {
	q := d.src[at]
	for at++; at < len(d.src); at++ {
		switch {
		case q == '"' && d.src[at] == '\\':
			at++
		case d.src[at] == q && q == '\'' && at+1 < len(d.src) && d.src[at+1] == q:
			at++
		case d.src[at] == q:
			return at + 1
		}
	}
	return at
}

// isOnOwnLine says that nothing but an item and a comment is on its lines.
func (d *Doc) isOnOwnLine(it flowItem, open int) bool {
	start := d.lineStart(it.start)
	behind := it.end
	if it.comma >= 0 {
		behind = it.comma + 1
	}
	rest := bytes.TrimSpace(d.lineAt(behind))
	return start > open && len(bytes.TrimSpace(d.src[start:it.start])) == 0 && (len(rest) == 0 || rest[0] == '#')
}

// withoutFlowItem returns the splices that remove an item.
func (d *Doc) withoutFlowItem(open int, items []flowItem, i int) []textedit.Splice {
	it := items[i]
	behind := it.end
	if it.comma >= 0 {
		behind = it.comma + 1
	}
	switch {
	case d.isOnOwnLine(it, open):
		return []textedit.Splice{{From: d.lineStart(it.start), To: behind + len(d.lineAt(behind))}}
	case i+1 < len(items):
		return []textedit.Splice{{From: it.start, To: items[i+1].start}}
	case i > 0 && it.comma < 0:
		return []textedit.Splice{{From: items[i-1].comma, To: it.end}}
	}
	return []textedit.Splice{{From: it.start, To: behind}}
}

// withFlowItem returns the splices that add an item behind the last one.
func (d *Doc) withFlowItem(open, end int, items []flowItem, text []byte) []textedit.Splice {
	if len(items) == 0 {
		return []textedit.Splice{textedit.Replace(end, end, text)}
	}
	last := items[len(items)-1]
	if !d.isOnOwnLine(last, open) {
		if last.comma >= 0 {
			return []textedit.Splice{textedit.Replace(last.comma+1, last.comma+1, slices.Concat([]byte(" "), text, []byte(",")))}
		}
		return []textedit.Splice{textedit.Replace(last.end, last.end, slices.Concat([]byte(", "), text))}
	}
	indent := d.src[d.lineStart(last.start):last.start]
	behind, out := last.end, []textedit.Splice(nil)
	if last.comma >= 0 {
		behind = last.comma + 1
		text = append(text, ',')
	} else {
		out = append(out, textedit.Replace(last.end, last.end, []byte(",")))
	}
	at := behind + len(bytes.TrimRight(d.lineAt(behind), "\r\n"))
	return append(out, textedit.Replace(at, at, slices.Concat([]byte(textedit.EOL(d.src)), indent, text)))
}
