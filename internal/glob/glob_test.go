package glob

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a", "a", true}, {"a", "ab", false}, {"kimi-*", "kimi-", true}, {"kimi-*", "kimi-k2", true},
		{"kimi-*", "xkimi-k2", false}, {"*-mini", "gpt-mini", true}, {"*-mini", "gpt-mini-2", false}, {"a*c*e", "abcde", true},
		{"a*c*e", "ace", true}, {"a*c*e", "aec", false}, {"a*a", "a", false}, {"*a*", "bab", true}, {"a**b", "ab", true}, {"ab*ba", "aba", false},
	} {
		if got := New(tt.pattern).Match(tt.name); got != tt.want {
			t.Errorf("pattern %q, text %q: match = %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func TestMatchAgreesWithRegexp(t *testing.T) {
	variable := regexp.MustCompile(`\\\{[^}]*\\\}`)
	piece := rapid.SampledFrom([]string{"a", "b", "ab", "/", "*", "{x}", "{", "}", ".", "é", "\\", "::"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pattern"), "")
		text := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "text"), "")
		stars := regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if got := New(pattern).Match(text); got != stars.MatchString(text) {
			t.Fatalf("pattern %q, text %q: match = %v", pattern, text, got)
		}
		braces := regexp.MustCompile("^" + variable.ReplaceAllString(regexp.QuoteMeta(pattern), ".*") + "$")
		if got := FromTemplate(pattern).Match(text); got != braces.MatchString(text) {
			t.Fatalf("template %q, text %q: match = %v", pattern, text, got)
		}
	})
	if FromTemplate(strings.Repeat("x", MaxLength+1)).Match("x") {
		t.Error("a template that is too long matches")
	}
}
