package prune

import (
	"slices"
	"strings"
)

// How the words of a goal weigh in a document. The numbers are round because the result is flat
// around them: half or twice of most changes little.
const (
	docNear     = .4  // another word for one of the goal, to the word itself
	docTalk     = .3  // a word of the goal that speaks of documents, not of their matter
	docLiteral  = .5  // a literal of the goal (--flag, x.level), beside the words it is made of
	docSections = .5  // how rare a word is among sections, to how rare it is among lines
	docBefore   = .6  // a word in the lines before: what follows a word is about it
	docAfter    = .25 // a word in the lines after
	docFade     = .75 // what is left of either, a line further
	docFadeHead = .3  // and past a heading
	docDeep     = .9  // a word in what a line stands under, each step further out; 1 right above it
	docLast     = 1.1 // the end of a paragraph: where it comes to its point, and where one adds to it
	docEmpty    = .1  // what may be worth less is no text
	docOutline  = .01 // what a line has without any word of the goal, right under its heading
)

// docPrior is how much a line may be worth by what it is.
var docPrior = [...]float64{
	docText:  1,
	docBlank: .02,
	docBare:  .05,
	docFence: .05,
	docTitle: .8, // headings stay anyhow (P8)
	docCode:  .9,
	docAside: .3,
	docFront: .5,
	docNote:  .8,
}

// docWords are the words of a goal that speak of documents as such.
var docWords = set(`doc docs documentation document documents documented documenting clarify clarifies clarified
mention mentions mentioned note notes noted describe describes described explain explains explained example
examples guide page section paragraph sentence snippet reference readme typo wording reword rephrase tutorial
information text documenter préciser clarifier décrire expliquer 文档 说明 示例`)

// scoreDocs weighs each line by the words of the goal around it. A word counts where it stands, less
// in the lines after and before, and for all that stands under its line: the body of an item, the
// section of a heading. Many distinct words weigh more than one word many times.
func scoreDocs(l lines, g *goal, x *index, shape *docShape) []float32 {
	d := newDocScorer(shape, x)
	for t, w := range d.weights(g) {
		if w.has > 0 {
			d.mark(1<<t, w.near)
			d.spread(w.has)
		}
	}
	for _, literal := range docLiterals(g.text) {
		if n := d.markText(l, literal); n > 0 {
			d.spread(docLiteral * rarity(n, x.lines))
		}
	}
	return d.weighed()
}

// docScorer adds up what lines are worth, one word of the goal after the other.
type docScorer struct {
	*docShape
	x     *index
	worth []float64
	fade  []float64 // what is left of a word past a line
	has   []float64 // how much of the word each line has itself
	above []float64 // how much of it the lines have that it stands under
	near  []float64 // the two, and what the lines before have
}

func newDocScorer(s *docShape, x *index) *docScorer {
	n := len(s.kind)
	room := make([]float64, 5*n)
	d := &docScorer{s, x, room[:n], room[n : 2*n], room[2*n : 3*n], room[3*n : 4*n], room[4*n:]}
	for i, k := range s.kind {
		switch {
		case k == docTitle:
			d.fade[i] = docFadeHead
		case x.words[i] == 0: // is no distance
			d.fade[i] = 1
		default:
			d.fade[i] = docFade
		}
	}
	return d
}

// docWeight is what a word of the goal is worth, and which share of it another form of it has.
type docWeight struct{ has, near float64 }

// weights go by how well words tell lines, and sections, apart. A form that is everywhere is worth
// little, and does not make the word itself common.
func (d *docScorer) weights(g *goal) []docWeight {
	has, sections := d.sections(d.x.has, nil, len(g.terms))
	loose, _ := d.sections(d.x.has, d.x.near, len(g.terms))
	out := make([]docWeight, len(g.terms))
	for t, term := range g.terms {
		if d.x.loose[t] == 0 {
			continue
		}
		rare := d.rarity(d.x.df[t], has[t], sections)
		if !(rare > 0) {
			continue // it is everywhere: it tells nothing apart, and nothing can be divided by it
		}
		out[t].near = docNear * d.rarity(d.x.loose[t], loose[t], sections) / rare
		out[t].has = rare * term.base
		if docWords[term.word] {
			out[t].has *= docTalk
		}
	}
	return out
}

