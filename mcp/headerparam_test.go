package mcp

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// property is a schema with one property.
func property(schema string) string { return `{"type":"object","properties":{"p":` + schema + `}}` }

// A13: the specification's example, and every way a property may be annotated.
func TestHeaderParams(t *testing.T) {
	p := []HeaderParam{{"Mcp-Param-P", []string{"p"}}}
	for schema, want := range map[string][]HeaderParam{
		`{"type":"object","properties":{"region":{"type":"string","description":"The region to execute the query in","x-mcp-header":"Region"},"query":{"type":"string"}},"required":["region","query"]}`: {{"Mcp-Param-Region", []string{"region"}}},
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"config":{"type":"object","properties":{"tenant":{"x-mcp-header":"TenantId","type":"integer"},"deep":{"properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}}}}}}`: {
			{"Mcp-Param-Region", []string{"region"}}, {"Mcp-Param-TenantId", []string{"config", "tenant"}}, {"Mcp-Param-Flag", []string{"config", "deep", "flag"}},
		},
		` {"properties":{"user.id":{"type":"string","x-mcp-header":"U"},"":{"type":"string","x-mcp-header":"!#$%&'*+-.^_` + "`" + `|~9"}}} `: {
			{"Mcp-Param-U", []string{"user.id"}}, {"Mcp-Param-!#$%&'*+-.^_`|~9", []string{""}},
		},
		property(`{"type":["string","null"],"x-mcp-header":"P"}`):                               p,
		property(`{"type":["integer","boolean"],"x-mcp-header":"P"}`):                           p,
		property(`{"type":"string","\u0078-mcp-header":"\u0050"}`):                              p,
		property(`{"type":"string","x-mcp-header":"P","$ref":"#/$defs/r"}`):                     p,
		property(`{"type":"string","x-mcp-header":"P","default":{"x-mcp-header":1}}`):           p,
		property(`{"type":"string","x-mcp-header":"P","enum":["a",{"x-mcp-header":"b"}]}`):      p,
		property(`{"type":"string","x-mcp-header":"P","description":"mind \"x-mcp-header\":"}`): p,
		`{"type":"object"}`: nil, `{}`: nil, `true`: nil, `null`: nil, ``: nil,
		// Properties, definitions and data may be called anything.
		property(`{"properties":{"x-mcp-header":{"type":"string"}}}`):                                                        nil,
		property(`{"items":{"properties":{"x-mcp-header":{}},"required":["x-mcp-header"]}}`):                                 nil,
		`{"$defs":{"x-mcp-header":{}},"definitions":{"x-mcp-header":true},"dependentRequired":{"x-mcp-header":["a"]}}`:       nil,
		`{"patternProperties":{"x-mcp-header":{}},"dependentSchemas":{"x-mcp-header":{}},"examples":[{"x-mcp-header":"a"}]}`: nil,
		`{"description":"x-mcp-header","properties":{"a":true,"b":{"X-MCP-Header":"a"}}}`:                                    nil,
		// Where nothing is annotated, nothing else is refused.
		`{"type":"object","type":"object"}`: nil,
	} {
		got, err := HeaderParams([]byte(schema))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v; %s", schema, err, diff)
		}
	}
}

// A13: the invalid tools of the conformance suite, and every other rule.
func TestHeaderParamsRejected(t *testing.T) {
	for _, schema := range []string{
		property(`{"type":"string","x-mcp-header":""}`),
		property(`{"type":"object","x-mcp-header":"Data"}`),
		property(`{"type":"array","items":{"type":"string"},"x-mcp-header":"Items"}`),
		property(`{"type":"null","x-mcp-header":"Nil"}`),
		property(`{"type":"number","x-mcp-header":"Score"}`),
		`{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"Region"}}}`,
		`{"properties":{"a":{"type":"string","x-mcp-header":"MyField"},"b":{"type":"string","x-mcp-header":"myfield"}}}`,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"o":{"properties":{"b":{"type":"string","x-mcp-header":"a"}}}}}`,
		property(`{"type":"string","x-mcp-header":"My Region"}`),
		property(`{"type":"string","x-mcp-header":"Region:Primary"}`),
		property(`{"type":"string","x-mcp-header":"Région"}`),
		property(`{"type":"string","x-mcp-header":"Region\t1"}`),
		property(`{"type":"string","x-mcp-header":"Region\r\nX-Evil: 1"}`),
		property(`{"type":"string","x-mcp-header":"\u212a"}`), // a K in Unicode's eyes
		property(`{"type":"string","x-mcp-header":"a/b"}`),
		property(`{"type":"string","x-mcp-header":1}`),
		property(`{"type":"string","x-mcp-header":null}`),
		property(`{"type":"string","x-mcp-header":["P"]}`),
		property(`{"x-mcp-header":"P"}`),
		property(`{"x-mcp-header":"P","enum":["a"]}`),
		property(`{"x-mcp-header":"P","$ref":"#/$defs/r"}`),
		property(`{"type":"String","x-mcp-header":"P"}`),
		property(`{"type":[],"x-mcp-header":"P"}`),
		property(`{"type":["null"],"x-mcp-header":"P"}`),
		property(`{"type":["string","number"],"x-mcp-header":"P"}`),
		property(`{"type":["string",1],"x-mcp-header":"P"}`),
		property(`{"type":[["string"]],"x-mcp-header":"P"}`),
		`{"type":"string","x-mcp-header":"Root"}`,
		// Two readers could see two things in these.
		property(`{"type":"string","x-mcp-header":"P","x-mcp-header":"Q"}`),
		`{"properties":{"p":{"type":"string","x-mcp-header":"P"},"p":{"type":"string"}}}`,
		`{"properties":{"p":{"type":"string","x-mcp-header":"P"}}`,
		`{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}`,
		property(strings.Repeat(`{"properties":{"p":`, 70) + `{"type":"string","x-mcp-header":"P"}` + strings.Repeat(`}}`, 70)),
	} {
		if got, err := HeaderParams([]byte(schema)); err == nil || got != nil {
			t.Errorf("%s: got %v, %v", schema, got, err)
		}
	}
}

// A13: an annotation counts only if properties alone lead to it; elsewhere it makes the tool invalid.
func TestHeaderParamsUnreachable(t *testing.T) {
	const annotated = `{"type":"string","x-mcp-header":"P"}`
	const deep = `{"type":"object","properties":{"q":` + annotated + `}}`
	for _, keyword := range []string{
		"items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
		"propertyNames", "not", "if", "then", "else", "contentSchema", "$ref", "x-something",
	} {
		for _, inner := range []string{annotated, deep} {
			refuseOutOfReach(t, fmt.Sprintf(`{%q:%s}`, keyword, inner))
		}
	}
	for _, keyword := range []string{"prefixItems", "items", "oneOf", "anyOf", "allOf", "properties"} {
		for _, inner := range []string{annotated, deep} {
			refuseOutOfReach(t, fmt.Sprintf(`{%q:[{},%s]}`, keyword, inner))
		}
	}
	for _, keyword := range []string{"$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"} {
		for _, inner := range []string{annotated, deep} {
			refuseOutOfReach(t, fmt.Sprintf(`{%q:{"x":%s}}`, keyword, inner))
		}
	}
	refuseOutOfReach(t, `[`+annotated+`]`)
}

func refuseOutOfReach(t *testing.T, schema string) {
	t.Helper()
	for _, s := range []string{schema, property(schema), property(property(schema)), `{"items":` + property(schema) + `}`} {
		if got, err := HeaderParams([]byte(s)); err == nil {
			t.Errorf("%s: got %v", s, got)
		}
	}
}

// A13: the text of a value, by its type.
func TestHeaderParamValue(t *testing.T) {
	p := HeaderParam{"Mcp-Param-P", []string{"a", "b"}}
	for value, want := range map[string]string{
		`"us-west1"`: "us-west1", `""`: "", `"Hello, \u4e16界\n"`: "Hello, 世界\n", `"42.0"`: "42.0",
		`true`: "true", `false`: "false",
		`42`: "42", `-7`: "-7", `0`: "0", `-0`: "0", `0.0`: "0", `-0e5`: "0", `0e99999999999999999999`: "0",
		`42.0`: "42", `4.2e1`: "42", `420e-1`: "42", `1E3`: "1000", `1.000e+15`: "1000000000000000",
		`9007199254740991`: "9007199254740991", `-9007199254740991`: "-9007199254740991", `9007199254740991.00`: "9007199254740991",
		`1` + strings.Repeat("0", 40) + `e-40`: "1", `0.` + strings.Repeat("0", 40) + `7e41`: "7",
	} {
		arguments := []byte(` {"b":1,"a":{"x":[1],"b": ` + value + ` }, "c":null}`)
		if got, ok, err := p.Value(arguments); got != want || !ok || err != nil {
			t.Errorf("%s: %q, %v, %v, want %q", value, got, ok, err, want)
		}
		if !p.Matches(EncodeHeader(want), arguments) {
			t.Errorf("%s: %q does not match", value, want)
		}
	}
	for _, arguments := range []string{
		``, `null`, `{}`, `{"b":1}`, `{"a":null}`, `{"a":1}`, `{"a":"b"}`, `{"a":[{"b":1}]}`, `{"a":{"b":null}}`, `{"a":{"B":1}}`, `[]`, `"a"`,
	} {
		if got, ok, err := p.Value([]byte(arguments)); ok || err != nil || p.Matches(got, []byte(arguments)) {
			t.Errorf("%s: %q, %v, %v", arguments, got, ok, err)
		}
	}
	for _, arguments := range []string{
		`{"a":{"b":{}}}`, `{"a":{"b":["x"]}}`, `{"a":{"b":3.14}}`, `{"a":{"b":1e-1}}`, `{"a":{"b":9007199254740992}}`, `{"a":{"b":-9007199254740992}}`,
		`{"a":{"b":9007199254740991.0000001}}`, `{"a":{"b":1e16}}`, `{"a":{"b":1e99999999999999999999}}`, `{"a":{"b":1e-99999999999999999999}}`,
		`{"a":{"b":10e9223372036854775807}}`, `{"a":{"b":1},"a":{"b":2}}`, `{"a":{"b":1,"b":1}}`, `{"a":{"b":1}`, `{"a":{"b":tru}}`,
	} {
		if got, ok, err := p.Value([]byte(arguments)); ok || err == nil || p.Matches(got, []byte(arguments)) {
			t.Errorf("%s: %q, %v, %v", arguments, got, ok, err)
		}
	}
	if got, ok, err := (HeaderParam{}).Value([]byte(`1`)); ok || err != nil {
		t.Errorf("no path: %q, %v, %v", got, ok, err)
	}
}

// A13: which headers match a value. The conformance suite's cases come first.
func TestHeaderParamMatches(t *testing.T) {
	p := HeaderParam{"Mcp-Param-P", []string{"p"}}
	for _, tt := range []struct {
		header, value string
		want          bool
	}{
		{"=?base64?SGVsbG8=?=", `"Hello"`, true},
		{"=?base64?SGVsbG8?=", `"Hello"`, false},
		{"=?base64?SGVs!!!bG8=?=", `"Hello"`, false},
		{"SGVsbG8=", `"SGVsbG8="`, true},
		{"=?base64?SGVsbG8=", `"=?base64?SGVsbG8="`, true},
		{"", `"test-value"`, false},
		{"", `""`, true},
		{"us-west1", `"us-west1"`, true},
		{"US-west1", `"us-west1"`, false},
		{"é", `"é"`, false},
		{"42", `42`, true}, {"42.0", `42`, true}, {"42", `42.0`, true}, {"4.2e1", `42`, true}, {"=?base64?NDI=?=", `42`, true},
		{"43", `42`, false}, {"042", `42`, false}, {"+42", `42`, false}, {"0x2a", `42`, false}, {"42 0", `42`, false}, {"", `0`, false}, {"=?base64?IDQy?=", `42`, false},
		{"42.5", `42`, false}, {"42", `"42.0"`, false}, {"9007199254740993", `9007199254740991`, false}, {"NaN", `0`, false}, {"-", `0`, false},
		{"-0", `0`, true}, {"true", `true`, true}, {"True", `true`, false}, {"1", `true`, false},
		{"null", `null`, false}, {"", `null`, false}, {"{}", `{}`, false}, {"3.14", `3.14`, false},
	} {
		if got := p.Matches(tt.header, []byte(`{"p":`+tt.value+`}`)); got != tt.want {
			t.Errorf("%q for %s: %v", tt.header, tt.value, got)
		}
	}
}

// naive checks a schema as a tree, by the wording of the specification.
type naive struct {
	found map[string]string
	bad   bool
}

var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (n *naive) schema(v any, path []string, reachable bool) {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			n.schema(e, nil, false)
		}
	}
	object, _ := v.(map[string]any)
	for key, value := range object {
		named, isNamed := value.(map[string]any)
		switch key {
		case paramKey:
			n.annotate(object, path, reachable)
		case "const", "default", "enum", "examples":
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies":
			for name, s := range named {
				n.schema(s, append(path[:len(path):len(path)], name), reachable && key == "properties")
			}
			if !isNamed {
				n.schema(value, nil, false)
			}
		default:
			n.schema(value, nil, false)
		}
	}
}

func (n *naive) annotate(object map[string]any, path []string, reachable bool) {
	name, _ := object[paramKey].(string)
	kinds, isList := object["type"].([]any)
	if !isList {
		kinds = []any{object["type"]}
	}
	good := 0
	for _, k := range kinds {
		switch k {
		case "string", "integer", "boolean":
			good++
		case "null":
		default:
			n.bad = true
		}
	}
	_, twice := n.found[strings.ToLower(name)]
	n.bad = n.bad || !reachable || len(path) == 0 || !token.MatchString(name) || twice || good == 0
	n.found[strings.ToLower(name)] = strings.Join(path, "\x00")
}

// FuzzHeaderParams: it rejects the same schemas as a tree walk does, and what it mirrors always
// matches.
func FuzzHeaderParams(f *testing.F) {
	f.Add([]byte(property(`{"type":"string","x-mcp-header":"P"}`)), []byte(`{"p":"é"}`))
	f.Add([]byte(property(`{"type":["integer","null"],"x-mcp-header":"P","items":[{"x-mcp-header":1}]}`)), []byte(`{"p":4.20e1}`))
	f.Add([]byte(property(`{"properties":{"q":{"type":"boolean","x-mcp-header":"Q"}},"$defs":{"x-mcp-header":{}}}`)), []byte(`{"p":{"q":true}}`))
	f.Fuzz(func(t *testing.T, schema, arguments []byte) {
		params, err := HeaderParams(schema)
		n := naive{found: map[string]string{}}
		var tree any
		if json.Unmarshal(schema, &tree) == nil {
			n.schema(tree, nil, true)
		}
		switch {
		case err == nil && (n.bad || len(n.found) != len(params)):
			t.Fatalf("%s: got %v, a tree has %v", schema, params, n.found)
		case err != nil && !n.bad && !strictOnly(schema):
			t.Fatalf("%s: %v", schema, err)
		}
		for _, p := range append(params, HeaderParam{"Mcp-Param-P", []string{"p"}}, HeaderParam{"Mcp-Param-Q", []string{"p", "q"}}) {
			path, known := n.found[strings.ToLower(strings.TrimPrefix(p.Header, HeaderParamPrefix))]
			if err == nil && known && len(params) == 1 && path != strings.Join(params[0].Path, "\x00") {
				t.Fatalf("%s: %v", schema, params)
			}
			if text, ok, err := p.Value(arguments); ok && (err != nil || !p.Matches(EncodeHeader(text), arguments)) {
				t.Fatalf("%s in %s: %q, %v", p.Path, arguments, text, err)
			}
		}
	})
}

// strictOnly reports whether only a strict parser rejects the schema: duplicate keys, text
// that is not UTF-8, lone surrogates, deep nesting.
func strictOnly(schema []byte) bool {
	d := json.NewDecoder(strings.NewReader(string(schema)))
	if !json.Valid(schema) || strings.Contains(string(schema), `\u`) || strings.ToValidUTF8(string(schema), "") != string(schema) {
		return true
	}
	var open []map[string]bool // keys of the objects around; nil for an array
	wantKey := false
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		if key, ok := tok.(string); ok && wantKey {
			if open[len(open)-1][key] {
				return true
			}
			open[len(open)-1][key] = true
			wantKey = false
			continue
		}
		switch tok {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) > maxSchemaDepth {
			return true
		}
		wantKey = len(open) > 0 && open[len(open)-1] != nil
	}
}

func BenchmarkHeaderParams(b *testing.B) {
	var properties []string
	for i := range 20 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"object","description":%q,"properties":{"q":{"type":"string"}}}`, i, strings.Repeat("words ", 40)))
	}
	plain := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`
	for name, schema := range map[string]string{"plain": plain, "annotated": strings.Replace(plain, `"string"`, `"string","x-mcp-header":"P"`, 1)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(schema)))
			for b.Loop() {
				if _, err := HeaderParams([]byte(schema)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
