package docs

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// markedLines removes the "@" at the end of lines and returns which lines had one.
func markedLines(text string) (clean string, want []int) {
	rows := strings.Split(text, "\n")
	for i, row := range rows {
		if strings.HasSuffix(row, "@") {
			rows[i] = strings.TrimSuffix(row, "@")
			want = append(want, i)
		}
	}
	return strings.Join(rows, "\n"), want
}

// P8: the headings of a document stay. Those marked @ are headings, or the rules of one.
func TestHeadingsStay(t *testing.T) {
	for name, text := range map[string]string{
		"markdown":    "# A title@\n\ntext #1\n\n### Deep ###@\n#hashtag\n####### seven\n    # code\n  ## Indented@",
		"setext":      "Title@\n=====@\n\ntext\n\nNext@\n---@\n\nabove a rule\n\n---\n\n- an item\n---\n",
		"rst":         "=======@\n Title@\n=======@\n\nPart@\n~~~~@\ntext\n\nSmall `x`@\n^^^^^^^^^^@\n\n.. note::\n\n    text\n\n`short`\n~~\n",
		"rst quoted":  "Commands@\n````````@\n\ntext\n\n~~~~~~~~~@\nBoth ways@\n~~~~~~~~~@\n",
		"rst table":   "=====  ====\nName   Size\n=====  ====\na      b\n=====  ====",
		"asciidoc":    "= Title@\n\n== Part@\ntext\n==nothing\n\n[source,sh]\n----\nls\n----\n",
		"numbers":     "1. An item of a list\n\n2.1 Scope@\n\n2.1.1. More of it@\n\n2.2 is a number.\n\n3.1 not alone\ntext\n\n10.5 percent of all\n",
		"html":        "<h1 align=\"center\">Title</h1>@\n\n<hr>\n<H2>x</H2>@\n",
		"in code":     "```sh\n# comment\nTitle\n=====\n```\n# Title@",
		"in notes":    "<!--\n# hidden\n-->\n# Shown@",
		"in settings": "---\ntitle: x\n---\n# Shown@",
		"windows":     "# Title\r@\n\r\nNext\r@\n----\r@\n",
		"chinese":     "# 安装@\n\n正文。\n\n配置@\n====@\n",
		"empty":       "",
	} {
		clean, want := markedLines(text)
		var got []int
		for i, m := range Parse(relevance.Split(clean)).MustKeep() {
			if m {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: lines %v stay, want %v", name, got, want)
		}
	}
}

// P8: nothing is cut inside a fenced block or another atom. Each row lists the first line of each
// line's atom.
func TestAtoms(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []int32
	}{
		"fence":           {"a\n```go\nx\n\n```\nb", []int32{0, 1, 1, 1, 1, 5}},
		"tildes":          {"~~~ js\n```\n~~~\nb", []int32{0, 0, 0, 3}},
		"longer outside":  {"````md\n```\n```\n````\nb", []int32{0, 0, 0, 0, 4}},
		"longer end":      {"```\nx\n`````\nb", []int32{0, 0, 0, 3}},
		"no end":          {"a\n```\nb\nc", []int32{0, 1, 1, 1}},
		"not an end":      {"```\n``` js\n```\nb", []int32{0, 0, 0, 3}},
		"in a line":       {"```x```\nb\n```", []int32{0, 1, 2}},
		"in an item":      {"- ```\n  x\n  ```\nb", []int32{0, 0, 0, 3}},
		"quoted":          {"> ```\n> x\n> ```\nb", []int32{0, 0, 0, 3}},
		"quotation ends":  {"> ```\n> x\n\nb", []int32{0, 0, 2, 3}},
		"asciidoc":        {"[source]\n----\nx\n----\nb", []int32{0, 1, 1, 1, 4}},
		"table":           {"a | b\n--|--\nc | d", []int32{0, 0, 2}},
		"settings":        {"---\na: b\n---\nb\n---", []int32{0, 0, 0, 3, 3}},
		"toml settings":   {"+++\na = 1\n+++\nb", []int32{0, 0, 0, 3}},
		"a rule first":    {"---\n\na\n\n---", []int32{0, 1, 2, 3, 4}},
		"comment":         {"a\n<!-- b\nc -->\nd\n<!-- e -->", []int32{0, 1, 1, 3, 4}},
		"comment no end":  {"a\n<!-- b\nc", []int32{0, 1, 2}},
		"heading":         {"a\n\nTitle\n=====\nb", []int32{0, 1, 2, 2, 4}},
		"rules of titles": {"Long title\n~~~~~~~~~~\na\n\nOther title\n~~~~~~~~~~~", []int32{0, 0, 2, 3, 4, 4}},
	} {
		if got := Parse(relevance.Split(c.text)).Atoms; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Lines are nested in a list item, a directive or a heading.
func TestFindParents(t *testing.T) {
	text := "# A\ntext\n- item\n  more\n\n  still\nend\n### C\n.. note::\n\n   body\n## B\nx"
	want := []int32{-1, 0, 0, 2, 0, 2, 0, 0, 7, 7, 8, 0, 11}
	if got := Parse(relevance.Split(text)).parents; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Lines that are only links are distinguished from text.
func TestClassifyLine(t *testing.T) {
	for line, want := range map[string]docKind{
		"[`fs[x]`]: #fs_x":          docLink,
		"[a]: https://a.b \"Home\"": docLink,
		"[a]: is what we call it":   docText,
		"[^1]: note":                docText,
		"[]":                        docPunctuation,
		"[a](b) shows":              docText,
		".. _anchor:":               docLink,
		".. note::":                 docText,
		"- [Usage](#usage)":         docLink,
		"- [Usage](#usage) of it":   docText,
		"- [Guide](https://a.b)":    docText,
		"[![CI](a.svg)](b)":         docLink,
		"***":                       docPunctuation,
		"":                          docBlank,
		"，。":                        docText,
	} {
		if got := classifyLine(line); got != want {
			t.Errorf("%q is %d, want %d", line, got, want)
		}
	}
}

// P8: in any text, atoms are runs of lines, and a heading is in one atom with its rules.
func TestAtomsAreRuns(t *testing.T) {
	parts := []string{"", "a b", "# T", "===", "----", "~~~~", "```", "````", "``` x", "> ```", "- ```", "<!-- a", "-->", "---",
		"a | b", "--|--", "[source]", "    code", "\t", "2.1 X", "=", "é", "+++", ".. x::", "\r"}
	r := rand.New(rand.NewSource(1))
	for range 2000 {
		var text []string
		for range 1 + r.Intn(12) {
			text = append(text, parts[r.Intn(len(parts))])
		}
		l := relevance.Split(strings.Join(text, "\n"))
		must := Parse(l).MustKeep()
		atoms := Parse(l).Atoms
		for i, a := range atoms {
			if int(a) != i && (a < 0 || int(a) > i || atoms[i-1] != a || must[i] != must[a]) {
				t.Fatalf("%q: line %d in %v, stays %v", l.Text, i, atoms, must)
			}
		}
	}
}

// A text of nothing but openings of blocks takes time linear in its length.
func TestOpeningsWithoutEnd(t *testing.T) {
	for _, line := range []string{"<!--\n", "> ```\n\n", "---\n", "~~~~\n", "[source]\n----\n", "- ", "#", "|-"} {
		l := relevance.Split(strings.Repeat(line, 100_000))
		if len(Parse(l).Atoms) != l.Count() {
			t.Error(line)
		}
	}
}
