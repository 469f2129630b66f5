package docs

import (
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// classifyLine classifies a line outside of blocks, without the spaces around it.
func classifyLine(line string) docKind {
	switch {
	case line == "":
		return docBlank
	case !hasWord(line):
		return docPunctuation
	case isLinkOnly(line):
		return docLink
	}
	return docText
}

// hasWord reports whether a line has a letter or a digit; any byte beyond ASCII counts as one.
func hasWord(line string) bool {
	for i := 0; i < len(line); i++ {
		if c := line[i]; c >= 0x80 || relevance.IsWordByte[c] && c != '_' {
			return true
		}
	}
	return false
}

// isLinkOnly reports whether a line is only a link or an anchor: "[name]: url", ".. _name: url", "<a id=…>",
// "[![badge](image)](url)", "- [Chapter](#chapter)".
func isLinkOnly(line string) bool {
	switch line[0] {
	case '.':
		return strings.HasPrefix(line, ".. _")
	case '<':
		return strings.HasPrefix(line, "<a id=") || strings.HasPrefix(line, "<a name=")
	case '[':
		return strings.HasPrefix(line, "[![") || isLinkDefinition(line)
	case '-', '*', '+':
		to := strings.Index(line, "](#")
		return to > 0 && strings.HasPrefix(line[1:], " [") && strings.IndexByte(line[to:], ')') == len(line)-to-1
	}
	return false
}

// isLinkDefinition reports whether a line is "[name]: url", with a title or not. "[^1]: text" is a footnote.
func isLinkDefinition(line string) bool {
	end := strings.Index(line, "]:")
	if end < 2 || line[1] == '^' {
		return false
	}
	_, title, _ := strings.Cut(strings.TrimSpace(line[end+2:]), " ")
	return title == "" || strings.IndexByte("\"'(", title[0]) >= 0
}

// isTableRule reports whether a line separates the head of a Markdown table from its rows.
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

// isListItem reports whether a line is an item of a list: "- a", "* a", "+ a", "1. a", "1) a".
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

// LooksLikeMarkup reports whether a line, without the spaces around it, is a heading, a list item, a
// quotation, a fence or a directive.
func LooksLikeMarkup(t string) bool {
	return relevance.HasAnyPrefix(t, "# ", "## ", "### ", "#### ", "- ", "* ", "> ", "```", ".. ", "| ", "![", ":::") && !strings.HasSuffix(t, ";") && !strings.HasSuffix(t, "*/")
}

// LooksLikeProse reports whether a line, without the spaces around it, has many words and few of the
// signs that code is made of.
func LooksLikeProse(t string) bool {
	words, signs := 0, 0
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case ' ':
			words++
		case '{', '}', ';', '=', '<', '>', '(', ')', '[', ']', '_', '/', '|', '$', '&':
			signs++
		}
	}
	c := t[0]
	starts := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80 || c == '`'
	return starts && words >= 5 && signs*6 <= words || startsUnspaced(t)
}

// startsUnspaced reports whether a text begins in a script without spaces.
func startsUnspaced(t string) bool {
	for _, r := range t {
		return relevance.IsUnspaced(r)
	}
	return false
}
