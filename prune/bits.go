package prune

import (
	"iter"
	mathbits "math/bits"
)

// bits are the places of the ones in a mask.
func bits(mask uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; mask != 0; mask &= mask - 1 {
			if !yield(mathbits.TrailingZeros64(mask)) {
				return
			}
		}
	}
}
