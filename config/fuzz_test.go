package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// YAML 1.1 breaks lines at more than "\n".
var lineBreak = regexp.MustCompile("[\n\r\u0085\u2028\u2029]")

// FuzzLoad reads the same bytes in every format: no panic, the same result twice, every problem on one
// line with a line number that the file has.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/bad-*", "testdata/good.*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"a.toml", "a.json", "a.yaml"} {
			first, ps := load(name, data)
			second, again := load(name, data)
			if diff := cmp.Diff(ps, again); diff != "" {
				t.Fatalf("%s: the second load differs:\n%s", name, diff)
			}
			if diff := cmp.Diff(first, second, compare); diff != "" {
				t.Fatalf("%s: the second load differs:\n%s", name, diff)
			}
			lines := 1 + len(lineBreak.FindAll(data, -1))
			for _, p := range ps {
				if s := p.String(); p.Text == "" || p.Line < 0 || p.Line > lines || strings.ContainsAny(s, "\n\r") {
					t.Fatalf("%s of %d lines: %q", name, lines, s)
				}
			}
		}
	})
}

func load(name string, data []byte) (sample, Problems) {
	dst := sampleDefaults()
	f, ps := ReadBytes(name, data)
	ps = append(ps, f.Decode(&dst)...)
	return dst, ps
}
