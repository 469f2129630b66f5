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

// readTOML reads the file twice: the decoder gives the values and enforces TOML's own rules,
// the parser below it gives the lines.
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
	return s.fromTOML(values, placesOf(s.data), "", 1)
}

func (s *source) fromTOML(v any, p *place, path string, depth int) *node {
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
			n.items = append(n.items, s.below(v[i], p.item(i), element(path, i), depth))
		}
	case map[string]any:
		n.kind, n.vals = tableKind, map[string]*node{}
		for _, key := range p.order(v) {
			n.set(key, s.below(v[key], p.kid(key), child(path, key), depth))
		}
	default:
		n.kind = dateKind
	}
	return n
}

// below refuses what is nested too deep and leaves nothing more to say of it.
func (s *source) below(v any, p *place, path string, depth int) *node {
	switch v.(type) {
	case []any, map[string]any:
		if depth == maxDepth {
			s.problem(p.line, path, errTooDeep.Error())
			return &node{kind: badKind, line: p.line}
		}
	}
	return s.fromTOML(v, p, path, depth+1)
}

// place is where a value stands: a tree of lines of the same shape as the tree of values.
type place struct {
	line  int
	kids  map[string]*place
	items []*place
}

func (p *place) kid(key string) *place {
	if k, ok := p.kids[key]; ok {
		return k
	}
	return &place{line: p.line}
}

func (p *place) item(i int) *place {
	if i < len(p.items) {
		return p.items[i]
	}
	return &place{line: p.line}
}

func (p *place) order(v map[string]any) []string {
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.kid(a).line, p.kid(b).line), strings.Compare(a, b))
	})
}

// open is the place of a key, made at its first mention. A key that names an array of tables
// means its newest element.
func (p *place) open(key string, line int) *place {
	if n := len(p.items); n > 0 {
		p = p.items[n-1]
	}
	k, ok := p.kids[key]
	if !ok {
		k = &place{line: line}
		if p.kids == nil {
			p.kids = map[string]*place{}
		}
		p.kids[key] = k
	}
	return k
}

func placesOf(data []byte) *place {
	idx := indexer{breaks: breaksOf(data)}
	idx.parser.Reset(data)
	root := &place{}
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
			table.items = append(table.items, &place{line: line})
		case unstable.KeyValue:
			idx.keyValue(table, e)
		}
	}
	return root
}

func breaksOf(data []byte) []int {
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

// line is the parser's own position by binary search; the parser counts from the top each time.
func (x *indexer) line(n *unstable.Node, otherwise int) int {
	if n.Raw.Length == 0 { // an array has no range of its own
		return otherwise
	}
	return 1 + sort.SearchInts(x.breaks, int(n.Raw.Offset))
}

func (x *indexer) descend(p *place, keys unstable.Iterator) (*place, int) {
	line := 0
	for keys.Next() {
		line = x.line(keys.Node(), line)
		p = p.open(string(keys.Node().Data), line)
	}
	return p, line
}

func (x *indexer) keyValue(table *place, n *unstable.Node) {
	p, _ := x.descend(table, n.Key())
	x.value(p, n.Value())
}

func (x *indexer) value(p *place, n *unstable.Node) {
	switch n.Kind {
	case unstable.Array:
		for it := n.Children(); it.Next(); {
			item := &place{line: x.line(it.Node(), p.line)}
			x.value(item, it.Node())
			p.items = append(p.items, item)
		}
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			x.keyValue(p, it.Node())
		}
	}
}
