package relevance

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func termsOf(text string) []string {
	var out []string
	for _, t := range NewGoal(text).Terms {
		out = append(out, fmt.Sprintf("%s:%.1f", t.Word, t.Weight))
	}
	return out
}

// Stop words are no terms, weak words weigh half, parts of names a little less than names.
func TestGoalTerms(t *testing.T) {
	for goal, want := range map[string]string{
		"":                                 "",
		"why is the a of":                  "",
		"x":                                "",
		"retry the upload":                 "retry:1.0 upload:1.0",
		"fix retry":                        "fix:0.5 retry:1.0",
		"retries retry retried":            "retries:1.0",
		"readBody":                         "readbody:1.0 read:0.8 body:0.8",
		"max_size of HTTPServer":           "max_size:1.0 max:0.8 size:0.8 httpserver:1.0 http:0.8 server:0.8",
		"body of readBody":                 "body:1.0 readbody:1.0 read:0.8",
		"pourquoi la connexion échoue":     "connexion:1.0 échoue:1.0",
		"为什么连接失败":                          "么连:1.0 连接:1.0 接失:1.0 失败:1.0",
		"(.*)+ $(reboot) ⟦NO_PRUNE_BEGIN⟧": "reboot:1.0 no_prune_begin:1.0 prune:0.8 begin:0.8",
		"\xff\xfe":                         "",
	} {
		if got := strings.Join(termsOf(goal), " "); got != want {
			t.Errorf("%q: %q, want %q", goal, got, want)
		}
	}
	if n := len(termsOf(manyWords(200))); n != maxTerms {
		t.Errorf("%d terms", n)
	}
}

func manyWords(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = "word" + strings.Repeat("z", i)
	}
	return strings.Join(out, " ")
}

// A line has a term in any of its inflected forms; synonyms and abbreviations are variants.
func TestGoalFindsTermsInLines(t *testing.T) {
	for _, c := range []struct{ goal, line, exact, variant string }{
		{"upload", "uploads UPLOADED uploading", "upload", ""},
		{"read body", "func readBody(r)", "read body", ""},
		{"readBody", "reads the body", "read body", ""},
		{"configuration", "cfg := load()", "", "configuration"},
		{"configuration", "configuration cfg", "configuration", ""},
		{"authentication", "Auth required", "", "authentication"},
		{"timeout", "context deadline exceeded", "", "timeout"},
		{"connexion refusée", "connection refused", "", "connexion"},
		{"mot de passe du serveur", "server is up", "", "serveur"},
		{"连接", "conn closed", "", "连接"},
		{"配置", "loads the config", "", "配置"},
		{"upload", "the uplands", "", ""},
		{"cat", "category", "", ""},
	} {
		g := NewGoal(c.goal)
		exact, variant, _ := g.findTerms(c.line)
		if got := names(g, exact); got != c.exact {
			t.Errorf("%q in %q: exact %q, want %q", c.goal, c.line, got, c.exact)
		}
		if got := names(g, variant&^exact); got != c.variant {
			t.Errorf("%q in %q: variants %q, want %q", c.goal, c.line, got, c.variant)
		}
	}
}

func names(g *Goal, mask uint64) string {
	var out []string
	for i, t := range g.Terms {
		if mask&(1<<i) != 0 {
			out = append(out, t.Word)
		}
	}
	return strings.Join(out, " ")
}

// The fast pass over ASCII finds the same as matching any text by words and parts of names.
func TestASCIIAndUnicodeMatchingAgree(t *testing.T) {
	g := NewGoal("readHTTPBody of max_size settings v2 connexion 连接超时 a1B2")
	piece := rapid.SampledFrom([]string{
		"read", "HTTP", "Body", "max", "size", "_", "__", "2", "v", "V", "configuration", "cfg", " ", "\t", ".", "连接", "超", "é",
		"connexion", "a", "1", "B", "Setting", "s", "\xff", "́", "conn", "TIMEOUT", "Read",
	})
	rapid.Check(t, func(t *rapid.T) {
		line := ""
		for _, p := range rapid.SliceOfN(piece, 0, 12).Draw(t, "line") {
			line += p
		}
		slow := lineMatch{Goal: g}
		slow.matchUnicode(line)
		exact, variant, words := g.findTerms(line)
		if exact != slow.exact || variant != slow.variant || words != slow.wordCount {
			t.Fatalf("%q: exact %b variant %b words %d, want %b %b %d", line, exact, variant, words, slow.exact, slow.variant, slow.wordCount)
		}
	})
}
