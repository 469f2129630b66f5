package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var (
	errTooDeep  = fmt.Errorf("nested deeper than %d levels", maxDepth)
	errTrailing = errors.New("more data after the end of the config")
	errCutShort = errors.New("the file ends before its last bracket")
)

// readJSON reads the file token by token: only tokens have offsets and show duplicate keys.
func readJSON(s *source) *node {
	r := &jsonReader{source: s, dec: json.NewDecoder(bytes.NewReader(s.data)), line: 1}
	r.dec.UseNumber()
	root, err := r.readValue("", 1)
	if err == nil {
		err = r.expectEnd()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errCutShort
	}
	if err != nil {
		s.problem(s.lineAt(int(r.dec.InputOffset())), "", err.Error())
		return nil
	}
	return root
}

type jsonReader struct {
	*source
	dec *json.Decoder

	counted int // the bytes whose line breaks are counted in line
	line    int
}

// currentLine is the line of the last token; a JSON token never spans two lines.
func (r *jsonReader) currentLine() int {
	offset := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.counted:offset], []byte("\n"))
	r.counted = offset
	return r.line
}

func (r *jsonReader) readValue(path string, depth int) (*node, error) {
	tok, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	line := r.currentLine()
	switch tok := tok.(type) {
	case bool:
		return &node{kind: boolKind, line: line, bool: tok}, nil
	case json.Number:
		return numberNode(line, tok.String()), nil
	case string:
		return &node{kind: textKind, line: line, text: tok}, nil
	case json.Delim:
		if depth > maxDepth {
			return nil, errTooDeep
		}
		if tok == '{' {
			return r.readTable(line, path, depth)
		}
		return r.readList(line, path, depth)
	default:
		return &node{line: line}, nil
	}
}

func (r *jsonReader) readList(line int, path string, depth int) (*node, error) {
	n := &node{kind: listKind, line: line}
	for r.dec.More() {
		item, err := r.readValue(elementPath(path, len(n.items)), depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	_, err := r.dec.Token()
	return n, err
}

func (r *jsonReader) readTable(line int, path string, depth int) (*node, error) {
	n := emptyTable()
	n.line = line
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := tok.(string) // the decoder allows only strings as keys
		line, path := r.currentLine(), childPath(path, key)
		val, err := r.readValue(path, depth+1)
		if err != nil {
			return nil, err
		}
		val.line = line
		r.addKey(n, key, val, path)
	}
	_, err := r.dec.Token()
	return n, err
}

// addKey sets a key; a duplicate is a problem, and the first value stays.
func (s *source) addKey(table *node, key string, val *node, path string) {
	if first, ok := table.vals[key]; ok {
		s.problem(val.line, path, fmt.Sprintf("duplicate key; the first is on line %d", first.line))
		return
	}
	table.setKey(key, val)
}

func (r *jsonReader) expectEnd() error {
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}
