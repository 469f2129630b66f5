package reduce

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// G+4: testdata/json/*.txtar, each a policy and a JSON text; then what the text becomes, what
// the same value becomes as structuredContent, and the notes that go with that.
func TestGPlus4Goldens(t *testing.T) {
	files, err := filepath.Glob("testdata/json/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var g struct {
				Mask
				ID string
			}
			if err := json.Unmarshal(ar.Files[0].Data, &g); err != nil {
				t.Fatal(err)
			}
			in := bytes.TrimSuffix(ar.Files[1].Data, []byte("\n"))
			if !checkJSONLaws(t, in, g.Mask) {
				t.Fatal("not shortened")
			}
			plan, _ := g.CutJSON(in, len(g.ID))
			got := [][]byte{
				jsonscan.AppendSpliced(nil, in, plan.Edits(g.ID)),
				jsonscan.AppendSpliced(nil, in, plan.TypedEdits(in, g.ID)),
				bytes.ReplaceAll(plan.AppendNotes(nil, g.ID), []byte("},{"), []byte("},\n{")),
			}
			for i := range got {
				file := &ar.Files[i+2]
				got := append(got[i], '\n')
				if *update {
					file.Data = got
				}
				if !bytes.Equal(got, file.Data) {
					t.Errorf("%s: got\n%s\nwant\n%s", file.Name, got, file.Data)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// G+4: a text that is no array or object, is short enough, or cannot be shortened enough is left to mask.
func TestGPlus4LeftToTheMask(t *testing.T) {
	long := strings.Repeat("x", 5000)
	list := "[" + strings.Repeat("1,", 3000) + "1]"
	fields := "{" + strings.Repeat(`"field":1,`, 700) + `"last":1}`
	for name, text := range map[string]string{
		"plain text":             long,
		"a string":               `"` + long + `"`,
		"a number":               strings.Repeat("1", 5000),
		"cut off":                list[:len(list)-1],
		"text after it":          list + " and more",
		"text before it":         "Result: " + list,
		"two on one line":        list + list,
		"numbers on lines":       strings.Repeat("1\n", 5000),
		"a zero byte after it":   list + "\x00",
		"a lone surrogate":       `["\ud800"` + list[2:],
		"only members":           fields,
		"a list of only those":   "[" + fields + "," + fields + "," + fields + "]",
		"short enough":           "[1,2,3]",
		"just short enough":      "[" + strings.Repeat(" ", 3998) + "]",
		"empty, but long":        "[" + strings.Repeat(" ", 5000) + "]",
		"nested too deep":        strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"more nodes than may be": forks(10, 1000),
	} {
		if p, ok := DefaultMask().CutJSON([]byte(text), len(testID)); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
	tiny := Mask{MaxChars: 20, HeadChars: 4, TailChars: 4}
	if _, ok := tiny.CutJSON([]byte(list), len(testID)); ok {
		t.Error("a limit smaller than the marker")
	}
	none := Mask{MaxChars: 4000}
	if _, ok := none.CutJSON([]byte(list), len(testID)); ok {
		t.Error("nothing is kept: the marker of the mask says as much")
	}
}

// forks is a document that has as many nodes as its length allows: pairs of chains of lists.
func forks(depth, chain int) string {
	if depth == 0 {
		return `"` + strings.Repeat("y", 300) + `"`
	}
	chain /= depth
	half := forks(depth-1, chain*(depth-1))
	return strings.Repeat("[", chain) + half + "," + half + strings.Repeat("]", chain)
}
