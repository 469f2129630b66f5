package secret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"A": "alpha-secret", "B_2": "beta", "Q": "a+b/c=&d", "BASE": "https://h.example", "EMPTY": ""}[name]
	return v, ok
}

// References work as users write them in headers and variables; a text that only looks like one is
// literal.
func TestReferencesInsideOfAText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "with space")
	if err := os.WriteFile(path, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := func(s string) Text { return Text{written: "x", value: s} }
	for in, want := range map[string]Text{
		"env:A":                       text("alpha-secret"),
		"Bearer env:A":                text("Bearer alpha-secret"),
		"Bearer ${A}":                 text("Bearer alpha-secret"),
		"Bearer ${env:A}":             text("Bearer alpha-secret"),
		"${A}":                        text("alpha-secret"),
		"a${A}b${B_2}c":               text("aalpha-secretbbetac"),
		"env:A env:B_2":               text("alpha-secret beta"),
		"Basic  env:A":                text("Basic  alpha-secret"),
		"${NONE:-fallback}":           text("fallback"),
		"${EMPTY:-}x":                 text("x"),
		"${A:-fallback}":              text("alpha-secret"),
		"file:" + path:                text("from file"),
		"Bearer file:" + path:         text("Bearer from file"),
		"bearer ${file:" + path + "}": text("bearer from file"),
		"$${A}":                       Literal("${A}"),
		"$A and $ {A}":                Literal("$A and $ {A}"),
		"see env: for more":           Literal("see env: for more"),
		"myenv:A":                     Literal("myenv:A"),
		"x=env:A":                     Literal("x=env:A"),
		"--import file:./x.mjs":       Literal("--import file:./x.mjs"),
		"Bearer sk-env:A":             Literal("Bearer sk-env:A"),
		"":                            Literal(""),
	} {
		got, err := ParseTemplate(in)
		if err == nil {
			got, err = got.Resolve(lookup)
		}
		if err != nil || got.Reveal() != want.Reveal() || got.IsLiteral() != want.IsLiteral() {
			t.Errorf("%q: got %q, %v, literal %t", in, got.Reveal(), err, got.IsLiteral())
		}
		if s := fmt.Sprintf("%v %#v %s", got, got, got.Source()); strings.Contains(s, "secret") || strings.Contains(s, "Bearer") {
			t.Errorf("%q prints %s", in, s)
		}
	}
	for _, in := range []string{"env:", "env:A-B", "env:1", "Bearer env:A-B", "Bearer env:A;", "${", "${A", "${}", "${1}", "${A B}", "${file:}", "file:", "Bearer file:"} {
		if text, err := ParseTemplate(in); err == nil || strings.Contains(err.Error(), "A-B") {
			t.Errorf("%q: %v %v", in, text.Reveal(), err)
		}
	}
	for _, in := range []string{"Bearer env:NONE", "x ${NONE} y", "Bearer ${EMPTY}"} {
		text, err := ParseTemplate(in)
		if err == nil {
			_, err = text.Resolve(lookup)
		}
		if !errors.Is(err, ErrUnset) {
			t.Errorf("%q: %v", in, err)
		}
	}
	if text, _ := ParseTemplate("Bearer env:A, ${B_2} env:B_2"); text.IsSet() {
		t.Error("a name that ends at a comma was read")
	}
	several, _ := ParseTemplate("Bearer env:A ${B_2} ${file:/x}")
	if several.Source() != "env:A, env:B_2, file:/x" || strings.Join(several.Variables(), " ") != "A B_2" || strings.Join(several.Files(), " ") != "/x" {
		t.Errorf("%s %v %v", several.Source(), several.Variables(), several.Files())
	}
}

