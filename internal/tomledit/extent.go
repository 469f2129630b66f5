package tomledit

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// ranges returns the ranges of the expressions at or under a path, with their comments and the blank lines that
// separate them from the next.
func (d *Doc) ranges(path []string) []textedit.Splice {
	var out []textedit.Splice
	for i := 0; i < len(d.exprs); i++ {
		if !hasPrefix(d.exprs[i].path, path) {
			continue
		}
		first := i
		for i+1 < len(d.exprs) && hasPrefix(d.exprs[i+1].path, path) {
			i++
		}
		out = append(out, d.rangeOf(first, i))
	}
	return out
}

// rangeOf returns the range of some expressions in a row.
func (d *Doc) rangeOf(first, last int) textedit.Splice {
	lower := 0
	if first > 0 {
		lower = d.exprs[first-1].lineEnd
	}
	upper := len(d.src)
	if last+1 < len(d.exprs) {
		upper = d.commentStart(d.exprs[last+1].start, d.exprs[last].lineEnd)
	}
	from, to := d.commentStart(d.exprs[first].start, lower), d.exprs[last].lineEnd
	if d.exprs[first].kind == keyValue {
		return textedit.Splice{From: from, To: to}
	}
	// A table ends with the comments directly below it, such as a setting that was turned off.
	for to < upper {
		l := d.lineAt(to)
		if !bytes.HasPrefix(bytes.TrimLeft(l, " \t"), []byte("#")) {
			break
		}
		to += len(l)
	}
	// The blank lines behind it go, and at the end of the document those before it.
	end := to
	for end < upper && isBlank(d.lineAt(end)) {
		end += len(d.lineAt(end))
	}
	if end < len(d.src) {
		return textedit.Splice{From: from, To: end}
	}
	for from > lower && isBlank(d.lineBefore(from)) {
		from -= len(d.lineBefore(from))
	}
	return textedit.Splice{From: from, To: end}
}

// commentStart returns the start of the comment lines directly above an offset, or of its own line, but not before a
// limit.
func (d *Doc) commentStart(at, limit int) int {
	at = max(limit, bytes.LastIndexByte(d.src[:at], '\n')+1)
	for at > limit {
		l := d.lineBefore(at)
		if !bytes.HasPrefix(bytes.TrimLeft(l, " \t"), []byte("#")) {
			break
		}
		at -= len(l)
	}
	return max(at, limit)
}

func isBlank(l []byte) bool { return len(bytes.TrimSpace(l)) == 0 }

// lineAt returns the line that starts at an offset, with its line break.
func (d *Doc) lineAt(at int) []byte {
	if n := bytes.IndexByte(d.src[at:], '\n'); n >= 0 {
		return d.src[at : at+n+1]
	}
	return d.src[at:]
}

// lineBefore returns the line that ends at an offset.
func (d *Doc) lineBefore(at int) []byte {
	return d.src[bytes.LastIndexByte(d.src[:at-1], '\n')+1 : at]
}

// withoutItems returns the splices that remove from a list all items whose key starts with path.
func (d *Doc) withoutItems(l list, path []string) []textedit.Splice {
	var out []textedit.Splice
	kept := -1 // the last item that stays
	for i, it := range l.items {
		if !hasPrefix(it.path, path) {
			kept = i
			continue
		}
		from, to := it.start, it.end
		if it.comma >= 0 {
			to = it.comma + 1
		}
		lineStart := bytes.LastIndexByte(d.src[:from], '\n') + 1
		rest := d.lineAt(to)
		onOwnLine := lineStart > l.open && isBlank(d.src[lineStart:from]) && (isBlank(rest) || bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), []byte("#")))
		switch {
		case onOwnLine:
			from, to = d.commentStart(from, l.open+1), to+len(rest)
		case i+1 < len(l.items):
			to = l.items[i+1].start
		case kept >= 0:
			from = l.items[kept].end
			to = it.end
			if l.items[kept].comma >= 0 && !l.isTable && it.comma >= 0 {
				from = l.items[kept].comma + 1
				to = it.comma + 1
			}
		}
		out = append(out, textedit.Splice{From: from, To: to})
		if i == len(l.items)-1 && kept >= 0 && it.comma < 0 && (onOwnLine || len(out) > 1) {
			if c := l.items[kept].comma; c >= 0 && !slices.ContainsFunc(out, func(s textedit.Splice) bool { return s.From <= c && c < s.To }) {
				out = append(out, textedit.Splice{From: c, To: c + 1})
			}
		}
	}
	return mergeSplices(out)
}

// mergeSplices joins splices that overlap.
func mergeSplices(in []textedit.Splice) []textedit.Splice {
	slices.SortFunc(in, func(a, b textedit.Splice) int { return a.From - b.From })
	var out []textedit.Splice
	for _, s := range in {
		if n := len(out); n > 0 && s.From < out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}
