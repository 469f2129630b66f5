package prune

import (
	"strings"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/french"
)

// maxTerms is how many words of a goal count: one bit each.
const maxTerms = 64

// goal is what a text is read for: its words, in the forms they may have in a text.
type goal struct {
	text   string
	terms  []term
	forms  map[string]form      // by stem
	start  [1 << 16 / 64]uint64 // which first two bytes any form has: most words of a text have others
	french bool
	stems  map[string]form // of words that were looked up before
	buf    []byte
}

// term is a word of the goal.
type term struct {
	word string  // as it stands there
	base float64 // how much it says by itself: little for "add", less for a part of a name
}

// form is a way a word of the goal may be written.
type form struct {
	term int8
	near bool // it is another word for it, or a shorter one
	none bool // it is no form of any
}

func newGoal(text string) *goal {
	g := &goal{text: text, forms: map[string]form{}, stems: map[string]form{}, french: looksFrench(text)}
	letters(text, func(word string) {
		low := string(lowered(word, nil))
		if g.add(low, 1) {
			parts(word, func(part string) { g.add(string(lowered(part, nil)), .8) })
		}
	})
	for _, t := range g.terms {
		g.widen(t.word)
	}
	return g
}

// add makes a word of the goal a term, unless it says nothing.
func (g *goal) add(word string, base float64) bool {
	if len([]rune(word)) < 2 || idle[word] {
		return false
	}
	if weak[word] {
		base *= .5
	}
	stem := g.stem(word)
	if f, ok := g.forms[stem]; ok {
		t := &g.terms[f.term]
		t.base = max(t.base, base)
		return true
	}
	if len(g.terms) == maxTerms {
		return false
	}
	g.terms = append(g.terms, term{word, base})
	g.form(stem, form{term: int8(len(g.terms) - 1)})
	return true
}

func (g *goal) form(stem string, f form) {
	if _, ok := g.forms[stem]; ok || len(stem) < 2 {
		return
	}
	g.forms[stem] = f
	g.start[startOf(stem)/64] |= 1 << (startOf(stem) % 64)
}

// widen adds the other words that mean the same.
func (g *goal) widen(word string) {
	f := g.forms[g.stem(word)]
	f.near = true
	for _, other := range alike[word] {
		g.form(g.stem(other), f)
	}
	if stem := g.stem(word); stem != word {
		for _, other := range alike[stem] {
			g.form(g.stem(other), f)
		}
	}
}

func startOf(word string) uint { return uint(word[0]) | uint(word[1])<<8 }

// find says which terms a line has, which of them in another form only, and how many words it has.
func (g *goal) find(line string) (has, near uint64, words int) {
	f := finding{goal: g}
	for at := 0; at < len(line); {
		switch classes[line[at]] {
		case other:
			at++
		case wide:
			f.slow(line[at:])
			return f.has, f.near, f.words
		default:
			at = f.word(line, at)
		}
	}
	return f.has, f.near, f.words
}

// finding is what was found in a line so far.
type finding struct {
	*goal
	has, near uint64
	words     int
}

// slow reads text that is not only ASCII.
func (f *finding) slow(text string) {
	letters(text, func(word string) {
		f.words++
		f.take(word)
		parts(word, f.take)
	})
}

// word takes the word that begins at line[at] and its parts, and says where it ends. What letters
// and parts do for any text, it does in one pass for ASCII: most of the time goes here.
func (f *finding) word(line string, at int) (end int) {
	start, part, found := at, at, false
	was := classes[line[at]]
	if was == joint {
		part++
	}
	for at++; at < len(line); at++ {
		is := classes[line[at]]
		if is == was {
			if is == joint {
				part, found = at+1, true
			}
			continue
		}
		if is >= wide {
			if is == wide {
				return f.rest(line, start)
			}
			break
		}
		switch {
		case is == joint:
			f.part(line, part, at)
			part, found = at+1, true
		case was == joint:
			found = true
		case was == upper && is == lower: // the last capital begins the next part: HTTPBody
			if at-1 > part {
				f.part(line, part, at-1)
				part, found = at-1, true
			}
		default:
			f.part(line, part, at)
			part, found = at, true
		}
		was = is
	}
	f.words++
	f.part(line, start, at)
	if found {
		f.part(line, part, at)
	}
	return at
}

// rest takes a word that goes on with letters beyond ASCII.
func (f *finding) rest(line string, start int) (end int) {
	end = wordEnd(line, start)
	f.words++
	f.take(line[start:end])
	parts(line[start:end], f.take)
	return end
}

// part looks a word or a part of one up, unless no form begins like it.
func (f *finding) part(line string, from, to int) {
	if to-from < 2 {
		return
	}
	first := uint(toLower[line[from]&0x7f]) | uint(toLower[line[from+1]&0x7f])<<8
	if f.start[first/64]&(1<<(first%64)) != 0 {
		f.note(f.lookUp(line[from:to]))
	}
}

func (f *finding) take(word string) {
	if len(word) >= 2 {
		f.note(f.lookUp(word))
	}
}

func (f *finding) note(is form) {
	switch {
	case is.none:
	case is.near:
		f.near |= 1 << is.term
	default:
		f.has |= 1 << is.term
	}
}

var noForm = form{none: true}

func (g *goal) lookUp(word string) form {
	if word[0] < 0x80 && word[1] < 0x80 {
		first := uint(toLower[word[0]]) | uint(toLower[word[1]])<<8
		if g.start[first/64]&(1<<(first%64)) == 0 {
			return noForm
		}
	}
	g.buf = lowered(word, g.buf)
	if f, ok := g.stems[string(g.buf)]; ok {
		return f
	}
	low := string(g.buf)
	f, ok := g.forms[g.stem(low)]
	if !ok {
		f = noForm
	}
	if len(g.stems) < maxStems {
		g.stems[low] = f
	}
	return f
}

// maxStems bounds what is remembered of a text of ever new words.
const maxStems = 1 << 14

var toLower = func() (to [128]byte) {
	for c := range to {
		to[c] = byte(c)
		if c >= 'A' && c <= 'Z' {
			to[c] = byte(c) | 0x20
		}
	}
	return to
}()

// stem is what the forms of a word have in common.
func (g *goal) stem(low string) string {
	if len(low) < 4 {
		return low
	}
	env := snowballstem.NewEnv(low)
	if g.french {
		french.Stem(env)
	} else {
		english.Stem(env)
	}
	return env.Current()
}

// looksFrench says whether a goal is written in French: it has accents or the small words.
func looksFrench(text string) bool {
	n := 0
	for _, w := range strings.Fields(strings.ToLower(text)) {
		if smallFrench[w] || strings.ContainsAny(w, "éèêàçùôîœ") {
			n++
		}
	}
	return n >= 2 || n == 1 && len(strings.Fields(text)) <= 3
}
