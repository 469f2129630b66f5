// Package config loads ctxgate's configuration: one tree of keys written as TOML, JSON or YAML,
// over defaults, under the environment.
//
// The path of a load is the path through the files. [ReadFile] picks the format (toml.go,
// json.go, yaml.go), which gives one neutral tree that knows its lines (tree.go). [File.Decode]
// lays the tree over a struct that already holds its defaults (decode.go, scalar.go, secrets.go);
// [ApplyEnv] lays the environment over that (env.go); [ResolveSecrets] follows "env:NAME" and
// "file:PATH". What a package's own Validate says comes back through [File.Problems], with the
// line it is about.
//
// Nothing stops at the first mistake: every step returns all its [Problems], in the order of the
// file. No message repeats a secret. Nothing here reads the process environment or changes
// anything outside the struct it was given.
package config

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	maxFileSize = 4 << 20
	maxDepth    = 32
)

// File is a config file that has been read. It keeps the tree, so that whatever is found wrong
// later can still be told with its line. A nil File is a load without a file.
type File struct {
	// Path is the file's name as it was given.
	Path string

	root *node
}

// ReadFile reads a config file in the format its extension names. The File is never nil: after
// a file that cannot be read it is empty, so that a caller can go on and report everything.
func ReadFile(path string) (*File, Problems) {
	f, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer f.Close()
	// One byte more than allowed tells a file at the limit from one over it.
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return unreadable(path, err)
	}
	return ReadBytes(path, data)
}

func unreadable(path string, err error) (*File, Problems) {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // the path is printed in front already
	}
	return &File{Path: path, root: emptyTable()}, Problems{{File: path, Text: "cannot be read: " + err.Error()}}
}

var formats = map[string]func(*source) *node{
	".toml": readTOML,
	".json": readJSON,
	".yaml": readYAML,
	".yml":  readYAML,
}

// ReadBytes reads a config that is already in memory; name gives the format and the messages.
func ReadBytes(name string, data []byte) (*File, Problems) {
	src := &source{name: name, data: bytes.TrimPrefix(data, []byte("\uFEFF"))}
	root := src.read()
	if root == nil {
		root = emptyTable()
	}
	src.problems.Sort()
	return &File{Path: name, root: root}, src.problems
}

// source is a file while it is being read.
type source struct {
	name     string
	data     []byte
	problems Problems
}

func (s *source) problem(line int, key, text string) {
	s.problems = append(s.problems, Problem{File: s.name, Line: line, Key: key, Text: text})
}

// read gives nil when there is no tree to speak of.
func (s *source) read() *node {
	ext := strings.ToLower(filepath.Ext(s.name))
	read, ok := formats[ext]
	switch {
	case !ok:
		s.problem(0, "", "unknown format "+quote(ext)+"; a config ends in .toml, .json, .yaml or .yml")
		return nil
	case len(s.data) > maxFileSize:
		s.problem(0, "", "larger than 4 MiB")
		return nil
	case !utf8.Valid(s.data):
		s.problem(s.line(invalidUTF8(s.data)), "", "not valid UTF-8")
		return nil
	case len(bytes.TrimSpace(s.data)) == 0:
		return nil
	}
	root := read(s)
	if root == nil || root.kind == nullKind {
		return nil
	}
	if root.kind != tableKind {
		s.problem(root.line, "", "want a table of keys, found "+root.describe())
		return nil
	}
	return root
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(data)
}

// line is the line of a byte offset. An offset in the blank end of a file counts as the last
// written line, since that is where an unfinished text stops.
func (s *source) line(offset int) int {
	offset = min(offset, len(bytes.TrimRight(s.data, " \t\r\n")))
	return 1 + bytes.Count(s.data[:offset], []byte("\n"))
}

// Line is the line of a key such as "servers[1].command", or of the nearest table above it that
// the file has; 0 when it has none.
func (f *File) Line(path string) int {
	if f == nil {
		return 0
	}
	n, line := f.root, 0
	for _, s := range splitPath(path) {
		if n = n.step(s); n == nil {
			break
		}
		line = n.line
	}
	return line
}

// Decode lays the file over dst, a pointer to a struct that holds its defaults.
func (f *File) Decode(dst any) Problems {
	v, ok := target(dst)
	if !ok {
		return Problems{notAStruct(dst)}
	}
	if f == nil {
		return nil
	}
	d := &decoder{file: f.Path, root: v.Type()}
	d.table(f.root, v, "")
	d.problems.Sort()
	return d.problems
}

// Locate gives the file and line to problems that know only their key.
func (f *File) Locate(ps Problems) Problems {
	if f == nil {
		return ps
	}
	out := make(Problems, len(ps))
	for i, p := range ps {
		if p.File == "" {
			p.File, p.Line = f.Path, f.Line(p.Key)
		}
		out[i] = p
	}
	out.Sort()
	return out
}

// Problems turns what a package's Validate found in the table at prefix into problems with
// lines. An error's text starts with the key it is about: "max_chars: must not be negative".
func (f *File) Problems(prefix string, errs ...error) Problems {
	var ps Problems
	for _, err := range errs {
		if err != nil {
			ps = append(ps, fromError(prefix, err))
		}
	}
	return f.Locate(ps)
}

func fromError(prefix string, err error) Problem {
	key, text, ok := strings.Cut(err.Error(), ": ")
	if !ok || !isPath(key) {
		return Problem{Key: prefix, Text: err.Error()}
	}
	if prefix != "" && key[0] != '[' {
		key = "." + key
	}
	return Problem{Key: prefix + key, Text: text}
}
