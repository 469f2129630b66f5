package main

import "strings"

// matchIndentation finds indented blocks, and links else to its statement.
func (b *syntaxLinks) matchIndentation() {
	type head struct{ line, indent, last int }
	var stack []head
	inside := b.insideBrackets()
	for i, row := range b.lines {
		first := b.firstToken(i)
		if first < 0 || inside[i] {
			continue
		}
		in := len(row) - len(strings.TrimLeft(row, " \t"))
		same := -1
		for len(stack) > 0 && stack[len(stack)-1].indent >= in {
			if h := stack[len(stack)-1]; h.indent == in {
				same = h.line
			}
			stack = stack[:len(stack)-1]
		}
		for _, h := range stack {
			b.blocks = append(b.blocks, block{h.line, i, i, b.isDefinition(h.line)})
		}
		if word := b.tokens[first].text; same >= 0 && (word == "else" || word == "elif" || word == "except" || word == "finally") {
			b.dependents = append(b.dependents, link{i, same})
		}
		stack = append(stack, head{i, in, i})
	}
}

// firstToken returns the first token of a line that begins with code, or -1.
func (b *syntaxLinks) firstToken(line int) int {
	if len(b.lineClasses[line]) == 0 || b.lineClasses[line][0] != '0'+byte(plain) {
		return -1
	}
	lo, hi := 0, len(b.tokens)
	for lo < hi {
		if mid := (lo + hi) / 2; b.tokens[mid].line < line {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(b.tokens) || b.tokens[lo].line != line {
		return -1
	}
	return lo
}

func (b *syntaxLinks) isDefinition(line int) bool {
	t := strings.TrimSpace(b.lines[line])
	return strings.HasPrefix(t, "def ") || strings.HasPrefix(t, "class ") || strings.HasPrefix(t, "async def ")
}

// insideBrackets reports which lines are inside brackets or close them.
func (b *syntaxLinks) insideBrackets() []bool {
	inside := make([]bool, len(b.lines))
	for _, p := range b.pairs {
		for i := p.open + 1; i <= p.close; i++ {
			inside[i] = true
		}
	}
	return inside
}

// linkAttributes links attributes to their declarations.
func (b *syntaxLinks) linkAttributes() {
	end := map[int]int{} // line that closes what a line opens
	for _, p := range b.pairs {
		end[p.open] = max(end[p.open], p.close)
	}
	for i, row := range b.lines {
		if b.lineClasses[i] == "" || !b.isAttribute(strings.TrimSpace(row), i) {
			continue
		}
		to := max(i, end[i]) + 1
		for to < len(b.lines) && strings.Trim(b.lineClasses[to], string('0'+rune(comment))) == "" {
			to++
		}
		if to < len(b.lines) {
			b.attributes = append(b.attributes, link{i, to})
		}
	}
}

// isAttribute reports whether a line is only an attribute.
func (b *syntaxLinks) isAttribute(row string, line int) bool {
	switch b.lang {
	case "python":
		return row[0] == '@' && b.lineClasses[line][0] == '0'+byte(plain)
	case "java", "typescript":
		return row[0] == '@' && b.lineClasses[line][0] == '0'+byte(plain) && !strings.HasPrefix(row, "@interface") && !strings.ContainsAny(row, "{;") && (strings.HasSuffix(row, ")") || strings.HasSuffix(row, "(") || !strings.Contains(row, " "))
	case "rust":
		return strings.HasPrefix(row, "#[")
	}
	return false
}
