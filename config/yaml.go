package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// readYAML accepts the plain part of YAML: one document, text keys, no anchors or aliases, so that a file
// means the same as in TOML or JSON.
func readYAML(s *source) *node {
	// The parser omits the line number of errors in line 1. An empty line in front makes it name every
	// line, one too high.
	dec := yaml.NewDecoder(io.MultiReader(bytes.NewReader([]byte("\n")), bytes.NewReader(s.data)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		s.yamlError(err)
		return nil
	}
	root := yamlReader{s}.readValue(doc.Content[0], "", 1)
	var next yaml.Node
	if err := dec.Decode(&next); err == nil {
		s.problem(next.Line-1, "", "a second document; a config file has one")
	} else {
		s.yamlError(err)
	}
	return root
}

// The parser has no typed errors: its line is only in the text.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)`)

func (s *source) yamlError(err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		// An error without a line is an unknown alias. Its text repeats the alias, which may be an
		// unquoted secret that starts with a star.
		s.problem(0, "", errAlias)
		return
	}
	line, _ := strconv.Atoi(m[1])
	s.problem(max(line-1, 1), "", m[2])
}

const errAlias = "anchors and aliases are not supported; repeat the value, or quote it if it is text"

type yamlReader struct{ *source }

func (r yamlReader) reject(n *node, path, text string) {
	n.kind = badKind
	r.problem(n.line, path, text)
}

func (r yamlReader) readValue(y *yaml.Node, path string, depth int) *node {
	n := &node{line: y.Line - 1}
	switch {
	case y.Kind == yaml.AliasNode || y.Anchor != "":
		r.reject(n, path, errAlias)
	case y.Kind == yaml.ScalarNode:
		r.readScalar(n, y, path)
	case depth > maxDepth:
		r.reject(n, path, errTooDeep.Error())
	case y.Kind == yaml.SequenceNode && y.ShortTag() == "!!seq":
		n.kind = listKind
		for i, item := range y.Content {
			n.items = append(n.items, r.readValue(item, elementPath(path, i), depth+1))
		}
	case y.Kind == yaml.MappingNode && y.ShortTag() == "!!map":
		n.kind, n.vals = tableKind, map[string]*node{}
		r.readTable(n, y, path, depth)
	default:
		r.reject(n, path, "the tag "+quote(y.Tag)+" is not supported")
	}
	return n
}

func (r yamlReader) readTable(n *node, y *yaml.Node, path string, depth int) {
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" {
			r.problem(key.Line-1, path, "a key must be plain text; quote it")
			continue
		}
		path := childPath(path, key.Value)
		val := r.readValue(y.Content[i+1], path, depth+1)
		val.line = key.Line - 1
		r.addKey(n, key.Value, val, path)
	}
}

func (r yamlReader) readScalar(n *node, y *yaml.Node, path string) {
	var v any
	tag := y.ShortTag()
	if tag == "!!str" {
		n.kind, n.text = textKind, y.Value
		return
	}
	if err := y.Decode(&v); err != nil {
		r.reject(n, path, "not a value of type "+quote(tag))
		return
	}
	switch v := v.(type) {
	case nil:
	case bool:
		n.kind, n.bool = boolKind, v
	case int, int64, uint64:
		*n = *numberNode(n.line, fmt.Sprint(v))
	case float64:
		n.kind, n.float, n.text = floatKind, v, y.Value
	default:
		if tag != "!!timestamp" {
			r.reject(n, path, "the tag "+quote(tag)+" is not supported")
			return
		}
		n.kind = dateKind
	}
}
