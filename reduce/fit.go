package reduce

import (
	"strconv"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// fitter divides a budget of characters among the nodes of an outline, from the root down, and records
// the gaps. Its work is bounded by the budget, not by the text.
type fitter struct {
	*outline
	head, tail int // proportion of head and tail in what stays
	path       []byte
	gaps       []Gap
}

// fitNode shortens node n to at most budget characters, at least its minChars, and returns its length.
func (f *fitter) fitNode(n, budget int) int {
	nd := &f.nodes[n]
	if nd.chars <= budget {
		return nd.chars
	}
	switch {
	case nd.kind == '"':
		return f.maskNode(nd, budget)
	case nd.kind == '{', nd.count <= 2 && f.minCharsWithAll(n) <= budget:
		return f.shareBudget(n, budget)
	}
	return f.dropElements(n, budget)
}

// eachChild calls do with each node directly inside n.
func (f *fitter) eachChild(n int, do func(child int)) {
	for c := n + 1; c < f.nodes[n].nextNode; c = f.nodes[c].nextNode {
		do(c)
	}
}

// minCharsWithAll is the shortest length of n with all of its elements or members.
func (f *fitter) minCharsWithAll(n int) int {
	least := f.nodes[n].chars
	f.eachChild(n, func(c int) { least -= f.nodes[c].chars - f.nodes[c].minChars })
	return least
}

// shareBudget keeps all children of n and shortens those that are longer than one limit, the highest with
// which the sum fits. What one child leaves unused goes to the next.
func (f *fitter) shareBudget(n, budget int) int {
	used := f.nodes[n].chars // first only what cannot be shortened
	f.eachChild(n, func(c int) { used -= f.nodes[c].chars })
	level := f.childLimit(n, budget-used)
	spare := 0
	f.eachChild(n, func(c int) {
		allotted := clamp(level, f.nodes[c].minChars, f.nodes[c].chars) + spare
		got := f.fitChild(n, c, allotted)
		spare = allotted - got
		used += got
	})
	return used
}

// childLimit is the highest limit on each child of n with which their sum is at most budget.
func (f *fitter) childLimit(n, budget int) int {
	low, high := 0, budget
	for low < high {
		mid := high - (high-low)/2
		sum := 0
		f.eachChild(n, func(c int) { sum += clamp(mid, f.nodes[c].minChars, f.nodes[c].chars) })
		if sum <= budget {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

func clamp(x, low, high int) int { return max(low, min(x, high)) }

// fitChild is fitNode for a child; it keeps the path to it.
func (f *fitter) fitChild(parent, c, budget int) int {
	length := len(f.path)
	switch f.nodes[parent].kind {
	case '{':
		f.path = appendPointer(f.path, f.nodes[c].key.Of(f.text))
	case '[':
		f.path = strconv.AppendInt(append(f.path, '/'), int64(f.nodes[c].index), 10)
	}
	used := f.fitNode(c, budget)
	f.path = f.path[:length]
	return used
}

// appendPointer appends a key, raw, as a step of a JSON Pointer (RFC 6901).
func appendPointer(path, raw []byte) []byte {
	path = append(path, '/')
	for _, c := range jsonscan.AppendDecoded(nil, raw) {
		switch c {
		case '~':
			path = append(path, "~0"...)
		case '/':
			path = append(path, "~1"...)
		default:
			path = append(path, c)
		}
	}
	return path
}

// dropElements leaves elements out of the middle of array n.
func (f *fitter) dropElements(n, budget int) int {
	nd := f.nodes[n]
	fixed := nd.Len() - nd.inner.Len() // brackets and white space: a byte each
	room := budget - fixed - f.arrayMarkerLen
	e := arrayEnds{fitter: f, array: n, head: nd.inner.Start, tail: nd.inner.End}
	first := headShare(room, f.head, f.tail)
	if f.head > 0 {
		room -= e.keepHead(first)
	}
	if f.tail > 0 {
		room -= e.keepTail(room)
	}
	if f.head > 0 {
		room -= e.keepHead(room)
	}
	dropped := nd.count - e.heads - e.tails
	if dropped > 0 {
		f.gaps = append(f.gaps, Gap{
			Span: jsonscan.Span{Start: e.head, End: e.tail}, Path: string(f.path),
			Chars: nd.chars, Elements: nd.count, Dropped: dropped,
		})
	}
	return budget - room
}

// arrayEnds are the two ends of an array that stay.
type arrayEnds struct {
	*fitter
	array        int
	heads, tails int // elements kept at either end
	head         int // start of the first element left out
	tail         int // end of the last one
}

// keepHead keeps the next elements that fit into room and returns their length. A first element that is
// too long is shortened.
func (e *arrayEnds) keepHead(room int) (used int) {
	for e.heads+e.tails < e.nodes[e.array].count {
		end, ok := valueEnd(e.text, e.head, e.maxBytes(room-used))
		if !ok {
			break
		}
		next := min(nextElement(e.text, end), e.tail)
		size := e.charCount(e.head, next)
		if size > room-used {
			break
		}
		used += size
		e.heads++
		e.head = next
	}
	if c := e.endNode(0); e.heads == 0 && c > 0 && e.tails < e.nodes[e.array].count {
		next := min(nextElement(e.text, e.nodes[c].End), e.tail)
		used += e.fitEnd(c, room-used, next-e.nodes[c].End, func() { e.heads, e.head = 1, next })
	}
	return used
}

// keepTail is keepHead at the other end.
func (e *arrayEnds) keepTail(room int) (used int) {
	count := e.nodes[e.array].count
	for e.heads+e.tails < count {
		start, ok := valueStart(e.text, e.tail, e.maxBytes(room-used))
		if !ok {
			break
		}
		before := max(previousElement(e.text, start), e.head)
		size := e.charCount(before, e.tail)
		if size > room-used {
			break
		}
		used += size
		e.tails++
		e.tail = before
	}
	if c := e.endNode(count - 1); e.tails == 0 && c > 0 && e.heads < count {
		before := max(previousElement(e.text, e.nodes[c].Start), e.head)
		used += e.fitEnd(c, room-used, e.nodes[c].Start-before, func() { e.tails, e.tail = 1, before })
	}
	return used
}

// endNode returns the node of the element at index; 0 if it has none.
func (e *arrayEnds) endNode(index int) (found int) {
	e.eachChild(e.array, func(c int) {
		if e.nodes[c].index == index {
			found = c
		}
	})
	return found
}

// fitEnd shortens an element at an end to fit into room, together with what separates it from the next.
func (e *arrayEnds) fitEnd(c, room, between int, took func()) int {
	if e.nodes[c].minChars+between > room {
		return 0
	}
	took()
	return e.fitChild(e.array, c, room-between) + between
}

// charCount counts the characters between two offsets.
func (o *outline) charCount(from, to int) int {
	if o.ascii {
		return to - from
	}
	return countChars(o.text[from:to])
}

// maxBytes is the largest number of bytes that chars can have.
func (o *outline) maxBytes(chars int) int {
	if o.ascii {
		return max(0, chars)
	}
	return utf8.UTFMax * max(0, chars)
}

// headShare is the part of room for the head.
func headShare(room, head, tail int) int {
	if head+tail == 0 {
		return 0
	}
	return int(int64(room) * int64(head) / int64(head+tail))
}

// maskNode keeps head and tail of a string, as long as the budget allows beside the marker.
func (f *fitter) maskNode(nd *node, budget int) int {
	raw := f.text[nd.Start+1 : nd.End-1]
	room := budget - 2 - f.stringMarkerLen
	head, heads := 0, 0
	for left := headShare(room, f.head, f.tail); f.head > 0; heads++ {
		size := jsonChar(raw[head:], jsonscan.DecodeChar)
		if left -= size.chars; left < 0 {
			break
		}
		head += size.bytes
	}
	tail, tails := len(raw), 0
	for left := room - f.charCount(nd.Start+1, nd.Start+1+head); f.tail > 0; tails++ {
		size := jsonChar(raw[:tail], jsonscan.DecodeLastChar)
		if left -= size.chars; left < 0 {
			break
		}
		tail -= size.bytes
	}
	head, lostHead := snapBack(raw, head)
	tail, lostTail := snapForward(raw, tail)
	gap := Gap{
		Span: jsonscan.Span{Start: nd.Start + 1 + head, End: nd.Start + 1 + tail}, Path: string(f.path),
		Chars: jsonscan.CountChars(raw), Head: heads - lostHead, Tail: tails - lostTail,
	}
	f.gaps = append(f.gaps, gap)
	return nd.chars - f.charCount(gap.Start, gap.End) + f.stringMarkerLen
}

// charSize is the size of one character of a JSON string in the text: an escape is several characters.
type charSize struct{ bytes, chars int }

func jsonChar(raw []byte, decode func([]byte) (rune, int)) charSize {
	r, n := decode(raw)
	if n == utf8.RuneLen(r) && r >= utf8.RuneSelf {
		return charSize{n, 1}
	}
	return charSize{n, n}
}
