package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A kind is the use of a file: shipped, supporting tests and measurements, or a test itself.
type kind string

const (
	product kind = "product"
	rig     kind = "rigs"
	test    kind = "tests"
)

type sourceFile struct {
	path  string
	kind  kind
	lines int
	funcs []function
}

type function struct {
	name        string
	exported    bool
	line, lines int
}

// readTree parses the Go files below root, except those in hidden, testdata, bin and node_modules folders.
func readTree(root string, rigs []string) ([]sourceFile, error) {
	var files []sourceFile
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			skipped := strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "node_modules"}, d.Name())
			if p != root && skipped {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		file, err := readFile(p, filepath.ToSlash(rel), rigs)
		files = append(files, file)
		return err
	})
	return files, err
}

func readFile(p, rel string, rigs []string) (sourceFile, error) {
	data, err := os.ReadFile(p)
	if err != nil {
		return sourceFile{}, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, p, data, parser.SkipObjectResolution)
	if err != nil {
		return sourceFile{}, err
	}
	out := sourceFile{path: rel, kind: product, lines: bytes.Count(data, []byte("\n"))}
	switch {
	case strings.HasSuffix(rel, "_test.go"):
		out.kind = test
	case slices.ContainsFunc(rigs, func(prefix string) bool { return strings.HasPrefix(rel, prefix) }):
		out.kind = rig
	}
	for _, decl := range parsed.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first, last := fset.Position(fn.Pos()).Line, fset.Position(fn.End()).Line
		out.funcs = append(out.funcs, function{name: fn.Name.Name, exported: fn.Name.IsExported(), line: first, lines: last - first + 1})
	}
	return out, nil
}
