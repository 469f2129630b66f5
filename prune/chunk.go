package prune

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// Chunk is a run of lines that a reranker scores as one document; both ends included, counted from 1.
type Chunk struct{ First, Last int }

// The bounds of a chunk, in lines.
const (
	minChunk = 8
	maxChunk = 20
)

// Chunks splits the text into at most n chunks for a reranker, in the order of the text. If there are
// more, those with the lowest scores are left out.
func (d *ScoredText) Chunks(n int) []Chunk {
	all := d.splitChunks()
	if len(all) <= n {
		return all
	}
	slices.SortStableFunc(all, func(a, b Chunk) int { return cmp.Compare(d.bestScore(b), d.bestScore(a)) })
	all = all[:max(n, 0)]
	slices.SortFunc(all, func(a, b Chunk) int { return a.First - b.First })
	return all
}

// splitChunks splits the text, at blank lines where possible, so that a chunk makes sense by itself.
func (d *ScoredText) splitChunks() []Chunk {
	var out []Chunk
	for first := 1; first <= d.LineCount(); {
		last := min(first+maxChunk-1, d.LineCount())
		for n := last; last < d.LineCount() && n >= first+minChunk-1; n-- {
			if strings.TrimSpace(d.lines.At(n-1)) == "" {
				last = n
				break
			}
		}
		if rest := d.LineCount() - last; rest < minChunk && last-first+1+rest <= maxChunk {
			last = d.LineCount() // the rest would be too short for a chunk
		}
		out = append(out, Chunk{first, last})
		first = last + 1
	}
	return out
}

func (d *ScoredText) bestScore(c Chunk) float32 { return slices.Max(d.score[c.First-1 : c.Last]) }

// AddChunkScores adds a reranker's scores of chunks to the scores of their lines: the best chunk counts
// as much as the best line. Only the differences between its scores are used, since rerankers disagree
// on scale. Lines in no chunk keep their scores; so do all lines if a score is not a finite number.
func (d *ScoredText) AddChunkScores(chunks []Chunk, scores []float64) {
	if len(chunks) == 0 {
		return
	}
	low, high := slices.Min(scores), slices.Max(scores) // both are NaN when any score is
	if !(high > low) || math.IsInf(low, 0) || math.IsInf(high, 0) {
		return
	}
	top := float64(relevance.Peak(d.score))
	for k, c := range chunks {
		more := float32(top * (scores[k] - low) / (high - low))
		if high-low > math.MaxFloat64/1e9 { // the product or the difference may be infinite
			more = float32(top * ((scores[k]/2 - low/2) / (high/2 - low/2)))
		}
		for i := c.First - 1; i < c.Last; i++ {
			if strings.TrimSpace(d.lines.At(i)) != "" {
				d.score[i] += more
			}
		}
	}
}
