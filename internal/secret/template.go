package secret

import (
	"errors"
	"regexp"
	"strings"
)

// part is a piece of a text: itself, or a reference.
type part struct {
	kind       partKind
	text       string // the text, the variable's name, or the file's path
	byDefault  string // the value of a variable that is not set
	hasDefault bool
	written    string // the reference as the text has it; "" for text
}

type partKind int

const (
	literal partKind = iota
	variable
	file
)

var (
	wholeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	nameRun   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	// What precedes the file: reference of a credential in a header. Elsewhere inside a text, file: is
	// more often a URL.
	scheme = regexp.MustCompile(`^(?i:Bearer|Basic|Token) +file:`)
)

var (
	errVariable = errors.New(`"env:" wants the name of an environment variable after it`)
	errFile     = errors.New(`"file:" wants a path after it`)
	errEnd      = errors.New(`a name after "env:" ends at a space or at the end; inside of a word write ${NAME}`)
	errBraces   = errors.New(`"${" wants NAME}, NAME:-default}, env:NAME} or file:PATH} after it; a literal ${ is written $${`)
)

// parseTemplate parses a text with references:
//
//	env:NAME          at the start, or after a space, up to a space or the end
//	file:PATH         as the whole text, or after Bearer, Basic or Token
//	${NAME}           anywhere; also ${NAME:-default}, ${env:NAME} and ${file:PATH}
//	$${               a literal ${
func parseTemplate(s string) ([]part, error) {
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		if path == "" {
			return nil, errFile
		}
		return []part{{kind: file, text: path, written: s}}, nil
	}
	if at := scheme.FindStringIndex(s); at != nil {
		if s[at[1]:] == "" {
			return nil, errFile
		}
		return []part{{text: s[:at[1]-len("file:")]}, {kind: file, text: s[at[1]:], written: s[at[1]-len("file:"):]}}, nil
	}
	return scanParts(s, envAfterSpace)
}

// scanParts parses the references of a text; bare parses those without braces, and returns a size of 0
// where there is none.
func scanParts(s string, bare func(s string, i int) (part, int, error)) ([]part, error) {
	var parts []part
	text := func(t string) {
		if n := len(parts); n > 0 && parts[n-1].kind == literal {
			parts[n-1].text += t
		} else {
			parts = append(parts, part{text: t})
		}
	}
	for i := 0; i < len(s); {
		switch rest := s[i:]; {
		case strings.HasPrefix(rest, "$${"):
			text("${")
			i += 3
		case strings.HasPrefix(rest, "${"):
			end := strings.IndexByte(rest, '}')
			p, ok := parseBraces(rest[2:max(end, 2)])
			if end < 0 || !ok {
				return nil, errBraces
			}
			p.written = rest[:end+1]
			parts = append(parts, p)
			i += end + 1
		default:
			p, size, err := bare(s, i)
			if err != nil {
				return nil, err
			}
			if size == 0 {
				text(s[i : i+1])
				i++
				continue
			}
			p.written = rest[:size]
			parts = append(parts, p)
			i += size
		}
	}
	return parts, nil
}

// parseBraces parses the inside of ${…}.
func parseBraces(s string) (part, bool) {
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		return part{kind: file, text: path}, path != ""
	}
	s = strings.TrimPrefix(s, "env:")
	name, byDefault, hasDefault := strings.Cut(s, ":-")
	return part{kind: variable, text: name, byDefault: byDefault, hasDefault: hasDefault}, wholeName.MatchString(name)
}

// envAfterSpace parses env:NAME at the beginning of a text or after a space.
func envAfterSpace(s string, i int) (part, int, error) {
	rest, ok := strings.CutPrefix(s[i:], "env:")
	if !ok || i > 0 && s[i-1] != ' ' && s[i-1] != '\t' {
		return part{}, 0, nil
	}
	name := nameRun.FindString(rest)
	switch {
	case name == "" && i > 0:
		return part{}, 0, nil // "env:" is only a word
	case name == "":
		return part{}, 0, errVariable
	case len(name) < len(rest) && rest[len(name)] != ' ' && rest[len(name)] != '\t':
		if i == 0 {
			return part{}, 0, errVariable
		}
		return part{}, 0, errEnd
	}
	return part{kind: variable, text: name}, len("env:") + len(name), nil
}

// join is the text of parts that are all literal.
func join(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
	}
	return b.String()
}

// moveFiles is a text with other paths in its references to files.
func moveFiles(text string, parts []part, move func(path string) string) string {
	var b strings.Builder
	for _, p := range parts {
		if p.kind != file {
			continue
		}
		before, after, _ := strings.Cut(text, p.written)
		b.WriteString(before)
		b.WriteString(strings.Replace(p.written, p.text, move(p.text), 1))
		text = after
	}
	b.WriteString(text)
	return b.String()
}

func sources(parts []part) string {
	var list []string
	for _, p := range parts {
		switch p.kind {
		case variable:
			list = append(list, "env:"+p.text)
		case file:
			list = append(list, "file:"+p.text)
		case literal:
		}
	}
	return strings.Join(list, ", ")
}

func variables(parts []part) []string { return named(parts, variable) }
func files(parts []part) []string     { return named(parts, file) }

func named(parts []part, kind partKind) []string {
	var list []string
	for _, p := range parts {
		if p.kind == kind {
			list = append(list, p.text)
		}
	}
	return list
}
