package rounds

import (
	"math"
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// sum adds what one round used to what another did, as their providers tell it: numbers at any
// depth add up, lists go one after the other, and of anything else the later word counts. Either
// may be missing.
func sum(a, b []byte) []byte { return merge(a, b, plus) }

// update puts the later word of one round in the place of the earlier.
func update(a, b []byte) []byte {
	return merge(a, b, func(_, later []byte) []byte { return later })
}

// merge joins two raw values member by member; values that are no objects are joined by leaf.
func merge(a, b []byte, leaf func(a, b []byte) []byte) []byte {
	switch {
	case !given(b) && a != nil:
		return a
	case !given(a):
		return b
	case a[0] != '{' || b[0] != '{':
		return leaf(a, b)
	}
	var changes []jsonscan.Change
	each(b, all(b), func(key []byte, value jsonscan.Span) {
		name := string(key)
		changes = append(changes, jsonscan.Change{Key: name, Value: merge(oneOf(a, name), value.Of(b), leaf)})
	})
	return with(a, changes...)
}

// plusWhole adds whole numbers, and stays at the ends of what clients can read as one.
func plusWhole(x, y int64) int64 {
	switch total := x + y; {
	case x > 0 && y > 0 && total < 0:
		return math.MaxInt64
	case x < 0 && y < 0 && total >= 0:
		return math.MinInt64
	default:
		return total
	}
}

func plus(a, b []byte) []byte {
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if errX == nil && errY == nil {
		return strconv.AppendInt(nil, plusWhole(x, y), 10)
	}
	if a[0] == '[' && b[0] == '[' {
		return list(append(elements(a), elements(b)...)...)
	}
	f, errF := strconv.ParseFloat(string(a), 64)
	g, errG := strconv.ParseFloat(string(b), 64)
	if errF != nil || errG != nil || math.IsInf(f+g, 0) {
		return b
	}
	return strconv.AppendFloat(nil, f+g, 'g', -1, 64)
}
