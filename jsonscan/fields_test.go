package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFieldsEdits(t *testing.T) {
	for name, tt := range map[string]struct {
		doc     string
		changes []Change
		want    string
	}{
		"replace":         {`{"a":1,"b":2}`, []Change{{"a", []byte("9")}}, `{"a":9,"b":2}`},
		"add":             {`{"a":1}`, []Change{{"b", []byte("2")}}, `{"a":1,"b":2}`},
		"add to nothing":  {`{ }`, []Change{{"b", []byte("2")}, {"c", []byte("3")}}, `{ "b":2,"c":3}`},
		"drop first":      {`{ "a" : 1 , "b":2}`, []Change{{"a", nil}}, `{ "b":2}`},
		"drop last":       {`{"a":1, "b":2 }`, []Change{{"b", nil}}, `{"a":1 }`},
		"drop middle":     {`{"a":1,"b":2,"c":3}`, []Change{{"b", nil}}, `{"a":1,"c":3}`},
		"drop all":        {`{"a":1,"b":2}`, []Change{{"b", nil}, {"a", nil}}, `{}`},
		"drop all, add":   {`{"a":1,"b":2}`, []Change{{"b", nil}, {"a", nil}, {"c", []byte("3")}}, `{"c":3}`},
		"drop last, add":  {`{"a":1,"b":2}`, []Change{{"b", nil}, {"c", []byte("3")}}, `{"a":1,"c":3}`},
		"runs":            {`{"a":1,"b":2,"c":3,"d":4,"e":5}`, []Change{{"a", nil}, {"b", nil}, {"d", nil}}, `{"c":3,"e":5}`},
		"absent":          {`{"a":1}`, []Change{{"x", nil}}, `{"a":1}`},
		"quotes in keys":  {`{"a\"b":1,"b":{"c":[1,"}"]}}`, []Change{{`a"b`, nil}}, `{"b":{"c":[1,"}"]}}`},
		"escaped the key": {`{"\u0061":1}`, []Change{{"a", []byte("2")}}, `{"\u0061":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := FieldsOf([]byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(f.With(tt.changes...)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// After any changes the document is JSON and equals a map with the same changes.
func TestFieldsEditsLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", `e"`, "é"})
		model := rapid.MapOf(key, rapid.IntRange(0, 99)).Draw(t, "model")
		doc, _ := json.Marshal(model)
		in := strings.Repeat(" ", 3) + string(doc) + " "
		changed := map[string]bool{}
		var changes []Change
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			k := key.Draw(t, "key")
			if changed[k] {
				continue
			}
			changed[k] = true
			if rapid.Bool().Draw(t, "drop") {
				delete(model, k)
				changes = append(changes, Change{k, nil})
				continue
			}
			model[k] = 100
			changes = append(changes, Change{k, []byte("100")})
		}
		f, err := FieldsOf([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		if err := json.Unmarshal(f.With(changes...), &got); err != nil {
			t.Fatalf("%s %v: %v", in, changes, err)
		}
		want, _ := json.Marshal(model)
		have, _ := json.Marshal(got)
		if string(want) != string(have) {
			t.Fatalf("%s: got %s, want %s", in, have, want)
		}
	})
}

func TestEachElement(t *testing.T) {
	for doc, want := range map[string]string{
		`[]`: ``, `[ ]`: ``, `[1]`: `1`, `[1, {"a":[2]} ,"x]"]`: `1|{"a":[2]}|"x]"`, `{"a":1}`: ``,
	} {
		var got []string
		if err := EachElement([]byte(doc), Span{0, len(doc)}, func(s Span) error {
			got = append(got, string(s.Of([]byte(doc))))
			return nil
		}); err != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: got %q, %v, want %q", doc, got, err, want)
		}
	}
}
