package config

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML reads the file twice: the decoder gives the values and enforces TOML's rules, the low-level
// parser gives the lines.
func readTOML(s *source) *node {
	values := map[string]any{}
	if err := toml.Unmarshal(s.data, &values); err != nil {
		line := 0
		if de, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ = de.Position()
		}
		s.problem(line, "", strings.TrimPrefix(err.Error(), "toml: "))
		return nil
	}
	return s.tomlNode(values, positionsOf(s.data), "", 1)
}

func (s *source) tomlNode(v any, p *position, path string, depth int) *node {
	n := &node{line: p.line}
	switch v := v.(type) {
	case bool:
		n.kind, n.bool = boolKind, v
	case int64:
		n.kind, n.int, n.text = intKind, v, strconv.FormatInt(v, 10)
	case float64:
		n.kind, n.float, n.text = floatKind, v, strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		n.kind, n.text = textKind, v
	case []any:
		n.kind = listKind
		for i := range v {
			n.items = append(n.items, s.tomlChild(v[i], p.item(i), elementPath(path, i), depth))
		}
	case map[string]any:
		n.kind, n.vals = tableKind, map[string]*node{}
		for _, key := range p.sortedKeys(v) {
			n.setKey(key, s.tomlChild(v[key], p.child(key), childPath(path, key), depth))
		}
	default:
		n.kind = dateKind
	}
	return n
}

// tomlChild rejects values that are nested too deep.
func (s *source) tomlChild(v any, p *position, path string, depth int) *node {
	switch v.(type) {
	case []any, map[string]any:
		if depth == maxDepth {
			s.problem(p.line, path, errTooDeep.Error())
			return &node{kind: badKind, line: p.line}
		}
	}
	return s.tomlNode(v, p, path, depth+1)
}

// position is the line of a value: a tree of the same shape as the tree of values.
type position struct {
	line     int
	children map[string]*position
	items    []*position
}

func (p *position) child(key string) *position {
	if k, ok := p.children[key]; ok {
		return k
	}
	return &position{line: p.line}
}

func (p *position) item(i int) *position {
	if i < len(p.items) {
		return p.items[i]
	}
	return &position{line: p.line}
}

func (p *position) sortedKeys(v map[string]any) []string {
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.child(a).line, p.child(b).line), strings.Compare(a, b))
	})
}

// ensureChild returns the position of a key, and creates it at the first mention. In an array of tables it
// is a key of the last element.
func (p *position) ensureChild(key string, line int) *position {
	if n := len(p.items); n > 0 {
		p = p.items[n-1]
	}
	k, ok := p.children[key]
	if !ok {
		k = &position{line: line}
		if p.children == nil {
			p.children = map[string]*position{}
		}
		p.children[key] = k
	}
	return k
}

func positionsOf(data []byte) *position {
	idx := indexer{breaks: lineBreaks(data)}
	idx.parser.Reset(data)
	root := &position{}
	table := root
	for idx.parser.NextExpression() {
		e := idx.parser.Expression()
		switch e.Kind {
		case unstable.Table:
			var line int
			table, line = idx.descend(root, e.Key())
			table.line = line
		case unstable.ArrayTable:
			var line int
			table, line = idx.descend(root, e.Key())
			table.items = append(table.items, &position{line: line})
		case unstable.KeyValue:
			idx.indexKeyValue(table, e)
		}
	}
	return root
}

func lineBreaks(data []byte) []int {
	var breaks []int
	for i, c := range data {
		if c == '\n' {
			breaks = append(breaks, i)
		}
	}
	return breaks
}

type indexer struct {
	parser unstable.Parser
	breaks []int // the offset of every line break, in order
}

// lineOf finds the line by binary search; the parser itself counts from the top each time.
func (x *indexer) lineOf(n *unstable.Node, otherwise int) int {
	if n.Raw.Length == 0 { // an array has no range
		return otherwise
	}
	return 1 + sort.SearchInts(x.breaks, int(n.Raw.Offset))
}

func (x *indexer) descend(p *position, keys unstable.Iterator) (*position, int) {
	line := 0
	for keys.Next() {
		line = x.lineOf(keys.Node(), line)
		p = p.ensureChild(string(keys.Node().Data), line)
	}
	return p, line
}

func (x *indexer) indexKeyValue(table *position, n *unstable.Node) {
	p, _ := x.descend(table, n.Key())
	x.indexValue(p, n.Value())
}

func (x *indexer) indexValue(p *position, n *unstable.Node) {
	switch n.Kind {
	case unstable.Array:
		for it := n.Children(); it.Next(); {
			item := &position{line: x.lineOf(it.Node(), p.line)}
			x.indexValue(item, it.Node())
			p.items = append(p.items, item)
		}
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			x.indexKeyValue(p, it.Node())
		}
	}
}
