package prune

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Chunk is a run of lines that a reranker is asked about as one; first and last included, counted
// from 1.
type Chunk struct{ First, Last int }

// A chunk has at least so many lines, and at most.
const (
	minChunk = 8
	maxChunk = 20
)

// Chunks are the parts of the text to ask a reranker about, at most n, in the order of the text.
// When there are more, those are left out that matter least by themselves.
func (d *Doc) Chunks(n int) []Chunk {
	all := d.chunks()
	if len(all) <= n {
		return all
	}
	slices.SortStableFunc(all, func(a, b Chunk) int { return cmp.Compare(d.peak(b), d.peak(a)) })
	all = all[:max(n, 0)]
	slices.SortFunc(all, func(a, b Chunk) int { return a.First - b.First })
	return all
}

// chunks parts the text at blank lines where it can: what is asked about should mean something.
func (d *Doc) chunks() []Chunk {
	var out []Chunk
	for first := 1; first <= d.Len(); {
		last := min(first+maxChunk-1, d.Len())
		for n := last; last < d.Len() && n >= first+minChunk-1; n-- {
			if strings.TrimSpace(d.lines.at(n-1)) == "" {
				last = n
				break
			}
		}
		if rest := d.Len() - last; rest < minChunk && last-first+1+rest <= maxChunk {
			last = d.Len() // what is left would be too little to ask about
		}
		out = append(out, Chunk{first, last})
		first = last + 1
	}
	return out
}

func (d *Doc) peak(c Chunk) float32 { return slices.Max(d.score[c.First-1 : c.Last]) }

// Blend adds what a reranker said of chunks to what their lines have by themselves: the best chunk
// counts as much as the best line. Only the differences between its scores say anything, since
// rerankers do not agree on what a half is. Lines of no chunk keep what they have; so do all lines
// when a score is not a finite number.
func (d *Doc) Blend(chunks []Chunk, scores []float64) {
	if len(chunks) == 0 {
		return
	}
	low, high := slices.Min(scores), slices.Max(scores) // both are NaN when any score is
	if !(high > low) || math.IsInf(low, 0) || math.IsInf(high, 0) {
		return
	}
	top := float64(peak(d.score))
	for k, c := range chunks {
		more := float32(top * (scores[k] - low) / (high - low))
		if high-low > math.MaxFloat64/1e9 { // the product or the difference may be infinite
			more = float32(top * ((scores[k]/2 - low/2) / (high/2 - low/2)))
		}
		for i := c.First - 1; i < c.Last; i++ {
			if strings.TrimSpace(d.lines.at(i)) != "" {
				d.score[i] += more
			}
		}
	}
}
