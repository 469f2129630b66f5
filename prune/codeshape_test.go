package prune

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shown writes a column of what was read of code: one value a line, from 1; 0 for none.
func shown(v []int32) string {
	out := make([]string, len(v))
	for i, x := range v {
		out[i] = fmt.Sprint(x + 1)
	}
	return strings.Join(out, " ")
}

func wantColumn(t *testing.T, name string, got []int32, want string) {
	t.Helper()
	if s := shown(got); s != want {
		t.Errorf("%s\n%s, want\n%s", name, s, want)
	}
}

// wantLineOf checks some lines of a column, counted from 1; 0 for none.
func wantLineOf(t *testing.T, name string, got []int32, want map[int]int32) {
	t.Helper()
	for line, w := range want {
		if got := got[line-1] + 1; got != w {
			t.Errorf("line %d %s %d, want %d", line, name, got, w)
		}
	}
}

// What a line stands under, what it goes on with, what closes what it opens.
func TestGoShape(t *testing.T) {
	c := readCode(split(strings.Join([]string{
		"package a",            // 1
		"",                     // 2
		"// f does.",           // 3
		"func f(",              // 4
		"\tx int,",             // 5
		") error {",            // 6
		"\tif x > 1 {",         // 7
		"\t\tx = g(",           // 8
		"\t\t\th,",             // 9
		"\t\t)",                // 10
		"\t} else if x == 1 {", // 11
		"\t\tx--",              // 12
		"\t} else {",           // 13
		"\t\tx++",              // 14
		"\t}",                  // 15
		"\tswitch x {",         // 16
		"\tcase 1:",            // 17
		"\t\ty()",              // 18
		"\tdefault:",           // 19
		"\t\tz()",              // 20
		"\t}",                  // 21
		"\treturn nil",         // 22
		"}",                    // 23
		"",                     // 24
		"type t struct{}",      // 25
	}, "\n")))
	wantLineOf(t, "goes on with", c.lead, map[int]int32{11: 7, 13: 11, 17: 16, 19: 17})
	wantColumn(t, "close", c.close, "0 0 0 6 0 23 11 10 0 0 13 0 15 0 0 21 0 0 0 0 0 0 0 0 0")
	wantColumn(t, "params", c.params, "0 0 0 6 0 0 0 10 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
	wantColumn(t, "unit", c.unit, "1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 3")
	wantColumn(t, "head", c.head, "0 4 25")
	wantLineOf(t, "stands under", c.parent, map[int]int32{5: 4, 8: 7, 9: 8, 12: 11, 14: 13, 18: 17, 20: 19})
}

func TestPythonShape(t *testing.T) {
	c := readCode(split(strings.Join([]string{
		"#!/usr/bin/env python", // 1
		"# A script.",           // 2
		"import os",             // 3
		"from a import (",       // 4
		"    b,",                // 5
		")",                     // 6
		"",                      // 7
		"class A:",              // 8
		`    """Doc`,            // 9
		"",                      // 10
		"    of A. def x():",    // 11
		`    """`,               // 12
		"",                      // 13
		"    @property",         // 14
		"    def f(self):",      // 15
		"        try:",          // 16
		"            g()",       // 17
		"        # no luck",     // 18
		"        except E:",     // 19
		"            h()",       // 20
		"        else:",         // 21
		"            i()",       // 22
	}, "\n")))
	wantLineOf(t, "stands under", c.parent, map[int]int32{1: 0, 3: 0, 5: 4, 8: 0, 9: 8, 11: 8, 12: 8, 14: 8, 15: 8, 16: 15, 17: 16, 18: 15, 19: 15, 20: 19, 21: 15, 22: 21})
	wantLineOf(t, "goes on with", c.lead, map[int]int32{10: 9, 11: 9, 12: 9, 15: 0, 16: 0, 19: 16, 21: 19})
	wantColumn(t, "close", c.close, "0 0 0 6 0 0 0 0 12 0 0 0 0 0 0 0 0 0 0 0 0 0")
	wantColumn(t, "unit", c.unit, "1 1 1 1 1 1 1 2 2 2 2 2 2 3 3 3 3 3 3 3 3 3")
	for i, want := range map[int]trait{5: isImport, 6: isImport, 11: isComment, 12: isComment} {
		if c.is[i-1]&want == 0 || c.is[i-1]&isDef != 0 {
			t.Errorf("line %d is %q", i, c.is[i-1].names())
		}
	}
	if c.title != 2 {
		t.Errorf("the title has %d lines", c.title)
	}
}

// readable checks that whatever line of a program is kept, what it cannot be read without is too.
func readable(t *testing.T, text string, keeps map[string][]string) {
	t.Helper()
	d := cutting{text: text, kind: Code}.read(t)
	rows := strings.Split(text, "\n")
	at := func(part string) int32 {
		return int32(slices.IndexFunc(rows, func(r string) bool { return strings.Contains(r, part) }))
	}
	for line, needs := range keeps {
		k := keeper{shape: &d.shape, keep: make([]bool, len(rows)), taken: make([]bool, len(rows))}
		k.take(at(line))
		for _, n := range needs {
			if !k.keep[at(n)] {
				t.Errorf("%q stays without %q", line, n)
			}
		}
	}
}

// A line stays with what opens and closes the blocks around it, whatever stands at the left margin.
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

// What stays for P8 is readable too: a method has its class, and a class with a method its end.
func TestHeadersHaveHeaders(t *testing.T) {
	filler := strings.Repeat("        something(of, no, interest, at, all, to, anybody);\n", 12)
	text := "package a;\n\npublic class A {\n    public void f() {\n" + filler + "    } // f\n" +
		"    static class B {\n        void g() {\n" + filler + "        } // g\n    } // B\n} // A\n"
	d := cutting{text: text, goal: "zebra", kind: Code}.read(t)
	out := string(d.Append(nil, d.Cut(Budget{MaxRatio: 1}), Style{}))
	for _, want := range []string{"class A", "void f()", "class B", "void g()", "} // B", "} // A"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is gone from\n%s", want, out)
		}
	}
	text = "import os\nif WIN:\n    print('a long line that nobody asked for, which may go as well as the next ones')\n" + strings.Repeat("    print('a long line that nobody asked for')\n", 9) + "    def f():\n        pass\n"
	d = cutting{text: text, goal: "zebra", kind: Code}.read(t)
	if out := string(d.Append(nil, d.Cut(Budget{MaxRatio: 1}), Style{})); !strings.Contains(out, "if WIN:") || strings.Contains(out, "nobody") {
		t.Errorf("a function without what it stands under:\n%s", out)
	}
}

// A licence that is cut is still a comment that ends.
func TestLongTitleEnds(t *testing.T) {
	text := "/*\n" + strings.Repeat(" * a line of a licence that goes on for ever and ever\n", 60) + " */\npackage a;\n\npublic class A {\n}\n"
	d := cutting{text: text, goal: "zebra", kind: Code}.read(t)
	out := string(d.Append(nil, d.Cut(Budget{MaxRatio: 1}), Style{}))
	if !strings.HasPrefix(out, "/*\n") || !strings.Contains(out, "\n */\n") || strings.Count(out, "ever") > 80 {
		t.Errorf("%s", out)
	}
}
