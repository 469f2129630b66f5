package tomledit

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/testkit/edittest"
	"github.com/ctxgate/ctxgate/internal/textedit"
)

const codex = `# my codex
model = "gpt-5"   # the good one

[mcp_servers.github] # work
command = "npx"
args = ["-y", "server-github"]
# startup_timeout_sec = 60

[mcp_servers.github.env]
TOKEN = "x"

# the second
[mcp_servers.docs]
url = "https://docs.example.com"

[projects."/home/ann"]
trust_level = "trusted"
`

func TestEdits(t *testing.T) {
	entry := textedit.Object{{Key: "command", Value: `C:\bin\ctxgate.exe`}, {Key: "args", Value: []string{"stdio", "it's"}}, {Key: "env", Value: textedit.Object{{Key: "A.B", Value: "c"}}}}
	const text = "command = 'C:\\bin\\ctxgate.exe'\nargs = [\"stdio\", \"it's\"]\nenv = { \"A.B\" = \"c\" }\n"
	for _, c := range []struct {
		name, in, delete, set string
		value                 any
		want                  string
	}{
		{name: "a table goes with its parts and comments", in: codex, delete: "mcp_servers/github", want: strings.Replace(codex, codex[strings.Index(codex, "[mcp_servers.github]"):strings.Index(codex, "# the second")], "", 1)},
		{name: "the last table of many", in: codex, delete: "projects", want: strings.TrimSuffix(codex, "\n[projects.\"/home/ann\"]\ntrust_level = \"trusted\"\n")},
		{name: "a table is added behind its like", in: codex, set: "mcp_servers/ctxgate", value: entry, want: strings.Replace(codex, "[projects", "[mcp_servers.ctxgate]\n"+text+"\n[projects", 1)},
		{name: "a table is added at the end", in: "a = 1\n", set: "t/x", value: entry, want: "a = 1\n\n[t.x]\n" + text},
		{name: "no line break at the end", in: "a = 1", set: "t/x", value: textedit.Object{{Key: "b", Value: 2}}, want: "a = 1\n\n[t.x]\nb = 2"},
		{name: "into an empty file", in: "", set: "t/x", value: textedit.Object{{Key: "b", Value: 2}}, want: "[t.x]\nb = 2\n"},
		{name: "a table is replaced", in: "# about x\n[t.x] # here\na = 1 # one\n[t.x.sub]\nq = 1\n\n[z]\n", set: "t/x", value: textedit.Object{{Key: "b", Value: 2}}, want: "# about x\n[t.x] # here\nb = 2\n\n[z]\n"},
		{name: "inline tables", in: "t = { x = { a = 1 }, y = { b = 2 } }\n", delete: "t/x", want: "t = { y = { b = 2 } }\n"},
		{name: "inline tables, last", in: "t = { x = { a = 1 }, y = { b = 2 } } # c\n", delete: "t/y", want: "t = { x = { a = 1 } } # c\n"},
		{name: "inline tables, add", in: "t = { x = { a = 1 } } # c\n", set: "t/y", value: textedit.Object{{Key: "b", Value: 2}}, want: "t = { x = { a = 1 }, y = { b = 2 } } # c\n"},
		{name: "keys of a table that are inline tables", in: "[t]\nx = { a = 1 }\ny = { b = 2 }\n\n[z]\n", delete: "t/x", set: "t/n", value: textedit.Object{{Key: "c", Value: 3}}, want: "[t]\ny = { b = 2 }\n\n[t.n]\nc = 3\n\n[z]\n"},
		{name: "dotted keys", in: "t.x.a = 1\nt.x.b = 2\nt.y.a = 3\nq = 4\n[z]\n", delete: "t/x", set: "t/n", value: textedit.Object{{Key: "c", Value: 3}}, want: "t.y.a = 3\nq = 4\n\n[t.n]\nc = 3\n\n[z]\n"},
		{name: "array of tables, delete", in: "[[s]]\nid = \"a\"\n\n# of b\n[[s]]\nid = \"b\"\n[s.env]\nX = 1\n\n[[s]]\nid = \"c\"\n", delete: "s/1", want: "[[s]]\nid = \"a\"\n\n[[s]]\nid = \"c\"\n"},
		{name: "array of tables, append", in: "[[s]]\nid = \"a\"\n\n[s.env]\nX = 1\n\n# naming\n[naming]\n", set: "s/1", value: textedit.Object{{Key: "id", Value: "b"}}, want: "[[s]]\nid = \"a\"\n\n[s.env]\nX = 1\n\n[[s]]\nid = \"b\"\n\n# naming\n[naming]\n"},
		{name: "array of tables, first", in: "a = 1\n", set: "s/0", value: textedit.Object{{Key: "id", Value: "b"}}, want: "a = 1\n\n[[s]]\nid = \"b\"\n"},
		{name: "array of inline tables, append", in: "s = [\n  { id = \"a\" }, # first\n]\n", set: "s/1", value: textedit.Object{{Key: "id", Value: "b"}}, want: "s = [\n  { id = \"a\" }, # first\n  { id = \"b\" },\n]\n"},
		{name: "element on its own line", in: "a = [\n  1, # one\n  2, # two\n]\n", delete: "a/1", want: "a = [\n  1, # one\n]\n"},
		{name: "last element without a comma", in: "a = [\n  1, # one\n  2\n]\n", delete: "a/1", want: "a = [\n  1 # one\n]\n"},
		{name: "a key in a table", in: "[t] # t\na = 1\n\n[t.sub]\nb = 2\n", set: "t/n", value: "v", want: "[t] # t\na = 1\nn = \"v\"\n\n[t.sub]\nb = 2\n"},
		{name: "a key of the root before the first table", in: "# about\n\n# of t\n[t]\na = 1\n", set: "n", value: true, want: "# about\n\nn = true\n\n# of t\n[t]\na = 1\n"},
		{name: "dotted keys are replaced", in: "t.x.a = 1\nt.x.b = 2\nq = 4\n", set: "t/x", value: textedit.Object{{Key: "c", Value: 3}}, want: "q = 4\n\n[t.x]\nc = 3\n"},
		{name: "a table is replaced by a value", in: "[t]\nq = 1\n[t.x]\na = 1\n", set: "t/x", value: 5, want: "[t]\nq = 1\nx = 5\n"},
		{name: "a value is replaced", in: "a = \"\"\"\nx\n[t]\n\"\"\" # c\n[t]\n", set: "a", value: int64(5), want: "a = 5 # c\n[t]\n"},
		{name: "crlf and a byte order mark", in: "\ufeffa = 1\r\n\r\n[t.x]\r\nb = 1\r\n", delete: "t/x", set: "t/n", value: textedit.Object{{Key: "c", Value: 3}}, want: "\ufeffa = 1\r\n\r\n[t.n]\r\nc = 3\r\n"},
		{name: "quoted names", in: "[t.\"a.b\"]\nx = 1\n[t.'c d']\ny = 2\n", delete: "t/a.b", want: "[t.'c d']\ny = 2\n"},
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

func TestCommentsOfATable(t *testing.T) {
	d, _ := Parse([]byte(codex))
	if got := d.Comment("mcp_servers", "github"); got != "work\nstartup_timeout_sec = 60" {
		t.Errorf("got %q", got)
	}
	if got := d.Comment("mcp_servers", "docs"); got != "the second" {
		t.Errorf("got %q", got)
	}
	if keys, _ := d.Keys("mcp_servers"); !slices.Equal(keys, []string{"github", "docs"}) {
		t.Errorf("keys %v", keys)
	}
	if n := d.Line("mcp_servers", "docs"); n != 13 {
		t.Errorf("line %d", n)
	}
}

func TestABrokenFileIsNamedWithItsLine(t *testing.T) {
	for _, in := range []string{"a = 1\na = 2\n", "a = 1\nb = \n", "a = 1\n[t\n"} {
		if _, err := Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// docGen writes TOML in all its forms.
type docGen struct {
	t   *rapid.T
	out []byte
	eol string
}

func (g *docGen) pick(options ...string) string { return rapid.SampledFrom(options).Draw(g.t, "pick") }

func (g *docGen) write(text string) {
	g.out = append(g.out, strings.ReplaceAll(text, "\n", g.eol)...)
}

func (g *docGen) between() {
	for range rapid.IntRange(0, 2).Draw(g.t, "lines") {
		g.write(g.pick("\n", "# note\n", "  # [not.a.table]\n", "\n\n", "#x = \"\"\"\n"))
	}
}

func (g *docGen) scalar() string {
	return g.pick("1", "-0.5", "true", `"a # b"`, `'c:\d'`, `"q\"[x]"`, "\"\"\"m\n[t0]\n# no\n\"\"\"\"", "'''l\n''' ", "1979-05-27T07:32:00Z", `""`)
}

func (g *docGen) value(depth int) string {
	switch kind := rapid.IntRange(0, 4).Draw(g.t, "kind"); {
	case kind == 0 && depth < 3:
		var parts []string
		for i := range rapid.IntRange(0, 3).Draw(g.t, "members") {
			key := fmt.Sprintf("i%d%s", i, g.pick("", ".x", ".\"y z\""))
			parts = append(parts, key+" = "+strings.ReplaceAll(g.value(depth+1), "\n", " "))
		}
		return "{" + g.pick("", " ") + strings.Join(parts, ", ") + " }"
	case kind == 1 && depth < 3:
		var b strings.Builder
		b.WriteString("[")
		n := rapid.IntRange(0, 3).Draw(g.t, "elements")
		for i := range n {
			b.WriteString(g.pick("", " ", "\n  ", "\n  # c ]\n  ") + g.value(depth+1))
			if i < n-1 {
				b.WriteString(g.pick(",", " ,", ", # e\n"))
			} else {
				b.WriteString(g.pick("", "", ",", "\n", ", # f\n"))
			}
		}
		return b.String() + "]"
	}
	return g.scalar()
}

func (g *docGen) keys(prefix string) {
	for i := range rapid.IntRange(0, 3).Draw(g.t, "keys") {
		g.between()
		v := g.value(0)
		if strings.Contains(v, "{") { // inline tables stay on one line
			v = strings.ReplaceAll(v, "\n", " ")
			v = strings.NewReplacer("# c ]", "", "# e", "", "# f", "").Replace(v)
		}
		g.write(g.pick("", "  ") + fmt.Sprintf("%s%d%s", prefix, i, g.pick("", ".a", `."b.c"`, ".'d'.e")) + g.pick(" = ", "=") + v + g.pick("", " ", " # end") + "\n")
	}
}

func (g *docGen) document() {
	g.eol = g.pick("\n", "\r\n")
	g.keys("r")
	for i := range rapid.IntRange(0, 3).Draw(g.t, "tables") {
		g.between()
		switch g.pick("table", "sub", "array") {
		case "table":
			g.write(fmt.Sprintf("[t%d]%s\n", i, g.pick("", " # head")))
			g.keys("k")
			if g.pick("", "sub") != "" {
				g.write(fmt.Sprintf("[ t%d . \"s s\" ]\n", i))
				g.keys("k")
			}
		case "sub":
			g.write(fmt.Sprintf("[t%d.a.b]\n", i))
			g.keys("k")
		case "array":
			for range rapid.IntRange(1, 3).Draw(g.t, "entries") {
				g.between()
				g.write(fmt.Sprintf("[[t%d]]\n", i))
				g.keys("k")
				if g.pick("", "sub") != "" {
					g.write(fmt.Sprintf("[t%d.env]\n", i))
					g.keys("k")
				}
			}
		}
	}
	g.between()
	if g.pick("", "cut") != "" {
		g.out = bytes.TrimRight(g.out, "\r\n")
	}
}

// readOther reads a document with another parser.
func readOther(t *rapid.T, src []byte) any {
	model := map[string]any{}
	if err := toml.Unmarshal(src, &model); err != nil {
		t.Fatalf("%v in\n%s", err, src)
	}
	return withoutEmpty(lists(model))
}

// lists makes arrays of tables []any.
func lists(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = lists(e)
		}
	case []map[string]any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = lists(e)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = lists(e)
		}
	}
	return v
}

var anyEdit = edittest.Editor[*Doc]{
	Generate: func(t *rapid.T) []byte {
		g := &docGen{t: t}
		g.document()
		return g.out
	},
	Parse:  Parse,
	Read:   readOther,
	Normal: withoutEmpty,
	SetPath: func(t *rapid.T, d *Doc, i int) []string {
		table := rapid.SampledFrom([]string{"t0", "t1", "t9", "r0"}).Draw(t, "table")
		if v, _, _ := d.Value(table); v != nil && reflect.TypeOf(v).Kind() != reflect.Map {
			table = "t9"
		}
		return []string{table, fmt.Sprint("new", i)}
	},
}

func TestEditsOfAnyDocument(t *testing.T)          { anyEdit.CheckEdits(t) }
func TestDeleteThenCopyOfAnyDocument(t *testing.T) { anyEdit.CheckDeleteThenCopy(t) }

// An entry that is added and removed again leaves the document as it was.
func TestAddThenDeleteGivesTheOldBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &docGen{t: t}
		g.document()
		in := append(bytes.TrimRight(g.out, "\r\n \t"), g.eol...)
		d, err := Parse(in)
		if err != nil || len(d.exprs) == 0 {
			return
		}
		if err := d.Set(textedit.Object{{Key: "c", Value: "x"}}, "zz", "ctxgate"); err != nil {
			t.Fatal(err)
		}
		if err := d.Delete("zz", "ctxgate"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(d.Bytes(), in) {
			t.Fatalf("got\n%q\nwant\n%q", d.Bytes(), in)
		}
	})
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte(codex))
	f.Add([]byte("a = [1,\n 2]\n[[t]]\nx.y = {z = 1}\n"))
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
	})
}

func TestADocumentThatIsTooLargeIsNotRead(t *testing.T) {
	if _, err := Parse(make([]byte, textedit.MaxBytes+1)); err == nil || !strings.Contains(err.Error(), "are not read") {
		t.Errorf("got %v", err)
	}
}
