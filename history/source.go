package history

import (
	"bytes"
	"slices"
)

// statements are words that begin a line of a program and hardly ever one of a message.
var statements = words("raise", "except", "throw", "throws", "catch", "import", "class", "def", "func", "fn", "var", "let", "const",
	"public", "private", "protected", "static", "async", "await", "return", "assert", "elif", "export", "package", "super")

// either are words that begin lines of both; what ends the line decides.
var either = words("if", "for", "while", "with", "from", "use", "case", "switch", "else", "try", "type", "new", "finally")

func words(list ...string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, w := range list {
		set[w] = true
	}
	return set
}

// reads says whether a line reads like a line of a program: a statement, an assignment, a
// comment. Line numbers and the marks of a diff may stand before it.
func reads(line []byte) bool {
	code := bytes.TrimLeft(line, " \t0123456789│|:+->}")
	code = bytes.TrimRight(code, " \t")
	if len(code) == 0 {
		return false
	}
	last := code[len(code)-1]
	closes := bytes.IndexByte([]byte(":;{}(),["), last) >= 0
	word := code
	if i := slices.IndexFunc(code, func(c byte) bool { return !inName(c) }); i >= 0 {
		word = code[:i]
	}
	switch {
	case statements[string(word)] || either[string(word)] && closes:
		return true
	case last == ';' || last == '{' || last == '(':
		return true
	case bytes.HasPrefix(code, []byte("//")) || bytes.HasPrefix(code, []byte("#")) || bytes.HasPrefix(code, []byte("* ")) || code[0] == '@':
		return true
	}
	return slices.ContainsFunc([]string{" = ", " := ", "==", "!=", " => ", "&&", "||"}, func(op string) bool {
		return bytes.Contains(code, []byte(op))
	})
}
