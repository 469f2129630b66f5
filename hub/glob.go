package hub

import "strings"

// glob is a pattern of literals with anything between them. Names and addresses that are matched come
// from outside and may be long, so it is matched in linear time: each literal where it is first found.
type glob []string

// newGlob reads a pattern in which * stands for any run of characters.
func newGlob(pattern string) glob { return strings.Split(pattern, "*") }

// templateGlob are the addresses that could have been made from a template; nil for one that is too
// long.
func templateGlob(template string) glob {
	if len(template) > maxPattern {
		return nil
	}
	var g glob
	for {
		before, after, found := strings.Cut(template, "{")
		_, rest, closed := strings.Cut(after, "}")
		if !found || !closed {
			return append(g, template)
		}
		g, template = append(g, before), rest
	}
}

// match says whether all of a text fits. A nil glob fits nothing.
func (g glob) match(text string) bool {
	if len(g) == 0 || !strings.HasPrefix(text, g[0]) {
		return false
	}
	last := len(g) - 1
	if last == 0 {
		return text == g[0]
	}
	text = text[len(g[0]):]
	for _, literal := range g[1:last] {
		at := strings.Index(text, literal)
		if at < 0 {
			return false
		}
		text = text[at+len(literal):]
	}
	return strings.HasSuffix(text, g[last])
}
