package prune

import "math"

// index says for each line which words of the goal it has.
type index struct {
	has   []uint64 // a bit for every word of the goal
	near  []uint64 // those that it has in another form only: cfg for configuration
	words []uint16 // how many words it has
	lines float64  // lines that have any word
	mean  float64  // words in those
	df    []int    // in how many lines each word of the goal is
	loose []int    // the same, with those that have it in another form only
}

func newIndex(l lines, g *goal) *index {
	n := l.count()
	x := &index{has: make([]uint64, n), near: make([]uint64, n), words: make([]uint16, n), df: make([]int, len(g.terms)), loose: make([]int, len(g.terms))}
	total := 0
	for i := range n {
		has, near, words := g.find(l.at(i))
		x.has[i], x.near[i], x.words[i] = has, near&^has, uint16(min(words, math.MaxUint16))
		if words > 0 {
			x.lines++
			total += words
		}
		for t := range bits(has) {
			x.df[t]++
		}
		for t := range bits(has | near) {
			x.loose[t]++
		}
	}
	x.lines = max(x.lines, 1)
	x.mean = max(float64(total)/x.lines, 1)
	return x
}

// rarity is how much a word that is in df of n lines says.
func rarity(df, n float64) float64 { return math.Log(1 + (n-df+.5)/(df+.5)) }

// share is what another form of a word is worth beside the word itself. Where the text has no other
// it is as good: a French goal finds its words in an English text so.
func (x *index) share(t int) float64 {
	if x.df[t] == 0 {
		return 1
	}
	return .5
}

// weights are what each word of the goal is worth in a line, and what its other forms are: the
// rarer in this text, the more. A form that is everywhere does not make the word itself common.
func (x *index) weights(g *goal) (has, near []float64) {
	has, near = make([]float64, len(g.terms)), make([]float64, len(g.terms))
	for t, term := range g.terms {
		has[t] = term.base * rarity(float64(x.df[t]), x.lines)
		near[t] = x.share(t) * term.base * rarity(float64(x.loose[t]), x.lines)
	}
	return has, near
}
