package main

import (
	"fmt"
	"go/scanner"
	gotoken "go/token"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// tokenClass classifies the bytes of a text.
type tokenClass byte

const (
	space   tokenClass = iota
	comment            // also preprocessor directives
	literal            // strings, characters, regular expressions
	plain              // everything else
)

// token is a token, or the part of one on a line.
type token struct {
	line int // counted from 0
	tokenClass
	text string
}

// tokenizedText is a text in tokens; no token spans lines.
type tokenizedText struct {
	lines       []string
	tokens      []token
	lineClasses []string // the classes of each line's bytes, without spaces
}

func tokenize(lang, text string) (*tokenizedText, error) {
	s := &tokenizedText{lines: strings.Split(text, "\n")}
	s.lineClasses = make([]string, len(s.lines))
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
		line = s.addToken(line, classOf(t.Type), t.Value)
	}
	return s, nil
}

func classOf(t chroma.TokenType) tokenClass {
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

// scanGo tokenizes Go with go/scanner.
func (s *tokenizedText) scanGo(text string) {
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
		s.addToken(file.Line(pos)-1, c, lit)
	}
}

// addToken adds a token, which may span lines, and returns its last line.
func (s *tokenizedText) addToken(line int, c tokenClass, text string) int {
	for i, part := range strings.Split(text, "\n") {
		if i > 0 {
			line++
		}
		bare := strings.Join(strings.Fields(part), "")
		if bare == "" || line >= len(s.lines) {
			continue
		}
		s.lineClasses[line] += strings.Repeat(string('0'+rune(c)), len(bare))
		if c != space {
			s.tokens = append(s.tokens, token{line, c, strings.TrimSpace(part)})
		}
	}
	return line
}
