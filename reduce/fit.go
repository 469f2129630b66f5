package reduce

import (
	"strconv"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// fitter divides a budget of characters among the nodes of an outline, from the root down, and
// notes what is left out so that it holds. Its work is bounded by the budget, not by the text.
type fitter struct {
	*outline
	head, tail int // how a budget is shared between the start and the end of what is cut
	path       []byte
	gaps       []Gap
}

// fit makes node n at most budget characters long, which must not be less than its least, and
// says how long it got.
func (f *fitter) fit(n, budget int) int {
	nd := &f.nodes[n]
	if nd.chars <= budget {
		return nd.chars
	}
	switch {
	case nd.kind == '"':
		return f.cutString(nd, budget)
	case nd.kind == '{', nd.count <= 2 && f.leastInside(n) <= budget:
		return f.share(n, budget)
	}
	return f.thin(n, budget)
}

// children calls do with each node directly inside n.
func (f *fitter) children(n int, do func(child int)) {
	for c := n + 1; c < f.nodes[n].next; c = f.nodes[c].next {
		do(c)
	}
}

// leastInside is how short n can get with every one of its elements or members still there.
func (f *fitter) leastInside(n int) int {
	least := f.nodes[n].chars
	f.children(n, func(c int) { least -= f.nodes[c].chars - f.nodes[c].least })
	return least
}

// share keeps everything directly inside n and shortens the largest first, all of those to one
// level: the highest at which the sum fits. What one of them leaves unused goes to the next.
func (f *fitter) share(n, budget int) int {
	used := f.nodes[n].chars // what cannot be shortened
	f.children(n, func(c int) { used -= f.nodes[c].chars })
	level := f.level(n, budget-used)
	spare := 0
	f.children(n, func(c int) {
		allotted := clamp(level, f.nodes[c].least, f.nodes[c].chars) + spare
		got := f.within(n, c, allotted)
		spare = allotted - got
		used += got
	})
	return used
}

// level is the largest that the children of n may each be for their sum to be at most budget.
func (f *fitter) level(n, budget int) int {
	low, high := 0, budget
	for low < high {
		mid := high - (high-low)/2
		sum := 0
		f.children(n, func(c int) { sum += clamp(mid, f.nodes[c].least, f.nodes[c].chars) })
		if sum <= budget {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

func clamp(x, low, high int) int { return max(low, min(x, high)) }

// within is fit for a child, with the path to it.
func (f *fitter) within(parent, c, budget int) int {
	length := len(f.path)
	switch f.nodes[parent].kind {
	case '{':
		f.path = appendPointer(f.path, f.nodes[c].key.Of(f.text))
	case '[':
		f.path = strconv.AppendInt(append(f.path, '/'), int64(f.nodes[c].index), 10)
	}
	used := f.fit(c, budget)
	f.path = f.path[:length]
	return used
}

// appendPointer appends a key, raw, as a step of a JSON Pointer (RFC 6901).
func appendPointer(path, raw []byte) []byte {
	path = append(path, '/')
	for _, c := range jsonscan.AppendText(nil, raw) {
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

// thin leaves elements out of the middle of array n.
func (f *fitter) thin(n, budget int) int {
	nd := f.nodes[n]
	fixed := nd.Len() - nd.inner.Len() // brackets and white space: a byte each
	room := budget - fixed - f.gap
	e := ends{fitter: f, array: n, head: nd.inner.Start, tail: nd.inner.End}
	first := portion(room, f.head, f.tail)
	if f.head > 0 {
		room -= e.fromHead(first)
	}
	if f.tail > 0 {
		room -= e.fromTail(room)
	}
	if f.head > 0 {
		room -= e.fromHead(room)
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

// ends are the parts of an array that stay.
type ends struct {
	*fitter
	array        int
	heads, tails int // how many elements
	head         int // where the first element that does not stay starts
	tail         int // where the last one ends
}

// fromHead keeps the next elements that fit into room, and says how much they take. A first
// element that is too large is made to fit.
func (e *ends) fromHead(room int) (used int) {
	for e.heads+e.tails < e.nodes[e.array].count {
		end, ok := valueEnd(e.text, e.head, e.bytes(room-used))
		if !ok {
			break
		}
		next := min(following(e.text, end), e.tail)
		size := e.count(e.head, next)
		if size > room-used {
			break
		}
		used += size
		e.heads++
		e.head = next
	}
	if c := e.edge(0); e.heads == 0 && c > 0 && e.tails < e.nodes[e.array].count {
		next := min(following(e.text, e.nodes[c].End), e.tail)
		used += e.squeeze(c, room-used, next-e.nodes[c].End, func() { e.heads, e.head = 1, next })
	}
	return used
}

// fromTail is fromHead at the other end.
func (e *ends) fromTail(room int) (used int) {
	count := e.nodes[e.array].count
	for e.heads+e.tails < count {
		start, ok := valueStart(e.text, e.tail, e.bytes(room-used))
		if !ok {
			break
		}
		before := max(preceding(e.text, start), e.head)
		size := e.count(before, e.tail)
		if size > room-used {
			break
		}
		used += size
		e.tails++
		e.tail = before
	}
	if c := e.edge(count - 1); e.tails == 0 && c > 0 && e.heads < count {
		before := max(preceding(e.text, e.nodes[c].Start), e.head)
		used += e.squeeze(c, room-used, e.nodes[c].Start-before, func() { e.tails, e.tail = 1, before })
	}
	return used
}

// edge is the node of the element at index, 0 when there is none.
func (e *ends) edge(index int) (found int) {
	e.children(e.array, func(c int) {
		if e.nodes[c].index == index {
			found = c
		}
	})
	return found
}

// squeeze makes an element at an end fit into room, with what stands between it and the next.
func (e *ends) squeeze(c, room, between int, took func()) int {
	if e.nodes[c].least+between > room {
		return 0
	}
	took()
	return e.within(e.array, c, room-between) + between
}

// count is how many characters there are from one offset to another.
func (o *outline) count(from, to int) int {
	if o.ascii {
		return to - from
	}
	return countChars(o.text[from:to])
}

// bytes is the most bytes that so many characters can have.
func (o *outline) bytes(chars int) int {
	if o.ascii {
		return max(0, chars)
	}
	return utf8.UTFMax * max(0, chars)
}

// portion is the head's part of room.
func portion(room, head, tail int) int {
	if head+tail == 0 {
		return 0
	}
	return int(int64(room) * int64(head) / int64(head+tail))
}

// cutString shortens a string as the mask does, to what budget leaves beside the marker.
func (f *fitter) cutString(nd *node, budget int) int {
	raw := f.text[nd.Start+1 : nd.End-1]
	room := budget - 2 - f.cut
	head, heads := 0, 0
	for left := portion(room, f.head, f.tail); f.head > 0; heads++ {
		size := jsonChar(raw[head:], jsonscan.DecodeChar)
		if left -= size.chars; left < 0 {
			break
		}
		head += size.bytes
	}
	tail, tails := len(raw), 0
	for left := room - f.count(nd.Start+1, nd.Start+1+head); f.tail > 0; tails++ {
		size := jsonChar(raw[:tail], jsonscan.DecodeLastChar)
		if left -= size.chars; left < 0 {
			break
		}
		tail -= size.bytes
	}
	head, lostHead := retreat(raw, head)
	tail, lostTail := advance(raw, tail)
	gap := Gap{
		Span: jsonscan.Span{Start: nd.Start + 1 + head, End: nd.Start + 1 + tail}, Path: string(f.path),
		Chars: jsonscan.CountChars(raw), Head: heads - lostHead, Tail: tails - lostTail,
	}
	f.gaps = append(f.gaps, gap)
	return nd.chars - f.count(gap.Start, gap.End) + f.cut
}

// size is how much of a text one character of a string in it takes: an escape is several.
type size struct{ bytes, chars int }

func jsonChar(raw []byte, decode func([]byte) (rune, int)) size {
	r, n := decode(raw)
	if n == utf8.RuneLen(r) && r >= utf8.RuneSelf {
		return size{n, 1}
	}
	return size{n, n}
}
