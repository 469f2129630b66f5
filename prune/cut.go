package prune

import (
	"math"
	"slices"
)

// Budget is how much may be left out. It binds the result: more may be kept, never less.
type Budget struct {
	MaxRatio float64 // the most lines to leave out, of all lines
	MinKeep  int     // the fewest lines to keep
}

// keep is the fewest of n lines that must stay.
func (b Budget) keep(n int) int {
	if !(b.MaxRatio > 0) { // which NaN is not either
		return n
	}
	most := int(math.Floor(min(b.MaxRatio, 1) * float64(n)))
	return max(n-most, min(b.MinKeep, n))
}

// Block is a run of lines that are left out; first and last included, counted from 1.
type Block struct{ First, Last int }

// Lines is how many they are.
func (b Block) Lines() int { return b.Last - b.First + 1 }

// goalShare is how much of the budget the best lines get, however much must stay beside them: a
// file of nothing but headers would else lose the very line that was asked for.
const goalShare = .35

// Cut decides which lines go. The blocks are in order, do not touch, and every line is in one of
// them or stays. A block whose marker would be longer than itself stays.
func (d *Doc) Cut(b Budget) []Block {
	n := d.Len()
	want := b.keep(n)
	if want >= n {
		return nil
	}
	order := d.ranked()
	k := keeper{shape: &d.shape, keep: make([]bool, n), taken: make([]bool, n)}
	// The fewest best lines that fill the budget, with all that must stay and all that comes along.
	least, most := int(math.Ceil(goalShare*float64(want))), want
	for least < most {
		mid := (least + most) / 2
		if d.fill(&k, order[:mid]) >= want {
			most = mid
		} else {
			least = mid + 1
		}
	}
	d.fill(&k, order[:least])
	return blocks(k.keep)
}

// fill collects the lines that stay when the best do, and says how many they are.
func (d *Doc) fill(k *keeper, best []int32) int {
	copy(k.keep, d.shape.must)
	clear(k.taken)
	for _, i := range best {
		k.take(i)
	}
	return d.bridge(k.keep)
}

// bridge keeps the gaps whose marker would be longer than they are, and says how many lines stay.
func (d *Doc) bridge(keep []bool) int {
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
		if gap.Last = i; d.bytes(gap) <= maxMarker && d.bytes(gap) <= markerBytes(gap) {
			kept += gap.Lines()
			for j := gap.First - 1; j < gap.Last; j++ {
				keep[j] = true
			}
		}
	}
	return kept
}

// ranked are the lines, best first; of equal ones the earlier.
func (d *Doc) ranked() []int32 {
	keys := make([]uint64, len(d.score))
	for i, s := range d.score {
		b := math.Float32bits(s)
		if b>>31 == 0 { // so that bits order as the numbers do, the highest first
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

func (d *Doc) bytes(b Block) int { return int(d.lines.start[b.Last] - d.lines.start[b.First-1]) }

func blocks(keep []bool) []Block {
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
