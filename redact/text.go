package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// maxRounds is how often a text is searched again after something was taken out.
const maxRounds = 4

// redactText takes out of a text what pointers, patterns and literals name. What is left may match again; a text for
// which this does not end is replaced whole.
func (w *walk) redactText(text []byte) (out []byte, changed bool) {
	for range maxRounds {
		next, kind := w.redactJSON(text)
		found := w.findPatterns(next)
		if !kind.isJSON {
			found = apart(append(found, w.taken.findIn(next)...))
		}
		if len(found) == 0 && !kind.isChanged {
			return text, changed
		}
		text, changed = replaceRanges(next, found), true
	}
	return []byte(Replacement), true
}

// jsonText is what is known of a text as JSON.
type jsonText struct {
	isJSON    bool // it is one JSON value: literals were searched in its values
	isChanged bool
}

// redactJSON redacts the JSON in a text, each value as a document of its own.
func (w *walk) redactJSON(text []byte) (out []byte, kind jsonText) {
	if w.nesting == maxNesting || len(w.inTexts)+len(w.set.patterns) == 0 {
		return text, kind
	}
	inner := &walk{set: w.set, data: text, inTexts: w.inTexts, taken: w.taken, nesting: w.nesting + 1}
	for at := 0; at < len(text) && !inner.isCutOff; {
		start := bytes.IndexAny(text[at:], "{[")
		if start < 0 {
			break
		}
		start += at
		inner.Scanner = jsonscan.NewAt(text, start, 0, 0)
		// An error means that this is no JSON, or no more: what was found before it counts.
		err := inner.visitValue(w.inTexts)
		kind.isJSON = err == nil && inner.End() == nil && len(bytes.TrimSpace(text[:start])) == 0
		at = max(start+1, inner.Pos())
	}
	if len(inner.edits) == 0 {
		return text, kind
	}
	kind.isChanged = true
	return jsonscan.AppendSpliced(nil, text, inner.edits), kind
}

// matchesPattern says whether a pattern matches a text.
func (w *walk) matchesPattern(text []byte) bool {
	return slices.ContainsFunc(w.set.patterns, func(re *regexp.Regexp) bool { return re.Match(text) })
}

// findPatterns returns the ranges of a text that patterns match, in order and apart.
func (w *walk) findPatterns(text []byte) [][]int {
	var found [][]int
	for _, re := range w.set.patterns {
		found = append(found, re.FindAllIndex(text, -1)...)
	}
	return apart(found)
}

// apart sorts ranges, and joins those that overlap or touch.
func apart(found [][]int) [][]int {
	slices.SortFunc(found, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	out := found[:0]
	for _, next := range found {
		if last := len(out) - 1; last >= 0 && next[0] <= out[last][1] {
			out[last][1] = max(out[last][1], next[1])
			continue
		}
		out = append(out, next)
	}
	return out
}

func replaceRanges(text []byte, ranges [][]int) []byte {
	var out []byte
	at := 0
	for _, r := range ranges {
		out = append(append(out, text[at:r[0]]...), Replacement...)
		at = r[1]
	}
	return append(out, text[at:]...)
}

// changedPart is the edit that makes a string's raw bytes, at an offset of the document, the changed text. What is the
// same at both ends keeps its bytes.
func changedPart(raw, before, after []byte, offset int) jsonscan.Edit {
	limit := min(len(before), len(after))
	head := 0
	for head < limit && before[head] == after[head] {
		head++
	}
	for head > 0 && head < len(before) && !utf8.RuneStart(before[head]) {
		head--
	}
	tail := 0
	for tail < limit-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	for tail > 0 && !utf8.RuneStart(before[len(before)-tail]) {
		tail--
	}
	span := jsonscan.Span{Start: offset + rawOffset(raw, head), End: offset + rawOffset(raw, len(before)-tail)}
	return jsonscan.Edit{Span: span, Text: jsonscan.AppendEscaped(nil, string(after[head:len(after)-tail]))}
}

// rawOffset is the offset in a string's raw bytes at which the nth byte of its text is.
func rawOffset(raw []byte, n int) int {
	at := 0
	for {
		plain := bytes.IndexByte(raw[at:], '\\')
		if plain < 0 || plain >= n {
			return at + n
		}
		r, size := jsonscan.DecodeChar(raw[at+plain:])
		at += plain + size
		n -= plain + utf8.RuneLen(r)
	}
}

// binaryReplacement stands for a binary value: it is base64, as clients expect.
var binaryReplacement = base64.StdEncoding.EncodeToString([]byte(Replacement))

// matchesBinary says whether a text is base64 of something that matches.
func (w *walk) matchesBinary(text []byte) bool {
	if len(w.set.patterns) == 0 {
		return false
	}
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(decoded, text)
	return err == nil && w.matchesPattern(decoded[:n])
}

// literals are values that pointers took out of structuredContent.
type literals struct {
	texts   [][]byte
	tooMany bool // every text is taken out
}

const (
	minLiteral  = 4 // characters; shorter ones are everywhere
	maxLiterals = 256
)

// has says whether a value is one of the literals.
func (l literals) has(value []byte) bool {
	return l.tooMany || slices.ContainsFunc(l.texts, func(text []byte) bool { return bytes.Equal(text, value) })
}

// findIn returns the ranges of a text that literals are at.
func (l literals) findIn(text []byte) [][]int {
	if l.tooMany && string(text) != Replacement && len(text) > 0 {
		return [][]int{{0, len(text)}}
	}
	var found [][]int
	for _, literal := range l.texts {
		for at := 0; ; {
			i := bytes.Index(text[at:], literal)
			if i < 0 {
				break
			}
			found = append(found, []int{at + i, at + i + len(literal)})
			at += i + len(literal)
		}
	}
	return found
}

// takenFrom collects the values that pointers take out of the structuredContent of a result.
func (s *Set) takenFrom(result []byte) literals {
	var out literals
	top, _ := jsonscan.FieldsOf(result) // without fields nothing is taken
	content, ok := top.Field(structured)
	if !ok {
		return out
	}
	// As a member of an object, so that a pointer may name all of it.
	w := newWalk(&Set{}, content.Value.Of(result))
	_ = w.visitMember(s.results, structured) // it was scanned before
	for _, e := range w.edits {
		out.addValues(e.Of(w.data))
	}
	return out
}

// addValues adds the texts and numbers of a value.
func (l *literals) addValues(raw []byte) {
	s := jsonscan.New(raw, 0)
	var visit func() error
	visit = func() error {
		switch s.Kind() {
		case '{':
			return s.Members(func([]byte) error { return visit() })
		case '[':
			return s.Array(visit)
		case '"':
			str, err := s.Str()
			if err == nil && str.Chars >= minLiteral {
				l.addLiteral(jsonscan.AppendDecoded(nil, str.Of(raw)))
			}
			return err
		default:
			span, err := s.Skip()
			if kind := raw[span.Start]; err == nil && span.Len() >= minLiteral && kind != 't' && kind != 'f' && kind != 'n' {
				l.addLiteral(span.Of(raw))
			}
			return err
		}
	}
	_ = visit() // it was scanned before
}

func (l *literals) addLiteral(text []byte) {
	if slices.ContainsFunc(l.texts, func(known []byte) bool { return bytes.Equal(known, text) }) {
		return
	}
	if len(l.texts) == maxLiterals {
		l.tooMany = true
		return
	}
	l.texts = append(l.texts, text)
}
