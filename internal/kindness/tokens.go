package main

import (
	"fmt"
	"go/scanner"
	gotoken "go/token"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// class is what a byte of a text is to its language.
type class byte

const (
	space   class = iota
	comment       // also the directives of a preprocessor
	literal       // strings, characters, regular expressions
	plain         // all else
)

// token is a part of a line.
type token struct {
	line int // counted from 0
	class
	text string
}

// source is a text in tokens. No token goes over the end of a line.
type source struct {
	rows   []string
	tokens []token
	looks  []string // the classes of each line's bytes, without the spaces
}

func tokenize(lang, text string) (*source, error) {
	s := &source{rows: strings.Split(text, "\n")}
	s.looks = make([]string, len(s.rows))
	if lang == "go" {
		s.scanGo(text)
		return s, nil
	}
	lexer := lexers.Get(lang)
	if lexer == nil {
		return nil, fmt.Errorf("no tokenizer for %q", lang)
	}
	tokens, err := lexer.Tokenise(&chroma.TokeniseOptions{State: "root"}, text)
	if err != nil {
		return nil, fmt.Errorf("tokenize %s: %w", lang, err)
	}
	line := 0
	for t := tokens(); t != chroma.EOF; t = tokens() {
		line = s.add(line, classOf(t.Type), t.Value)
	}
	return s, nil
}

func classOf(t chroma.TokenType) class {
	switch {
	case t.InCategory(chroma.Comment):
		return comment
	case t.InSubCategory(chroma.LiteralString):
		return literal
	case t.InCategory(chroma.Text):
		return space
	}
	return plain
}

// scanGo reads Go with its own scanner.
func (s *source) scanGo(text string) {
	set := gotoken.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var scan scanner.Scanner
	scan.Init(file, []byte(text), nil, scanner.ScanComments)
	for {
		pos, tok, lit := scan.Scan()
		switch {
		case tok == gotoken.EOF:
			return
		case tok == gotoken.SEMICOLON && lit != ";":
			continue
		case lit == "":
			lit = tok.String()
		}
		c := plain
		switch tok {
		case gotoken.COMMENT:
			c = comment
		case gotoken.STRING, gotoken.CHAR:
			c = literal
		}
		s.add(file.Line(pos)-1, c, lit)
	}
}

// add takes one token, which may have many lines, and says on which it ends.
func (s *source) add(line int, c class, text string) int {
	for i, part := range strings.Split(text, "\n") {
		if i > 0 {
			line++
		}
		bare := strings.Join(strings.Fields(part), "")
		if bare == "" || line >= len(s.rows) {
			continue
		}
		s.looks[line] += strings.Repeat(string('0'+rune(c)), len(bare))
		if c != space {
			s.tokens = append(s.tokens, token{line, c, strings.TrimSpace(part)})
		}
	}
	return line
}