// A reference works wherever a part of a URL begins; its value is escaped, and the URL prints without
// path and query.
func TestReferencesInsideOfAURL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("file+key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[URL]string{
		"https://h.example/mcp":                            "https://h.example/mcp",
		"https://h.example/mcp?key=env:A":                  "https://h.example/mcp?key=alpha-secret",
		"https://h.example/mcp?key=env:Q&x=1":              "https://h.example/mcp?key=a%2Bb%2Fc%3D%26d&x=1",
		"https://h.example/mcp?key=${Q}":                   "https://h.example/mcp?key=a%2Bb%2Fc%3D%26d",
		"https://h.example/env:A/mcp":                      "https://h.example/alpha-secret/mcp",
		"https://h.example/s/${A}/mcp":                     "https://h.example/s/alpha-secret/mcp",
		URL("https://h.example/mcp?key=file:" + path):      "https://h.example/mcp?key=file%2Bkey",
		URL("https://h.example/?k=file:" + path + "&x=1"):  "https://h.example/?k=file%2Bkey&x=1",
		URL("https://h.example/?k=${file:" + path + "}&x"): "https://h.example/?k=file%2Bkey&x",
		"env:BASE":            "https://h.example",
		"${BASE}/mcp?k=env:A": "https://h.example/mcp?k=alpha-secret",
		"https://h.example/mcp?tags=production:env%3Aprod": "https://h.example/mcp?tags=production:env%3Aprod",
		"https://h.example/xenv:A":                         "https://h.example/xenv:A",
		"https://${NONE:-localhost}:8000/mcp":              "https://localhost:8000/mcp",
	} {
		got, err := in.Resolve(lookup)
		if err != nil || got.Reveal() != want || in.Check() != nil {
			t.Errorf("%s: got %q, %v", in.Reveal(), got.Reveal(), err)
		}
		for _, u := range []URL{in, got} {
			if s := fmt.Sprintf("%v %s %q %+v %#v", u, u, u, u, u); strings.Contains(s, "secret") || strings.Contains(s, "?") || strings.Contains(s, "key") {
				t.Errorf("%s prints %s", in.Reveal(), s)
			}
		}
	}
	for _, in := range []URL{"https://h/?k=env:", "https://h/?k=${", "https://h/?k=file:", "file:", "https://h/?k=${a b}"} {
		if in.Check() == nil {
			t.Errorf("%s is good", in.Reveal())
		}
	}
	if _, err := URL("https://h/?k=env:NONE").Resolve(lookup); !errors.Is(err, ErrUnset) {
		t.Error(err)
	}
	if URL("env:A").Sample() != "" || URL("https://h/${A}?k=env:A").Sample() != "https://h/x?k=x" {
		t.Error("Sample")
	}
}

// A resolved secret is redacted from texts of others, plain or URL-escaped; short ones are not.
func TestRedact(t *testing.T) {
	env := func(name string) (string, bool) {
		return map[string]string{"LONG": "hunter2-hunter2", "LONGER": "hunter2-hunter2-more", "SHORT": "word", "ODD": "p+q/r=s-t-u"}[name], true
	}
	for _, s := range []string{"Bearer env:LONG", "${LONGER}", "env:SHORT"} {
		text, err := ParseTemplate(s)
		if err == nil {
			_, err = text.Resolve(env)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := URL("https://h/?k=env:ODD").Resolve(env); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"key hunter2-hunter2 is wrong":   "key *** is wrong",
		"hunter2-hunter2-more":           "***",
		"a word":                         "a word",
		"https://h/?k=p%2Bq%2Fr%3Ds-t-u": "https://h/?k=***",
		"p+q/r=s-t-u!":                   "***!",
	} {
		if got := Redact(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// A value in a URL's query is redacted even if it was literal; a host is not.
func TestRedactKeysOfURLs(t *testing.T) {
	env := func(name string) (string, bool) {
		return map[string]string{"WHOLE": "https://whole.example/mcp?key=whole-url-key", "HOST": "named.example"}[name], true
	}
	for _, u := range []URL{"env:WHOLE", "https://literal.example/mcp?key=literal-url-key", "https://${HOST}/mcp"} {
		if _, err := u.Resolve(env); err != nil {
			t.Fatal(err)
		}
	}
	const in, want = "named.example, literal.example and whole.example do not know whole-url-key, literal-url-key", "named.example, literal.example and whole.example do not know ***, ***"
	if got := Redact(in); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A text that was cut inside a secret does not end with a part of it.
func TestRedactHead(t *testing.T) {
	const canary = "head-canary-0123456789"
	Register(canary)
	text := "a " + strings.Repeat(canary+" ", 3)
	for n := range len(text) {
		got := RedactPrefix(text[:n])
		if strings.Contains(got, "head") || !strings.HasPrefix(text[:2], got[:min(2, len(got))]) {
			t.Fatalf("of the first %d bytes: %q", n, got)
		}
	}
	if got := RedactPrefix("nothing to hide. "); got != "nothing to hide. " {
		t.Errorf("got %q", got)
	}
}
