package prune

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// P8: testdata/keep/*.txtar, each a file of a language, and how the lines begin, or what is in them,
// that stay whatever the goal and the budget. What nobody asked for goes.
func TestStructureStays(t *testing.T) {
	files, err := filepath.Glob("testdata/keep/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, keep := string(ar.Files[0].Data), strings.Split(strings.TrimSpace(string(ar.Files[1].Data)), "\n")
			for _, budget := range []Budget{{1, 0}, {.85, 0}, {.7, 20}} {
				c := cutting{text, "zebra", Code, budget}
				checkLaws(t, c)
				kept := strings.Split(string(c.read(t).Append(nil, c.read(t).Cut(budget), Style{})), "\n")
				for _, k := range keep {
					if !slices.ContainsFunc(kept, func(row string) bool { return strings.Contains(row, k) }) {
						t.Errorf("%q is gone at %v", k, budget)
					}
				}
				if budget.MaxRatio == 1 && strings.Contains(strings.Join(kept, "\n"), "nothing that was asked for") {
					t.Error("what nobody asked for stays")
				}
			}
		})
	}
}
