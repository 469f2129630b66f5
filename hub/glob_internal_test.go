package hub

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A glob answers as the regular expression does that it stands for.
func TestGlobAnswersAsItsRegularExpression(t *testing.T) {
	variable := regexp.MustCompile(`\\\{[^}]*\\\}`)
	piece := rapid.SampledFrom([]string{"a", "b", "ab", "/", "*", "{x}", "{", "}", ".", "é", "\\", "::"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pattern"), "")
		text := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "text"), "")
		stars := regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if got := newGlob(pattern).match(text); got != stars.MatchString(text) {
			t.Fatalf("%q fits %q: %v", text, pattern, got)
		}
		braces := regexp.MustCompile("^" + variable.ReplaceAllString(regexp.QuoteMeta(pattern), ".*") + "$")
		if got := templateGlob(pattern).match(text); got != braces.MatchString(text) {
			t.Fatalf("%q can be made from %q: %v", text, pattern, got)
		}
	})
	if templateGlob(strings.Repeat("x", maxPattern+1)).match("x") {
		t.Error("a template that is too long fits")
	}
}