// rarity is of a word in so many lines, and so many sections of all.
func (d *docScorer) rarity(lines, sections int, of float64) float64 {
	return (1-docSections)*rarity(float64(lines), d.x.lines) + docSections*rarity(float64(sections), of)
}

// sections says in how many of them each word is, and how many there are.
func (d *docScorer) sections(has, near []uint64, terms int) (df []int, n float64) {
	df = make([]int, terms)
	var found uint64
	words := 0
	end := func() {
		if words > 0 {
			n++
		}
		for t := range bits(found) {
			df[t]++
		}
		found, words = 0, 0
	}
	for i, k := range d.kind {
		if k == docTitle {
			end()
		}
		found |= has[i]
		if near != nil {
			found |= near[i]
		}
		words += int(d.x.words[i])
	}
	end()
	return df, max(n, 1)
}

// mark finds the lines that have the word of a bit, or another form of it.
func (d *docScorer) mark(bit uint64, near float64) {
	for i := range d.has {
		switch {
		case d.x.has[i]&bit != 0:
			d.has[i] = 1
		case d.x.near[i]&bit != 0:
			d.has[i] = near
		default:
			d.has[i] = 0
		}
	}
}

// markText finds the lines that have a text by itself, and says how many they are.
func (d *docScorer) markText(l lines, text string) float64 {
	clear(d.has)
	n, i := 0., 0
	for at := 0; ; at += len(text) {
		next := strings.Index(l.text[at:], text)
		if next < 0 {
			return n
		}
		at += next
		for int(l.start[i+1]) <= at {
			i++
		}
		if d.has[i] == 0 && standsAlone(l.text, at, at+len(text)) {
			d.has[i] = 1
			n++
		}
	}
}

// standsAlone says whether no word goes on over an end of text[first:end].
func standsAlone(text string, first, end int) bool {
	goesOn := func(i int) bool { return i > 0 && i < len(text) && inWord(text[i-1]) && inWord(text[i]) }
	return !goesOn(first) && !goesOn(end)
}

func inWord(c byte) bool { return c == '-' || c < 0x80 && isWordByte[c] }

// spread gives every line its share of the word that was marked.
func (d *docScorer) spread(weight float64) {
	left := 0.
	for i, v := range d.has {
		above := 0.
		if p := d.parent[i]; p >= 0 {
			above = max(d.has[p], docDeep*d.above[p])
		}
		left *= d.fade[i]
		d.above[i], d.near[i] = above, v+above+docBefore*left
		left += v
	}
	left = 0
	for i := len(d.has) - 1; i >= 0; i-- {
		if v := d.near[i] + docAfter*left; v > 0 {
			d.worth[i] += weight * v / (1 + v) // more of one word is worth ever less
		}
		left = (left + d.has[i]) * d.fade[i]
	}
}

// weighed is what lines are worth in the end. Those that the goal says nothing of go by how near
// they are to their heading, so that an outline is left.
func (d *docScorer) weighed() []float32 {
	out := make([]float32, len(d.worth))
	since := 1.
	for i, v := range d.worth {
		k := d.kind[i]
		if k == docTitle {
			since = 1
		}
		v = (v + docOutline/since) * docPrior[k]
		if i+1 == len(out) || docPrior[d.kind[i+1]] < docEmpty {
			v *= docLast
		}
		out[i] = float32(v)
		since++
	}
	return out
}

// docLiterals are the words of a goal that are of no language: --flag, x.level, no-undef.
func docLiterals(goal string) []string {
	const around = "\"'`,;:()?!"
	var out []string
	for _, w := range strings.Fields(goal) {
		w = strings.TrimRight(strings.TrimLeft(w, around), around+".")
		if len(w) > 1 && hasWord(w) && strings.ContainsAny(w, "-./:=[]*@#$") && !slices.Contains(out, w) {
			out = append(out, w)
		}
		if len(out) == maxLiterals {
			break
		}
	}
	return out
}

// maxLiterals bounds the work that a goal may ask for.
const maxLiterals = 16
