package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// moduleRoot makes a module with this package, whose types are the sample's.
func moduleRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	src, err := os.ReadFile("sample_test.go")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "go.mod"), "// a comment\nmodule github.com/ctxgate/ctxgate\n")
	writeFile(t, filepath.Join(root, "tools/docgen/sample.go"), string(src))
	writeFile(t, filepath.Join(root, "tools/docgen/broken_test.go"), "not Go at all")
	return root
}

func writeFile(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newReference(root string, defaults any) reference {
	return reference{
		root: root, command: "go run ./gen", defaults: defaults,
		markdown: "docs/config.md", schema: "docs/config.schema.json",
	}
}

func TestWrite(t *testing.T) {
	root := moduleRoot(t)
	defaults := sampleDefaults()
	if err := newReference(root, &defaults).write(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.md", "config.schema.json"} {
		got, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			writeFile(t, golden, string(got))
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (run with -update if this is meant):\n%s", golden, diff)
		}
	}
}

// Every table of the schema is closed or defines its entries.
func TestSchemaIsClosed(t *testing.T) {
	files, err := newReference(moduleRoot(t), sampleDefaults()).files()
	if err != nil {
		t.Fatal(err)
	}
	var s any
	if err := json.Unmarshal(files["docs/config.schema.json"], &s); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		m, _ := v.(map[string]any)
		if m["type"] == "object" && m["additionalProperties"] == nil {
			t.Errorf("open: %v", m)
		}
		for _, sub := range m {
			walk(sub)
		}
	}
	walk(s)
}

func TestRefusals(t *testing.T) {
	_, err := newReference(moduleRoot(t), broken{}).files()
	if err == nil {
		t.Fatal("accepted")
	}
	want := []string{
		`main.broken.Silent has no comment: say what the key "silent" does`,
		`main.broken.Type: no key can have the type chan int`,
		`main.broken.Deep: the table has the key "type" already`,
		`main.broken.List: no key can have the type []uint8`,
		`main.broken.Map: no key can have the type main.ints`,
		`main.broken.Bound: the tag min:"1" does not fit the type string`,
		`main.broken.Two: CTXGATE_ONE_TWO sets main.one.Two already`,
		`self.more: main.selfish holds itself`,
		`struct { X int "key:\"x\"" }.X: a struct without a name cannot have field comments; give it a name`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestNoSources(t *testing.T) {
	full := moduleRoot(t)
	bare := t.TempDir()
	writeFile(t, filepath.Join(bare, "go.mod"), "go 1.26\n")
	foreign := t.TempDir()
	writeFile(t, filepath.Join(foreign, "go.mod"), "module example.com/other\n")
	missing := t.TempDir()
	writeFile(t, filepath.Join(missing, "go.mod"), "module github.com/ctxgate/ctxgate\n")
	damaged := moduleRoot(t)
	writeFile(t, filepath.Join(damaged, "tools/docgen/damaged.go"), "package")

	for _, tt := range []struct {
		ref  reference
		want string
	}{
		{newReference(t.TempDir(), sample{}), "go.mod: no such file"},
		{newReference(bare, sample{}), "go.mod names no module"},
		{newReference(foreign, sample{}), "is not a package of example.com/other"},
		{newReference(missing, sample{}), "no such file"},
		{newReference(damaged, sample{}), "damaged.go:"},
		{newReference(full, 5), "defaults are a int, want a struct"},
	} {
		if err := tt.ref.write(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	blocked := newReference(full, sampleDefaults())
	writeFile(t, filepath.Join(full, "file"), "")
	blocked.markdown, blocked.schema = "file/a.md", "file/a.json"
	if blocked.write() == nil {
		t.Error("no error for a file in place of a directory")
	}
	blocked.markdown, blocked.schema = ".", "internal"
	if blocked.write() == nil {
		t.Error("no error for a directory in place of a file")
	}
}
