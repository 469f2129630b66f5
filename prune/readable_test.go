package prune

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// readable checks that a kept line of code is kept with the lines it requires.
func readable(t *testing.T, text string, keeps map[string][]string) {
	t.Helper()
	d := cutting{text: text, kind: Code}.read(t)
	rows := strings.Split(text, "\n")
	at := func(part string) int32 {
		return int32(slices.IndexFunc(rows, func(r string) bool { return strings.Contains(r, part) }))
	}
	for line, needs := range keeps {
		k := keptLines{keepRules: &d.rules, keep: make([]bool, len(rows)), isComplete: make([]bool, len(rows))}
		k.keepLine(at(line))
		for _, n := range needs {
			if !k.keep[at(n)] {
				t.Errorf("%q stays without %q", line, n)
			}
		}
	}
}

// A line stays with what opens and closes its blocks, even if other lines are not indented.
func TestLinesStayReadable(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		keeps map[string][]string
	}{
		"go label": {
			"func f() {\nwalk: // outer\n\tfor {\n\t\tbody()\n\t} // for\n} // f",
			map[string][]string{"body()": {"func f", "for {", "} // for", "} // f"}, "} // f": {"func f"}},
		},
		"c directive": {
			"#include <a.h>\nint f(void) {\n    if (a) {\n#ifdef X\n        x();\n#else\n        y();\n#endif\n        z();\n    } // if\n} // f",
			map[string][]string{"z();": {"if (a)", "} // if", "int f", "} // f"}, "#else": {"#ifdef", "#endif"}, "#ifdef": {"#endif"}},
		},
		"c macro": {
			"#include <a.h>\n#define A(x) \\\n  first(x); \\\n  second(x); \\\n  last(x)\nint b;",
			map[string][]string{"second(x)": {"#define", "first", "last"}},
		},
		"brace on a line": {
			"#include <a.h>\nint f(void)\n{\n    a();\n} // closes",
			map[string][]string{"a();": {"int f", "{", "} // closes"}},
		},
		"else on a line": {
			"#include <a.h>\nint f(void) {\n    if (x) {\n        a();\n    } // if\n    else {\n        b();\n    } // else\n}",
			map[string][]string{"b();": {"if (x)", "} // if", "else {", "} // else"}},
		},
		"elif after comment": {
			"import os\nif a:\n    b()\n# no\nelif c:\n    d()",
			map[string][]string{"d()": {"if a", "elif c"}},
		},
		"two brackets": {
			"import os\nwarn((\n    'a'\n    'b'), # one\n    C) # two",
			map[string][]string{"'a'": {"warn((", "# one", "# two"}, "C)": {"warn(("}},
		},
		"header of many lines": {
			"import os\nif (\n    a\n    and b\n) or c: # head\n    d()",
			map[string][]string{"d()": {"if (", ") or c"}},
		},
		"template": {
			"const a = 1\nconst b = f(`x \\` {\n y\n`) // end\nfunction g() {\n  h()\n} // g",
			map[string][]string{"h()": {"function g", "} // g"}, " y": {"const b", "// end"}},
		},
	} {
		t.Run(name, func(t *testing.T) { readable(t, c.text, c.keeps) })
	}
}

// What must stay (P8) is readable: a method has its class, and the class its end.
func TestDefinitionsKeepWhatTheyAreNestedIn(t *testing.T) {
	filler := strings.Repeat("        something(of, no, interest, at, all, to, anybody);\n", 12)
	text := "package a;\n\npublic class A {\n    public void f() {\n" + filler + "    } // f\n" +
		"    static class B {\n        void g() {\n" + filler + "        } // g\n    } // B\n} // A\n"
	d := cutting{text: text, goal: "zebra", kind: Code}.read(t)
	out := string(d.AppendPruned(nil, d.Cut(Budget{MaxPruneRatio: 1}), Format{}))
	for _, want := range []string{"class A", "void f()", "class B", "void g()", "} // B", "} // A"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is gone from\n%s", want, out)
		}
	}
	text = "import os\nif WIN:\n    print('a long line that nobody asked for, which may go as well as the next ones')\n" + strings.Repeat("    print('a long line that nobody asked for')\n", 9) + "    def f():\n        pass\n"
	d = cutting{text: text, goal: "zebra", kind: Code}.read(t)
	if out := string(d.AppendPruned(nil, d.Cut(Budget{MaxPruneRatio: 1}), Format{})); !strings.Contains(out, "if WIN:") || strings.Contains(out, "nobody") {
		t.Errorf("a function without what it stands under:\n%s", out)
	}
}

// A licence that is cut is still a closed comment.
func TestLongOpeningCommentIsClosed(t *testing.T) {
	text := "/*\n" + strings.Repeat(" * a line of a licence that goes on for ever and ever\n", 60) + " */\npackage a;\n\npublic class A {\n}\n"
	d := cutting{text: text, goal: "zebra", kind: Code}.read(t)
	out := string(d.AppendPruned(nil, d.Cut(Budget{MaxPruneRatio: 1}), Format{}))
	if !strings.HasPrefix(out, "/*\n") || !strings.Contains(out, "\n */\n") || strings.Count(out, "ever") > 80 {
		t.Errorf("%s", out)
	}
}

// P8: testdata/keep/*.txtar hold a source file each, and parts of the lines that stay whatever the goal
// and the budget. Lines without relation to the goal go.
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
				kept := strings.Split(string(c.read(t).AppendPruned(nil, c.read(t).Cut(budget), Format{})), "\n")
				for _, k := range keep {
					if !slices.ContainsFunc(kept, func(row string) bool { return strings.Contains(row, k) }) {
						t.Errorf("%q is gone at %v", k, budget)
					}
				}
				if budget.MaxPruneRatio == 1 && strings.Contains(strings.Join(kept, "\n"), "nothing that was asked for") {
					t.Error("lines without relation to the goal stay")
				}
			}
		})
	}
}
