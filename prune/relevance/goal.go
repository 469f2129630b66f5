package relevance

import (
	"strings"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/french"
)

// maxTerms bounds the words of a goal that count: each is a bit of a mask.
const maxTerms = 64

// Goal is the words that a text is searched for, in all forms they may have there.
type Goal struct {
	Text      string
	Terms     []Term
	forms     map[string]wordForm  // by stem
	startBits [1 << 16 / 64]uint64 // the first two bytes that forms begin with; rules most words out without a lookup
	isFrench  bool
	formCache map[string]wordForm // of words looked up before
	lowerBuf  []byte
}

// Term is one word of a goal.
type Term struct {
	Word   string  // in lower case
	Weight float64 // below 1 for common words ("add") and for parts of names
}

// wordForm says which term a word of a text stands for.
type wordForm struct {
	term      int8
	isVariant bool // a synonym or an abbreviation of the term
	isNone    bool // the word stands for no term
}

// NewGoal reads a goal as a person or a model wrote it.
func NewGoal(text string) *Goal {
	g := &Goal{Text: text, forms: map[string]wordForm{}, formCache: map[string]wordForm{}, isFrench: looksFrench(text)}
	eachWord(text, func(word string) {
		low := string(lowerWord(word, nil))
		if g.addTerm(low, 1) {
			eachNamePart(word, func(part string) { g.addTerm(string(lowerWord(part, nil)), .8) })
		}
	})
	for _, t := range g.Terms {
		g.addSynonyms(t.Word)
	}
	return g
}

// addTerm adds a word as a term, unless it is a stop word or too short; false if so.
func (g *Goal) addTerm(word string, base float64) bool {
	if len([]rune(word)) < 2 || stopWords[word] {
		return false
	}
	if weakWords[word] {
		base *= .5
	}
	stem := g.stemOf(word)
	if f, ok := g.forms[stem]; ok {
		t := &g.Terms[f.term]
		t.Weight = max(t.Weight, base)
		return true
	}
	if len(g.Terms) == maxTerms {
		return false
	}
	g.Terms = append(g.Terms, Term{word, base})
	g.addForm(stem, wordForm{term: int8(len(g.Terms) - 1)})
	return true
}

func (g *Goal) addForm(stem string, f wordForm) {
	if _, ok := g.forms[stem]; ok || len(stem) < 2 {
		return
	}
	g.forms[stem] = f
	g.startBits[firstTwoBytes(stem)/64] |= 1 << (firstTwoBytes(stem) % 64)
}

// addSynonyms adds the synonyms of a term as its variants.
func (g *Goal) addSynonyms(word string) {
	f := g.forms[g.stemOf(word)]
	f.isVariant = true
	for _, other := range synonyms[word] {
		g.addForm(g.stemOf(other), f)
	}
	if stem := g.stemOf(word); stem != word {
		for _, other := range synonyms[stem] {
			g.addForm(g.stemOf(other), f)
		}
	}
}

func firstTwoBytes(word string) uint { return uint(word[0]) | uint(word[1])<<8 }

// findTerms returns the terms that a line has, those of which it has a variant, and its word count.
func (g *Goal) findTerms(line string) (exact, variant uint64, words int) {
	f := lineMatch{Goal: g}
	for at := 0; at < len(line); {
		switch byteClass[line[at]] {
		case classOther:
			at++
		case classNonASCII:
			f.matchUnicode(line[at:])
			return f.exact, f.variant, f.wordCount
		default:
			at = f.matchASCIIWord(line, at)
		}
	}
	return f.exact, f.variant, f.wordCount
}

// lineMatch collects what is found in one line.
type lineMatch struct {
	*Goal
	exact, variant uint64
	wordCount      int
}

// matchUnicode matches the words of any text. matchASCIIWord does the same faster.
func (f *lineMatch) matchUnicode(text string) {
	eachWord(text, func(word string) {
		f.wordCount++
		f.matchWord(word)
		eachNamePart(word, f.matchWord)
	})
}

