package main

import (
	"strings"
)

// bonds are what belongs together in a text. Lines are counted from 0.
type bonds struct {
	*source
	lang    string
	outline []bool  // the lines that stay whatever the budget
	pairs   []pair  // brackets that stand on different lines
	linked  []link  // else and its if, case and its switch
	attrs   []link  // an attribute and what it is attached to
	blocks  []block // what has a header and a body
	tests   []pair  // #if and #endif
}

// pair is what opens something, and what closes it.
type pair struct {
	open, close int
	char        byte
}

// link is a line that makes no sense without another.
type link struct{ line, needs int }

// block is a run of lines under a header.
type block struct {
	head        int
	first, last int // of the body
	def         bool
}

// opener is a bracket that is open.
type opener struct {
	at, line int // token, line
	char     byte
}

func bind(lang string, s *source) *bonds {
	b := &bonds{source: s, lang: lang}
	b.brackets()
	if lang == "python" {
		b.indented()
	}
	b.attributes()
	if lang == "c" {
		b.directives()
	}
	return b
}

var opens = map[byte]byte{')': '(', ']': '[', '}': '{'}

// brackets matches brackets, and finds what their blocks are headed by.
func (b *bonds) brackets() {
	var stack []opener
	start := 0                 // the token that the statement begins with
	closed := map[int]opener{} // by the token that closes
	for i, t := range b.tokens {
		if t.class != plain {
			continue
		}
		if b.lang != "python" {
			b.link(i, stack, closed)
		}
		for k := range len(t.text) {
			switch c := t.text[k]; c {
			case '(', '[', '{':
				stack = append(stack, opener{i, t.line, c})
				if c == '{' && b.lang != "python" {
					b.head(start, i)
				}
			case ')', ']', '}':
				stack = b.closeBracket(stack, i, c, closed)
			}
			if c := t.text[k]; c == '{' || c == '}' || c == ';' {
				start = i + 1
			}
		}
	}
}

// closeBracket ends the innermost bracket of a kind; what is open inside of it was never closed.
func (b *bonds) closeBracket(stack []opener, i int, c byte, closed map[int]opener) []opener {
	line := b.tokens[i].line
	for k := len(stack) - 1; k >= 0; k-- {
		o := stack[k]
		if o.char != opens[c] {
			continue
		}
		closed[i] = o
		if o.line < line {
			b.pairs = append(b.pairs, pair{o.line, line, c})
			for n := range b.blocks {
				if b.blocks[n].first == -o.at-1 {
					b.blocks[n].first, b.blocks[n].last = o.line+1, line-1
				}
			}
		}
		return stack[:k]
	}
	return stack
}

var (
	control = words("if else for while switch do try catch finally match loop return unsafe select go defer with synchronized case default await throw new")
	defs    = words("func fn function class struct enum interface trait impl union namespace type mod record")
	chained = words("else catch finally")
)

func words(s string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(s) {
		out[w] = true
	}
	return out
}

// head remembers the block that token i opens, whose header began with token start.
func (b *bonds) head(start, i int) {
	blk := block{head: b.tokens[i].line, first: -i - 1, last: -1}
	name := -1
	for k := start; k < i; k++ {
		t := b.tokens[k]
		if t.class != plain {
			continue
		}
		if defs[t.text] && !strings.HasSuffix(b.tokens[max(k-1, 0)].text, ".") {
			blk.def, blk.head = true, t.line
			break
		}
		if strings.HasPrefix(t.text, "(") && name < 0 && k > start {
			name = k - 1
		}
	}
	if !blk.def && name >= 0 && isName(b.tokens[name].text) && !b.controlled(start, i) {
		blk.def, blk.head = b.lang != "go" && b.lang != "rust", b.tokens[name].line
	}
	b.blocks = append(b.blocks, blk)
}

func (b *bonds) controlled(start, i int) bool {
	for k := start; k < i; k++ {
		if control[b.tokens[k].text] || strings.Contains(b.tokens[k].text, "=") {
			return true
		}
	}
	return false
}

func isName(s string) bool {
	return s != "" && (s[0] == '_' || s[0] == '$' || s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z') && !control[s]
}

// link binds the words that go on with what stands above them.
func (b *bonds) link(i int, stack []opener, closed map[int]opener) {
	t := b.tokens[i]
	first := i == 0 || b.tokens[i-1].line < t.line
	switch {
	case chained[t.text]:
		for k := i - 1; k >= 0; k-- { // comments may stand between
			if b.tokens[k].class == comment {
				continue
			}
			if o, ok := closed[k]; ok && o.line < t.line {
				b.linked = append(b.linked, link{t.line, o.line})
			}
			return
		}
	case (t.text == "case" || t.text == "default" && b.lang != "rust") && first && len(stack) > 0 && b.label(i):
		b.linked = append(b.linked, link{t.line, stack[len(stack)-1].line})
	}
}

// label says whether a word is followed by a colon on its line.
func (b *bonds) label(i int) bool {
	for k := i + 1; k < len(b.tokens) && b.tokens[k].line == b.tokens[i].line; k++ {
		if strings.HasPrefix(b.tokens[k].text, ":") {
			return true
		}
	}
	return false
}

// directives matches #if with #endif.
func (b *bonds) directives() {
	var stack []int
	for i, row := range b.rows {
		if b.looks[i] == "" || b.looks[i][0] != '0'+byte(comment) && b.looks[i][0] != '0'+byte(plain) {
			continue
		}
		word := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(row), "#"))
		switch {
		case !strings.HasPrefix(strings.TrimSpace(row), "#"):
		case strings.HasPrefix(word, "if"):
			stack = append(stack, i)
		case strings.HasPrefix(word, "endif") && len(stack) > 0:
			b.tests = append(b.tests, pair{stack[len(stack)-1], i, '#'})
			stack = stack[:len(stack)-1]
		case strings.HasPrefix(word, "el") && len(stack) > 0:
			b.linked = append(b.linked, link{i, stack[len(stack)-1]})
		}
	}
}
