package config

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
)

type kind int

const (
	nullKind kind = iota
	badKind       // already reported as a problem
	boolKind
	intKind
	floatKind
	textKind
	dateKind
	listKind
	tableKind
)

// node is a value of a config file, the same for every format. Its line is the line of its key or, in a
// list, its own.
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

func (n *node) setKey(key string, val *node) {
	n.keys = append(n.keys, key)
	n.vals[key] = val
}

// numberNode parses a number of JSON or YAML. An integer too large for an int64 becomes a float, which
// every integer key rejects as out of range.
func numberNode(line int, text string) *node {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &node{kind: intKind, line: line, int: i, text: text}
	}
	// An overflow gives ±Inf, which is rejected like any number that is not finite.
	f, _ := strconv.ParseFloat(text, 64)
	return &node{kind: floatKind, line: line, float: f, text: text}
}

// describe names the kind of a value without repeating the value.
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

// describeValue is describe with the value, for keys whose values are not secrets.
func (n *node) describeValue() string {
	switch n.kind {
	case intKind, floatKind:
		return fault.ClipTo(n.text, maxQuoted)
	case textKind:
		return "text " + quote(n.text)
	default:
		return n.describe()
	}
}

// maxQuoted is how many bytes of a value a message quotes.
const maxQuoted = 60

// quote prints text from a file on one line, shortened.
func quote(s string) string { return strconv.Quote(fault.ClipTo(s, maxQuoted)) }

// pathStep is one step down the tree: a key of a table, or an index of a list.
type pathStep struct {
	key   string
	index int // -1 for a key
}

func (n *node) childAt(s pathStep) *node {
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

// childPath is the path of a key in the table at path; a key that is not a plain word is quoted.
func childPath(path, key string) string {
	if !bareKey.MatchString(key) {
		key = quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func elementPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// splitPath parses what childPath and elementPath write, up to the first invalid part.
func splitPath(path string) []pathStep {
	steps, _ := cutPath(path)
	return steps
}

func isPath(s string) bool {
	steps, rest := cutPath(s)
	return len(steps) > 0 && rest == "" && !strings.HasPrefix(s, ".")
}

func cutPath(path string) (steps []pathStep, rest string) {
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

func toStep(bare, quoted, index string) pathStep {
	if index != "" {
		i, _ := strconv.Atoi(index) // nine digits at most
		return pathStep{index: i}
	}
	if key, err := strconv.Unquote(quoted); err == nil {
		return pathStep{key: key, index: -1}
	}
	return pathStep{key: bare, index: -1}
}
