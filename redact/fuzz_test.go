package redact

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// FuzzRedact: what is left is valid JSON of the same shape that no pattern matches, in texts of JSON too; what a
// pointer names is gone; everything else is as it was; and redacting again changes nothing.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		`{"result":{"content":[{"text":"{\"user\":{\"email\":\"a@b.c\"}}"}],"structuredContent":{"user":{"email":"a@b.c"}}}}`,
		`{"result":{"a":"\u0041KIA0123456789ABCDEF 4111111111111111","AKIA0123456789ABCDEF":[4111111111111111]}}`,
		`{"result":"[\"4111111111111111\"] {\"email\":[1,2", "error":{"message":"4111111111111111é"}}`,
		`{"result":{"data":"NDExMTExMTExMTExMTExMQ=="},"params":{"progressToken":4111111111111111,"m":"x"}}`,
		`{"params":["{\"user\":[\"{\\\"a\\\":\\\"4111111111111111\\\"}\"]}"],"id":1}`,
	} {
		f.Add(seed)
	}
	s := compile(f, Config{Results: []string{"/structuredContent/user/email", "/*/secret"}, Patterns: []string{key, `\d{16}`, `^1234$`, `[^ ]\[r`}})
	f.Fuzz(func(t *testing.T, in string) {
		if _, err := jsonscan.New([]byte(in), 0).SkipStrict(); err != nil || !json.Valid([]byte(in)) || !strings.HasPrefix(in, "{") {
			return
		}
		out, err := s.Reply(t.Context(), []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Reply(t.Context(), out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("not stable:\n%s\n%s\n%v", out, again, err)
		}
		checkLeft(t, s.patterns, in, out)
	})
}

func checkLeft(t *testing.T, patterns []*regexp.Regexp, in string, out []byte) {
	t.Helper()
	top := map[string]json.RawMessage{}
	before := map[string]json.RawMessage{}
	if json.Unmarshal(out, &top) != nil || json.Unmarshal([]byte(in), &before) != nil {
		t.Fatalf("not JSON: %s", out)
	}
	for k, raw := range top {
		switch k {
		case "result", "error":
			checkTexts(t, patterns, raw, 0)
		case "params":
		default:
			if !bytes.Equal(raw, before[k]) {
				t.Fatalf("%s was changed: %s", k, raw)
			}
		}
	}
	matched := false
	var visit func(raw []byte, level int) //nolint:staticcheck // it calls itself
	visit = func(raw []byte, level int) {
		eachText(raw, func(text string) {
			for _, re := range patterns {
				matched = matched || re.MatchString(text)
			}
			if strings.ContainsAny(text, "{[") || level == 0 && len(text) > 8 { // JSON in it, or base64
				matched = true
			}
		})
	}
	visit([]byte(in), 0)
	if !matched && !strings.Contains(in, "email") && !strings.Contains(in, "secret") && !strings.Contains(in, `\`) && string(out) != in {
		t.Fatalf("changed without reason:\n%s\n%s", in, out)
	}
}

func checkTexts(t *testing.T, patterns []*regexp.Regexp, raw []byte, level int) {
	t.Helper()
	eachText(raw, func(text string) {
		if text == binaryReplacement {
			return
		}
		for _, re := range patterns {
			if re.MatchString(text) {
				t.Fatalf("%s is left in %s", re, raw)
			}
		}
		if inner := strings.TrimSpace(text); level < maxNesting && len(inner) > 0 && (inner[0] == '{' || inner[0] == '[') && json.Valid([]byte(inner)) {
			if _, err := jsonscan.New([]byte(inner), 0).Skip(); err == nil {
				checkTexts(t, patterns, []byte(inner), level+1)
			}
		}
	})
}

// eachText calls each with the keys, texts and numbers of a document.
func eachText(raw []byte, each func(string)) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return
		}
		switch v := token.(type) {
		case string:
			each(v)
		case json.Number:
			each(v.String())
		}
	}
}
