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

// readJSON takes the file token by token, since only the decoder's tokens come with their
// offset and show a key that is written twice.
func readJSON(s *source) *node {
	r := &jsonReader{source: s, dec: json.NewDecoder(bytes.NewReader(s.data)), at: 1}
	r.dec.UseNumber()
	root, err := r.value("", 1)
	if err == nil {
		err = r.end()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errCutShort
	}
	if err != nil {
		s.problem(s.line(int(r.dec.InputOffset())), "", err.Error())
		return nil
	}
	return root
}

type jsonReader struct {
	*source
	dec *json.Decoder

	counted int // bytes whose line breaks at already counts
	at      int
}

// here is the line of the token just read; a JSON token never spans two.
func (r *jsonReader) here() int {
	offset := int(r.dec.InputOffset())
	r.at += bytes.Count(r.data[r.counted:offset], []byte("\n"))
	r.counted = offset
	return r.at
}

func (r *jsonReader) value(path string, depth int) (*node, error) {
	tok, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	line := r.here()
	switch tok := tok.(type) {
	case bool:
		return &node{kind: boolKind, line: line, bool: tok}, nil
	case json.Number:
		return number(line, tok.String()), nil
	case string:
		return &node{kind: textKind, line: line, text: tok}, nil
	case json.Delim:
		if depth > maxDepth {
			return nil, errTooDeep
		}
		if tok == '{' {
			return r.table(line, path, depth)
		}
		return r.list(line, path, depth)
	default:
		return &node{line: line}, nil
	}
}

func (r *jsonReader) list(line int, path string, depth int) (*node, error) {
	n := &node{kind: listKind, line: line}
	for r.dec.More() {
		item, err := r.value(element(path, len(n.items)), depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	_, err := r.dec.Token()
	return n, err
}

func (r *jsonReader) table(line int, path string, depth int) (*node, error) {
	n := emptyTable()
	n.line = line
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := tok.(string) // the decoder lets nothing else be a key
		line, path := r.here(), child(path, key)
		val, err := r.value(path, depth+1)
		if err != nil {
			return nil, err
		}
		val.line = line
		r.add(n, key, val, path)
	}
	_, err := r.dec.Token()
	return n, err
}

// add keeps the first of two values for a key and says so.
func (s *source) add(table *node, key string, val *node, path string) {
	if first, ok := table.vals[key]; ok {
		s.problem(val.line, path, fmt.Sprintf("duplicate key; the first is on line %d", first.line))
		return
	}
	table.set(key, val)
}

func (r *jsonReader) end() error {
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}
