// Package glob matches text against patterns whose wildcards stand for any run of characters.
//
// Both the texts and some of the patterns come from outside and may be long, so matching takes linear
// time: each literal is taken where it is first found.
package glob

import "strings"

// MaxLength is the longest pattern that callers should accept, in bytes.
const MaxLength = 512

// Pattern is the literals of a pattern, with a wildcard between each two.
type Pattern []string

// New parses a pattern in which * is the wildcard.
func New(pattern string) Pattern { return strings.Split(pattern, "*") }

// FromTemplate returns the pattern of all URIs that a URI template can expand to: each {expression} is a
// wildcard. It returns nil for a template longer than MaxLength.
func FromTemplate(template string) Pattern {
	if len(template) > MaxLength {
		return nil
	}
	var p Pattern
	for {
		before, after, found := strings.Cut(template, "{")
		_, rest, closed := strings.Cut(after, "}")
		if !found || !closed {
			return append(p, template)
		}
		p, template = append(p, before), rest
	}
}

// Match reports whether the pattern matches the whole text. A nil Pattern matches nothing.
func (p Pattern) Match(text string) bool {
	if len(p) == 0 || !strings.HasPrefix(text, p[0]) {
		return false
	}
	last := len(p) - 1
	if last == 0 {
		return text == p[0]
	}
	text = text[len(p[0]):]
	for _, literal := range p[1:last] {
		at := strings.Index(text, literal)
		if at < 0 {
			return false
		}
		text = text[at+len(literal):]
	}
	return strings.HasSuffix(text, p[last])
}
