package prune

import (
	"strings"
	"unicode/utf8"
)

// dialect is what of a language's spelling matters for reading a text line by line.
type dialect struct {
	hash   bool // # begins a comment
	slash  bool // // and /* begin one
	triple bool // """ and ''' are strings of many lines
	tick   bool // so is `
	holes  bool // which has ${holes} and escapes
	single bool // 'x' is a string, not a character or a lifetime
	multi  bool // "x" may have many lines, and r#"x"# too
}

// The spellings that are told apart. Whatever is none of the others is read like C.
var (
	likeC      = dialect{slash: true, single: true} // and Java
	likeGo     = dialect{slash: true, tick: true}
	likeRust   = dialect{slash: true, multi: true}
	likeJS     = dialect{slash: true, tick: true, holes: true, single: true}
	likePython = dialect{hash: true, triple: true, single: true}
	likeShell  = dialect{hash: true, single: true} // and Ruby
)

// dialectOf guesses from the first lines of a text.
func dialectOf(l lines) dialect {
	votes := map[dialect]int{}
	for i := range min(l.count(), 400) {
		d, n := vote(strings.TrimSpace(l.at(i)))
		votes[d] += n
	}
	best := likeC
	for _, d := range []dialect{likeGo, likeRust, likeJS, likePython, likeShell} {
		if votes[d] > votes[best] {
			best = d
		}
	}
	return best
}

// vote says which spelling a line speaks for, and how loudly.
func vote(t string) (dialect, int) {
	ends := strings.HasSuffix(t, ";")
	switch {
	case t == "":
		return likeC, 0
	case hasAnyPrefix(t, "package "):
		if ends {
			return likeC, 9
		}
		return likeGo, 99 // no other language says this so
	case hasAnyPrefix(t, "#include", "typedef ", "#define ", "#ifdef ", "#ifndef ", "public ", "private ", "protected ", "@Override", "import static"), ends && hasAnyPrefix(t, "import ") && !strings.ContainsAny(t, "\"'"):
		return likeC, 2
	case hasAnyPrefix(t, "fn ", "pub ", "impl", "use ", "let mut ", "#[", "mod ") || strings.Contains(t, "::") && !hasAnyPrefix(t, "using ", "std::"):
		return likeRust, 2
	case hasAnyPrefix(t, "const ", "let ", "var ", "function ", "export ", "async ", "} from ", "import ") && (ends || strings.ContainsAny(t, "{'\"")), strings.Contains(t, "=>"), strings.Contains(t, "require("), strings.Contains(t, "function("), strings.Contains(t, "= function"), strings.Contains(t, "==="), hasAnyPrefix(t, "this."):
		return likeJS, 1
	case hasAnyPrefix(t, "func ", "defer ", "if err ") || strings.Contains(t, ":="):
		return likeGo, 2
	case !ends && strings.HasSuffix(t, ":") && hasAnyPrefix(t, "def ", "class ", "if ", "for ", "elif ", "else", "try", "with ", "except", "while "), !ends && hasAnyPrefix(t, "from ", `"""`, "import ", "def ", "self."):
		return likePython, 2
	case shellWords[t], hasAnyPrefix(t, "#!/bin/", "#!/usr/bin/env", "echo ", "local ", "require '", "elsif "):
		return likeShell, 1
	case ends:
		return likeC, 1
	}
	return likeC, 0
}

var shellWords = set("fi esac done then do end begin ;;")

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// lexer reads code line by line and knows what is open at the end of each: a comment or a string
// of many lines, and brackets.
type lexer struct {
	dialect
	inside string // what ends the comment or string that is open; "" when none is
	opened int32  // the line it began on
	stack  []bracket
}

type bracket struct {
	char byte
	line int32
}

// maxBrackets bounds how deep a text may nest; deeper ones are not matched.
const maxBrackets = 1 << 12

// read takes one line and says of every bracket that closes on it where it was opened.
func (x *lexer) read(n int32, line string, closes func(from bracket)) {
	for at := 0; at < len(line); {
		if x.inside != "" {
			at = x.leave(line, at)
			continue
		}
		switch c := line[at]; c {
		case '(', '[', '{':
			x.push(c, n)
			at++
		case ')', ']', '}':
			x.pop(c, closes)
			at++
		case '"', '\'', '`':
			at = x.quote(n, line, at)
		case '/', '#':
			if x.comment(n, line, at) {
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

// leave finds where the comment or string that is open ends, or has a hole.
func (x *lexer) leave(line string, at int) int {
	if x.inside != `"` && (x.inside != "`" || !x.holes) { // nothing in it means anything but its end
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
		case c == '$' && x.holes && strings.HasPrefix(line[at:], "${"):
			x.inside = ""
			x.push(hole, x.opened)
			return at + 2
		}
	}
	return len(line)
}

// hole stands among brackets for the ${ of a string.
const hole = '$'

func (x *lexer) push(c byte, line int32) {
	if len(x.stack) < maxBrackets {
		x.stack = append(x.stack, bracket{c, line})
	}
}

// pop closes a bracket; those inside that were left open are forgotten.
func (x *lexer) pop(c byte, closes func(from bracket)) {
	open := byte('(')
	if c != ')' {
		open = c - 2 // as ASCII has brackets and braces
	}
	for i := len(x.stack) - 1; i >= max(0, len(x.stack)-8); i-- {
		switch b := x.stack[i]; b.char {
		case open:
			closes(b)
			x.stack = x.stack[:i]
			return
		case hole:
			if c == '}' { // back in the string
				x.stack = x.stack[:i]
				x.inside, x.opened = "`", b.line
			}
			return
		}
	}
}

// comment opens the comment that begins at line[at], and says whether it takes the rest of the line.
func (x *lexer) comment(n int32, line string, at int) bool {
	next := byte(0)
	if at+1 < len(line) {
		next = line[at+1]
	}
	switch {
	case line[at] == '#':
		return x.hash
	case !x.slash:
		return false
	case next == '*':
		x.inside, x.opened = "*/", n
		return false
	}
	return next == '/'
}

// quote skips the string that begins at line[at]; one of many lines stays open.
func (x *lexer) quote(n int32, line string, at int) int {
	c := line[at]
	if end := x.long(line, at); end != "" {
		x.inside, x.opened = end, n
		return at + min(len(end), len(`"""`))
	}
	if c == '`' || c == '\'' && !x.single && !charAt(line[at:]) {
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
	if x.multi && c == '"' {
		x.inside, x.opened = `"`, n
	}
	return len(line) // or it ends with its line
}

// long is what ends the string that begins at line[at], if it may have many lines.
func (x *lexer) long(line string, at int) string {
	switch c := line[at]; {
	case c == '`' && x.tick:
		return "`"
	case c == '"' && x.triple && strings.HasPrefix(line[at:], `"""`):
		return `"""`
	case c == '\'' && x.triple && strings.HasPrefix(line[at:], "'''"):
		return "'''"
	case c == '"' && x.multi && at > 0 && line[at-1] == '#':
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

// rawEnds are the ends of raw strings, by the number of # they begin with.
var rawEnds = [...]string{`"`, `"#`, `"##`, `"###`, `"####`}

// charAt says whether a quote begins a character, and not a lifetime.
func charAt(s string) bool {
	if len(s) > 1 && s[1] == '\\' {
		return true
	}
	_, n := utf8.DecodeRuneInString(s[1:])
	return len(s) > n+1 && s[n+1] == '\''
}
