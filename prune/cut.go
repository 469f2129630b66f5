package prune

import (
	"math"
	"slices"
)

// Budget is how much may be left out. More may be kept, never less.
type Budget struct {
	MaxPruneRatio float64 // the largest share of lines to leave out
	MinKeepLines  int     // the fewest lines to keep
}

// minLines returns how many of n lines must stay.
func (b Budget) minLines(n int) int {
	if !(b.MaxPruneRatio > 0) { // or NaN
		return n
	}
	most := int(math.Floor(min(b.MaxPruneRatio, 1) * float64(n)))
	return max(n-most, min(b.MinKeepLines, n))
}

// Block is a run of lines that is left out; both ends included, counted from 1.
type Block struct{ First, Last int }

// LineCount is the number of lines in the block.
func (b Block) LineCount() int { return b.Last - b.First + 1 }

// goalShare is the part of the budget that is reserved for the best lines, however much must stay
// anyway: a file of nothing but headers would otherwise lose the line that was asked for.
const goalShare = .35

// Cut decides which lines to leave out. The blocks are in order and do not touch; every other line
// stays. A block that is not longer than its marker stays, too.
func (d *ScoredText) Cut(b Budget) []Block {
	if n := d.LineCount(); b.minLines(n) >= n {
		return nil
	}
	return d.cutRanked(b, d.rankLines())
}

// cutRanked is Cut, with the lines from the best to the worst.
func (d *ScoredText) cutRanked(b Budget, order []int32) []Block {
	n := d.LineCount()
	want := b.minLines(n)
	if want >= n {
		return nil
	}
	k := keptLines{keepRules: &d.rules, keep: make([]bool, n), isComplete: make([]bool, n)}
	// Find the smallest number of best lines that fills the budget, together with the lines that must
	// stay and those that the best lines require.
	least, most := int(math.Ceil(goalShare*float64(want))), want
	for least < most {
		mid := (least + most) / 2
		if d.keepBest(&k, order[:mid]) >= want {
			most = mid
		} else {
			least = mid + 1
		}
	}
	d.keepBest(&k, order[:least])
	return omittedBlocks(k.keep)
}

// keepBest collects the lines that stay if the best do, and returns their number.
func (d *ScoredText) keepBest(k *keptLines, best []int32) int {
	copy(k.keep, d.rules.must)
	clear(k.isComplete)
	for _, i := range best {
		k.keepLine(i)
	}
	return d.closeSmallGaps(k.keep)
}

// closeSmallGaps keeps the gaps that are not longer than their marker, and returns how many lines stay.
func (d *ScoredText) closeSmallGaps(keep []bool) int {
	kept := 0
	for i := 0; i < len(keep); {
		if keep[i] {
			kept++
			i++
			continue
		}
		gap := Block{First: i + 1}
		for i < len(keep) && !keep[i] {
			i++
		}
		if gap.Last = i; d.blockBytes(gap) <= maxMarker && d.blockBytes(gap) <= markerBytes(gap) {
			kept += gap.LineCount()
			for j := gap.First - 1; j < gap.Last; j++ {
				keep[j] = true
			}
		}
	}
	return kept
}

// rankLines returns the lines by score, the best first; of equal ones the earlier comes first.
func (d *ScoredText) rankLines() []int32 {
	keys := make([]uint64, len(d.score))
	for i, s := range d.score {
		b := math.Float32bits(s)
		if b>>31 == 0 { // makes the bits of floats sort from the highest to the lowest
			b = ^(b | 1<<31)
		}
		keys[i] = uint64(b)<<32 | uint64(i)
	}
	slices.Sort(keys)
	order := make([]int32, len(keys))
	for i, k := range keys {
		order[i] = int32(k & math.MaxUint32)
	}
	return order
}

func (d *ScoredText) blockBytes(b Block) int {
	return int(d.lines.Start[b.Last] - d.lines.Start[b.First-1])
}

func omittedBlocks(keep []bool) []Block {
	var out []Block
	for i, k := range keep {
		switch {
		case k:
		case i > 0 && !keep[i-1]:
			out[len(out)-1].Last++
		default:
			out = append(out, Block{i + 1, i + 1})
		}
	}
	return out
}
