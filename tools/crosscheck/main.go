// Command crosscheck type-checks this module for the platforms that are its arguments, such as windows/amd64.
//
//	go run ./tools/crosscheck windows/amd64 darwin/arm64
//
// It finds what does not compile there in a few seconds. Compiling takes minutes per platform on an empty cache, most
// of it for one dependency; `make snapshot-all` does that. Bodies of functions outside this module are not looked at.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, platform := range os.Args[1:] {
		found, err := checkPlatform(platform)
		if err != nil {
			fmt.Fprintln(os.Stderr, "crosscheck:", err)
			os.Exit(1)
		}
		for _, line := range found {
			fmt.Printf("%s: %s\n", platform, line)
			failed = true
		}
		if len(found) == 0 {
			fmt.Printf("%s: ok\n", platform)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// checkPlatform returns what is wrong with this module's packages on a platform.
func checkPlatform(platform string) ([]string, error) {
	goos, arch, _ := strings.Cut(platform, "/")
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax,
		Env:  append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0"),
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			return parseFile(fset, name, src, dir)
		},
	}, "./...")
	if err != nil {
		return nil, err
	}
	var found []string
	seen := map[string]bool{}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			if line := e.Error(); !seen[line] {
				seen[line] = true
				found = append(found, line)
			}
		}
	}
	return found, nil
}

// parseFile parses a file, without the bodies of its functions if it is not of this module.
func parseFile(fset *token.FileSet, name string, src []byte, module string) (*ast.File, error) {
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if file == nil || strings.HasPrefix(name, module+string(filepath.Separator)) {
		return file, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	return file, err
}
