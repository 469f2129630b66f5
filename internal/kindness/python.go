package main

import "strings"

// indented finds the blocks of a language that indents them, and what its else belongs to.
func (b *bonds) indented() {
	type head struct{ line, indent, last int }
	var stack []head
	inside := b.continued()
	for i, row := range b.rows {
		first := b.first(i)
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
			b.blocks = append(b.blocks, block{h.line, i, i, b.isDef(h.line)})
		}
		if word := b.tokens[first].text; same >= 0 && (word == "else" || word == "elif" || word == "except" || word == "finally") {
			b.linked = append(b.linked, link{i, same})
		}
		stack = append(stack, head{i, in, i})
	}
}

// first is the first token of a line that is neither a comment nor a string; -1 for none.
func (b *bonds) first(line int) int {
	if len(b.looks[line]) == 0 || b.looks[line][0] != '0'+byte(plain) {
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

func (b *bonds) isDef(line int) bool {
	t := strings.TrimSpace(b.rows[line])
	return strings.HasPrefix(t, "def ") || strings.HasPrefix(t, "class ") || strings.HasPrefix(t, "async def ")
}

// continued says which lines stand inside brackets or close them.
func (b *bonds) continued() []bool {
	inside := make([]bool, len(b.rows))
	for _, p := range b.pairs {
		for i := p.open + 1; i <= p.close; i++ {
			inside[i] = true
		}
	}
	return inside
}

// attributes binds attributes to what they are attached to.
func (b *bonds) attributes() {
	end := map[int]int{} // of what a line opens
	for _, p := range b.pairs {
		end[p.open] = max(end[p.open], p.close)
	}
	for i, row := range b.rows {
		if b.looks[i] == "" || !b.isAttribute(strings.TrimSpace(row), i) {
			continue
		}
		to := max(i, end[i]) + 1
		for to < len(b.rows) && strings.Trim(b.looks[to], string('0'+rune(comment))) == "" {
			to++
		}
		if to < len(b.rows) {
			b.attrs = append(b.attrs, link{i, to})
		}
	}
}

// isAttribute says whether a line is an attribute and nothing else.
func (b *bonds) isAttribute(row string, line int) bool {
	switch b.lang {
	case "python":
		return row[0] == '@' && b.looks[line][0] == '0'+byte(plain)
	case "java", "typescript":
		return row[0] == '@' && b.looks[line][0] == '0'+byte(plain) && !strings.HasPrefix(row, "@interface") && !strings.ContainsAny(row, "{;") && (strings.HasSuffix(row, ")") || strings.HasSuffix(row, "(") || !strings.Contains(row, " "))
	case "rust":
		return strings.HasPrefix(row, "#[")
	}
	return false
}
