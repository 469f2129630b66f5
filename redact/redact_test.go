package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

func compile(t testing.TB, cfg Config) *Set {
	t.Helper()
	s, problems := Compile(cfg)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return s
}

const key = "AKIA[0-9A-Z]{16}"

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		cfg            Config
	}{
		{"a pointer", `{"user":"ann", "password" : "x" }`, `{"user":"ann", "password" : "[redacted]" }`, Config{Arguments: []string{"/password"}}},
		{"any type of value", `{"password":{"a":[1]},"b":1e2}`, `{"password":"[redacted]","b":1e2}`, Config{Arguments: []string{"/password"}}},
		{"a wildcard", `{"a":[{"token":1},{"token":2,"b":3}],"token":4}`, `{"a":[{"token":"[redacted]"},{"token":"[redacted]","b":3}],"token":4}`, Config{Arguments: []string{"/a/*/token"}}},
		{"an index", `{"a":["x","y"]}`, `{"a":["x","[redacted]"]}`, Config{Arguments: []string{"/a/1"}}},
		{"two pointers through one member", `{"a":{"b":1,"c":2,"d":3}}`, `{"a":{"b":"[redacted]","c":"[redacted]","d":3}}`, Config{Arguments: []string{"/a/b", "/a/c"}}},
		{"escaped tokens", `{"a/b":1,"c~d":2}`, `{"a/b":"[redacted]","c~d":"[redacted]"}`, Config{Arguments: []string{"/a~1b", "/c~0d"}}},
		{"an escaped key", `{"pass\u0077ord":1}`, `{"pass\u0077ord":"[redacted]"}`, Config{Arguments: []string{"/password"}}},
		{"a pointer to nothing", `{"a":1}`, `{"a":1}`, Config{Arguments: []string{"/a/b", "/c"}}},
		{"results only", `{"password":"AKIA0123456789ABCDEF"}`, `{"password":"AKIA0123456789ABCDEF"}`, Config{Results: []string{"/password"}}},
		{"a pattern", `{"a":"x AKIA0123456789ABCDEF y","b":["AKIA0123456789ABCDEF"]}`, `{"a":"x [redacted] y","b":["[redacted]"]}`, Config{Patterns: []string{key}}},
		{"escapes around a match", `{"a":"\u00e9\n\"AKIA0123456789ABCDEF\"\u00e9\/"}`, `{"a":"\u00e9\n\"[redacted]\"\u00e9\/"}`, Config{Patterns: []string{key}}},
		{"an escaped match", `{"a":"\u0041KIA0123456789ABCDEF."}`, `{"a":"[redacted]."}`, Config{Patterns: []string{key}}},
		{"a number", `{"a":4111111111111111,"b":411}`, `{"a":"[redacted]","b":411}`, Config{Patterns: []string{`\d{16}`}}},
		{"keys", `{"a":1,"AKIA0123456789ABCDEF" : 2,"x":{"yAKIA0123456789ABCDEF":{"a":3}},"AKIA0123456789ABCDEF2":4}`, `{"a":1,"[redacted]" : 2,"x":{"[redacted]":{"a":3}},"[redacted]*":4}`, Config{Patterns: []string{key}}},
		{"touching and overlapping matches", `{"a":"xabcbcdy abab"}`, `{"a":"x[redacted]y [redacted]"}`, Config{Patterns: []string{"abcb", "bcd", "ab"}}},
		{"a match that appears when another is gone", `{"a":"12B"}`, `{"a":"[redacted][redacted]"}`, Config{Patterns: []string{"12", `\bB`}}},
		{"JSON in a text", `{"a":"{\"k\": \"\\u0041KIA0123456789ABCDEF\", \"n\": 1}"}`, `{"a":"{\"k\": \"[redacted]\", \"n\": 1}"}`, Config{Patterns: []string{key}}},
		{"an anchored pattern in a text", `{"a":"see [\"1234\"] "}`, `{"a":"see [\"[redacted]\"] "}`, Config{Patterns: []string{`^\d{4}$`}}},
		{"characters of several bytes", `{"a":"éüabéê"}`, `{"a":"éü[redacted]éê"}`, Config{Patterns: []string{"ab"}}},
		{"characters that share their first or last byte", `{"a":"éxé"}`, `{"a":"é[redacted]é"}`, Config{Patterns: []string{"x"}}},
		{"a character like its neighbour", `{"a":"\u00e9x\u00e9b\u00e9"}`, `{"a":"\u00e9[redacted]\u00e9b\u00e9"}`, Config{Patterns: []string{"x"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			edits, err := compile(t, c.cfg).Arguments(t.Context(), []byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(jsonscan.AppendSpliced(nil, []byte(c.in), edits)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	email := Config{Results: []string{"/structuredContent/user/email"}}
	secret := base64.StdEncoding.EncodeToString([]byte("x AKIA0123456789ABCDEF"))
	for _, c := range []struct {
		name, in, want string
		cfg            Config
	}{
		{"only results and errors are changed", `{"jsonrpc":"2.0","id":"AKIA0123456789ABCDEF","result":{"a":"AKIA0123456789ABCDEF"}}`, `{"jsonrpc":"2.0","id":"AKIA0123456789ABCDEF","result":{"a":"[redacted]"}}`, Config{Patterns: []string{key}}},
		{"the text copy of structuredContent", `{"result":{"content":[{"type":"text","text":"{\"user\":{\"email\":\"a@b.c\",\"x\":\"\\n\"}}"}],"structuredContent":{"user":{"email":"a@b.c","x":"\n"}}},"id":1}`, `{"result":{"content":[{"type":"text","text":"{\"user\":{\"email\":\"[redacted]\",\"x\":\"\\n\"}}"}],"structuredContent":{"user":{"email":"[redacted]","x":"\n"}}},"id":1}`, email},
		{"a text alone", `{"result":{"content":[{"text":"{\"user\":{\"email\":\"a@b.c\"}}"}]}}`, `{"result":{"content":[{"text":"{\"user\":{\"email\":\"[redacted]\"}}"}]}}`, email},
		{"several documents in a text", `{"result":{"content":[{"text":"{\"user\":{\"email\":1}}\n{\"user\":{\"email\":2}} and {\"a\":1}"}]}}`, `{"result":{"content":[{"text":"{\"user\":{\"email\":\"[redacted]\"}}\n{\"user\":{\"email\":\"[redacted]\"}} and {\"a\":1}"}]}}`, email},
		{"elements of a list as texts", `{"result":{"content":[{"text":"{\"mail\":\"a\"}"},{"text":"[{\"mail\":\"b\"}]"}]}}`, `{"result":{"content":[{"text":"{\"mail\":\"[redacted]\"}"},{"text":"[{\"mail\":\"[redacted]\"}]"}]}}`, Config{Results: []string{"/structuredContent/result/*/mail"}}},
		{"a pointer that ends in a wildcard", `{"result":{"content":[{"text":"{\"a\":\"x\"}"},{"text":"{\"items\":[\"y\"]}"}]}}`, `{"result":{"content":[{"text":"{\"a\":\"x\"}"},{"text":"{\"items\":[\"[redacted]\"]}"}]}}`, Config{Results: []string{"/structuredContent/items/*"}}},
		{"a text that was cut off", `{"result":{"content":[{"text":"{\"user\":{\"email\":\"a@b"}]}}`, `{"result":{"content":[{"text":"{\"user\":{\"email\":\"[redacted]\""}]}}`, email},
		{"a text that was cut off, with more JSON in it", `{"result":{"content":[{"text":"{\"user\":{\"email\":[\"a@b\", {\"user\":{\"email\":1}} x"}]}}`, `{"result":{"content":[{"text":"{\"user\":{\"email\":\"[redacted]\""}]}}`, email},
		{"prose that repeats a value", `{"result":{"content":[{"text":"Mail a@b.c or a@b.c, says Ann (1)."}],"structuredContent":{"user":{"email":"a@b.c","n":1}}}}`, `{"result":{"content":[{"text":"Mail [redacted] or [redacted], says Ann (1)."}],"structuredContent":{"user":{"email":"[redacted]","n":1}}}}`, email},
		{"prose that repeats values of an object", `{"result":{"content":[{"text":"12345 and true and abc and abcd null"}],"structuredContent":{"user":{"email":{"a":[12345,123,true,null,false],"abcd":"abc","c":"abcd"}}}}}`, `{"result":{"content":[{"text":"[redacted] and true and abc and [redacted] null"}],"structuredContent":{"user":{"email":"[redacted]"}}}}`, email},
		{"JSON of another shape that repeats values", `{"result":{"content":[{"text":"{\"abcd\":\"abcd\",\"n\":12345,\"m\":123456}"}],"structuredContent":{"user":{"email":["abcd",12345]}}}}`, `{"result":{"content":[{"text":"{\"abcd\":\"[redacted]\",\"n\":\"[redacted]\",\"m\":123456}"}],"structuredContent":{"user":{"email":"[redacted]"}}}}`, email},
		{"JSON after prose that repeats values", `{"result":{"content":[{"text":"abcd: {\"a\":1}"}],"structuredContent":{"user":{"email":"abcd"}}}}`, `{"result":{"content":[{"text":"[redacted]: {\"a\":1}"}],"structuredContent":{"user":{"email":"[redacted]"}}}}`, email},
		{"JSON before prose that repeats values", `{"result":{"content":[{"text":"{\"a\":1} abcd"}],"structuredContent":{"user":{"email":"abcd"}}}}`, `{"result":{"content":[{"text":"{\"a\":1} [redacted]"}],"structuredContent":{"user":{"email":"[redacted]"}}}}`, email},
		{"the values are those of one result", `{"result":{"structuredContent":{"user":{"email":"abcd"}}},"error":{"message":"abcd"}}`, `{"result":{"structuredContent":{"user":{"email":"[redacted]"}}},"error":{"message":"abcd"}}`, email},
		{"all of structuredContent", `{"result":{"content":[{"text":"hello"}],"structuredContent":{"a":"hello"}}}`, `{"result":{"content":[{"text":"[redacted]"}],"structuredContent":"[redacted]"}}`, Config{Results: []string{"/structuredContent"}}},
		{"a pointer outside structuredContent", `{"result":{"contents":[{"uri":"a","text":"b"}],"text":"b"}}`, `{"result":{"contents":[{"uri":"a","text":"[redacted]"}],"text":"b"}}`, Config{Results: []string{"/contents/*/text"}}},
		{"arguments only", `{"result":{"password":"x"}}`, `{"result":{"password":"x"}}`, Config{Arguments: []string{"/password"}}},
		{"an error", `{"error":{"code":1,"message":"no AKIA0123456789ABCDEF","data":["AKIA0123456789ABCDEF"]}}`, `{"error":{"code":1,"message":"no [redacted]","data":["[redacted]"]}}`, Config{Patterns: []string{key}}},
		{"progress", `{"method":"notifications/progress","params":{"progressToken":"AKIA0123456789ABCDEF","message":"AKIA0123456789ABCDEF"}}`, `{"method":"notifications/progress","params":{"progressToken":"AKIA0123456789ABCDEF","message":"[redacted]"}}`, Config{Patterns: []string{key}}},
		{"params that are a list", `{"method":"m","params":["AKIA0123456789ABCDEF"]}`, `{"method":"m","params":["[redacted]"]}`, Config{Patterns: []string{key}}},
		{"a request", `{"method":"sampling/createMessage","params":{"requestId":"AKIA0123456789ABCDEF","messages":[{"content":{"text":"AKIA0123456789ABCDEF"}}]}}`, `{"method":"sampling/createMessage","params":{"requestId":"AKIA0123456789ABCDEF","messages":[{"content":{"text":"[redacted]"}}]}}`, Config{Patterns: []string{key}}},
		{"binary data", `{"result":{"contents":[{"blob":"` + secret + `"},{"data":"` + secret + `"},{"text":"` + secret + `"},{"blob":"AAAA"}]}}`, `{"result":{"contents":[{"blob":"` + binaryReplacement + `"},{"data":"` + binaryReplacement + `"},{"text":"` + secret + `"},{"blob":"AAAA"}]}}`, Config{Patterns: []string{key}}},
		{"text under the key of binary data", `{"result":{"data":"a AKIA0123456789ABCDEF","blob":"ok"}}`, `{"result":{"data":"a [redacted]","blob":"ok"}}`, Config{Patterns: []string{key}}},
		{"binary data without patterns", `{"result":{"blob":"` + secret + `"}}`, `{"result":{"blob":"` + secret + `"}}`, Config{Results: []string{"/a"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := compile(t, c.cfg)
			got, err := s.Reply(t.Context(), []byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A nil Set, and one that does not concern messages, read nothing.
func TestNothingToTakeOut(t *testing.T) {
	for _, s := range []*Set{nil, compile(t, Config{Arguments: []string{"/a"}})} {
		if got, err := s.Reply(t.Context(), []byte("no JSON")); err != nil || string(got) != "no JSON" {
			t.Errorf("%s, %v", got, err)
		}
	}
	for _, s := range []*Set{nil, compile(t, Config{Results: []string{"/a"}})} {
		if edits, err := s.Arguments(t.Context(), []byte("no JSON")); err != nil || edits != nil {
			t.Errorf("%v, %v", edits, err)
		}
	}
	if got := (*Set)(nil).Describe(); got != nil {
		t.Error(got)
	}
	if got := (*Set)(nil).Text("a"); got != "a" {
		t.Error(got)
	}
	if got := compile(t, Config{Patterns: []string{"x"}}).Text("bxb"); got != "b[redacted]b" {
		t.Error(got)
	}
}

// What cannot be read is an error: nothing may pass that was not searched.
func TestUnreadable(t *testing.T) {
	s := compile(t, Config{Arguments: []string{"/a"}, Patterns: []string{"x"}})
	for _, in := range []string{``, `{`, `{"a":tru`, `{"b":tru`, `{"a":1} 2`, `{"b":"`, `{"b":[}`} {
		if edits, err := s.Arguments(t.Context(), []byte(in)); err == nil || edits != nil {
			t.Errorf("arguments %q: %v", in, edits)
		}
	}
	for _, in := range []string{`{`, `{"result":{"a":"}`, `{"error":[}`, `{"params":{"a":tru}}`, `{"params":{"progressToken":tru}}`} {
		if _, err := s.Message(t.Context(), []byte(in)); fault.KindOf(err) != fault.BadReply {
			t.Errorf("message %q: %v", in, err)
		}
	}
	if _, err := s.Reply(t.Context(), []byte(`{`)); err == nil {
		t.Error("a reply passed that cannot be read")
	}
}

// Memory is reserved first, and given back, except for the copy that is returned.
func TestMemory(t *testing.T) {
	s := compile(t, Config{Patterns: []string{"x"}})
	body := []byte(`{"result":"` + strings.Repeat("x ", 100<<10) + `"}`)
	budget := membudget.New(64 << 20)
	scope := budget.Scope("a")
	got, err := s.Reply(membudget.NewContext(t.Context(), scope), body)
	if err != nil || budget.Stats().Held != int64(len(got)) {
		t.Errorf("%v; %d bytes are held for a copy of %d", err, budget.Stats().Held, len(got))
	}
	scope.Release()
	for _, total := range []int64{int64(len(body)), 6 * int64(len(body))} { // too little to search, and too little for the copy
		scope := membudget.New(total).Scope("a")
		if got, err := s.Reply(membudget.NewContext(t.Context(), scope), body); err == nil || len(got) > 0 && len(got) != len(body) {
			t.Errorf("with %d bytes: %v", total, err)
		}
	}
}

func TestTooManyValues(t *testing.T) {
	values, texts := make([]string, 0, 300), make([]string, 0, 300)
	for i := range 300 {
		values = append(values, fmt.Sprintf("value%d", i))
		texts = append(texts, fmt.Sprintf("see value%d", i))
	}
	s := compile(t, Config{Results: []string{"/structuredContent/values"}})
	reply := func(n int) string {
		in, _ := json.Marshal(map[string]any{"result": map[string]any{
			"content": []any{strings.Join(texts[:n], " "), "", `{"a": 5, "b": "c"}`}, "structuredContent": map[string]any{"values": append(values[:n:n], values[0])}}})
		got, err := s.Reply(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	if got := reply(256); strings.Contains(got, "value0") || strings.Contains(got, "value255") || !strings.Contains(got, "see [redacted] see") || !strings.Contains(got, `5`) {
		t.Error(got)
	}
	if got := reply(257); got != `{"result":{"content":["[redacted]","","{\"a\": \"[redacted]\", \"b\": \"[redacted]\"}"],"structuredContent":{"values":"[redacted]"}}}` {
		t.Error(got)
	}
}

// A text whose matches do not end is replaced whole.
func TestEndlessMatches(t *testing.T) {
	s := compile(t, Config{Patterns: []string{`[a-z]\[`, `\][a-z]`, "x"}})
	if got := s.Text("abcdexedcba"); got != Replacement {
		t.Error(got)
	}
	if got := s.Text("axb"); strings.ContainsAny(strings.ReplaceAll(got, Replacement, ""), "abx") {
		t.Error(got)
	}
}

// JSON in JSON in JSON is read, three levels deep.
func TestNesting(t *testing.T) {
	s := compile(t, Config{Patterns: []string{`^12$`}})
	text := `["12"]`
	for level := 1; level <= 5; level++ {
		in := []byte(`{"result":` + text + `}`)
		got, err := s.Reply(t.Context(), in)
		if err != nil || strings.Contains(string(got), "12") != (level > 4) {
			t.Errorf("level %d: %s, %v", level, got, err)
		}
		quoted, _ := json.Marshal(text)
		text = "[" + string(quoted) + "]"
	}
}

func TestProblems(t *testing.T) {
	long := strings.Repeat("a", 512)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Arguments: []string{"/a", "b"}}, `arguments[1]: a JSON pointer starts with "/"`},
		{Config{Results: []string{""}}, `results[0]: a JSON pointer starts with "/"`},
		{Config{Results: []string{"/a~2"}}, `results[0]: in a JSON pointer, "~0" stands for "~" and "~1" for "/"`},
		{Config{Patterns: []string{"x", "("}}, "patterns[1]: error parsing regexp: missing closing ): `(`"},
		{Config{Patterns: []string{"a*"}}, `patterns[0]: matches the empty text, or "[redacted]", which stands where something was taken out`},
		{Config{Patterns: []string{"red"}}, `patterns[0]: matches the empty text, or "[redacted]", which stands where something was taken out`},
		{Config{Patterns: []string{`\*\*`}}, `patterns[0]: matches the empty text, or "[redacted]", which stands where something was taken out`},
		{Config{Patterns: []string{long + "a"}}, `patterns[0]: at most 512 bytes, found 513`},
		{Config{Arguments: []string{"/" + long}}, `arguments[0]: at most 512 bytes, found 513`},
		{Config{Patterns: strings.Split(strings.Repeat("a,", 64), ",")}, `patterns: at most 64, found 65`},
		{Config{Patterns: []string{long, "x"}, Arguments: []string{"/" + long[1:], "/*/a~0~1"}}, ""},
		{Config{Patterns: strings.Split(strings.Repeat("x,", 63)+"x", ",")}, ""},
	} {
		_, problems := Compile(c.cfg)
		if got := strings.Trim(fmt.Sprint(problems), "[]"); got != strings.Trim(c.want, "[]") {
			t.Errorf("%v: got %s", c.cfg, got)
		}
	}
}

func TestFingerprintAndDescription(t *testing.T) {
	a := compile(t, Config{Arguments: []string{"/a"}, Results: []string{"/b"}, Patterns: []string{"x"}})
	for _, other := range []Config{{}, {Arguments: []string{"/a"}, Results: []string{"/b"}}, {Arguments: []string{"/b"}, Results: []string{"/a"}, Patterns: []string{"x"}}} {
		if compile(t, other).Fingerprint() == a.Fingerprint() {
			t.Errorf("%v has the same fingerprint", other)
		}
		if other.IsEmpty() != (len(other.Arguments) == 0) {
			t.Errorf("%v: IsEmpty", other)
		}
	}
	if again := compile(t, a.cfg); again.Fingerprint() != a.Fingerprint() || len(a.Fingerprint()) != 32 {
		t.Error("another process would have another fingerprint")
	}
	if got := strings.Join(a.Describe(), "; "); got != "arguments /a; results /b; pattern x" {
		t.Error(got)
	}
}
