package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// countFaultsIn counts the faults of a text without the lines that begin with "-".
func countFaultsIn(t *testing.T, lang, text string) counts {
	t.Helper()
	rows := strings.Split(text, "\n")
	kept := make([]bool, len(rows))
	for i, row := range rows {
		kept[i] = !strings.HasPrefix(row, "-")
		rows[i] = strings.TrimPrefix(row, "-")
	}
	whole, err := tokenize(lang, strings.Join(rows, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	b := findLinks(lang, whole)
	b.isOutline = make([]bool, len(rows))
	for i, row := range rows {
		b.isOutline[i] = strings.Contains(row, "outline")
	}
	n, err := b.countFaults(kept, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		lang, text string
		want       counts
	}{
		"whole":        {"go", "package a\n\nfunc f() {\n-\tg()\n\tg()\n}\n", counts{keptLines: 6}},
		"unclosed":     {"go", "func f() {\n\tg()\n-}\n", counts{keptLines: 3, unclosed: 1}},
		"hollow":       {"go", "func outline() {\n-\tg()\n-}\n", counts{keptLines: 2, emptyBody: 1}},
		"unopened":     {"go", "-func f() {\n-\tg()\n}\n", counts{keptLines: 2, unopened: 1}},
		"headless":     {"go", "-func f() {\n\tg()\n-}\n", counts{keptLines: 2, missingDefinition: 1, missingHeader: 1}},
		"homeless":     {"go", "func f() {\n-\tif a {\n\t\tg()\n-\t}\n}\n", counts{keptLines: 4, missingHeader: 1}},
		"torn comment": {"go", "a()\n-/*\nb()\n*/\nc()\n", counts{keptLines: 5, misread: 1}},
		"torn string":  {"go", "a := `\n-`\nb()\n\"c\"\n", counts{keptLines: 4, misread: 1}},
		"else":         {"go", "func f() {\n-\tif a {\n-\t\tb()\n\t} else {\n\t\tc()\n\t}\n}\n", counts{keptLines: 6, unopened: 1, missingParent: 1}},
		"case":         {"java", "class A { void f() {\n-switch (a) {\ncase 1: b();\n-}\n} }\n", counts{keptLines: 4, missingParent: 1, missingHeader: 1}},
		"python def":   {"python", "-def f():\n-    if a:\n        b()\n", counts{keptLines: 2, missingDefinition: 1, missingHeader: 1}},
		"python else":  {"python", "-if a:\n-    b()\nelse:\n    c()\n", counts{keptLines: 3, missingParent: 1}},
		"decorator":    {"python", "@a(\n    1,\n)\n-def f():\n-    pass\n", counts{keptLines: 4, detachedAttribute: 1}},
		"attribute":    {"rust", "#[test]\n-fn f() {\n-}\n", counts{keptLines: 2, detachedAttribute: 1}},
		"annotation":   {"java", "class A {\n@Override\n-void f() {\n-}\n}\n", counts{keptLines: 4, detachedAttribute: 1}},
		"directive":    {"c", "#ifdef A\nint a;\n-#endif\n", counts{keptLines: 3, unpairedDirective: 1}},
		"in strings":   {"typescript", "f('{', `(`)\n-g(/[{]/)\nh() // {\n", counts{keptLines: 3}},
	} {
		if got := countFaultsIn(t, c.lang, c.text); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The command runs, and its table has a row for each language.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.jsonl.gz")
	var data bytes.Buffer
	z := gzip.NewWriter(&data)
	for _, s := range []sample{
		{ID: "a", Kind: "code", Lang: "go", Goal: "g", Text: "package a\n\nfunc f() {\n" + strings.Repeat("\tsomething.of(no, interest)\n", 60) + "\tg()\n}\n"},
		{ID: "b", Kind: "code", Lang: "python", Goal: "g", Text: "def f():\n" + strings.Repeat("    something.of(no, interest)\n", 60)},
		{ID: "c", Kind: "logs", Lang: "", Goal: "g", Text: "a"},
	} {
		if err := json.NewEncoder(z).Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	z.Close()
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runCommand(&out, path, "", 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngo ", "\npython ", "\nall ", "unclosed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
