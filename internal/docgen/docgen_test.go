package docgen

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

// moduleRoot is a module that holds this package, with the sample where a package has its types.
func moduleRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	src, err := os.ReadFile("sample_test.go")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "go.mod"), "// a comment\nmodule github.com/ctxgate/ctxgate\n")
	put(t, filepath.Join(root, "internal/docgen/sample.go"), string(src))
	put(t, filepath.Join(root, "internal/docgen/broken_test.go"), "not Go at all")
	return root
}

func put(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func job(root string, defaults any) Job {
	return Job{
		Root: root, Command: "go run ./gen", Defaults: defaults,
		Markdown: "docs/config.md", Schema: "docs/config.schema.json",
	}
}

func TestWrite(t *testing.T) {
	root := moduleRoot(t)
	defaults := sampleDefaults()
	if err := job(root, &defaults).Write(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.md", "config.schema.json"} {
		got, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			put(t, golden, string(got))
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

// Every table of the schema is closed, or says what its entries are.
func TestSchemaIsClosed(t *testing.T) {
	files, err := job(moduleRoot(t), sampleDefaults()).Files()
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
	_, err := job(moduleRoot(t), broken{}).Files()
	if err == nil {
		t.Fatal("accepted")
	}
	want := []string{
		`docgen.broken.Silent has no comment: say what the key "silent" does`,
		`docgen.broken.Type: no key can have the type chan int`,
		`docgen.broken.Deep: the table has the key "type" already`,
		`docgen.broken.List: no key can have the type []uint8`,
		`docgen.broken.Map: no key can have the type docgen.ints`,
		`docgen.broken.Bound: the tag min:"1" does not fit the type string`,
		`docgen.broken.Two: CTXGATE_ONE_TWO sets docgen.one.Two already`,
		`self.more: docgen.selfish holds itself`,
		`struct { X int "key:\"x\"" }.X: a struct without a name has no place for comments; give it one`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestNoSources(t *testing.T) {
	full := moduleRoot(t)
	bare := t.TempDir()
	put(t, filepath.Join(bare, "go.mod"), "go 1.26\n")
	foreign := t.TempDir()
	put(t, filepath.Join(foreign, "go.mod"), "module example.com/other\n")
	missing := t.TempDir()
	put(t, filepath.Join(missing, "go.mod"), "module github.com/ctxgate/ctxgate\n")
	damaged := moduleRoot(t)
	put(t, filepath.Join(damaged, "internal/docgen/damaged.go"), "package")

	for _, tt := range []struct {
		job  Job
		want string
	}{
		{job(t.TempDir(), sample{}), "go.mod: no such file"},
		{job(bare, sample{}), "go.mod names no module"},
		{job(foreign, sample{}), "is not a package of example.com/other"},
		{job(missing, sample{}), "no such file"},
		{job(damaged, sample{}), "damaged.go:"},
		{job(full, 5), "defaults are a int, want a struct"},
	} {
		if err := tt.job.Write(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	blocked := job(full, sampleDefaults())
	put(t, filepath.Join(full, "file"), "")
	blocked.Markdown, blocked.Schema = "file/a.md", "file/a.json"
	if blocked.Write() == nil {
		t.Error("a file in the way of a directory must be told")
	}
	blocked.Markdown, blocked.Schema = ".", "internal"
	if blocked.Write() == nil {
		t.Error("a directory in the way of a file must be told")
	}
}
