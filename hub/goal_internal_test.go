package hub

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

const focusMember = `"context_focus_question":{"type":"string","description":"What you are looking for in the result: of a long text ` +
	`only the lines that matter for it are shown, and the rest can be read back with recover_text."}`

// I2, I3: a tool gets one more argument where its schema surely accepts one, and nothing else of it changes.
func TestOfferFocus(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object"}`:                  `{"type":"object","properties":{@}}`,
		`{ "type" : "object" }`:              `{ "type" : "object","properties":{@} }`,
		`{"type":"object","properties":{}}`:  `{"type":"object","properties":{@}}`,
		`{"properties":{ },"type":"object"}`: `{"properties":{ @},"type":"object"}`,
		`{"type":"object","properties":{"q":{"const":12345678901234567890} , "\u0061":{"x":1.0}  },"required":["q"],"additionalProperties":false}`: `` +
			`{"type":"object","properties":{"q":{"const":12345678901234567890} , "\u0061":{"x":1.0},@  },"required":["q"],"additionalProperties":false}`,
		`{"properties":{"a":true}}`:               `{"properties":{"a":true,@}}`,
		`{"type":"\u006fbject","$defs":{"a":{}}}`: `{"type":"\u006fbject","$defs":{"a":{}},"properties":{@}}`,
		`{"type":"object","properties":{"anyOf":{},"$ref":{}},"unevaluatedProperties":false}`: `` +
			`{"type":"object","properties":{"anyOf":{},"$ref":{},@},"unevaluatedProperties":false}`,

		`{"type":"object","properties":{"context_focus_question":{"type":"string"}}}`: "",
		`{"type":"object","properties":{"context\u005ffocus_question":true}}`:         "",
		`{}`: "", `true`: "", `null`: "", `[]`: "", `"object"`: "", `{"type":"string"}`: "", `{"type":["object","null"]}`: "",
		`{"type":"object","properties":[]}`: "", `{"type":"object","properties":null}`: "", `{"type":1,"properties":{}}`: "",
		`{"type":"object","type":"object"}`: "", `{"type":"object","properties":{"a":1,"a":2}}`: "",
		`{"type":"object","anyOf":[{"required":["a"]}]}`: "", `{"type":"object","$ref":"#/$defs/a"}`: "", `{"type":"object","\u0024ref":"#"}`: "",
		`{"type":"object","allOf":[{"additionalProperties":false}]}`: "", `{"type":"object","propertyNames":{"maxLength":3}}`: "",
		`{"type":"object","maxProperties":1}`: "", `{"type":"object","patternProperties":{"^c":false}}`: "", `{"type":"object","not":{}}`: "",
	} {
		tool := `{"x":[1e3, -0.0], "inputSchema":` + schema + ` ,"name":"\u0061"}`
		expect := tool
		if want != "" {
			expect = `{"x":[1e3, -0.0], "inputSchema":` + strings.Replace(want, "@", focusMember, 1) + ` ,"name":"\u0061"}`
		}
		if got, ok := addGoalArgument([]byte(tool)); string(got) != expect || ok != (want != "") {
			t.Errorf("got  %s, %v\nwant %s", got, ok, expect)
		}
	}
	for _, schema := range []string{`{"name":"a"}`, `[]`, `1`, `{"name":"a","name":"b","inputSchema":{"type":"object"}}`} {
		if got, ok := addGoalArgument([]byte(schema)); ok || string(got) != schema {
			t.Errorf("%s became %s", schema, got)
		}
	}
}

// isJSON reports whether a text passes the strict parse.
func isJSON(text []byte) bool {
	s := jsonscan.New(text, 0)
	_, err := s.SkipStrict()
	return err == nil && s.End() == nil
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return v
}

// FuzzOfferFocus: whatever the schema, a tool stays as it was or has exactly one member more, in one place, and is
// valid; edited again it stays as it is.
func FuzzOfferFocus(f *testing.F) {
	for _, seed := range []string{`{"type":"object"}`, `{"type":"object","properties":{"a":{}, "b":1} }`, ` { } `, `{"properties":{}}`, `{"type":"object","x":"\ud83d\ude00"}`, `[`} {
		f.Add([]byte(seed), []byte(`"y"`))
	}
	f.Fuzz(func(t *testing.T, schema, other []byte) {
		tool := append(append(append(append([]byte(`{"inputSchema":`), schema...), `,"z":`...), other...), '}')
		if !isJSON(tool) {
			return
		}
		got, ok := addGoalArgument(tool)
		if !ok {
			if !bytes.Equal(got, tool) {
				t.Fatalf("%q became %q", tool, got)
			}
			return
		}
		if !isJSON(got) || !differsBy(got, tool) {
			t.Fatalf("%q became %q", tool, got)
		}
		tree, _ := decoded(t, got).(map[string]any)
		inner, _ := tree["inputSchema"].(map[string]any)
		properties, _ := inner["properties"].(map[string]any)
		if _, there := properties[goalArgument].(map[string]any); !there {
			t.Fatalf("%q has no such property", got)
		}
		if again, ok := addGoalArgument(got); ok || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q", got, again)
		}
	})
}

// differsBy reports whether long is short with our member, alone or as the first property, in one place.
func differsBy(long, short []byte) bool {
	for _, added := range []string{focusMember, "," + focusMember, `"properties":{` + focusMember + `}`, `,"properties":{` + focusMember + `}`} {
		for at := bytes.Index(long, []byte(added)); at >= 0; {
			if bytes.Equal(append(bytes.Clone(long[:at]), long[at+len(added):]...), short) {
				return true
			}
			next := bytes.Index(long[at+1:], []byte(added))
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	return false
}

// FuzzWithoutFocus: whatever the arguments, all others keep their bytes and their order.
func FuzzWithoutFocus(f *testing.F) {
	f.Add([]byte(`{"a":1.0, "context_focus_question" : "why?","b":[ ]}`))
	f.Add([]byte(` {"context_focus_question":null}`))
	f.Add([]byte(`{"a":{"context_focus_question":"x"},"context\u005ffocus_question":"caf\u00e9"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, args []byte) {
		if !isJSON(args) {
			return
		}
		goal, rest, ok := withoutGoal(args)
		object, _ := decoded(t, args).(map[string]any)
		value, there := object[goalArgument]
		if ok != there {
			t.Fatalf("%q: %v", args, ok)
		}
		if !ok {
			return
		}
		if text, _ := value.(string); text != goal {
			t.Fatalf("%q: the goal is %q", args, goal)
		}
		delete(object, goalArgument)
		if !isJSON(rest) || !reflect.DeepEqual(decoded(t, rest), any(object)) {
			t.Fatalf("%q became %q", args, rest)
		}
		before, _ := jsonscan.FieldsOf(args)
		after, _ := jsonscan.FieldsOf(rest)
		left := after.All()
		for _, m := range before.All() {
			if m.Key == goalArgument {
				continue
			}
			if len(left) == 0 || !bytes.Equal(m.Member.Of(args), left[0].Member.Of(rest)) {
				t.Fatalf("%q became %q", args, rest)
			}
			left = left[1:]
		}
	})
}
