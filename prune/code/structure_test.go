package code

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// shown prints one value per line, counted from 1; 0 for none.
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

// wantLineOf checks the values of some lines, counted from 1; 0 for none.
func wantLineOf(t *testing.T, name string, got []int32, want map[int]int32) {
	t.Helper()
	for line, w := range want {
		if got := got[line-1] + 1; got != w {
			t.Errorf("line %d %s %d, want %d", line, name, got, w)
		}
	}
}

// The parent of a line, the line it continues, and the line that closes what it opens.
func TestGoStructure(t *testing.T) {
	c := Parse(relevance.Split(strings.Join([]string{
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
	wantLineOf(t, "continues", c.leader, map[int]int32{11: 7, 13: 11, 17: 16, 19: 17})
	wantColumn(t, "close", c.closer, "0 0 0 6 0 23 11 10 0 0 13 0 15 0 0 21 0 0 0 0 0 0 0 0 0")
	wantColumn(t, "params", c.paramsEnd, "0 0 0 6 0 0 0 10 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
	wantColumn(t, "unit", c.unit, "1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 3")
	wantColumn(t, "head", c.unitHead, "0 4 25")
	wantLineOf(t, "is nested in", c.parent, map[int]int32{5: 4, 8: 7, 9: 8, 12: 11, 14: 13, 18: 17, 20: 19})
}

func TestPythonStructure(t *testing.T) {
	c := Parse(relevance.Split(strings.Join([]string{
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
	wantLineOf(t, "is nested in", c.parent, map[int]int32{1: 0, 3: 0, 5: 4, 8: 0, 9: 8, 11: 8, 12: 8, 14: 8, 15: 8, 16: 15, 17: 16, 18: 15, 19: 15, 20: 19, 21: 15, 22: 21})
	wantLineOf(t, "continues", c.leader, map[int]int32{10: 9, 11: 9, 12: 9, 15: 0, 16: 0, 19: 16, 21: 19})
	wantColumn(t, "close", c.closer, "0 0 0 6 0 0 0 0 12 0 0 0 0 0 0 0 0 0 0 0 0 0")
	wantColumn(t, "unit", c.unit, "1 1 1 1 1 1 1 2 2 2 2 2 2 3 3 3 3 3 3 3 3 3")
	for i, want := range map[int]trait{5: isImport, 6: isImport, 11: isComment, 12: isComment} {
		if c.traits[i-1]&want == 0 || c.traits[i-1]&isDef != 0 {
			t.Errorf("line %d is %q", i, c.traits[i-1].names())
		}
	}
	if c.titleLines != 2 {
		t.Errorf("the title has %d lines", c.titleLines)
	}
}
