// Package ctxgate holds no code: the house is in the folders. This test keeps its rules.
package ctxgate

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ctxgate/ctxgate"

// floors is the house, ground first. A package imports only packages of lower floors. A new
// package must be given its floor here, and in ARCHITECTURE.md.
var floors = [][]string{
	0:  {"fault", "jsonscan", "internal/unit", "internal/secret"},
	1:  {"internal/child", "internal/seal", "internal/lately", "internal/membudget", "internal/linesearch"},
	2:  {"rpc", "state", "internal/frame", "internal/sse", "internal/slurp"},
	3:  {"mcp", "reduce", "prune", "history", "state/memory", "state/sqlite", "state/statetest"},
	4:  {"recall", "rounds", "rerank", "auth", "grant", "limit", "meter"},
	5:  {"upstream", "front"},
	6:  {"hub", "chat", "prunerd"},
	7:  {"admin"},
	8:  {"config"},
	9:  {"app", "internal/docgen", "internal/bench", "internal/kindness", "internal/llmtest"},
	10: {"cmd/ctxgate", "internal/gendocs", "internal/cachecost", "rounds/clients", "e2e", "e2e/peers", "e2e/chaos"},
}

// banned are names that say nothing.
var banned = regexp.MustCompile(`^(util|utils|common|types|models|helpers?|manager|service|impl|base|misc|pkg)$`)

const maxLines = 500

type source struct {
	path string
	pkg  string // folder, relative to the root
	test bool
	data []byte
	file *ast.File
}

// sources are the Go files that are part of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "tools" || d.Name() == "node_modules" || d.Name() == "examples") {
			return filepath.SkipDir
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, data, parser.ParseComments)
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		out = append(out, source{p, path.Dir(p), strings.HasSuffix(p, "_test.go"), data, file})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func floorOf(pkg string) int {
	return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, pkg) })
}

func TestImportsGoDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg == "." || s.test {
			continue
		}
		from := floorOf(s.pkg)
		if from < 0 {
			t.Errorf("%s: package %s has no floor in house_test.go", s.path, s.pkg)
			continue
		}
		for _, imp := range s.file.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			to, ours := strings.CutPrefix(name, module+"/")
			if ours && floorOf(to) >= from {
				t.Errorf("%s (floor %d) imports %s (floor %d)", s.path, from, to, floorOf(to))
			}
			if imp.Name != nil && ours {
				t.Errorf("%s imports %s under another name; a package is named so that nobody has to", s.path, to)
			}
		}
	}
}

func TestOnePackageComment(t *testing.T) {
	comments := map[string]int{}
	for _, s := range sources(t) {
		if s.test && s.pkg != "." {
			continue
		}
		comments[s.pkg] += 0
		if s.file.Doc != nil {
			comments[s.pkg]++
		}
	}
	for pkg, n := range comments {
		if n != 1 && floorOf(pkg) >= 0 && !onlyTests(pkg) {
			t.Errorf("package %s has %d package comments, want one", pkg, n)
		}
	}
}

func onlyTests(pkg string) bool {
	files, _ := filepath.Glob(filepath.Join(pkg, "*.go"))
	return !slices.ContainsFunc(files, func(f string) bool { return !strings.HasSuffix(f, "_test.go") })
}

func TestFilesHoldOneThought(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(s.data, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines; %d is the most", s.path, n, maxLines)
		}
	}
}

func TestNamesSaySomething(t *testing.T) {
	for _, s := range sources(t) {
		for _, word := range append(strings.Split(s.pkg, "/"), strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")) {
			if banned.MatchString(word) {
				t.Errorf("%s: %q says nothing about what is in it", s.path, word)
			}
		}
	}
}

// The environment is read in one place, so that what can change a run can be listed.
func TestOnlyCommandsReadTheEnvironment(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "cmd/") || strings.HasPrefix(s.pkg, "internal/bench") {
			continue
		}
		for _, call := range []string{"os.Getenv(", "os.LookupEnv(", "os.Environ("} {
			if bytes.Contains(s.data, []byte(call)) {
				t.Errorf("%s calls %s…)", s.path, call)
			}
		}
	}
}

func TestNoInitRegistries(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function", s.path)
			}
		}
	}
}

// The prose names packages; a name that no longer exists is a lie.
func TestArchitectureNamesThePackages(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, floor := range floors {
		for _, pkg := range floor {
			if !bytes.Contains(text, []byte("`"+pkg+"`")) {
				t.Errorf("ARCHITECTURE.md does not name %s (floor %d)", pkg, i)
			}
		}
	}
	for _, m := range regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9_]+)*\\.go)`").FindAllSubmatch(text, -1) {
		if _, err := os.Stat(string(m[1])); err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", m[1])
		}
	}
}

// Every direct module has its line: why it, what it costs, what we would lose.
func TestDependenciesAreExplained(t *testing.T) {
	text, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, mod := range strings.Fields(string(out)) {
		if !bytes.Contains(text, []byte(fmt.Sprintf("| `%s` |", mod))) {
			t.Errorf("docs/dependencies.md does not explain %s", mod)
		}
	}
}
