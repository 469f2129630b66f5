package jsonedit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/testkit/edittest"
	"github.com/ctxgate/ctxgate/internal/textedit"
)

func TestDelete(t *testing.T) {
	for _, c := range []struct{ name, in, key, want string }{
		{"first of lines", "{\n  \"a\": 1,\n  \"b\": 2\n}\n", "a", "{\n  \"b\": 2\n}\n"},
		{"last of lines", "{\n  \"a\": 1,\n  \"b\": 2\n}\n", "b", "{\n  \"a\": 1\n}\n"},
		{"only one", "{\n  \"a\": 1\n}\n", "a", "{}\n"},
		{"only one, inline", `{ "a": 1 }`, "a", "{}"},
		{"inline first", `{ "a": 1, "b": 2 }`, "a", `{ "b": 2 }`},
		{"inline last", `{ "a": 1, "b": 2 }`, "b", `{ "a": 1 }`},
		{"inline middle", `{"a":1,"b":2,"c":3}`, "b", `{"a":1,"c":3}`},
		{"comment of the previous line stays", "{\n  \"a\": 1, // of a\n  \"b\": 2 // of b\n}", "b", "{\n  \"a\": 1 // of a\n}"},
		{"its comments go", "{\n  // of a\n  /* too */\n  \"a\": 1, // behind\n  // of b\n  \"b\": 2\n}", "a", "{\n  // of b\n  \"b\": 2\n}"},
		{"comment above a blank line stays", "{\n  // all\n\n  // of a\n  \"a\": 1,\n  \"b\": 2\n}", "a", "{\n  // all\n\n  \"b\": 2\n}"},
		{"comment at the bracket stays", "{ // all\n\t\"a\": 1\n}", "a", "{ // all\n}"},
		{"trailing comma stays", "{\n  \"a\": 1,\n  \"b\": 2,\n}", "b", "{\n  \"a\": 1,\n}"},
		{"trailing comma of the only one", "{\n  \"a\": 1,\n}", "a", "{}"},
		{"comment at the end stays", "{\n  \"a\": 1,\n  \"b\": 2\n  // end\n}", "b", "{\n  \"a\": 1\n  // end\n}"},
		{"two on a line", "{\n  \"a\": 1, \"b\": 2,\n  \"c\": 3\n}", "b", "{\n  \"a\": 1,\n  \"c\": 3\n}"},
		{"closing bracket on its line", "{\n  \"a\": 1,\n  \"b\": 2 }", "b", "{\n  \"a\": 1 }"},
		{"crlf", "{\r\n\t\"a\": 1,\r\n\t\"b\": 2\r\n}\r\n", "b", "{\r\n\t\"a\": 1\r\n}\r\n"},
		{"byte order mark", "\ufeff{\"a\":1,\"b\":2}", "a", "\ufeff{\"b\":2}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse([]byte(c.in), JSONC)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Delete(c.key); err != nil {
				t.Fatal(err)
			}
			if got := string(d.Bytes()); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestSet(t *testing.T) {
	entry := textedit.Object{{Key: "command", Value: "/bin/x"}, {Key: "args", Value: []string{"stdio", "--client"}}}
	for _, c := range []struct {
		name, in, path, want string
		value                any
	}{
		{"into an empty file", "", "m.x", "{\n  \"m\": {\n    \"x\": 1\n  }\n}\n", 1},
		{"append with two spaces", "{\n  \"m\": {\n    \"a\": {}\n  }\n}\n", "m.x", "{\n  \"m\": {\n    \"a\": {},\n    \"x\": {\n      \"command\": \"/bin/x\",\n      \"args\": [\"stdio\", \"--client\"]\n    }\n  }\n}\n", entry},
		{"arrays on lines as the file has them", "{\n\t\"m\": {\n\t\t\"a\": [\n\t\t\t1\n\t\t]\n\t}\n}", "m.x", "{\n\t\"m\": {\n\t\t\"a\": [\n\t\t\t1\n\t\t],\n\t\t\"x\": {\n\t\t\t\"command\": \"/bin/x\",\n\t\t\t\"args\": [\n\t\t\t\t\"stdio\",\n\t\t\t\t\"--client\"\n\t\t\t]\n\t\t}\n\t}\n}", entry},
		{"minified", `{"m":{"a":{"b":1}}}`, "m.x", `{"m":{"a":{"b":1},"x":{"command":"/bin/x","args":["stdio","--client"]}}}`, entry},
		{"behind a comment", "{\n  \"a\": 1 // one\n}", "x", "{\n  \"a\": 1, // one\n  \"x\": 2\n}", 2},
		{"trailing comma", "{\n  \"a\": 1, // one\n}", "x", "{\n  \"a\": 1, // one\n  \"x\": 2,\n}", 2},
		{"before the last comment", "{\n  \"a\": 1\n  // end\n}", "x", "{\n  \"a\": 1,\n  \"x\": 2\n  // end\n}", 2},
		{"empty object with a comment", "{\n  \"m\": {\n    // none yet\n  }\n}", "m.x", "{\n  \"m\": {\n    // none yet\n    \"x\": 2\n  }\n}", 2},
		{"into a file of comments", "// mine", "x", "// mine\n{\n  \"x\": 2\n}\n", 2},
		{"null on the way", "{\n  \"m\": null, // none\n  \"b\": 1\n}", "m.x", "{\n  \"m\": {\n    \"x\": 2\n  }, // none\n  \"b\": 1\n}", 2},
		{"replace", "{\n  \"x\": {\"y\": 1}, // kept\n  \"z\": 0\n}", "x", "{\n  \"x\": 7, // kept\n  \"z\": 0\n}", 7},
		{"array element", `{"a": ["p", "q"]}`, "a.1", `{"a": ["p", "r"]}`, "r"},
		{"array append", "{\n  \"a\": [\n    \"p\"\n  ]\n}", "a.1", "{\n  \"a\": [\n    \"p\",\n    \"r\"\n  ]\n}", "r"},
		{"crlf", "{\r\n  \"a\": 1\r\n}\r\n", "m.x", "{\r\n  \"a\": 1,\r\n  \"m\": {\r\n    \"x\": 2\r\n  }\r\n}\r\n", 2},
		{"no html escapes", "{}", "x", "{\n  \"x\": \"a<b>&c\"\n}", "a<b>&c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse([]byte(c.in), JSONC)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Set(c.value, strings.Split(c.path, ".")...); err != nil {
				t.Fatal(err)
			}
			if got := string(d.Bytes()); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestRenameKeepsThePlaceAndTheComment(t *testing.T) {
	d, _ := Parse([]byte("{\n  // one\n  \"a\" : 1, // behind\n  \"b\": 2\n}"), JSONC)
	if err := d.Rename("x\"y", "a"); err != nil {
		t.Fatal(err)
	}
	if got, want := string(d.Bytes()), "{\n  // one\n  \"x\\\"y\" : 1, // behind\n  \"b\": 2\n}"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := d.Rename("b", "x\"y"); err == nil {
		t.Error("took a name that is there")
	}
}

func TestSyntaxThatTheReaderRefusesIsNamed(t *testing.T) {
	for _, c := range []struct {
		in     string
		syntax Syntax
		want   string
	}{
		{"{\n  // x\n  \"a\": 1\n}", Strict, "line 2: a comment"},
		{"{\n  \"a\": 1\n  /* x */\n}", Strict, "line 3: a comment"},
		{"{\n  \"a\": 1,\n}", Syntax{Comments: true}, "line 2: a comma after the last entry"},
		{"{\n  \"a\": [1,\n] }", Strict, "line 2: a comma after the last entry"},
		{"{\"a\" 1}", JSONC, "line 1, column 6"},
		{strings.Repeat("[", 1<<20), JSONC, "nested deeper than 1000 levels"},
	} {
		_, err := Parse([]byte(c.in), c.syntax)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: got %v, want %q", c.in, err, c.want)
		}
	}
}

func TestAKeyThatIsThereTwiceIsRefused(t *testing.T) {
	d, err := Parse([]byte("{\"m\": {\"a\": 1,\n\"a\": 2}, \"other\": {\"q\": 1, \"q\": 2}}"), JSONC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Keys("m"); err == nil || !strings.Contains(err.Error(), `line 2: "a" is there twice`) {
		t.Errorf("keys: %v", err)
	}
	if err := d.Delete("m", "a"); err == nil {
		t.Error("deleted one of two")
	}
	if err := d.Set(1, "m", "a"); err == nil {
		t.Error("replaced one of two")
	}
	if err := d.Set(1, "n"); err != nil {
		t.Errorf("what is elsewhere does not matter: %v", err)
	}
}

func TestCommentsOfAMember(t *testing.T) {
	d, _ := Parse([]byte("{\n  // far\n\n  // one\n  /* two\n   * three */\n  \"a\": 1, // four\n  \"b\": 2\n}"), JSONC)
	if got := d.Comment("a"); got != "one\ntwo\nthree\nfour" {
		t.Errorf("got %q", got)
	}
	if got := d.Comment("b"); got != "" {
		t.Errorf("got %q", got)
	}
}

// docGen writes JSONC the way nobody would, and knows what it means.
type docGen struct {
	t   *rapid.T
	out []byte
}

func (g *docGen) pick(options ...string) string { return rapid.SampledFrom(options).Draw(g.t, "pick") }

func (g *docGen) extra() {
	for range rapid.IntRange(0, 3).Draw(g.t, "extras") {
		g.out = append(g.out, g.pick("", " ", "\n", "\r\n", "\t", "\n\n  ", " // \"x\": {\n", "/* , } */", "/* a\n b */", "// ]\r\n", "\n  // own line\n  ")...)
	}
}

func (g *docGen) value(depth int) any {
	kind := rapid.IntRange(0, 5).Draw(g.t, "kind")
	if depth > 3 && kind < 3 {
		kind += 3
	}
	switch kind {
	case 0, 1:
		return g.object(depth)
	case 2:
		g.out = append(g.out, '[')
		list := []any{}
		for i := range rapid.IntRange(0, 3).Draw(g.t, "elements") {
			if i > 0 {
				g.out = append(g.out, ',')
			}
			g.extra()
			list = append(list, g.value(depth+1))
			g.extra()
		}
		if len(list) > 0 && rapid.Bool().Draw(g.t, "comma") {
			g.out = append(g.out, ',')
		}
		g.extra()
		g.out = append(g.out, ']')
		return list
	case 3:
		s := g.pick("", "a", "// no comment", "/*", "\\\"", "é\u2028", "${VAR}", "}{")
		text, _ := marshal(s)
		g.out = append(g.out, text...)
		return s
	case 4:
		n := g.pick("0", "-1.50e+3", "12345678901234567890")
		g.out = append(g.out, n...)
		return json.Number(n)
	}
	g.out = append(g.out, "true"...)
	return true
}

func (g *docGen) object(depth int) map[string]any {
	g.out = append(g.out, '{')
	m := map[string]any{}
	for i := range rapid.IntRange(0, 4).Draw(g.t, "members") {
		if i > 0 {
			g.out = append(g.out, ',')
		}
		g.extra()
		key := fmt.Sprintf("k%d%s", i, g.pick("", "//", "\"", ".x"))
		text, _ := marshal(key)
		g.out = append(g.out, text...)
		g.extra()
		g.out = append(g.out, ':')
		g.extra()
		m[key] = g.value(depth + 1)
		g.extra()
	}
	if len(m) > 0 && rapid.Bool().Draw(g.t, "comma") {
		g.out = append(g.out, ',')
	}
	g.extra()
	g.out = append(g.out, '}')
	return m
}

// stripJSONC is a second reader, which shares nothing with the package.
func stripJSONC(src []byte) []byte {
	var out []byte
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == '"':
			j := i + 1
			for src[j] != '"' {
				if src[j] == '\\' {
					j++
				}
				j++
			}
			out = append(out, src[i:j+1]...)
			i = j
		case src[i] == '/' && src[i+1] == '/':
			for i < len(src) && src[i] != '\n' {
				i++
			}
		case src[i] == '/' && src[i+1] == '*':
			i += 2 + bytes.Index(src[i+2:], []byte("*/")) + 1
		case src[i] == '}' || src[i] == ']':
			out = append(bytes.TrimSuffix(out, []byte(",")), src[i])
		case strings.IndexByte(" \t\r\n", src[i]) < 0:
			out = append(out, src[i])
		}
	}
	return out
}

func read(t *rapid.T, src []byte) any {
	dec := json.NewDecoder(bytes.NewReader(stripJSONC(src)))
	dec.UseNumber()
	var model any
	if err := dec.Decode(&model); err != nil {
		t.Fatalf("%v in\n%s\nread as\n%s", err, src, stripJSONC(src))
	}
	return model
}

var anyEdit = edittest.Editor[*Doc]{
	Generate: func(t *rapid.T) []byte {
		g := &docGen{t: t}
		g.extra()
		model := any(g.object(0))
		g.extra()
		if got := read(t, g.out); !reflect.DeepEqual(got, model) {
			t.Fatalf("the test's readers disagree on\n%s", g.out)
		}
		return g.out
	},
	Parse: func(src []byte) (*Doc, error) { return Parse(src, JSONC) },
	Read:  read,
}

func TestEditsOfAnyDocument(t *testing.T)          { anyEdit.CheckEdits(t) }
func TestDeleteThenCopyOfAnyDocument(t *testing.T) { anyEdit.CheckDeleteThenCopy(t) }

// What one edit adds, the other removes, byte for byte, in a document without comments at that place.
func TestAddThenDeleteGivesTheOldBytes(t *testing.T) {
	for _, in := range []string{
		"{\n  \"m\": {\n    \"a\": 1\n  }\n}\n",
		"{\r\n\t\"m\": {\r\n\t\t\"a\": 1, // c\r\n\t\t\"b\": 2\r\n\t}\r\n}",
		`{"m":{"a":1}}`,
		"{\n  \"m\": {},\n  \"z\": 0\n}",
		"{ \"m\": { \"a\": 1, } }",
	} {
		d, _ := Parse([]byte(in), JSONC)
		if err := d.Set(textedit.Object{{Key: "k", Value: "v"}}, "m", "ctxgate"); err != nil {
			t.Fatal(err)
		}
		if err := d.Delete("m", "ctxgate"); err != nil {
			t.Fatal(err)
		}
		if got := string(d.Bytes()); got != in {
			t.Errorf("got %q, want %q", got, in)
		}
	}
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte("{\n  // c\n  \"m\": {\"a\": 1,},\n}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data, JSONC)
		if src, _ := textedit.CutBOM(data); err != nil || isBlank(src) {
			return
		}
		if !bytes.Equal(d.Bytes(), data) {
			t.Fatal("an unedited document changed")
		}
		keys, err := d.Keys()
		if err != nil || len(keys) == 0 || d.src[d.root.StartOffset] != '{' {
			return
		}
		if err := d.Delete(keys[0]); err != nil {
			t.Fatalf("delete %q: %v", keys[0], err)
		}
		if err := d.Set("v", keys[0]); err != nil {
			t.Fatalf("set %q: %v", keys[0], err)
		}
	})
}

func TestADocumentThatIsTooLargeIsNotRead(t *testing.T) {
	if _, err := Parse(make([]byte, textedit.MaxBytes+1), JSONC); err == nil || !strings.Contains(err.Error(), "are not read") {
		t.Errorf("got %v", err)
	}
}
