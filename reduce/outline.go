package reduce

import (
	"github.com/ctxgate/ctxgate/jsonscan"
)

// node is a value that can be made shorter: an array or a string longer than the marker that
// would stand in it, or an object that holds one.
type node struct {
	jsonscan.Span
	kind  byte          // '{', '[', '"'; 0 for the run of documents that the text is
	key   jsonscan.Span // a member's key, raw; empty for an element
	index int           // an element's place in its array
	count int           // how many elements or members it has
	inner jsonscan.Span // from its first element's start to its last one's end
	chars int           // how long it is
	least int           // how short it can be made
	next  int           // the node after those inside this one
}

// mostNodes bounds the memory of an outline. Only a document made to reach it does: of an array
// no more than the first and the last element are ever looked into.
const mostNodes = 1 << 16

// outline is one pass over a valid text. It leaves the nodes that fit may come to, parents
// before children: of an object every member, of an array the first element and the last, since
// those between are kept whole or not at all. What could not come under most characters whatever
// is left out of it has no node, so that an object's nodes are at most as many as its budget.
type outline struct {
	text     []byte
	ascii    bool
	most     int // the budget of the whole text
	gap, cut int // how long the marker of an array and that of a string may get

	nodes []node
	stack []frame
	wide  int // bytes so far beyond one a character
}

// frame is an open container.
type frame struct {
	start  int
	kind   byte
	node   int  // its node, which stands or falls when it is closed; -1 when it has none
	dead   bool // nothing inside it is worth a node any more
	value  bool // in an object: the key has been read
	key    jsonscan.Span
	count  int
	keep   int // in an array: how many nodes there are with those of its first element
	first  int
	last   int
	wide   int
	saving int // how much shorter the values in it can get
}

// run walks the text; false means that it has more nodes than may be.
func (o *outline) run() bool {
	o.nodes = append(o.nodes, node{})
	o.stack = append(o.stack, frame{})
	for i := 0; i < len(o.text); {
		if len(o.nodes) > mostNodes {
			return false
		}
		switch c := o.text[i]; c {
		case ' ', '\n', '\t', '\r', ',':
			i++
		case ':':
			o.top().value = true
			i++
		case '"':
			i = o.str(i)
		case '{', '[':
			o.begin(i)
			o.open(c, i)
			i++
		case '}', ']':
			i++
			o.shut(i)
		default:
			o.begin(i)
			i = scalarEnd(o.text, i)
			o.end(i)
		}
	}
	o.shut(len(o.text))
	return len(o.nodes) > 0
}

func (o *outline) top() *frame { return &o.stack[len(o.stack)-1] }

// begin notes that a value starts at i.
func (o *outline) begin(i int) {
	f := o.top()
	f.count++
	switch {
	case f.count == 1:
		f.first = i
	case f.kind == '{' || f.dead:
	case f.count == 2:
		f.keep = len(o.nodes)
	default: // the element before this one is not the last
		o.nodes = o.nodes[:f.keep]
	}
}

// end notes that the value begun last ends at i.
func (o *outline) end(i int) {
	f := o.top()
	f.last, f.value = i, false
	if f.kind == '{' && !f.dead && o.chars(f, i)-f.saving > o.most {
		f.dead = true
		o.nodes = o.nodes[:f.node+1]
	}
}

// chars is how many characters of f there are up to i.
func (o *outline) chars(f *frame, i int) int { return i - f.start - (o.wide - f.wide) }

// str passes the string at i, a key or a value.
func (o *outline) str(i int) int {
	f := o.top()
	end := stringEnd(o.text, i+1) + 1
	wide := 0
	if !o.ascii {
		wide = end - i - countChars(o.text[i:end])
		o.wide += wide
	}
	if f.kind == '{' && !f.value {
		f.key = jsonscan.Span{Start: i + 1, End: end - 1}
		return end
	}
	o.begin(i)
	if chars, least := end-i-wide, 2+o.cut; !f.dead && chars > least && least <= o.most {
		n := o.child(f, '"', i)
		n.End, n.chars, n.least, n.next = end, chars, least, len(o.nodes)+1
		o.nodes = append(o.nodes, n)
		f.saving += chars - least
	}
	o.end(end)
	return end
}

// child is a node for the value that was begun in f.
func (o *outline) child(f *frame, kind byte, start int) node {
	n := node{Span: jsonscan.Span{Start: start}, kind: kind, index: f.count - 1}
	if f.kind == '{' {
		n.key = f.key
	}
	return n
}

func (o *outline) open(kind byte, i int) {
	f := o.top()
	inside := frame{start: i, kind: kind, node: -1, dead: f.dead, wide: o.wide}
	if !f.dead {
		inside.node = len(o.nodes)
		o.nodes = append(o.nodes, o.child(f, kind, i))
	}
	o.stack = append(o.stack, inside)
}

// shut closes the container on top, which ends at i, and decides whether its node stands.
func (o *outline) shut(i int) {
	f := *o.top()
	o.stack = o.stack[:len(o.stack)-1]
	if f.node >= 0 {
		chars := o.chars(&f, i)
		least := chars - f.saving
		if f.kind == '[' || f.kind == 0 && f.count > 1 {
			least = f.first - f.start + o.gap + i - f.last
		}
		if f.dead || f.count == 0 || least >= chars || least > o.most {
			o.nodes = o.nodes[:f.node]
		} else {
			n := &o.nodes[f.node]
			n.End, n.count, n.inner = i, f.count, jsonscan.Span{Start: f.first, End: f.last}
			n.chars, n.least, n.next = chars, least, len(o.nodes)
			if len(o.stack) > 0 {
				o.top().saving += chars - least
			}
		}
	}
	if len(o.stack) > 0 {
		o.end(i)
	}
}
