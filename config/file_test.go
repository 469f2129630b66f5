package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	padded := func(size int) []byte {
		return append(bytes.Repeat([]byte("#"), size-1), '\n')
	}
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "none.toml"), ": cannot be read: no such file or directory"},
		{write("c.ini", nil), `: unknown format ".ini"; the name of a config file ends in .toml, .json, .yaml or .yml`},
		{write("bare", nil), `: unknown format ""; the name of a config file ends in .toml, .json, .yaml or .yml`},
		{write("limit.toml", padded(maxFileSize)), ""},
		{write("over.toml", padded(maxFileSize+1)), ": larger than 4 MiB"},
	} {
		f, ps := ReadFile(tt.path)
		if got := strings.TrimPrefix(ps.Error(), tt.path); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.path, got, tt.want)
		}
		if f == nil || f.Path != tt.path || f.Decode(&sample{}) != nil {
			t.Errorf("%s: the file must still decode, as an empty one", tt.path)
		}
	}
	if _, ps := ReadFile(dir); len(ps) != 1 || !strings.Contains(ps[0].Text, "cannot be read") {
		t.Errorf("a directory gives %v", ps)
	}
}

func TestEmptyFileIsEmptyConfig(t *testing.T) {
	for name, contents := range map[string][]string{
		"a.toml": {"", " \n\t\n", "\uFEFF", "# nothing yet\n"},
		"a.json": {"", " \n\t\n", "\uFEFF", "{}", "null"},
		"a.yaml": {"", " \n\n", "\uFEFF", "# nothing yet\n", "---\n", "~\n", "{}"},
		"A.YML":  {""},
	} {
		for _, data := range contents {
			got, ps := load(name, []byte(data))
			if diff := cmp.Diff(sampleDefaults(), got, compare); diff != "" || ps != nil {
				t.Errorf("%s %q: %v\n%s", name, data, ps, diff)
			}
		}
	}
}

func TestFirstLineOfYAML(t *testing.T) {
	if _, ps := ReadBytes("a.yaml", []byte("a: b: c\n")); ps.Error() != "a.yaml:1: mapping values are not allowed in this context" {
		t.Error(ps)
	}
}

const lined = `listen = "a"
masking.max_chars = 1

[[servers]]
id = "a"
env = { "x.y" = "1" }

[[servers]]
command = [
  "a",
  ["b"],
]
[servers.headers]
A = "b"
[[servers.deep]]
k = 1
[[servers.deep]]

[observation_masking.one]
[observation_masking]
`

func TestLine(t *testing.T) {
	f, ps := ReadBytes("a.toml", []byte(lined))
	if ps != nil {
		t.Fatal(ps)
	}
	for path, want := range map[string]int{
		"":                        0,
		"listen":                  1,
		"nowhere":                 0,
		"masking":                 2,
		"masking.max_chars":       2,
		"masking.head_chars":      2, // the nearest table above
		"servers":                 4,
		"servers[0].id":           5,
		"servers[0].url":          4,
		`servers[0].env."x.y"`:    6,
		"servers[1]":              8,
		"servers[1].command":      9,
		"servers[1].command[0]":   10,
		"servers[1].command[1]":   9, // an array in an array has no line of its own
		"servers[1].headers.A":    14,
		"servers[1].deep[0].k":    16,
		"servers[1].deep[1]":      17,
		"servers[2]":              4,
		"servers[x]":              4,
		"observation_masking.one": 19,
		"observation_masking.two": 20,
	} {
		if got := f.Line(path); got != want {
			t.Errorf("Line(%q) = %d, want %d", path, got, want)
		}
	}
}

func TestProblemsOfValidate(t *testing.T) {
	f, _ := ReadBytes("a.toml", []byte(lined))
	errs := []error{
		nil,
		errors.New("[1].command: is not a program"),
		errors.New("[0].url: missing"),
		errors.New("at least one server must be enabled: see the docs"),
	}
	got := f.Problems("servers", errs...)
	got = append(got, f.Problems("", errors.New("listen: no port"))...)
	got = append(got, f.Problems("masking", errors.New("max_chars: too small"), errors.New("makes no sense"))...)
	got.Sort()
	want := `a.toml:1: listen: no port
a.toml:2: masking.max_chars: too small
a.toml:2: masking: makes no sense
a.toml:4: servers[0].url: missing
a.toml:4: servers: at least one server must be enabled: see the docs
a.toml:9: servers[1].command: is not a program`
	if diff := cmp.Diff(want, got.Error()); diff != "" {
		t.Error(diff)
	}
}

// Without a file there are defaults and the environment, and problems name only their key.
func TestNilFile(t *testing.T) {
	var f *File
	if ps := f.Decode(&sample{}); ps != nil {
		t.Error(ps)
	}
	if got := f.Problems("masking", errors.New("max_chars: too small")).Error(); got != "masking.max_chars: too small" {
		t.Error(got)
	}
	if f.Line("listen") != 0 {
		t.Error("no file has no lines")
	}
}

func TestProblem(t *testing.T) {
	for want, p := range map[string]Problem{
		"f:3: k: t":    {"f", 3, "k", "t"},
		"f: k: t":      {"f", 0, "k", "t"},
		"f: t":         {"f", 0, "", "t"},
		"k: t":         {"", 0, "k", "t"},
		"CTXGATE_X: t": {File: "CTXGATE_X", Text: "t"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if (Problems{}).Err() != nil || (Problems{{Text: "x"}}).Err() == nil {
		t.Error("Err must be nil without problems and only then")
	}
}

func TestDecodeIntoNonStruct(t *testing.T) {
	n := 0
	for _, dst := range []any{nil, n, &n, sample{}, (*sample)(nil)} {
		problems, _ := ApplyEnv(dst, nil)
		for _, ps := range []Problems{new(File).Decode(dst), problems, ResolveSecrets(dst, nil)} {
			if len(ps) != 1 || !strings.HasSuffix(ps[0].Text, "want a pointer to a struct") {
				t.Errorf("%T gives %v", dst, ps)
			}
		}
	}
}

func TestUnsupportedFieldTypes(t *testing.T) {
	var dst struct {
		Func func()         `key:"f"`
		Map  map[int]string `key:"m"`
		Uint uint8          `key:"u"`
	}
	f, _ := ReadBytes("a.toml", []byte("f = 1\nm = {}\nu = 1"))
	want := `a.toml:1: f: no key can have the type func()
a.toml:2: m: no key can have the type map[int]string
a.toml:3: u: no key can have the type uint8`
	if diff := cmp.Diff(want, f.Decode(&dst).Error()); diff != "" {
		t.Error(diff)
	}
}

func TestLongTextIsClipped(t *testing.T) {
	long := strings.Repeat("é", 1000)
	for _, data := range []string{"log_level = '" + long + "'", "'" + long + "' = 1", strings.Repeat("k", 1000) + " = 1"} {
		f, _ := ReadBytes("a.toml", []byte(data))
		dst := sampleDefaults()
		if ps := f.Decode(&dst); len(ps) != 1 || len(ps[0].String()) > 300 {
			t.Errorf("%s", ps)
		}
	}
}
