package code

import (
	"strings"
	"testing"
)

// dialects by the languages that tests name.
var dialects = map[string]Dialect{"py": likePython, "js": likeJS, "go": likeGo, "rust": likeRust, "c": likeC, "sh": likeShell}

func (t trait) names() string {
	var out []string
	for i, name := range []string{"blank", "marks", "comment", "import", "def", "attr", "call", "return", "trivial", "linked"} {
		if t&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// What a line of code is by itself: language, line, traits.
var lineTraits = []struct{ lang, line, want string }{
	{"go", "", "blank marks"},
	{"go", "\t  ", "blank marks"},
	{"go", "\t})", "marks"},
	{"go", "___", "marks"},
	{"go", "package prune", "import"},
	{"go", `import "fmt"`, "import"},
	{"go", "import (", "import"},
	{"go", "// a comment", "comment"},
	{"go", "func main() {", "def"},
	{"go", "func (d *Doc) Len() int { return 1 }", "def"},
	{"go", "type Kind uint8", "def"},
	{"go", "\ttype plain Config", "def"},
	{"go", "\tx := read(n)", "call"},
	{"go", "\treturn nil", "return"},
	{"go", "\treturn read(n)", "return"},
	{"go", "\tif read(n) {", ""},
	{"go", "\t} else {", "trivial linked"},
	{"go", "\t} else if x {", "linked"},
	{"go", "\tcase 1:", "linked"},
	{"go", "\tdefault:", "trivial linked"},
	{"go", "\tbreak", "trivial"},
	{"go", "\tgo func() {", ""},
	{"go", "\tdefer f.Close()", ""},
	{"go", "\tpackageName = 1", ""},
	{"py", "import os", "import"},
	{"py", "from os import path", "import"},
	{"py", "from_here = 1", ""},
	{"py", "# a comment", "comment"},
	{"py", "#!/usr/bin/env python", "comment"},
	{"py", `    """Doc."""`, "comment"},
	{"py", "def read(self, n):", "def"},
	{"py", "    async def read(", "def"},
	{"py", "class A(B):", "def"},
	{"py", "class_name = 1", ""},
	{"py", "@property", "attr"},
	{"py", "@click.option('--x', default=1)", "attr"},
	{"py", "    elif x:", "linked"},
	{"py", "    except ValueError:", "linked"},
	{"py", "    else:", "trivial linked"},
	{"py", "    pass", "trivial"},
	{"py", "    raise ValueError('x')", ""},
	{"py", "    self.read(1)", "call"},
	{"js", "import x from 'x'", "import"},
	{"js", "const x = require('x')", "import"},
	{"js", "require('x')", "import"},
	{"js", "const { a } = await import('x')", "call"},
	{"js", "export default function main() {", "def"},
	{"js", "export const f = async (x) => {", "def"},
	{"js", "app.use = function use(fn) {", "def"},
	{"js", "class A extends B {", "def"},
	{"js", "  constructor(x) {", "def"},
	{"js", "  get size() {", "def"},
	{"js", "  it('reads', () => {", "def"},
	{"js", "  } catch (err) {", "linked"},
	{"js", "  } finally {", "trivial linked"},
	{"js", "/** doc */", "comment"},
	{"js", " * of a comment", "comment"},
	{"js", "  await read(x)", ""},
	{"js", "  @Input() name", "attr"},
	{"c", "#include <stdio.h>", "import"},
	{"c", "# include <stdio.h>", "import"},
	{"c", "#define MAX 3", ""},
	{"c", "static int read(int n) {", "def"},
	{"c", "int read(int n)", "def"},
	{"c", "void *alloc(size_t n,", "def"},
	{"c", "int read(int n);", "call"},
	{"c", "struct node {", "def"},
	{"c", "    struct node n;", ""},
	{"c", "    *p = read(n);", "call"},
	{"c", "    free(p);", "call"},
	{"java", "package a.b;", "import"},
	{"java", "import static a.B.c;", "import"},
	{"java", "public final class A<T> extends B {", "def"},
	{"java", "    private static int read(String s) throws X {", "def"},
	{"java", "    @Override", "attr"},
	{"java", "    private final String name;", ""},
	{"java", "    protected abstract void read();", "call"},
	{"java", "public enum A {", "def"},
	{"rust", "use std::fs;", "import"},
	{"rust", "pub use a::B;", "import"},
	{"rust", "mod tests;", "import"},
	{"rust", "extern crate x;", "import"},
	{"rust", "pub(crate) fn read(n: u8) -> u8 {", "def"},
	{"rust", "impl<'a> A<'a> {", "def"},
	{"rust", "impl A for B {", "def"},
	{"rust", "pub trait A {", "def"},
	{"rust", "macro_rules! x {", "def"},
	{"rust", "#[derive(Debug)]", "attr"},
	{"rust", "#![allow(dead_code)]", "attr"},
	{"rust", "    match self.x {", ""},
	{"rust", "    let x = read(n)?;", "call"},
	{"sh", "# a comment", "comment"},
	{"sh", "fi", "trivial"},
	{"sh", "require_relative 'x'", "import"},
}

func TestTraits(t *testing.T) {
	for _, c := range lineTraits {
		lang := c.lang
		if lang == "java" {
			lang = "c"
		}
		if got := traitsOf(c.line, dialects[lang]).names(); got != c.want {
			t.Errorf("%s %q is %q, want %q", c.lang, c.line, got, c.want)
		}
	}
}

// Headers that open a body are definitions, however they are spelled (P8).
func TestMoreDefinitions(t *testing.T) {
	for _, c := range []struct{ lang, line string }{
		{"rust", "mod tests {"},
		{"rust", "impl ::std::error::Error for ConfigError {"},
		{"rust", "pub(crate) mod a {"},
		{"c", "typedef struct redisContext {"},
		{"c", "    @Override public String toString() {"},
		{"c", "public @interface Mock {"},
		{"js", "export abstract class A {"},
	} {
		if got := traitsOf(c.line, dialects[c.lang]); got&isDef == 0 {
			t.Errorf("%s %q is %q, no definition", c.lang, c.line, got.names())
		}
	}
}
