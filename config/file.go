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

// File is a parsed config file. It holds the tree, so that problems found later can be reported with
// their line. A nil File is a load without a file.
type File struct {
	// Path is the file's name as it was given.
	Path string

	root *node
}

// ReadFile reads a config file in the format of its extension. The File is never nil: if it cannot be read
// it is empty, so that the caller can continue and report everything.
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
		err = pe.Err // the path is printed before it
	}
	return &File{Path: path, root: emptyTable()}, Problems{{File: path, Text: "cannot be read: " + err.Error()}}
}

var formats = map[string]func(*source) *node{
	".toml": readTOML,
	".json": readJSON,
	".yaml": readYAML,
	".yml":  readYAML,
}

// ReadBytes reads a config from memory; name gives the format and appears in messages.
func ReadBytes(name string, data []byte) (*File, Problems) {
	src := &source{name: name, data: bytes.TrimPrefix(data, []byte("\uFEFF"))}
	root := src.parse()
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

// parse returns nil when the file is empty or cannot be parsed.
func (s *source) parse() *node {
	ext := strings.ToLower(filepath.Ext(s.name))
	read, ok := formats[ext]
	switch {
	case !ok:
		s.problem(0, "", "unknown format "+quote(ext)+"; the name of a config file ends in .toml, .json, .yaml or .yml")
		return nil
	case len(s.data) > maxFileSize:
		s.problem(0, "", "larger than 4 MiB")
		return nil
	case !utf8.Valid(s.data):
		s.problem(s.lineAt(invalidUTF8(s.data)), "", "not valid UTF-8")
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

// lineAt is the line of a byte offset. An offset in the blank end of a file counts as the last line with
// text, because that is where an unfinished text stops.
func (s *source) lineAt(offset int) int {
	offset = min(offset, len(bytes.TrimRight(s.data, " \t\r\n")))
	return 1 + bytes.Count(s.data[:offset], []byte("\n"))
}

// Line is the line of a key such as "servers[1].command", or of the innermost table around it that the
// file has; 0 when it has none.
func (f *File) Line(path string) int {
	if f == nil {
		return 0
	}
	n, line := f.root, 0
	for _, s := range splitPath(path) {
		if n = n.childAt(s); n == nil {
			break
		}
		line = n.line
	}
	return line
}

// Decode decodes the file into dst, a pointer to a struct that holds its defaults.
func (f *File) Decode(dst any) Problems {
	v, ok := structOf(dst)
	if !ok {
		return Problems{notAStruct(dst)}
	}
	if f == nil {
		return nil
	}
	d := &decoder{file: f.Path, root: v.Type()}
	d.decodeTable(f.root, v, "")
	d.problems.Sort()
	return d.problems
}

// Locate adds file and line to problems that have only a key.
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

// Problems turns the errors of a package's Validate into problems with lines; prefix is the path of its
// table. An error's text starts with its key: "max_chars: must not be negative".
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
