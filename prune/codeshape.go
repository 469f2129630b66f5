package prune

import (
	"math"
	"strings"
)

// code is a text read as code: what each line is, and what belongs together.
type code struct {
	lines
	is     []trait
	text   []bool // inside a comment, a string or a directive that an earlier line began
	indent []uint16
	parent []int32 // the line that opens the block a line stands in; -1 for none
	lead   []int32 // for else, catch, case: the line before it in the chain; inside a comment or a string of many lines: its first; -1 for none
	close  []int32 // the line that closes what a line opens; -1 for none
	also   []int32 // another line that a line cannot be read without: the brace below a header, an earlier end of what a line closes; -1 for none
	params []int32 // the line that closes the parenthesis a line leaves open; -1 for none
	unit   []int32 // the definition a line belongs to, its comment above it included, counted from 0
	head   []int32 // the line that begins each unit's definition; -1 for what stands before the first
	stanza []int32 // the run of lines between blank ones, counted from 0
	title  int32   // lines of the comment that the file begins with
}

func readCode(l lines) *code {
	n := l.count()
	c := &code{
		lines: l, is: make([]trait, n), text: make([]bool, n), indent: make([]uint16, n),
		parent: fill(n, -1), lead: fill(n, -1), close: fill(n, -1), also: fill(n, -1), params: fill(n, -1),
		unit: make([]int32, n), stanza: make([]int32, n),
	}
	d := dialectOf(l)
	c.scan(d)
	c.nest(d)
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
func (c *code) scan(d dialect) {
	x := lexer{dialect: d}
	importing := int32(-1) // the line that opened the import that is open
	for i := range c.is {
		line := c.at(i)
		c.indent[i] = uint16(min(indent(line), math.MaxUint16))
		depth := len(x.stack)
		is := traitsOf(line, x.dialect)
		if x.inside != "" {
			is = c.inside(i, is, x.opened)
		}
		if i > 0 && c.lead[i] < 0 && strings.HasSuffix(c.at(i-1), `\`) && d.slash {
			c.goesOn(int32(i))
		}
		x.read(int32(i), line, func(from bracket) { c.closes(from, int32(i)) })
		if open := c.lead[i]; c.text[i] && (x.inside == "" || x.opened != open) {
			c.close[open] = max(c.close[open], int32(i))
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

// goesOn ties a line to the one above, which ends in a backslash.
func (c *code) goesOn(i int32) {
	first := i - 1
	if c.text[first] {
		first = c.lead[first]
	}
	c.lead[i], c.also[i], c.text[i], c.close[first] = first, i-1, true, i
}

// inside is what a line is that stands in a comment or a string which another opened.
func (c *code) inside(i int, is trait, opened int32) trait {
	c.lead[i], c.text[i] = opened, true
	return is&(isBlank|isMarks) | c.is[opened]&isComment
}

// closes notes that line i closes what an earlier one opened.
func (c *code) closes(from bracket, i int32) {
	if from.line == i {
		return
	}
	if was := c.close[from.line]; was >= 0 && was < i { // it opened two, and the first is closed already
		c.also[i] = was
	}
	c.close[from.line] = i
	if from.char == '(' {
		c.params[from.line] = i
	}
	if t := strings.TrimSpace(c.at(int(i))); c.lead[i] < 0 && hasContent(t) && strings.IndexByte(")]}", t[0]) >= 0 {
		c.lead[i] = from.line // it goes on with what that line began: } else {
	}
}

// nest finds the line that opens the block each line stands in, by indentation: what is formatted
// at all is formatted so, in every language.
func (c *code) nest(d dialect) {
	var stack, directives []int32
	for i, is := range c.is {
		n := int32(i)
		t := strings.TrimSpace(c.at(i))
		switch {
		case c.text[i]:
			c.parent[i] = c.parent[c.lead[i]]
			continue
		case is&isBlank != 0:
			continue
		case d.slash && t[0] == '#' && is&isAttr == 0:
			directives = c.directive(n, t, directives)
			continue
		case isLabel(t):
			continue
		}
		top := len(stack)
		for top > 0 && c.indent[stack[top-1]] >= c.indent[i] {
			top--
		}
		if top > 0 {
			c.parent[i] = stack[top-1]
		}
		if top < len(stack) && c.indent[stack[top]] == c.indent[i] {
			c.sibling(n, is, t, stack[top])
		}
		if is&(isMarks|isComment) == 0 {
			stack = append(stack[:top], n)
		}
	}
}

// sibling ties a line to the one above it that is indented alike: the if of an else, the header of
// a brace that stands alone.
func (c *code) sibling(i int32, is trait, t string, above int32) {
	switch {
	case is&isLinked != 0 && c.lead[i] < 0:
		c.lead[i] = above
	case t == "{" && c.also[above] < 0:
		c.also[above] = i
		c.lead[i] = above
	}
}

// directive ties #else and #endif to their #if.
func (c *code) directive(i int32, t string, open []int32) []int32 {
	word := leadWord(strings.TrimLeft(t[1:], " "))
	if strings.HasPrefix(word, "if") {
		return append(open, i)
	}
	if len(open) == 0 {
		return open
	}
	last := open[len(open)-1]
	switch word {
	case "else", "elif":
		c.lead[i] = last
	case "endif":
		c.lead[i], c.close[last] = last, i
		return open[:len(open)-1]
	}
	return open
}

// isLabel: a name and a colon, to jump to.
func isLabel(t string) bool {
	word := leadWord(t)
	rest, ok := strings.CutPrefix(t[len(word):], ":")
	return ok && word != "" && (rest == "" || strings.HasPrefix(rest, " //")) && !linked[word] && !trivial[word]
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
