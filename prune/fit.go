package prune

import (
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Limit is how long a text may be after a cut. Lengths are in characters.
type Limit struct {
	MaxChars     int  // of the lines that stay and their markers together
	LongLine     int  // the caller shortens lines that stay to this length, so that they count no more; 0 if it does not
	PlainMarkers bool // the markers are those of PlainMarker
}

// Fitted is a cut that keeps a limit.
type Fitted struct {
	Blocks    []Block // in order; they do not touch
	LongLines []int   // the lines that stay and are longer than LongLine; counted from 1
}

// CutToFit is Cut with a limit. What Cut keeps stays if it is within the limit. Otherwise the limit comes first, before
// the lines that must stay and before the budget: the best lines stay that fit, each with those that it cannot be read
// without. Protected lines (P8) are tried before all others.
//
// False means that the start and the end of the text say more: nothing fits, or the text is code or a document without
// any word of the goal. A log is scored by what went wrong, too.
func (d *ScoredText) CutToFit(b Budget, l Limit) (Fitted, bool) {
	f := newFitter(d, l)
	order := d.rankLines()
	if blocks := d.cutRanked(b, order); f.charsWithout(blocks) <= l.MaxChars {
		return f.result(blocks), true
	}
	if !d.ranksWithoutGoal && !d.index.HasAny() || !f.keepFitting(order) {
		return Fitted{}, false
	}
	return f.result(f.blocks()), true
}

// fitter chooses the lines that stay within a limit. It accounts for all of the text: lines that are kept count with
// their length and a line break, runs of others with that of their marker.
type fitter struct {
	*ScoredText
	limit     Limit
	start     []int32 // the length of everything before each line, and of the text with a last line break
	long      []int32 // the lines that are longer than LongLine
	left      int     // characters that may still be added
	keptChars int     // of the kept lines
	kept      lineSet
	rejected  []bool  // lines that do not fit
	group     []int32 // lines that are kept together
	inGroup   []bool
	todo      []int32
	wasted    int // lines collected for groups that did not fit
}

// maxWasted bounds the work for groups that do not fit, in lines for every line of the text: where each line requires
// the one before it, all of them could be collected again and again.
const maxWasted = 64

func newFitter(d *ScoredText, l Limit) *fitter {
	n := d.LineCount()
	f := &fitter{ScoredText: d, limit: l, start: make([]int32, n+1)}
	for i := range n {
		chars := utf8.RuneCountInString(d.lines.At(i))
		if l.LongLine > 0 && chars > l.LongLine {
			f.long = append(f.long, int32(i))
			chars = l.LongLine
		}
		f.start[i+1] = f.start[i] + int32(chars) + 1
	}
	return f
}

// lineChars is the length of lines from up to and without to, counted from 0, with their line breaks.
func (f *fitter) lineChars(from, to int) int { return int(f.start[to] - f.start[from]) }

// markerChars is the length of the marker of a block, with its line break.
func (f *fitter) markerChars(b Block) int {
	if !f.limit.PlainMarkers {
		return markerBytes(b) - len("⟦É⟧") + utf8.RuneCountInString("⟦É⟧")
	}
	n := len("[lines - left out; call recover_text with prune_id=]\n") + IDLen + digitCount(b.First) + digitCount(b.Last)
	if b.First == b.Last {
		n -= len("s-") + digitCount(b.Last)
	}
	return n
}

// charsWithout is the length of the text without the blocks, markers included.
func (f *fitter) charsWithout(blocks []Block) int {
	n := f.lineChars(0, f.LineCount()) - 1
	for _, b := range blocks {
		n += f.markerChars(b) - f.lineChars(b.First-1, b.Last)
	}
	return n
}

// isGap reports whether a marker replaces lines from up to and without to: a block that is not longer than its marker
// stays.
func (f *fitter) isGap(from, to int) bool {
	chars := f.lineChars(from, to)
	return chars > maxMarker || chars > markerBytes(Block{from + 1, to})
}

// gapChars is what a run of lines between kept ones counts.
func (f *fitter) gapChars(from, to int) int {
	switch {
	case from >= to:
		return 0
	case f.isGap(from, to):
		return f.markerChars(Block{from + 1, to})
	}
	return f.lineChars(from, to)
}

// keepFitting keeps the best lines that fit, and reports whether there are any.
func (f *fitter) keepFitting(order []int32) bool {
	n := f.LineCount()
	f.kept, f.rejected, f.inGroup = newLineSet(n), make([]bool, n), make([]bool, n)
	f.left = f.limit.MaxChars + 1 - f.gapChars(0, n) // the last line has no line break
	if last := n - 1; f.lines.At(last) == "" {
		f.keepGroup(int32(last)) // the text ends with a line break, which stays
	}
	found := false
	for _, lines := range [][]int32{f.rules.protected, order} {
		for _, i := range lines {
			if f.left <= 0 || f.wasted > maxWasted*n {
				break
			}
			if !f.rejected[i] && !f.kept.has(int(i)) {
				found = f.keepGroup(i) || found
			}
		}
	}
	return found
}

// keepGroup keeps a line with those that it cannot be separated from, if they fit.
func (f *fitter) keepGroup(line int32) bool {
	defer func() {
		for _, i := range f.group {
			f.inGroup[i] = false
		}
	}()
	if !f.collectGroup(line) {
		f.reject(line)
		return false
	}
	slices.Sort(f.group)
	more, chars := 0, 0
	for at := 0; at < len(f.group); {
		from, to := f.kept.before(int(f.group[at]))+1, f.kept.from(int(f.group[at])) // the run of lines that it is taken from
		more -= f.gapChars(from, to)
		for ; at < len(f.group) && int(f.group[at]) < to; at++ {
			i := int(f.group[at])
			more += f.gapChars(from, i) + f.lineChars(i, i+1)
			chars += f.lineChars(i, i+1)
			from = i + 1
		}
		more += f.gapChars(from, to)
	}
	if more > f.left {
		f.reject(line)
		return false
	}
	f.left -= more
	f.keptChars += chars
	for _, i := range f.group {
		f.kept.addLine(int(i))
	}
	return true
}

// collectGroup finds the lines that have to be kept for a line. It gives up when they cannot fit.
func (f *fitter) collectGroup(line int32) bool {
	f.group, f.todo = f.group[:0], append(f.todo[:0], line)
	chars := f.keptChars
	add := func(i int32) bool {
		f.inGroup[i] = true
		f.group = append(f.group, i)
		chars += f.lineChars(int(i), int(i)+1)
		return chars <= f.limit.MaxChars+1
	}
	for len(f.todo) > 0 {
		i := f.todo[len(f.todo)-1]
		f.todo = f.todo[:len(f.todo)-1]
		if f.inGroup[i] || f.kept.has(int(i)) {
			continue
		}
		first, last := f.rules.atomOf(i)
		for j := first; j <= last; j++ {
			if !f.inGroup[j] && !f.kept.has(int(j)) && !add(j) {
				return false
			}
		}
		if f.rules.requires != nil {
			f.todo = f.rules.requires(i, f.todo)
		}
	}
	return true
}

// reject marks a line, and what it cannot be separated from, as too long.
func (f *fitter) reject(line int32) {
	f.wasted += len(f.group)
	first, last := f.rules.atomOf(line)
	for i := first; i <= last; i++ {
		f.rejected[i] = true
	}
}

// blocks are the runs of lines that are not kept.
func (f *fitter) blocks() []Block {
	var out []Block
	for from := 0; from < f.LineCount(); {
		to := f.kept.from(from)
		if from < to && f.isGap(from, to) {
			out = append(out, Block{from + 1, to})
		}
		from = to + 1
	}
	return out
}

// result shows long lines that stay in full, as far as the limit allows, and lists the others.
func (f *fitter) result(blocks []Block) Fitted {
	out := Fitted{Blocks: blocks}
	left := f.limit.MaxChars - f.charsWithout(blocks)
	for _, i := range f.long {
		after, _ := slices.BinarySearchFunc(blocks, int(i)+1, func(b Block, line int) int { return b.First - line - 1 })
		if after > 0 && blocks[after-1].Last > int(i) {
			continue // it is left out
		}
		if more := utf8.RuneCountInString(f.lines.At(int(i))) - f.limit.LongLine; more <= left {
			left -= more
		} else {
			out.LongLines = append(out.LongLines, int(i)+1)
		}
	}
	return out
}

// lineSet is a set of lines. It finds the neighbours of a line in a few steps, however many lines there are.
type lineSet struct {
	n      int
	levels [][]uint64 // a bit for every line; then a bit for every word of the level before that is not zero
}

func newLineSet(n int) lineSet {
	s := lineSet{n: n}
	for size := n; ; {
		size = (size + 63) / 64
		s.levels = append(s.levels, make([]uint64, size))
		if size <= 1 {
			return s
		}
	}
}

func (s *lineSet) has(i int) bool { return s.levels[0][i/64]>>(i%64)&1 != 0 }

func (s *lineSet) addLine(i int) {
	for _, words := range s.levels {
		words[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

// from returns the first line of the set from i on, or the number of lines.
func (s *lineSet) from(i int) int {
	for level, words := range s.levels {
		if i/64 >= len(words) {
			break
		}
		if w := words[i/64] >> (i % 64); w != 0 {
			i += bits.TrailingZeros64(w)
			for ; level > 0; level-- {
				i = i*64 + bits.TrailingZeros64(s.levels[level-1][i])
			}
			return i
		}
		i = i/64 + 1
	}
	return s.n
}

// before returns the last line of the set before i, or -1.
func (s *lineSet) before(i int) int {
	for level, words := range s.levels {
		if i--; i < 0 {
			break
		}
		if w := words[i/64] << (63 - i%64); w != 0 {
			i -= bits.LeadingZeros64(w)
			for ; level > 0; level-- {
				i = i*64 + 63 - bits.LeadingZeros64(s.levels[level-1][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}
