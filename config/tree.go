package config

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

type kind int

const (
	nullKind kind = iota
	badKind       // already told as a problem; nothing more is said of it
	boolKind
	intKind
	floatKind
	textKind
	dateKind
	listKind
	tableKind
)

// node is a value of a config file, the same for every format. Its line is that of its key, or
// its own in a list.
type node struct {
	kind  kind
	line  int
	bool  bool
	int   int64
	float float64
	text  string // the text, or a number as it was written
	items []*node
	keys  []string // of a table, in the order of the file
	vals  map[string]*node
}

func emptyTable() *node { return &node{kind: tableKind, vals: map[string]*node{}} }

func (n *node) set(key string, val *node) {
	n.keys = append(n.keys, key)
	n.vals[key] = val
}

// number reads digits as JSON and YAML have them. A whole number too large for an int64 stays
// a float, which every integer key then refuses as out of range.
func number(line int, text string) *node {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &node{kind: intKind, line: line, int: i, text: text}
	}
	// An overflow gives ±Inf, refused like any number that is not finite.
	f, _ := strconv.ParseFloat(text, 64)
	return &node{kind: floatKind, line: line, float: f, text: text}
}

// describe names what was found without repeating it.
func (n *node) describe() string {
	switch n.kind {
	case boolKind:
		return strconv.FormatBool(n.bool)
	case intKind, floatKind:
		return "a number"
	case textKind:
		return "text"
	case dateKind:
		return "a date"
	case listKind:
		return "a list"
	case tableKind:
		return "a table"
	default:
		return "nothing"
	}
}

// quotation is describe with the value, for keys whose values are no secrets.
func (n *node) quotation() string {
	switch n.kind {
	case intKind, floatKind:
		return clip(n.text)
	case textKind:
		return "text " + quote(n.text)
	default:
		return n.describe()
	}
}

// quote prints text from a file on one line and at a bearable length.
func quote(s string) string { return strconv.Quote(clip(s)) }

func clip(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	cut := longest
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// step is one move down a tree: into a table by key, or into a list by index.
type step struct {
	key   string
	index int // -1 for a key
}

func (n *node) step(s step) *node {
	if s.index < 0 {
		return n.vals[s.key]
	}
	if s.index >= len(n.items) {
		return nil
	}
	return n.items[s.index]
}

var (
	bareKey  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)
	stepForm = regexp.MustCompile(`^(?:\.?([A-Za-z0-9_-]+)|\.?("(?:[^"\\]|\\.)*")|\[([0-9]{1,9})\])`)
)

// child writes the path of a key below a table; a key that is not a plain word is quoted.
func child(path, key string) string {
	if !bareKey.MatchString(key) {
		key = quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// splitPath reads what child and element write, up to the first part it does not understand.
func splitPath(path string) []step {
	steps, _ := cutPath(path)
	return steps
}

func isPath(s string) bool {
	steps, rest := cutPath(s)
	return len(steps) > 0 && rest == "" && !strings.HasPrefix(s, ".")
}

func cutPath(path string) (steps []step, rest string) {
	for path != "" {
		m := stepForm.FindStringSubmatch(path)
		if m == nil {
			return steps, path
		}
		steps = append(steps, toStep(m[1], m[2], m[3]))
		path = path[len(m[0]):]
	}
	return steps, ""
}

func toStep(bare, quoted, index string) step {
	if index != "" {
		i, _ := strconv.Atoi(index) // nine digits at most
		return step{index: i}
	}
	if key, err := strconv.Unquote(quoted); err == nil {
		return step{key: key, index: -1}
	}
	return step{key: bare, index: -1}
}
