// Package docs scores the lines of documents, in Markdown, reStructuredText or AsciiDoc, for a goal and
// says which of them must stay and which cannot be separated. structure.go finds headings (title.go),
// fenced blocks (fence.go), comments and front matter, and what each line is nested in; line.go
// classifies single lines; score.go weighs the words of the goal. Any text is accepted: one without
// markup is paragraphs.
package docs

import (
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// The weights of terms. Halving or doubling most of them changes little.
const (
	docVariant        = .4  // a variant, relative to the term itself
	docMetaWord       = .3  // factor for terms about documents as such (documentWords)
	docLiteral        = .5  // a literal of the goal (--flag, x.level), on top of its words
	docSections       = .5  // share of the rarity among sections; the rest is the rarity among lines
	docPrecedingLines = .6  // a term in the lines before: what follows a word is about it
	docFollowingLines = .25 // a term in the lines after
	docFade           = .75 // decay of both per line
	docFadeHead       = .3  // and across a heading
	docPerLevel       = .9  // decay of a term in an enclosing line, per level
	docParagraphEnd   = 1.1 // factor for the last line of a paragraph: its point, and where text is added
	docEmpty          = .1  // kinds with a smaller prior are not text
	docOutline        = .01 // score without any term, right under a heading
)

// docPriors are factors for what a line is.
var docPriors = [...]float64{
	docText:        1,
	docBlank:       .02,
	docPunctuation: .05,
	docFence:       .05,
	docTitle:       .8, // headings stay anyway (P8)
	docCode:        .9,
	docLink:        .3,
	docFrontMatter: .5,
	docComment:     .8,
}

// documentWords are words about documents as such.
var documentWords = relevance.WordSet(`doc docs documentation document documents documented documenting clarify clarifies clarified
mention mentions mentioned note notes noted describe describes described explain explains explained example
examples guide page section paragraph sentence snippet reference readme typo wording reword rephrase tutorial
information text documenter préciser clarifier décrire expliquer 文档 说明 示例`)

// Score scores every line by the terms in and around it. A term counts in its own line, less in the
// lines after and before, and for everything nested under its line: the body of a list item, the
// section of a heading. Many distinct terms weigh more than one term many times.
func Score(l relevance.Lines, g *relevance.Goal, x *relevance.Index, shape *Structure) []float32 {
	d := newDocScorer(shape, x)
	for t, w := range d.termWeights(g) {
		if w.exact > 0 {
			d.markTerm(1<<t, w.variant)
			d.spreadTerm(w.exact)
		}
	}
	for _, literal := range goalLiterals(g.Text) {
		if n := d.markLiteral(l, literal); n > 0 {
			d.spreadTerm(docLiteral * relevance.Rarity(n, x.LineCount))
		}
	}
	return d.finalScores()
}

// docScorer adds up scores, one term after the other.
type docScorer struct {
	*Structure
	index *relevance.Index
	total []float64
	fade  []float64 // decay across each line
	own   []float64 // of the current term: in the line itself
	above []float64 // in the lines that enclose it
	near  []float64 // both, and the lines before
}

func newDocScorer(s *Structure, x *relevance.Index) *docScorer {
	n := len(s.kinds)
	room := make([]float64, 5*n)
	d := &docScorer{s, x, room[:n], room[n : 2*n], room[2*n : 3*n], room[3*n : 4*n], room[4*n:]}
	for i, k := range s.kinds {
		switch {
		case k == docTitle:
			d.fade[i] = docFadeHead
		case x.WordCounts[i] == 0: // empty lines are no distance
			d.fade[i] = 1
		default:
			d.fade[i] = docFade
		}
	}
	return d
}

// docTermWeight is the weight of a term, and its variant's share of that.
type docTermWeight struct{ exact, variant float64 }

// termWeights weighs terms by their rarity among lines and sections. A variant that is everywhere has
// little weight and does not make the term itself common.
func (d *docScorer) termWeights(g *relevance.Goal) []docTermWeight {
	has, sections := d.sectionFreq(d.index.Exact, nil, len(g.Terms))
	loose, _ := d.sectionFreq(d.index.Exact, d.index.Variant, len(g.Terms))
	out := make([]docTermWeight, len(g.Terms))
	for t, term := range g.Terms {
		if d.index.AnyFreq[t] == 0 {
			continue
		}
		rare := d.rarity(d.index.ExactFreq[t], has[t], sections)
		if !(rare > 0) {
			continue // in every line: no weight, and the division below must not be by 0
		}
		out[t].variant = docVariant * d.rarity(d.index.AnyFreq[t], loose[t], sections) / rare
		out[t].exact = rare * term.Weight
		if documentWords[term.Word] {
			out[t].exact *= docMetaWord
		}
	}
	return out
}

// rarity mixes the rarity among lines and among sections.
func (d *docScorer) rarity(lines, sections int, of float64) float64 {
	return (1-docSections)*relevance.Rarity(float64(lines), d.index.LineCount) + docSections*relevance.Rarity(float64(sections), of)
}

// sectionFreq returns in how many sections each term is, and the number of sections with words.
func (d *docScorer) sectionFreq(has, near []uint64, terms int) (df []int, n float64) {
	df = make([]int, terms)
	var found uint64
	words := 0
	end := func() {
		if words > 0 {
			n++
		}
		for t := range relevance.Bits(found) {
			df[t]++
		}
		found, words = 0, 0
	}
	for i, k := range d.kinds {
		if k == docTitle {
			end()
		}
		found |= has[i]
		if near != nil {
			found |= near[i]
		}
		words += int(d.index.WordCounts[i])
	}
	end()
	return df, max(n, 1)
}

// markTerm marks the lines that have the term of a bit, or a variant of it.
func (d *docScorer) markTerm(bit uint64, near float64) {
	for i := range d.own {
		switch {
		case d.index.Exact[i]&bit != 0:
			d.own[i] = 1
		case d.index.Variant[i]&bit != 0:
			d.own[i] = near
		default:
			d.own[i] = 0
		}
	}
}

// markLiteral marks the lines that have a text as a whole word, and returns their number.
func (d *docScorer) markLiteral(l relevance.Lines, text string) float64 {
	clear(d.own)
	n, i := 0., 0
	for at := 0; ; at += len(text) {
		next := strings.Index(l.Text[at:], text)
		if next < 0 {
			return n
		}
		at += next
		for int(l.Start[i+1]) <= at {
			i++
		}
		if d.own[i] == 0 && isWholeWord(l.Text, at, at+len(text)) {
			d.own[i] = 1
			n++
		}
	}
}

// isWholeWord reports whether text[first:end] does not begin or end inside a word.
func isWholeWord(text string, first, end int) bool {
	goesOn := func(i int) bool { return i > 0 && i < len(text) && isWordOrDash(text[i-1]) && isWordOrDash(text[i]) }
	return !goesOn(first) && !goesOn(end)
}

func isWordOrDash(c byte) bool { return c == '-' || c < 0x80 && relevance.IsWordByte[c] }

// spreadTerm adds the marked term to the score of every line that it reaches.
func (d *docScorer) spreadTerm(weight float64) {
	left := 0.
	for i, v := range d.own {
		above := 0.
		if p := d.parents[i]; p >= 0 {
			above = max(d.own[p], docPerLevel*d.above[p])
		}
		left *= d.fade[i]
		d.above[i], d.near[i] = above, v+above+docPrecedingLines*left
		left += v
	}
	left = 0
	for i := len(d.own) - 1; i >= 0; i-- {
		if v := d.near[i] + docFollowingLines*left; v > 0 {
			d.total[i] += weight * v / (1 + v) // saturates: more of one term adds less
		}
		left = (left + d.own[i]) * d.fade[i]
	}
}

// finalScores applies the priors. Lines without any term are ranked by the distance to their heading,
// so that an outline stays.
func (d *docScorer) finalScores() []float32 {
	out := make([]float32, len(d.total))
	since := 1.
	for i, v := range d.total {
		k := d.kinds[i]
		if k == docTitle {
			since = 1
		}
		v = (v + docOutline/since) * docPriors[k]
		if i+1 == len(out) || docPriors[d.kinds[i+1]] < docEmpty {
			v *= docParagraphEnd
		}
		out[i] = float32(v)
		since++
	}
	return out
}

// goalLiterals returns the words of a goal with signs in them: --flag, x.level, no-undef.
func goalLiterals(goal string) []string {
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

// maxLiterals bounds the work that a goal can cause.
const maxLiterals = 16
