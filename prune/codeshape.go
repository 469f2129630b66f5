package prune

import "math"

// code is a text read as code: what each line is, and what belongs together.
type code struct {
	lines
	is     []trait
	indent []uint16
	parent []int32 // the line that opens the block a line stands in; -1 for none
	lead   []int32 // for else, catch, case: the line before it in the chain; inside a comment or a string of many lines: its first; -1 for none
	close  []int32 // the line that closes what a line opens; -1 for none
	params []int32 // the line that closes the parenthesis a line leaves open; -1 for none
	unit   []int32 // the definition a line belongs to, its comment above it included, counted from 0
	head   []int32 // the line that begins each unit's definition; -1 for what stands before the first
	stanza []int32 // the run of lines between blank ones, counted from 0
	title  int32   // lines of the comment that the file begins with
}

func readCode(l lines) *code {
	n := l.count()
	c := &code{
		lines: l, is: make([]trait, n), indent: make([]uint16, n),
		parent: fill(n, -1), lead: fill(n, -1), close: fill(n, -1), params: fill(n, -1),
		unit: make([]int32, n), stanza: make([]int32, n),
	}
	c.scan()
	c.nest()
	c.partition()
	return c
}

func fill(n int, v int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// scan classifies the lines and finds what is open over several of them.
func (c *code) scan() {
	x := lexer{dialect: dialectOf(c.lines)}
	importing := int32(-1) // the line that opened the import that is open
	for i := range c.is {
		line := c.at(i)
		c.indent[i] = uint16(min(indent(line), math.MaxUint16))
		depth := len(x.stack)
		is := traitsOf(line, x.dialect)
		if x.inside != "" {
			is = c.inside(i, is, x.opened)
		}
		x.read(int32(i), line, func(from bracket) { c.closes(from, int32(i)) })
		if open := c.lead[i]; open >= 0 && (x.inside == "" || x.opened != open) {
			c.close[open] = int32(i)
		}
		switch {
		case importing < 0 && is&isImport != 0 && len(x.stack) > depth:
			importing = int32(i)
		case importing >= 0:
			if is&isBlank == 0 {
				is |= isImport
			}
			if len(x.stack) == 0 || x.stack[len(x.stack)-1].line < importing {
				importing = -1
			}
		}
		c.is[i] = is
	}
}

// inside is what a line is that stands in a comment or a string which another opened.
func (c *code) inside(i int, is trait, opened int32) trait {
	c.lead[i] = opened
	return is&(isBlank|isMarks) | c.is[opened]&isComment
}

// closes notes that line i closes what an earlier one opened.
func (c *code) closes(from bracket, i int32) {
	if from.line == i {
		return
	}
	c.close[from.line] = i
	if from.char == '(' {
		c.params[from.line] = i
	}
}

// nest finds the line that opens the block each line stands in, by indentation: what is formatted
// at all is formatted so, in every language.
func (c *code) nest() {
	var stack []int32
	for i, is := range c.is {
		if c.lead[i] >= 0 {
			c.parent[i] = c.parent[c.lead[i]]
			continue
		}
		if is&isBlank != 0 {
			continue
		}
		last := int32(-1)
		for len(stack) > 0 && c.indent[stack[len(stack)-1]] >= c.indent[i] {
			last = stack[len(stack)-1]
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 {
			c.parent[i] = stack[len(stack)-1]
		}
		if is&isLinked != 0 && last >= 0 && c.indent[last] == c.indent[i] {
			c.lead[i] = last
		}
		if is&(isMarks|isComment) == 0 {
			stack = append(stack, int32(i))
		}
	}
}

// partition finds units and stanzas.
func (c *code) partition() {
	starts := c.unitStarts()
	unit, stanza := int32(-1), int32(0)
	for i, is := range c.is {
		if starts[i] >= 0 || i == 0 {
			unit++
			c.head = append(c.head, starts[i])
		}
		if i > 0 && (is&isBlank != 0 && c.is[i-1]&isBlank == 0 || starts[i] >= 0) {
			stanza++
		}
		c.unit[i], c.stanza[i] = unit, stanza
	}
	for c.title < int32(len(c.is)) && c.is[c.title]&isComment != 0 {
		c.title++
	}
}

// unitStarts says of every line whether a unit begins there, by the line of its definition: the
// comments and attributes right above it are its own.
func (c *code) unitStarts() []int32 {
	starts := fill(len(c.is), -1)
	for i, is := range c.is {
		if is&isDef == 0 {
			continue
		}
		first := i
		for first > 0 && c.is[first-1]&(isComment|isAttr) != 0 && c.is[first-1]&isBlank == 0 {
			first--
		}
		starts[first] = int32(i)
	}
	return starts
}
