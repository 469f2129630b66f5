package yamledit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/testkit/edittest"
	"github.com/ctxgate/ctxgate/internal/textedit"
)

const goose = `# goose
GOOSE_MODEL: gpt-5   # the good one
extensions:
  # comes with goose
  developer:
    enabled: true
    type: builtin

  # work account
  github:
    type: stdio
    cmd: npx
    args:
    - -y
    - server-github # pinned
    # timeout: 60

  docs: {type: streamable_http, uri: "https://docs.example.com"} # remote
# other settings
GOOSE_MODE: auto
`

func TestEdits(t *testing.T) {
	entry := textedit.Object{{Key: "cmd", Value: "/bin/ctxgate"}, {Key: "args", Value: []string{"stdio", "--x: y"}}, {Key: "envs", Value: textedit.Object{}}}
	for _, c := range []struct {
		name, in, delete, set string
		value                 any
		want                  string
	}{
		{name: "an entry goes with its comments", in: goose, delete: "extensions/github", want: strings.Replace(goose, goose[strings.Index(goose, "  # work"):strings.Index(goose, "  docs")], "", 1)},
		{name: "the last entry", in: goose, delete: "extensions/docs", want: strings.Replace(goose, "  docs: {type: streamable_http, uri: \"https://docs.example.com\"} # remote\n", "", 1)},
		{name: "an entry is added behind the last", in: goose, set: "extensions/ctxgate", value: entry, want: strings.Replace(goose, "# other", "  ctxgate:\n    cmd: /bin/ctxgate\n    args:\n      - stdio\n      - \"--x: y\"\n    envs: {}\n# other", 1)},
		{name: "list item", in: "servers:\n  - name: a\n    command: x\n  # of b\n  - name: b\n    args: [1, 2]\n\nmodels: []\n", delete: "servers/1", want: "servers:\n  - name: a\n    command: x\n\nmodels: []\n"},
		{name: "first list item", in: "servers:\n- name: a\n  command: x\n- name: b\n", delete: "servers/0", want: "servers:\n- name: b\n"},
		{name: "only list item", in: "servers: # all\n  - name: a\n    command: x\nq: 1\n", delete: "servers/0", want: "servers: [] # all\nq: 1\n"},
		{name: "append to a list", in: "servers:\n  - name: a\n    command: x\n\n# models\nmodels: []\n", set: "servers/1", value: textedit.Object{{Key: "name", Value: "b"}, {Key: "args", Value: []string{"1"}}}, want: "servers:\n  - name: a\n    command: x\n  - name: b\n    args:\n      - \"1\"\n\n# models\nmodels: []\n"},
		{name: "an empty flow map becomes a block", in: "a: 1\nextensions: {} # none yet\nb: 2\n", set: "extensions/x", value: entry[:1], want: "a: 1\nextensions: # none yet\n  x:\n    cmd: /bin/ctxgate\nb: 2\n"},
		{name: "a key without a value", in: "servers:\nb: 2\n", set: "servers", value: []any{entry[:1]}, want: "servers:\n  - cmd: /bin/ctxgate\nb: 2\n"},
		{name: "only entry of a map", in: "m:\n  # c\n  x: 1\nb: 2\n", delete: "m/x", want: "m: {}\nb: 2\n"},
		{name: "first key behind a dash", in: "- name: a\n  b: 1\n- c: 2\n", delete: "0/name", want: "- b: 1\n- c: 2\n"},
		{name: "flow, first", in: "m: {a: 1, b: {c: 'x, y'}, \"d\": [1]} # end\n", delete: "m/a", want: "m: {b: {c: 'x, y'}, \"d\": [1]} # end\n"},
		{name: "flow, last", in: "m: {a: 1, b: {c: 'x, y'}} # end\n", delete: "m/b", want: "m: {a: 1} # end\n"},
		{name: "flow, add", in: "m: { a: it's }\n", set: "m/x", value: entry[:2], want: "m: { a: it's, x: {cmd: /bin/ctxgate, args: [stdio, \"--x: y\"]} }\n"},
		{name: "flow on lines", in: "m: {\n  a: 1, # one\n  b: 2 # two\n}\n", delete: "m/b", want: "m: {\n  a: 1, # one\n}\n"},
		{name: "json is yaml", in: "{\n  \"m\": {\n    \"a\": 1\n  }\n}\n", set: "m/b", value: 2, want: "{\n  \"m\": {\n    \"a\": 1,\n    b: 2\n  }\n}\n"},
		{name: "into an empty file", in: "# nothing\n", set: "m/x", value: 1, want: "# nothing\nm:\n  x: 1\n"},
		{name: "crlf and four columns", in: "m:\r\n    a:\r\n        b: 1\r\nq: 2\r\n", set: "m/x", value: entry[:1], want: "m:\r\n    a:\r\n        b: 1\r\n    x:\r\n        cmd: /bin/ctxgate\r\nq: 2\r\n"},
		{name: "no line break at the end", in: "m:\n  a: 1", set: "m/x", value: 2, want: "m:\n  a: 1\n  x: 2"},
		{name: "a value is replaced", in: "a: 1 # one\nb: 'x' # two\n", set: "b", value: "it's", want: "a: 1 # one\nb: it's # two\n"},
		{name: "an entry is replaced", in: "m:\n  x:\n    a: 1 # gone\n    b: |\n      # text\n\n  y: 2\n", set: "m/x", value: entry[:1], want: "m:\n  x:\n    cmd: /bin/ctxgate\n\n  y: 2\n"},
		{name: "block scalar with what looks like a comment", in: "m:\n  a: |\n    text\n    # no comment\n  b: 1\n", delete: "m/b", want: "m:\n  a: |\n    text\n    # no comment\n"},
		{name: "document markers", in: "---\nm:\n  a: 1\n...\n", set: "m/b", value: 2, want: "---\nm:\n  a: 1\n  b: 2\n...\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if c.delete != "" {
				if err := d.Delete(strings.Split(c.delete, "/")...); err != nil {
					t.Fatal(err)
				}
			}
			if c.set != "" {
				if err := d.Set(c.value, strings.Split(c.set, "/")...); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(d.Bytes()); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestCommentsOfAnEntry(t *testing.T) {
	d, _ := Parse([]byte(goose))
	if got := d.Comment("extensions", "github"); got != "work account\npinned\ntimeout: 60" {
		t.Errorf("got %q", got)
	}
	if keys, _ := d.Keys("extensions"); !slices.Equal(keys, []string{"developer", "github", "docs"}) {
		t.Errorf("keys %v", keys)
	}
	if n := d.Line("extensions", "github"); n != 10 {
		t.Errorf("line %d", n)
	}
}

func TestAnAnchorThatIsUsedElsewhereIsNotRemoved(t *testing.T) {
	const in = "base: &b\n  x: 1\nuse: *b\n"
	d, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Delete("base"); err == nil || string(d.Bytes()) != in {
		t.Errorf("%v: %s", err, d.Bytes())
	}
	if err := d.Set(1, "use", "y"); err == nil || !strings.Contains(err.Error(), "alias") {
		t.Errorf("%v", err)
	}
}

func TestSeveralDocumentsAndDoubleKeysAreRefused(t *testing.T) {
	for _, in := range []string{"a: 1\n---\nb: 2\n", "a: 1\na: 2\n", "a: [\n"} {
		if _, err := Parse([]byte(in)); err == nil {
			t.Errorf("%q was read", in)
		}
	}
}

// docGen writes YAML in many forms.
type docGen struct {
	t   *rapid.T
	out []byte
	eol string
}

func (g *docGen) pick(options ...string) string { return rapid.SampledFrom(options).Draw(g.t, "pick") }

func (g *docGen) line(indent int, text string) {
	g.out = append(g.out, strings.Repeat(" ", indent)+text+g.eol...)
}

func (g *docGen) between(indent int) {
	for range rapid.IntRange(0, 2).Draw(g.t, "lines") {
		switch g.pick("blank", "comment", "outer") {
		case "blank":
			g.out = append(g.out, g.eol...)
		case "comment":
			g.line(indent, "# note: x")
		case "outer":
			g.line(0, "# - out")
		}
	}
}

func (g *docGen) scalar() string {
	return g.pick("1", "true", "text", "it's", `"a: b # c"`, `'q ''r'' s'`, "-x", "https://e.com/x?y=1", "a#b", "~", `""`, "é")
}

func (g *docGen) flow(depth int) string {
	kind := g.pick("scalar", "map", "list")
	if depth > 2 {
		kind = "scalar"
	}
	var parts []string
	switch kind {
	case "map":
		for i := range rapid.IntRange(0, 3).Draw(g.t, "members") {
			parts = append(parts, fmt.Sprintf("%sf%d: %s", g.pick("", " "), i, g.flow(depth+1)))
		}
		return "{" + strings.Join(parts, g.pick(",", ", ")) + g.pick("", " ") + "}"
	case "list":
		for range rapid.IntRange(0, 3).Draw(g.t, "elements") {
			parts = append(parts, g.flow(depth+1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return g.scalar()
}

// block writes a value behind its key or dash.
func (g *docGen) block(indent, depth int) {
	kind := rapid.IntRange(0, 5).Draw(g.t, "kind")
	if depth > 2 && kind < 2 {
		kind = 5
	}
	comment := g.pick("", "", " # c")
	step := rapid.SampledFrom([]int{2, 4}).Draw(g.t, "step")
	switch kind {
	case 0:
		g.out = append(g.out, comment+g.eol...)
		g.mapping(indent+step, depth+1, false)
	case 1:
		g.out = append(g.out, comment+g.eol...)
		g.sequence(indent+step, depth+1)
	case 2:
		g.out = append(g.out, " "+g.flow(0)+comment+g.eol...)
	case 3:
		g.out = append(g.out, " |"+g.eol...)
		g.line(indent+2, "text")
		g.line(indent+2, "# no comment")
	default:
		g.out = append(g.out, " "+g.scalar()+comment+g.eol...)
	}
}

func (g *docGen) mapping(indent, depth int, behindDash bool) {
	for i := range rapid.IntRange(1, 3).Draw(g.t, "members") {
		pad := strings.Repeat(" ", indent)
		if behindDash && i == 0 {
			pad = ""
		} else {
			g.between(indent)
		}
		g.out = append(g.out, fmt.Sprintf("%sk%d%s:", pad, i, g.pick("", "-x", "_y"))...)
		g.block(indent, depth)
	}
}

func (g *docGen) sequence(indent, depth int) {
	for range rapid.IntRange(1, 3).Draw(g.t, "items") {
		g.between(indent)
		g.out = append(g.out, strings.Repeat(" ", indent)+"-"...)
		if depth < 3 && g.pick("", "map") != "" {
			g.out = append(g.out, ' ')
			g.mapping(indent+2, depth+1, true)
		} else {
			g.out = append(g.out, " "+g.flow(1)+g.eol...)
		}
	}
}

func (g *docGen) document() {
	g.eol = g.pick("\n", "\r\n")
	g.out = append(g.out, g.pick("", "", "---"+g.eol)...)
	g.mapping(0, 0, false)
	g.between(0)
}

// readOther reads a document with another parser.
func readOther(t *rapid.T, src []byte) any {
	var model any
	if err := yaml.Unmarshal(src, &model); err != nil {
		t.Fatalf("%v in\n%s", err, src)
	}
	return numbers(stringKeys(model))
}

// numbers makes the integers of both parsers comparable.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = numbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = numbers(e)
		}
	case int, int64, uint64:
		return fmt.Sprint(v)
	case string:
		return strings.ReplaceAll(v, "\r\n", "\n")
	}
	return v
}

var anyEdit = edittest.Editor[*Doc]{
	Generate: func(t *rapid.T) []byte {
		g := &docGen{t: t}
		g.document()
		return g.out
	},
	Parse:   Parse,
	Read:    readOther,
	MaySkip: true, // plain scalars that a flow list does not allow
	Model: func(d *Doc) any {
		model, _, _ := d.Value()
		return numbers(model)
	},
	Rewrites: func(parent, model any) bool { return isEmpty(parent) || isEmpty(model) }, // {} becomes a block
}

func TestEditsOfAnyDocument(t *testing.T)          { anyEdit.CheckEdits(t) }
func TestDeleteThenCopyOfAnyDocument(t *testing.T) { anyEdit.CheckDeleteThenCopy(t) }

func FuzzEdit(f *testing.F) {
	f.Add([]byte(goose))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			return
		}
		if !bytes.Equal(d.Bytes(), data) {
			t.Fatal("an unedited document changed")
		}
		keys, err := d.Keys()
		if err != nil || len(keys) == 0 {
			return
		}
		// What cannot be edited is refused, and then nothing changed.
		if err := d.Delete(keys[0]); err != nil && !bytes.Equal(d.Bytes(), data) {
			t.Fatal("a refused edit changed the document")
		}
		_ = d.Set("v", "new", "key")
	})
}

func TestADocumentThatIsTooLargeIsNotRead(t *testing.T) {
	if _, err := Parse(make([]byte, textedit.MaxBytes+1)); err == nil || !strings.Contains(err.Error(), "are not read") {
		t.Errorf("got %v", err)
	}
}
