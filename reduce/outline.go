package reduce

import (
	"github.com/ctxgate/ctxgate/jsonscan"
)

// node is a value that can be shortened: an array or a string that is longer than its marker, or an
// object with such a member.
type node struct {
	jsonscan.Span
	kind     byte          // '{', '[' or '"'; 0 for the whole text, a sequence of documents
	key      jsonscan.Span // a member's key, raw; empty for an element
	index    int           // an element's place in its array
	count    int           // elements or members
	inner    jsonscan.Span // from its first element's start to its last one's end
	chars    int           // its length
	minChars int           // the shortest it can be made
	nextNode int           // the first node after this one and its children
}

// maxNodes bounds the memory of an outline. Ordinary documents do not reach it: of an array only the
// first and the last element have nodes.
const maxNodes = 1 << 16

// outline measures a valid text in one pass. Its nodes are those that fitNode may visit, parents before
// children: all members of an object, the first and the last element of an array, since those between
// are kept whole or not at all. A value that cannot be shortened to maxChars has no node, so that an
// object has at most as many nodes as its budget has characters.
type outline struct {
	text                            []byte
	ascii                           bool
	maxChars                        int // the budget of the whole text
	arrayMarkerLen, stringMarkerLen int // the longest marker of an array and of a string

	nodes      []node
	stack      []container
	extraBytes int // bytes beyond one per character, so far
}

// container is an array or object that is open.
type container struct {
	start      int
	kind       byte
	node       int  // its node, kept or dropped when it is closed; -1 for none
	isHopeless bool // it cannot be shortened enough: no more nodes inside
	hasKey     bool // in an object: the key has been read
	key        jsonscan.Span
	count      int
	keptNodes  int // in an array: number of nodes up to its first element's
	first      int
	last       int
	extraBytes int
	saving     int // how many characters its values can be shortened by
}

// measure walks the text; false if there are too many nodes or nothing to shorten.
func (o *outline) measure() bool {
	o.nodes = append(o.nodes, node{})
	o.stack = append(o.stack, container{})
	for i := 0; i < len(o.text); {
		if len(o.nodes) > maxNodes {
			return false
		}
		switch c := o.text[i]; c {
		case ' ', '\n', '\t', '\r', ',':
			i++
		case ':':
			o.top().hasKey = true
			i++
		case '"':
			i = o.scanString(i)
		case '{', '[':
			o.beginValue(i)
			o.openContainer(c, i)
			i++
		case '}', ']':
			i++
			o.closeContainer(i)
		default:
			o.beginValue(i)
			i = scalarEnd(o.text, i)
			o.endValue(i)
		}
	}
	o.closeContainer(len(o.text))
	return len(o.nodes) > 0
}

func (o *outline) top() *container { return &o.stack[len(o.stack)-1] }

// beginValue records that a value starts at i.
func (o *outline) beginValue(i int) {
	f := o.top()
	f.count++
	switch {
	case f.count == 1:
		f.first = i
	case f.kind == '{' || f.isHopeless:
	case f.count == 2:
		f.keptNodes = len(o.nodes)
	default: // the previous element is not the last: drop its nodes
		o.nodes = o.nodes[:f.keptNodes]
	}
}

// endValue records that the current value ends at i.
func (o *outline) endValue(i int) {
	f := o.top()
	f.last, f.hasKey = i, false
	if f.kind == '{' && !f.isHopeless && o.charsUpTo(f, i)-f.saving > o.maxChars {
		f.isHopeless = true
		o.nodes = o.nodes[:f.node+1]
	}
}

// charsUpTo counts the characters of f up to i.
func (o *outline) charsUpTo(f *container, i int) int {
	return i - f.start - (o.extraBytes - f.extraBytes)
}

// scanString reads the string at i, a key or a value, and returns its end.
func (o *outline) scanString(i int) int {
	f := o.top()
	end := stringEnd(o.text, i+1) + 1
	wide := 0
	if !o.ascii {
		wide = end - i - countChars(o.text[i:end])
		o.extraBytes += wide
	}
	if f.kind == '{' && !f.hasKey {
		f.key = jsonscan.Span{Start: i + 1, End: end - 1}
		return end
	}
	o.beginValue(i)
	if chars, least := end-i-wide, 2+o.stringMarkerLen; !f.isHopeless && chars > least && least <= o.maxChars {
		n := o.newNode(f, '"', i)
		n.End, n.chars, n.minChars, n.nextNode = end, chars, least, len(o.nodes)+1
		o.nodes = append(o.nodes, n)
		f.saving += chars - least
	}
	o.endValue(end)
	return end
}

// newNode makes a node for the current value of f.
func (o *outline) newNode(f *container, kind byte, start int) node {
	n := node{Span: jsonscan.Span{Start: start}, kind: kind, index: f.count - 1}
	if f.kind == '{' {
		n.key = f.key
	}
	return n
}

func (o *outline) openContainer(kind byte, i int) {
	f := o.top()
	inside := container{start: i, kind: kind, node: -1, isHopeless: f.isHopeless, extraBytes: o.extraBytes}
	if !f.isHopeless {
		inside.node = len(o.nodes)
		o.nodes = append(o.nodes, o.newNode(f, kind, i))
	}
	o.stack = append(o.stack, inside)
}

// closeContainer closes the innermost container at i and keeps or drops its node.
func (o *outline) closeContainer(i int) {
	f := *o.top()
	o.stack = o.stack[:len(o.stack)-1]
	if f.node >= 0 {
		chars := o.charsUpTo(&f, i)
		least := chars - f.saving
		if f.kind == '[' || f.kind == 0 && f.count > 1 {
			least = f.first - f.start + o.arrayMarkerLen + i - f.last
		}
		if f.isHopeless || f.count == 0 || least >= chars || least > o.maxChars {
			o.nodes = o.nodes[:f.node]
		} else {
			n := &o.nodes[f.node]
			n.End, n.count, n.inner = i, f.count, jsonscan.Span{Start: f.first, End: f.last}
			n.chars, n.minChars, n.nextNode = chars, least, len(o.nodes)
			if len(o.stack) > 0 {
				o.top().saving += chars - least
			}
		}
	}
	if len(o.stack) > 0 {
		o.endValue(i)
	}
}
