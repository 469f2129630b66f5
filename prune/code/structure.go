package code

import (
	"math"
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// Structure says what each line of code is and which lines belong together. A -1 means none.
type Structure struct {
	relevance.Lines
	traits      []trait
	isContinued []bool // inside a comment, string or directive that began on an earlier line
	indents     []uint16
	parent      []int32 // the line that opens the enclosing block
	leader      []int32 // of else, catch, case: the previous line of the chain; inside a multi-line comment or string: its first line
	closer      []int32 // the line that closes what a line opens
	companion   []int32 // one more line that a line needs: the brace below a header, an earlier end of what it closes
	paramsEnd   []int32 // the line that closes the parenthesis a line leaves open
	unit        []int32 // the definition a line belongs to, with the comment above it; counted from 0
	unitHead    []int32 // the line of each unit's definition; -1 for what comes before the first
	stanza      []int32 // the run of lines between blank lines, counted from 0
	titleLines  int32   // length of the comment that opens the file
}

// Parse reads a text as code.
func Parse(l relevance.Lines) *Structure {
	n := l.Count()
	c := &Structure{
		Lines: l, traits: make([]trait, n), isContinued: make([]bool, n), indents: make([]uint16, n),
		parent: filled(n, -1), leader: filled(n, -1), closer: filled(n, -1), companion: filled(n, -1), paramsEnd: filled(n, -1),
		unit: make([]int32, n), stanza: make([]int32, n),
	}
	d := DetectDialect(l)
	c.classifyLines(d)
	c.findParents(d)
	c.splitUnits()
	return c
}

func filled(n int, v int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// classifyLines finds the traits of lines and the comments, strings and brackets that span them.
func (c *Structure) classifyLines(d Dialect) {
	x := lexer{Dialect: d}
	importing := int32(-1) // the line that opened a multi-line import; -1 for none
	for i := range c.traits {
		line := c.At(i)
		c.indents[i] = uint16(min(relevance.Indent(line), math.MaxUint16))
		depth := len(x.stack)
		is := traitsOf(line, x.Dialect)
		if x.inside != "" {
			is = c.traitsInside(i, is, x.opened)
		}
		if i > 0 && c.leader[i] < 0 && strings.HasSuffix(c.At(i-1), `\`) && d.slashComments {
			c.joinToAbove(int32(i))
		}
		x.scanLine(int32(i), line, func(from bracket) { c.recordClose(from, int32(i)) })
		if open := c.leader[i]; c.isContinued[i] && (x.inside == "" || x.opened != open) {
			c.closer[open] = max(c.closer[open], int32(i))
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
		c.traits[i] = is
	}
}

// joinToAbove joins a line to the one above it, which ends in a backslash.
func (c *Structure) joinToAbove(i int32) {
	first := i - 1
	if c.isContinued[first] {
		first = c.leader[first]
	}
	c.leader[i], c.companion[i], c.isContinued[i], c.closer[first] = first, i-1, true, i
}

// traitsInside records that line i is inside a comment or string, and returns its traits.
func (c *Structure) traitsInside(i int, is trait, opened int32) trait {
	c.leader[i], c.isContinued[i] = opened, true
	return is&(isBlank|isPunctuation) | c.traits[opened]&isComment
}

// recordClose records that line i closes a bracket of an earlier line.
func (c *Structure) recordClose(from bracket, i int32) {
	if from.line == i {
		return
	}
	if was := c.closer[from.line]; was >= 0 && was < i { // it opened two brackets; the first is closed already
		c.companion[i] = was
	}
	c.closer[from.line] = i
	if from.char == '(' {
		c.paramsEnd[from.line] = i
	}
	if t := strings.TrimSpace(c.At(int(i))); c.leader[i] < 0 && hasLetterOrDigit(t) && strings.IndexByte(")]}", t[0]) >= 0 {
		c.leader[i] = from.line // } else {
	}
}

// findParents finds the enclosing block of each line by indentation, which all languages share.
func (c *Structure) findParents(d Dialect) {
	var stack, directives []int32
	for i, is := range c.traits {
		n := int32(i)
		t := strings.TrimSpace(c.At(i))
		switch {
		case c.isContinued[i]:
			c.parent[i] = c.parent[c.leader[i]]
			continue
		case is&isBlank != 0:
			continue
		case d.slashComments && t[0] == '#' && is&isAttr == 0:
			directives = c.linkDirective(n, t, directives)
			continue
		case isLabel(t):
			continue
		}
		top := len(stack)
		for top > 0 && c.indents[stack[top-1]] >= c.indents[i] {
			top--
		}
		if top > 0 {
			c.parent[i] = stack[top-1]
		}
		if top < len(stack) && c.indents[stack[top]] == c.indents[i] {
			c.linkSibling(n, is, t, stack[top])
		}
		if is&(isPunctuation|isComment) == 0 {
			stack = append(stack[:top], n)
		}
	}
}

// linkSibling links a line to the one above it with the same indentation: an else to its if, a brace
// on its own line to its header.
func (c *Structure) linkSibling(i int32, is trait, t string, above int32) {
	switch {
	case is&isLinked != 0 && c.leader[i] < 0:
		c.leader[i] = above
	case t == "{" && c.companion[above] < 0:
		c.companion[above] = i
		c.leader[i] = above
	}
}

// linkDirective links #else and #endif to their #if, and returns the #ifs that are still open.
func (c *Structure) linkDirective(i int32, t string, open []int32) []int32 {
	word := firstName(strings.TrimLeft(t[1:], " "))
	if strings.HasPrefix(word, "if") {
		return append(open, i)
	}
	if len(open) == 0 {
		return open
	}
	last := open[len(open)-1]
	switch word {
	case "else", "elif":
		c.leader[i] = last
	case "endif":
		c.leader[i], c.closer[last] = last, i
		return open[:len(open)-1]
	}
	return open
}

// isLabel reports whether a line is the target of a goto: a name and a colon.
func isLabel(t string) bool {
	word := firstName(t)
	rest, ok := strings.CutPrefix(t[len(word):], ":")
	return ok && word != "" && (rest == "" || strings.HasPrefix(rest, " //")) && !linkedWords[word] && !trivialWords[word]
}

// splitUnits assigns lines to units and stanzas, and measures the opening comment.
func (c *Structure) splitUnits() {
	starts := c.unitStarts()
	unit, stanza := int32(-1), int32(0)
	for i, is := range c.traits {
		if starts[i] >= 0 || i == 0 {
			unit++
			c.unitHead = append(c.unitHead, starts[i])
		}
		if i > 0 && (is&isBlank != 0 && c.traits[i-1]&isBlank == 0 || starts[i] >= 0) {
			stanza++
		}
		c.unit[i], c.stanza[i] = unit, stanza
	}
	for c.titleLines < int32(len(c.traits)) && c.traits[c.titleLines]&isComment != 0 {
		c.titleLines++
	}
}

// unitStarts returns for each line the definition whose unit begins there, or -1. Comments and
// attributes right above a definition belong to its unit.
func (c *Structure) unitStarts() []int32 {
	starts := filled(len(c.traits), -1)
	for i, is := range c.traits {
		if is&isDef == 0 {
			continue
		}
		first := i
		for first > 0 && c.traits[first-1]&(isComment|isAttr) != 0 && c.traits[first-1]&isBlank == 0 {
			first--
		}
		starts[first] = int32(i)
	}
	return starts
}

// MustKeep returns the lines that stay whatever the budget (P8): imports, definitions with their
// parameters and all they are nested in, and the beginning and end of the comment that opens the file.
func (c *Structure) MustKeep() []bool {
	must := make([]bool, len(c.traits))
	for i, is := range c.traits {
		switch {
		case is&isImport != 0:
			must[i] = true
		case is&isDef != 0:
			must[i] = true
			// Definitions come in order: where an enclosing line is kept already, so are those around it.
			for p, known := c.parent[i], false; p >= 0 && !known; p = c.parent[p] {
				if end := c.closer[p]; end >= 0 {
					must[end] = true
				}
				known, must[p] = must[p], true
			}
			for j := i + 1; j <= int(min(c.paramsEnd[i], int32(i+maxParams))); j++ {
				must[j] = true
			}
		}
	}
	for i := range min(c.titleLines, maxOpening) {
		must[i] = true
	}
	if c.titleLines > 0 { // so that the comment is closed
		must[c.titleLines-1] = true
	}
	return must
}

const (
	maxParams  = 40 // lines of parameters kept with a definition
	maxOpening = 5  // lines kept of the comment that opens a file: licences are long
)

// Requires appends the lines that line i cannot be read without: the line that opens its block and
// the one that closes it, the if of its else, both ends of the comment or string it is part of, and
// what an attribute is attached to.
func (c *Structure) Requires(i int32, todo []int32) []int32 {
	for _, j := range [...]int32{c.parent[i], c.leader[i], c.closer[i], c.companion[i]} {
		if j >= 0 {
			todo = append(todo, j)
		}
	}
	if c.traits[i]&isAttr != 0 && int(i)+1 < len(c.traits) {
		todo = append(todo, i+1)
	}
	return todo
}
