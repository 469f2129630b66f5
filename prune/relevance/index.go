package relevance

import (
	"iter"
	"math"
	mathbits "math/bits"
	"slices"
)

// Index says which terms of a goal each line of a text has.
type Index struct {
	Exact      []uint64 // per line, a bit for every term that it has
	Variant    []uint64 // per line, the terms of which it has only a variant: cfg for configuration
	WordCounts []uint16 // words per line
	LineCount  float64  // lines that have words, at least 1
	MeanWords  float64  // words per line that has any
	ExactFreq  []int    // lines that have each term
	AnyFreq    []int    // lines that have each term or a variant of it
}

// NewIndex searches every line for the terms of the goal.
func NewIndex(l Lines, g *Goal) *Index {
	n := l.Count()
	x := &Index{Exact: make([]uint64, n), Variant: make([]uint64, n), WordCounts: make([]uint16, n), ExactFreq: make([]int, len(g.Terms)), AnyFreq: make([]int, len(g.Terms))}
	total := 0
	for i := range n {
		exact, variant, words := g.findTerms(l.At(i))
		x.Exact[i], x.Variant[i], x.WordCounts[i] = exact, variant&^exact, uint16(min(words, math.MaxUint16))
		if words > 0 {
			x.LineCount++
			total += words
		}
		for t := range Bits(exact) {
			x.ExactFreq[t]++
		}
		for t := range Bits(exact | variant) {
			x.AnyFreq[t]++
		}
	}
	x.LineCount = max(x.LineCount, 1)
	x.MeanWords = max(float64(total)/x.LineCount, 1)
	return x
}

// HasAny reports whether some line has a term of the goal, or a variant of one.
func (x *Index) HasAny() bool {
	return slices.ContainsFunc(x.AnyFreq, func(lines int) bool { return lines > 0 })
}

// Rarity is the weight of a term that df of n lines have (inverse document frequency).
func Rarity(df, n float64) float64 { return math.Log(1 + (n-df+.5)/(df+.5)) }

// VariantShare is the weight of a term's variant relative to the term itself. Where the text has only
// variants they count in full: that is how a French goal finds its words in an English text.
func (x *Index) VariantShare(t int) float64 {
	if x.ExactFreq[t] == 0 {
		return 1
	}
	return .5
}

// Weights weighs each term and its variants by how rare they are in this text. A variant that is
// everywhere does not make the term itself common.
func (x *Index) Weights(g *Goal) TermWeights {
	w := TermWeights{Exact: make([]float64, len(g.Terms)), Variant: make([]float64, len(g.Terms))}
	for t, term := range g.Terms {
		w.Exact[t] = term.Weight * Rarity(float64(x.ExactFreq[t]), x.LineCount)
		w.Variant[t] = x.VariantShare(t) * term.Weight * Rarity(float64(x.AnyFreq[t]), x.LineCount)
	}
	return w
}

// Bits yields the positions of the ones in a mask.
func Bits(mask uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; mask != 0; mask &= mask - 1 {
			if !yield(mathbits.TrailingZeros64(mask)) {
				return
			}
		}
	}
}