// matchASCIIWord matches the word that begins at line[at] and its parts, and returns where it ends.
// It does in one pass over ASCII what eachWord and eachNamePart do for any text: most of the time of
// scoring is spent here.
func (f *lineMatch) matchASCIIWord(line string, at int) (end int) {
	start, part, found := at, at, false
	was := byteClass[line[at]]
	if was == classUnderscore {
		part++
	}
	for at++; at < len(line); at++ {
		is := byteClass[line[at]]
		if is == was {
			if is == classUnderscore {
				part, found = at+1, true
			}
			continue
		}
		if is >= classNonASCII {
			if is == classNonASCII {
				return f.matchUnicodeWord(line, start)
			}
			break
		}
		switch {
		case is == classUnderscore:
			f.matchPart(line, part, at)
			part, found = at+1, true
		case was == classUnderscore:
			found = true
		case was == classUpper && is == classLower: // the last capital begins the next part: HTTPBody
			if at-1 > part {
				f.matchPart(line, part, at-1)
				part, found = at-1, true
			}
		default:
			f.matchPart(line, part, at)
			part, found = at, true
		}
		was = is
	}
	f.wordCount++
	f.matchPart(line, start, at)
	if found {
		f.matchPart(line, part, at)
	}
	return at
}

// matchUnicodeWord matches a word that begins in ASCII and goes on with other letters.
func (f *lineMatch) matchUnicodeWord(line string, start int) (end int) {
	end = wordEnd(line, start)
	f.wordCount++
	f.matchWord(line[start:end])
	eachNamePart(line[start:end], f.matchWord)
	return end
}

// matchPart matches line[from:to], unless no form begins with its first two bytes.
func (f *lineMatch) matchPart(line string, from, to int) {
	if to-from < 2 {
		return
	}
	first := uint(asciiLower[line[from]&0x7f]) | uint(asciiLower[line[from+1]&0x7f])<<8
	if f.startBits[first/64]&(1<<(first%64)) != 0 {
		f.recordForm(f.formOf(line[from:to]))
	}
}

func (f *lineMatch) matchWord(word string) {
	if len(word) >= 2 {
		f.recordForm(f.formOf(word))
	}
}

func (f *lineMatch) recordForm(is wordForm) {
	switch {
	case is.isNone:
	case is.isVariant:
		f.variant |= 1 << is.term
	default:
		f.exact |= 1 << is.term
	}
}

var noForm = wordForm{isNone: true}

func (g *Goal) formOf(word string) wordForm {
	if word[0] < 0x80 && word[1] < 0x80 {
		first := uint(asciiLower[word[0]]) | uint(asciiLower[word[1]])<<8
		if g.startBits[first/64]&(1<<(first%64)) == 0 {
			return noForm
		}
	}
	g.lowerBuf = lowerWord(word, g.lowerBuf)
	if f, ok := g.formCache[string(g.lowerBuf)]; ok {
		return f
	}
	low := string(g.lowerBuf)
	f, ok := g.forms[g.stemOf(low)]
	if !ok {
		f = noForm
	}
	if len(g.formCache) < maxStems {
		g.formCache[low] = f
	}
	return f
}

// maxStems bounds the cache for a text in which every word is new.
const maxStems = 1 << 14

var asciiLower = func() (to [128]byte) {
	for c := range to {
		to[c] = byte(c)
		if c >= 'A' && c <= 'Z' {
			to[c] = byte(c) | 0x20
		}
	}
	return to
}()

// stemOf returns the stem of a word in lower case, by the rules of the goal's language.
func (g *Goal) stemOf(low string) string {
	if len(low) < 4 {
		return low
	}
	env := snowballstem.NewEnv(low)
	if g.isFrench {
		french.Stem(env)
	} else {
		english.Stem(env)
	}
	return env.Current()
}

// looksFrench reports whether a goal is written in French, by its accents and small words.
func looksFrench(text string) bool {
	n := 0
	for _, w := range strings.Fields(strings.ToLower(text)) {
		if frenchWords[w] || strings.ContainsAny(w, "éèêàçùôîœ") {
			n++
		}
	}
	return n >= 2 || n == 1 && len(strings.Fields(text)) <= 3
}
