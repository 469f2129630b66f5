package prune

import "strings"

// docKindOf is what a line outside of all blocks is by its looks, without the spaces around it.
func docKindOf(line string) docKind {
	switch {
	case line == "":
		return docBlank
	case !hasWord(line):
		return docBare
	case isAside(line):
		return docAside
	}
	return docText
}

// hasWord says whether a line has any letter or digit. All beyond ASCII may be one.
func hasWord(line string) bool {
	for i := 0; i < len(line); i++ {
		if c := line[i]; c >= 0x80 || isWordByte[c] && c != '_' {
			return true
		}
	}
	return false
}

// isAside says whether a line only leads elsewhere: "[name]: url", ".. _name: url", "<a id=…>",
// "[![badge](image)](url)", "- [Chapter](#chapter)".
func isAside(line string) bool {
	switch line[0] {
	case '.':
		return strings.HasPrefix(line, ".. _")
	case '<':
		return strings.HasPrefix(line, "<a id=") || strings.HasPrefix(line, "<a name=")
	case '[':
		return strings.HasPrefix(line, "[![") || isAddress(line)
	case '-', '*', '+':
		to := strings.Index(line, "](#")
		return to > 0 && strings.HasPrefix(line[1:], " [") && strings.IndexByte(line[to:], ')') == len(line)-to-1
	}
	return false
}

// isAddress says whether a line is "[name]: url", with a title or not. "[^1]: text" is a footnote.
func isAddress(line string) bool {
	end := strings.Index(line, "]:")
	if end < 2 || line[1] == '^' {
		return false
	}
	_, title, _ := strings.Cut(strings.TrimSpace(line[end+2:]), " ")
	return title == "" || strings.IndexByte("\"'(", title[0]) >= 0
}

// isTableRule says whether a line parts the head of a Markdown table from its rows.
func isTableRule(line string) bool {
	dashes, bars := false, false
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '-':
			dashes = true
		case '|':
			bars = true
		case ':', ' ', '\t':
		default:
			return false
		}
	}
	return dashes && bars
}

// isListItem says whether a line is an item of a list: "- a", "* a", "+ a", "1. a", "1) a".
func isListItem(line string) bool {
	at := 0
	for at < len(line) && isDigit(line[at]) {
		at++
	}
	switch {
	case at == len(line):
		return false
	case at == 0 && strings.IndexByte("-*+", line[0]) < 0, at > 0 && line[at] != '.' && line[at] != ')':
		return false
	}
	return at+1 < len(line) && (line[at+1] == ' ' || line[at+1] == '\t')
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
