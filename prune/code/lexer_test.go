package code

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// lexed scans a text and describes which brackets closed where and what is open at its end.
func lexed(lang, text string) string {
	x := lexer{Dialect: dialects[lang]}
	var out []string
	for i, line := range strings.Split(text, "\n") {
		x.scanLine(int32(i), line, func(from bracket) {
			if int(from.line) < i {
				out = append(out, fmt.Sprintf("%c%d-%d", from.char, from.line, i))
			}
		})
	}
	if x.inside != "" {
		out = append(out, fmt.Sprintf("inside %s of %d", x.inside, x.opened))
	}
	for _, b := range x.stack {
		out = append(out, fmt.Sprintf("open %c of %d", b.char, b.line))
	}
	return strings.Join(out, ", ")
}

func TestLexer(t *testing.T) {
	for _, c := range []struct{ name, lang, text, want string }{
		{"brackets", "go", "f(\n[]int{\n1,\n},\n)", "{1-3, (0-4"},
		{"on a line", "go", "f(a[0], T{})", ""},
		{"string with comment", "go", `s := "// no { comment /*"` + "\nf(", "open ( of 1"},
		{"escaped quote", "go", `s := "a \" { b"`, ""},
		{"char quote", "go", `c := '"'` + "\nx := '{'", ""},
		{"char escape", "go", `c := '\''` + "\nx := '('", ""},
		{"raw string", "go", "s := `{ \" \\`\nf(", "open ( of 1"},
		{"raw lines", "go", "s := `a {\n b ' \" }\n`\nf(", "open ( of 3"},
		{"open raw string", "go", "s := `a {\n(", "inside ` of 0"},
		{"comment", "go", "/* a {\n } */ f(\n)", "(1-2"},
		{"no nested comment", "c", "/* a /* b */ {\n}", "{0-1"},
		{"comment sign in string", "c", `char *s = "/* no"; {` + "\n}", "{0-1"},
		{"line comment", "c", "// it's { /*\nf(", "open ( of 1"},
		{"glob in string", "js", "glob('src/**/*.js', {\n})", "{0-1, (0-1"},
		{"glob in template", "js", "glob(`src/**/*.js`, {\n})", "{0-1, (0-1"},
		{"template", "js", "s = `a\n${b}'\n`; f(\n)", "(2-3"},
		{"lifetime", "rust", "fn f<'a>(x: &'a str) {\n}", "{0-1"},
		{"lifetimes and chars", "rust", "f::<'a>('{', '\\'', x) {\n}", "{0-1"},
		{"loop label", "rust", "'outer: loop {\n}", "{0-1"},
		{"doc string", "py", "def f():\n    \"\"\"it's (\n    \"\"\"\n    g(\n)", "(3-4"},
		{"single triple", "py", "s = '''a \" {\n''' + f(\n)", "(1-2"},
		{"triple on a line", "py", `s = """a""" + f(` + "\n)", "(0-1"},
		{"hash in string", "py", "s = '# no {' + f(\n)", "(0-1"},
		{"hash comment", "py", "x = 1  # it's {\nf(", "open ( of 1"},
		{"hash is no comment", "c", "#define A {\n}", "{0-1"},
		{"slash is division", "py", "x = a // f(\n)", "(0-1"},
		{"unmatched", "c", "}\n)\n{\n", "open { of 2"},
		{"crossed", "c", "( {\n)\n}", "(0-1"},
	} {
		if got := lexed(c.lang, c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Escapes in templates, raw strings with their own end, multi-line strings.
func TestLexerMultilineStrings(t *testing.T) {
	for _, c := range []struct{ name, lang, text, want string }{
		{"escape in template", "js", "s = `a \\` {`\nf(", "open ( of 1"},
		{"raw rust", "rust", "s = r#\"a \" { /*\n\"#; f(\n)", "(1-2"},
		{"rust over lines", "rust", "s = \"a {\\\n  b (\";\nf(", "open ( of 2"},
		{"braces in template", "js", "s = `${a ? `{` : '}'}`; f(\n)", "(0-1"},
	} {
		if got := lexed(c.lang, c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The dialect is detected well enough to know comments and strings.
func TestDetectDialect(t *testing.T) {
	c := dialects["c"]
	for name, want := range map[string]Dialect{"go": dialects["go"], "python": dialects["py"], "js": dialects["js"], "rust": dialects["rust"], "java": c} {
		if got := DetectDialect(relevance.Split(samples[name])); got != want {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	for name, text := range map[string]string{
		"java of annotations": "package a.b;\n\npublic class A {\n    @Mock List a;\n    @Test\n    public void b() {\n        c();\n    }\n    @Override\n    public void d() {\n        e();\n    }\n}",
		"c":                   "#include <a.h>\n\n/* A. */\nint f(int n)\n{\n    if (n)\n        return 1;\n    return 0;\n}",
		"c with labels":       "int f(void) {\n  goto end;\n  char *from;\nend:\n  return 0;\n}",
	} {
		if got := DetectDialect(relevance.Split(text)); !got.slashComments || got.hashComments {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	for name, c := range map[string]struct {
		text string
		want Dialect
	}{
		"old javascript": {"exports.a = function(b) {\n  return b.map(function(c) {\n    return c === 1;\n  });\n};\n\nStore.prototype.d = function d(e) {\n  this.f(e);\n  this.g(e);\n};\n", dialects["js"]},
		"rust of paths":  {"fn f() {\n    let a = std::env::args();\n    let b = a.next();\n    let c = b::new();\n    match c {\n        X::A => 1,\n        X::B => 2,\n    };\n    d();\n    e();\n}\n", dialects["rust"]},
	} {
		if got := DetectDialect(relevance.Split(c.text)); got != c.want {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	bash := "package cobra\n\nimport \"fmt\"\n\nfunc preamble() {\n\tfmt.Print(`\n__debug()\n{\n    if [[ -n ${X} ]]; then\n        echo \"$*\"\n    fi\n" + strings.Repeat("    local a b\n    for x in y; do\n        echo 1\n    done\n", 20) + "}\n`)\n}\n"
	if got := DetectDialect(relevance.Split(bash)); got != dialects["go"] {
		t.Errorf("go that writes bash is read as %+v", got)
	}
}

// samples are short programs by language.
var samples = map[string]string{
	"go":     "package a\n\nimport (\n\t\"context\"\n\t\"fmt\"\n)\n\n// read reads.\nfunc read(\n\tctx context.Context,\n\tn int,\n) error {\n\tif n > 1 {\n\t\treturn fmt.Errorf(\"too many: %d\", n)\n\t} else {\n\t\tn++\n\t}\n\treturn nil\n}",
	"python": "import os\n\n@decorated(\n    1,\n)\ndef open_store(path,\n               mode='r'):\n    \"\"\"Open a store.\n\n    The mode is kept.\n    \"\"\"\n    if mode == 'r':\n        return os.open(path)\n    elif mode:\n        raise ValueError('bad mode # no comment')",
	"js":     "const a = require('a')\nmodule.exports = async function (x) {\n  const list = glob(`src/**/*.js`)\n  return list.map((y) => {\n    return `${y}\n      more`\n  })\n}",
	"rust":   "#[derive(Debug)]\npub struct A<'a> {\n    name: &'a str,\n}\nimpl<'a> A<'a> {\n    fn get(&self) -> char {\n        match self.name {\n            \"\" => '\\'',\n            _ => 'x',\n        }\n    }\n}",
	"java":   "/*\n * Licence\n */\npackage a.b;\nimport java.util.List;\n\npublic class Store {\n    @Override\n    public List<String> names(int n) throws Exception {\n        switch (n) {\n            case 1:\n                return null;\n            default:\n                throw new Exception(\"no /* such\");\n        }\n    }\n}",
}
