package main

import (
	"strings"
)

// syntaxLinks are the lines of a text that belong together. Lines are counted from 0.
type syntaxLinks struct {
	*tokenizedText
	lang         string
	isOutline    []bool  // lines that every budget keeps
	pairs        []pair  // brackets on different lines
	dependents   []link  // else and its if, case and its switch
	attributes   []link  // an attribute and its declaration
	blocks       []block // headers with a body
	conditionals []pair  // #if and #endif
}

// pair is an opening and a closing line.
type pair struct {
	open, close int
	char        byte
}

// link is a line that needs another.
type link struct{ line, needs int }

// block is a header with its body.
type block struct {
	head         int
	first, last  int // of the body
	isDefinition bool
}

// opener is an open bracket.
type opener struct {
	at, line int // token, line
	char     byte
}

func findLinks(lang string, s *tokenizedText) *syntaxLinks {
	b := &syntaxLinks{tokenizedText: s, lang: lang}
	b.matchBrackets()
	if lang == "python" {
		b.matchIndentation()
	}
	b.linkAttributes()
	if lang == "c" {
		b.matchDirectives()
	}
	return b
}

var opens = map[byte]byte{')': '(', ']': '[', '}': '{'}

// matchBrackets matches brackets and finds the headers of their blocks.
func (b *syntaxLinks) matchBrackets() {
	var stack []opener
	start := 0                 // first token of the statement
	closed := map[int]opener{} // by the closing token
	for i, t := range b.tokens {
		if t.tokenClass != plain {
			continue
		}
		if b.lang != "python" {
			b.linkContinuation(i, stack, closed)
		}
		for k := range len(t.text) {
			switch c := t.text[k]; c {
			case '(', '[', '{':
				stack = append(stack, opener{i, t.line, c})
				if c == '{' && b.lang != "python" {
					b.addBlock(start, i)
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

// closeBracket closes the innermost bracket of a kind; brackets inside of it stay unclosed.
func (b *syntaxLinks) closeBracket(stack []opener, i int, c byte, closed map[int]opener) []opener {
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
	controlWords      = wordSet("if else for while switch do try catch finally match loop return unsafe select go defer with synchronized case default await throw new")
	definitionWords   = wordSet("func fn function class struct enum interface trait impl union namespace type mod record")
	continuationWords = wordSet("else catch finally")
)

func wordSet(s string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(s) {
		out[w] = true
	}
	return out
}

// addBlock adds the block that token i opens; its header begins with token start.
func (b *syntaxLinks) addBlock(start, i int) {
	blk := block{head: b.tokens[i].line, first: -i - 1, last: -1}
	name := -1
	for k := start; k < i; k++ {
		t := b.tokens[k]
		if t.tokenClass != plain {
			continue
		}
		if definitionWords[t.text] && !strings.HasSuffix(b.tokens[max(k-1, 0)].text, ".") {
			blk.isDefinition, blk.head = true, t.line
			break
		}
		if strings.HasPrefix(t.text, "(") && name < 0 && k > start {
			name = k - 1
		}
	}
	if !blk.isDefinition && name >= 0 && isName(b.tokens[name].text) && !b.hasControlWord(start, i) {
		blk.isDefinition, blk.head = b.lang != "go" && b.lang != "rust", b.tokens[name].line
	}
	b.blocks = append(b.blocks, blk)
}

func (b *syntaxLinks) hasControlWord(start, i int) bool {
	for k := start; k < i; k++ {
		if controlWords[b.tokens[k].text] || strings.Contains(b.tokens[k].text, "=") {
			return true
		}
	}
	return false
}

func isName(s string) bool {
	return s != "" && (s[0] == '_' || s[0] == '$' || s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z') && !controlWords[s]
}

// linkContinuation links else, case and the like to the statement that they continue.
func (b *syntaxLinks) linkContinuation(i int, stack []opener, closed map[int]opener) {
	t := b.tokens[i]
	first := i == 0 || b.tokens[i-1].line < t.line
	switch {
	case continuationWords[t.text]:
		for k := i - 1; k >= 0; k-- { // skip comments
			if b.tokens[k].tokenClass == comment {
				continue
			}
			if o, ok := closed[k]; ok && o.line < t.line {
				b.dependents = append(b.dependents, link{t.line, o.line})
			}
			return
		}
	case (t.text == "case" || t.text == "default" && b.lang != "rust") && first && len(stack) > 0 && b.isLabel(i):
		b.dependents = append(b.dependents, link{t.line, stack[len(stack)-1].line})
	}
}

// isLabel reports whether a colon follows on the same line.
func (b *syntaxLinks) isLabel(i int) bool {
	for k := i + 1; k < len(b.tokens) && b.tokens[k].line == b.tokens[i].line; k++ {
		if strings.HasPrefix(b.tokens[k].text, ":") {
			return true
		}
	}
	return false
}

// matchDirectives pairs #if with #endif.
func (b *syntaxLinks) matchDirectives() {
	var stack []int
	for i, row := range b.lines {
		if b.lineClasses[i] == "" || b.lineClasses[i][0] != '0'+byte(comment) && b.lineClasses[i][0] != '0'+byte(plain) {
			continue
		}
		word := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(row), "#"))
		switch {
		case !strings.HasPrefix(strings.TrimSpace(row), "#"):
		case strings.HasPrefix(word, "if"):
			stack = append(stack, i)
		case strings.HasPrefix(word, "endif") && len(stack) > 0:
			b.conditionals = append(b.conditionals, pair{stack[len(stack)-1], i, '#'})
			stack = stack[:len(stack)-1]
		case strings.HasPrefix(word, "el") && len(stack) > 0:
			b.dependents = append(b.dependents, link{i, stack[len(stack)-1]})
		}
	}
}
