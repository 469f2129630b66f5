package code

import (
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// Dialect is the lexical rules of a family of languages: comments and strings.
type Dialect struct {
	hashComments    bool // # begins a comment
	slashComments   bool // // and /* begin one
	tripleQuotes    bool // """ and ''' are multi-line strings
	backquotes      bool // so is `…`
	templateHoles   bool // which has ${expressions} and escapes
	singleQuotes    bool // 'x' is a string, not a character or a lifetime
	multilineQuotes bool // "x" and r#"x"# may span lines
}

// The dialects; C is the default.
var (
	likeC      = Dialect{slashComments: true, singleQuotes: true} // and Java
	likeGo     = Dialect{slashComments: true, backquotes: true}
	likeRust   = Dialect{slashComments: true, multilineQuotes: true}
	likeJS     = Dialect{slashComments: true, backquotes: true, templateHoles: true, singleQuotes: true}
	likePython = Dialect{hashComments: true, tripleQuotes: true, singleQuotes: true}
	likeShell  = Dialect{hashComments: true, singleQuotes: true} // and Ruby
)

// DetectDialect guesses the dialect of a text from its first 400 lines.
func DetectDialect(l relevance.Lines) Dialect {
	votes := map[Dialect]int{}
	for i := range min(l.Count(), 400) {
		d, n := dialectVote(strings.TrimSpace(l.At(i)))
		votes[d] += n
	}
	best := likeC
	for _, d := range []Dialect{likeGo, likeRust, likeJS, likePython, likeShell} {
		if votes[d] > votes[best] {
			best = d
		}
	}
	return best
}

// dialectVote returns the dialect that a line points to, and how strongly.
func dialectVote(t string) (Dialect, int) {
	ends := strings.HasSuffix(t, ";")
	switch {
	case t == "":
		return likeC, 0
	case relevance.HasAnyPrefix(t, "package "):
		if ends {
			return likeC, 9
		}
		return likeGo, 99 // no other language has this
	case relevance.HasAnyPrefix(t, "#include", "typedef ", "#define ", "#ifdef ", "#ifndef ", "public ", "private ", "protected ", "@Override", "import static"), ends && relevance.HasAnyPrefix(t, "import ") && !strings.ContainsAny(t, "\"'"):
		return likeC, 2
	case relevance.HasAnyPrefix(t, "fn ", "pub ", "impl", "use ", "let mut ", "#[", "mod ") || strings.Contains(t, "::") && !relevance.HasAnyPrefix(t, "using ", "std::"):
		return likeRust, 2
	case relevance.HasAnyPrefix(t, "const ", "let ", "var ", "function ", "export ", "async ", "} from ", "import ") && (ends || strings.ContainsAny(t, "{'\"")), strings.Contains(t, "=>"), strings.Contains(t, "require("), strings.Contains(t, "function("), strings.Contains(t, "= function"), strings.Contains(t, "==="), relevance.HasAnyPrefix(t, "this."):
		return likeJS, 1
	case relevance.HasAnyPrefix(t, "func ", "defer ", "if err ") || strings.Contains(t, ":="):
		return likeGo, 2
	case !ends && strings.HasSuffix(t, ":") && relevance.HasAnyPrefix(t, "def ", "class ", "if ", "for ", "elif ", "else", "try", "with ", "except", "while "), !ends && relevance.HasAnyPrefix(t, "from ", `"""`, "import ", "def ", "self."):
		return likePython, 2
	case shellWords[t], relevance.HasAnyPrefix(t, "#!/bin/", "#!/usr/bin/env", "echo ", "local ", "require '", "elsif "):
		return likeShell, 1
	case ends:
		return likeC, 1
	}
	return likeC, 0
}

var shellWords = relevance.WordSet("fi esac done then do end begin ;;")

// lexer reads code line by line and tracks what is open at the end of each: a multi-line comment or
// string, and brackets.
type lexer struct {
	Dialect
	inside string // what ends the open comment or string; "" for none
	opened int32  // the line it began on
	stack  []bracket
}

type bracket struct {
	char byte
	line int32
}

// maxBrackets bounds the nesting; deeper brackets are not matched.
const maxBrackets = 1 << 12

// scanLine reads line n and calls closes for every bracket that closes on it.
func (x *lexer) scanLine(n int32, line string, closes func(from bracket)) {
	for at := 0; at < len(line); {
		if x.inside != "" {
			at = x.skipOpen(line, at)
			continue
		}
		switch c := line[at]; c {
		case '(', '[', '{':
			x.pushBracket(c, n)
			at++
		case ')', ']', '}':
			x.popBracket(c, closes)
			at++
		case '"', '\'', '`':
			at = x.skipQuote(n, line, at)
		case '/', '#':
			if x.startComment(n, line, at) {
				return
			}
			at++
			if x.inside != "" {
				at++
			}
		default:
			at++
		}
	}
}

// skipOpen returns where the open comment or string ends, or where an expression in it begins.
func (x *lexer) skipOpen(line string, at int) int {
	if x.inside != `"` && (x.inside != "`" || !x.templateHoles) { // no escapes in it
		end := strings.Index(line[at:], x.inside)
		if end < 0 {
			return len(line)
		}
		at += end + len(x.inside)
		x.inside = ""
		return at
	}
	for ; at < len(line); at++ {
		switch c := line[at]; {
		case c == '\\':
			at++
		case c == x.inside[0]:
			x.inside = ""
			return at + 1
		case c == '$' && x.templateHoles && strings.HasPrefix(line[at:], "${"):
			x.inside = ""
			x.pushBracket(templateHole, x.opened)
			return at + 2
		}
	}
	return len(line)
}

// templateHole stands for the ${ of a template string on the stack of brackets.
const templateHole = '$'

func (x *lexer) pushBracket(c byte, line int32) {
	if len(x.stack) < maxBrackets {
		x.stack = append(x.stack, bracket{c, line})
	}
}

// popBracket closes a bracket and drops those inside it that were left open.
func (x *lexer) popBracket(c byte, closes func(from bracket)) {
	open := byte('(')
	if c != ')' {
		open = c - 2 // ASCII has [\\] and {|}
	}
	for i := len(x.stack) - 1; i >= max(0, len(x.stack)-8); i-- {
		switch b := x.stack[i]; b.char {
		case open:
			closes(b)
			x.stack = x.stack[:i]
			return
		case templateHole:
			if c == '}' { // back in the string
				x.stack = x.stack[:i]
				x.inside, x.opened = "`", b.line
			}
			return
		}
	}
}

// startComment opens a comment that may begin at line[at]; true if it takes the rest of the line.
func (x *lexer) startComment(n int32, line string, at int) bool {
	next := byte(0)
	if at+1 < len(line) {
		next = line[at+1]
	}
	switch {
	case line[at] == '#':
		return x.hashComments
	case !x.slashComments:
		return false
	case next == '*':
		x.inside, x.opened = "*/", n
		return false
	}
	return next == '/'
}

// skipQuote skips the string that begins at line[at]; a multi-line one stays open.
func (x *lexer) skipQuote(n int32, line string, at int) int {
	c := line[at]
	if end := x.multilineEnd(line, at); end != "" {
		x.inside, x.opened = end, n
		return at + min(len(end), len(`"""`))
	}
	if c == '`' || c == '\'' && !x.singleQuotes && !isCharLiteral(line[at:]) {
		return at + 1
	}
	for i := at + 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case c:
			return i + 1
		}
	}
	if x.multilineQuotes && c == '"' {
		x.inside, x.opened = `"`, n
	}
	return len(line) // an unterminated string ends with its line
}

// multilineEnd returns what ends the string that begins at line[at], or "" if it cannot span lines.
func (x *lexer) multilineEnd(line string, at int) string {
	switch c := line[at]; {
	case c == '`' && x.backquotes:
		return "`"
	case c == '"' && x.tripleQuotes && strings.HasPrefix(line[at:], `"""`):
		return `"""`
	case c == '\'' && x.tripleQuotes && strings.HasPrefix(line[at:], "'''"):
		return "'''"
	case c == '"' && x.multilineQuotes && at > 0 && line[at-1] == '#':
		start := at
		for start > 0 && line[start-1] == '#' {
			start--
		}
		if start > 0 && line[start-1] == 'r' {
			return rawEnds[min(at-start, len(rawEnds)-1)]
		}
	}
	return ""
}

// rawEnds are the ends of Rust's raw strings, by the number of # they begin with.
var rawEnds = [...]string{`"`, `"#`, `"##`, `"###`, `"####`}

// isCharLiteral reports whether a quote begins a character, and not a lifetime.
func isCharLiteral(s string) bool {
	if len(s) > 1 && s[1] == '\\' {
		return true
	}
	_, n := utf8.DecodeRuneInString(s[1:])
	return len(s) > n+1 && s[n+1] == '\''
}
