// Package ctxgate contains only this test, which checks the rules of the repository.
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

const (
	module  = "github.com/ctxgate/ctxgate"
	testkit = "internal/testkit/"
)

// layers lists the packages, lowest layer first. A package imports only packages of lower layers. A new
// package must be given its layer here, and its line in ARCHITECTURE.md.
var layers = [][]string{
	0:  {"internal/testkit/cputime", "internal/testkit/wait", "clients", "fault", "jsonscan", "internal/unit", "internal/secret", "prune/relevance", "internal/textedit"},
	1:  {"internal/child", "internal/egress", "internal/retryafter", "internal/seal", "internal/gencache", "internal/membudget", "internal/linesearch", "internal/glob", "internal/rawjson", "internal/recovertool", "internal/varint", "internal/testkit/edittest", "internal/jsonedit", "internal/tomledit", "internal/yamledit", "pins", "prune/code", "prune/logs", "prune/docs", "state"},
	2:  {"rpc", "redact", "keyring", "audit", "internal/frame", "internal/sse", "internal/readbody", "prune", "setup/clientfile", "launch", "llm/prices"},
	3:  {"changes", "mcp", "reduce", "llm", "state/memory", "state/sqlite", "state/redis", "state/s3", "state/statetest", "oauth", "auth"},
	4:  {"recall", "history", "llm/openai", "llm/anthropic", "llm/gemini", "rerank", "access", "limit", "budget", "meter", "upstream/wire", "daemon", "internal/testkit/stubreducer"},
	5:  {"gate", "upstream", "llm/openaichat", "llm/responses", "chat/readback", "chat/masking"},
	6:  {"front", "hub/catalog", "llm/wires"},
	7:  {"prunerd", "replica"},
	8:  {"hub", "chat"},
	9:  {"hub/legacy", "admin"},
	10: {"config"},
	11: {"app", "setup"},
	12: {"cmd/ctxgate", "internal/testkit/fakeprovider", "internal/testkit/recordings", "internal/testkit/mcpwire"},
	13: {"internal/testkit/trajectories", "internal/testkit/process", "internal/testkit/mcpclient", "internal/testkit/redisserver", "internal/testkit/faultproxy", "internal/testkit/syncdisk"},
	14: {"internal/testkit/gateway", "internal/testkit/s3server", "internal/testkit/mcpserver", "internal/testkit/agents", "internal/testkit/toolcalls"},
	15: {"tools/docgen", "tools/chartcheck", "tools/bench", "tools/syntaxcheck", "tools/stylefigures", "tools/cachecost", "tools/scalesim", "tools/release", "tools/crosscheck", "tools/seededfaults", "chat/readback/sdktest", "e2e", "e2e/replicas", "e2e/peers", "e2e/chaos", "e2e/agents", "e2e/release"},
}

// banned are names without a meaning.
var banned = regexp.MustCompile(`^(util|utils|common|types|models|helpers?|manager|service|impl|base|misc|pkg)$`)

const maxLines = 500

type source struct {
	path string
	pkg  string // folder relative to the root
	test bool
	data []byte
	file *ast.File
}

// sources returns the Go files of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "node_modules" || d.Name() == "examples") {
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

func layerOf(pkg string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, pkg) })
}

func TestImportsGoDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg == "." || s.test {
			continue
		}
		from := layerOf(s.pkg)
		if from < 0 {
			t.Errorf("%s: package %s has no layer in house_test.go", s.path, s.pkg)
			continue
		}
		for _, imp := range s.file.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			to, ours := strings.CutPrefix(name, module+"/")
			if ours && layerOf(to) >= from {
				t.Errorf("%s (layer %d) imports %s (layer %d)", s.path, from, to, layerOf(to))
			}
			if imp.Name != nil && ours {
				t.Errorf("%s imports %s under another name; choose package names that need no alias", s.path, to)
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
		if n != 1 && layerOf(pkg) >= 0 && !onlyTests(pkg) {
			t.Errorf("package %s has %d package comments, want one", pkg, n)
		}
	}
}

func onlyTests(pkg string) bool {
	files, _ := filepath.Glob(filepath.Join(pkg, "*.go"))
	return !slices.ContainsFunc(files, func(f string) bool { return !strings.HasSuffix(f, "_test.go") })
}

func TestFileLength(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(s.data, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, want at most %d", s.path, n, maxLines)
		}
	}
}

func TestNamesHaveMeaning(t *testing.T) {
	for _, s := range sources(t) {
		for _, word := range append(strings.Split(s.pkg, "/"), strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")) {
			if banned.MatchString(word) {
				t.Errorf("%s: the name %q says nothing about the content", s.path, word)
			}
		}
	}
}

// Only commands, tools and the test kit read the environment, so that what can change a run can be listed.
func TestOnlyCommandsReadTheEnvironment(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "cmd/") || strings.HasPrefix(s.pkg, "tools/") || strings.HasPrefix(s.pkg, testkit) {
			continue
		}
		for _, call := range []string{"os.Getenv(", "os.LookupEnv(", "os.Environ("} {
			if bytes.Contains(s.data, []byte(call)) {
				t.Errorf("%s calls %s…)", s.path, call)
			}
		}
	}
}

// The test kit is for tests and tools: the product does not import it.
func TestProductDoesNotImportTheTestKit(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.pkg == "state/statetest" || strings.HasPrefix(s.pkg, "tools/") || strings.HasPrefix(s.pkg, testkit) {
			continue
		}
		for _, imp := range s.file.Imports {
			if strings.HasPrefix(imp.Path.Value, `"`+module+"/"+testkit) {
				t.Errorf("%s imports %s", s.path, imp.Path.Value)
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

// ARCHITECTURE.md names every package, and only files that exist.
func TestArchitectureNamesThePackages(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, layer := range layers {
		for _, pkg := range layer {
			if !bytes.Contains(text, []byte("`"+pkg+"`")) {
				t.Errorf("ARCHITECTURE.md does not name %s (layer %d)", pkg, i)
			}
		}
	}
	for _, m := range regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9_]+)*\\.go)`").FindAllSubmatch(text, -1) {
		if _, err := os.Stat(string(m[1])); err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", m[1])
		}
	}
}

// docs/dependencies.md has a line for every direct module.
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
