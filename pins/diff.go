package pins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Diff says in lines what changed between two definitions, member by member: words that are gone stand in [-…-], new ones
// in {+…+}, and hidden characters are made visible.
func Diff(old, now []byte) string {
	before, after := members(old), members(now)
	keys := map[string]bool{}
	for k := range before {
		keys[k] = true
	}
	for k := range after {
		keys[k] = true
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, is := before[key], after[key]
		if was == is {
			continue
		}
		text := diffWords(was, is)
		if key != "" {
			fmt.Fprintf(&b, "%s:", key)
			if strings.Contains(text, "\n") {
				text = "\n" + text
			} else {
				text = " " + text
			}
		}
		b.WriteString(strings.ReplaceAll(text, "\n", "\n  "))
		b.WriteByte('\n')
	}
	return b.String()
}

// members are the members of a definition as people read them; instructions have one, without a name.
func members(def []byte) map[string]string {
	out := map[string]string{}
	if text, isText := shownText(def); isText {
		out[""] = text
		return out
	}
	_ = eachMember(def, func(key string, raw []byte) error { // it was parsed before
		out[key], _ = shownText(raw)
		return nil
	})
	return out
}

// shownText is a value as people read it, and whether it is a string. Hidden characters are visible.
func shownText(raw []byte) (text string, isText bool) {
	if len(raw) > 0 && raw[0] == '"' {
		text, _ = MarkHidden(jsonscan.DecodeString(raw))
		return text, true
	}
	marked, _ := markValue(raw)
	var indented bytes.Buffer
	if json.Indent(&indented, marked, "", "  ") != nil {
		return string(marked), false
	}
	return indented.String(), false
}

const (
	diffContext  = 6       // words that are shown around a change
	maxDiffWords = 2000    // that are compared word by word; of longer changes only the ends are shown
	maxDiffText  = 2 << 10 // bytes of one removed or added text that are shown
)

// diffWords shows how a text changed, word by word.
func diffWords(old, now string) string {
	a, b := splitWords(old), splitWords(now)
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var out diffWriter
	out.keep(a[:start], true, false)
	midA, midB := a[start:len(a)-end], b[start:len(b)-end]
	if len(midA) > maxDiffWords || len(midB) > maxDiffWords {
		out.change(midA, midB)
	} else {
		out.compare(midA, midB)
	}
	out.keep(a[len(a)-end:], false, true)
	return out.String()
}

// splitWords splits a text into words and the space between them.
func splitWords(text string) []string {
	var words []string
	start, inSpace := 0, false
	for i, r := range text {
		if space := unicode.IsSpace(r); space != inSpace || r == '\n' {
			if i > start {
				words = append(words, text[start:i])
			}
			start, inSpace = i, space
		}
	}
	if start < len(text) {
		words = append(words, text[start:])
	}
	return words
}

type diffWriter struct{ strings.Builder }

// keep writes words that stayed. Of many only those next to a change are written; atStart and atEnd say that there is no
// change before or after them.
func (w *diffWriter) keep(words []string, atStart, atEnd bool) {
	head, tail := 2*diffContext, 2*diffContext
	if atStart {
		head = 0
	}
	if atEnd {
		tail = 0
	}
	if len(words) <= head+tail+1 {
		w.WriteString(strings.Join(words, ""))
		return
	}
	w.WriteString(strings.Join(words[:head], ""))
	w.WriteString(" … ")
	w.WriteString(strings.Join(words[len(words)-tail:], ""))
}

// change writes what is gone and what is new.
func (w *diffWriter) change(old, now []string) {
	if len(old) > 0 {
		w.WriteString("[-" + clipMiddle(strings.Join(old, "")) + "-]")
	}
	if len(now) > 0 {
		w.WriteString("{+" + clipMiddle(strings.Join(now, "")) + "+}")
	}
}

// clipMiddle leaves the ends of a long text.
func clipMiddle(text string) string {
	if len(text) <= maxDiffText {
		return text
	}
	head, tail := text[:maxDiffText/2], text[len(text)-maxDiffText/2:]
	return fmt.Sprintf("%s … %d more bytes … %s", strings.ToValidUTF8(head, ""), len(text)-maxDiffText, strings.ToValidUTF8(tail, ""))
}

// compare writes the difference of two lists of words by their longest common subsequence.
func (w *diffWriter) compare(a, b []string) {
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]uint16, len(a)+1)
	for i := range common {
		common[i] = make([]uint16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	same := func() bool { return i < len(a) && j < len(b) && a[i] == b[j] }
	for i < len(a) || j < len(b) {
		fromA, fromB := i, j
		for (i < len(a) || j < len(b)) && (!same() || i+j > fromA+fromB && isBetweenChanges(a, b, i, j)) {
			switch {
			case same(): // space between two changes is part of both
				i++
				j++
			case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
				i++
			default:
				j++
			}
		}
		w.change(a[fromA:i], b[fromB:j])
		kept := i
		for same() {
			i++
			j++
		}
		w.keep(a[kept:i], false, false)
	}
}

// isBetweenChanges reports whether the words at i and j are the same space, and differ after it.
func isBetweenChanges(a, b []string, i, j int) bool {
	return strings.TrimSpace(a[i]) == "" && i+1 < len(a) && j+1 < len(b) && a[i+1] != b[j+1]
}
