package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ctxgate/ctxgate/config"
)

// comments finds the comments of struct fields in a module's sources.
type comments struct {
	root   string
	module string
	texts  map[string]map[string]string // by package path, then "Type.Field"
}

func newComments(root string) (*comments, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if module, ok := strings.CutPrefix(line, "module "); ok {
			return &comments{root, strings.TrimSpace(module), map[string]map[string]string{}}, nil
		}
	}
	return nil, errors.New("go.mod names no module")
}

// of returns the comment above a field, or else beside it, with the key in place of the leading Go name.
func (c *comments) of(f config.Field) (string, error) {
	if f.Owner.Name() == "" {
		return "", errors.New("a struct without a name cannot have field comments; give it a name")
	}
	texts, err := c.inPackage(f.Owner.PkgPath())
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(texts[f.Owner.Name()+"."+f.Name])
	if rest, ok := strings.CutPrefix(text, f.Name+" "); ok {
		text = "`" + f.Key + "` " + rest
	}
	return text, nil
}

func (c *comments) inPackage(pkg string) (map[string]string, error) {
	if texts, ok := c.texts[pkg]; ok {
		return texts, nil
	}
	rel, ok := strings.CutPrefix(pkg+"/", c.module+"/")
	if !ok {
		return nil, fmt.Errorf("%s is not a package of %s", pkg, c.module)
	}
	texts, err := fieldComments(filepath.Join(c.root, filepath.FromSlash(path.Clean(rel))))
	if err != nil {
		return nil, err
	}
	c.texts[pkg] = texts
	return texts, nil
}

func fieldComments(dir string) (map[string]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				addFields(texts, spec)
			}
			return true
		})
	}
	return texts, nil
}

func addFields(texts map[string]string, spec *ast.TypeSpec) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range s.Fields.List {
		text := field.Doc.Text()
		if text == "" {
			text = field.Comment.Text()
		}
		for _, name := range field.Names {
			texts[spec.Name.Name+"."+name.Name] = text
		}
	}
}
