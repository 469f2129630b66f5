package linesearch

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
)

func match(tb testing.TB, p *Pattern, line string, block int) bool {
	tb.Helper()
	s := NewMatcher(p, 0)
	return matchAgain(tb, s, line, block)
}

// matchAgain feeds a line in blocks that do not split characters.
func matchAgain(tb testing.TB, s *Matcher, line string, block int) bool {
	tb.Helper()
	s.StartLine()
	for len(line) > 0 {
		n := min(block, len(line))
		for n < len(line) && !utf8.RuneStart(line[n]) {
			n++
		}
		if err := s.Feed(context.Background(), []byte(line[:n])); err != nil {
			tb.Fatal(err)
		}
		line = line[n:]
	}
	return s.EndLine()
}

var exprs = []string{
	``, `a`, `^a`, `a$`, `^$`, `^a$`, `\ba\b`, `\Ba`, `a|b`, `(a|b)*c`, `a{2,4}`, `(?i)straße`, `(?i)K`, `[^a]`, `.`, `..`, `^.{3}$`, `\pL+`, `\PL`, `é`, `[à-ü]`,
	`(?i)[à-ü]x`, `漢`, `\d+\s\w`, `(?s).*b`, `(?m)^b$`, `\Aab\z`, `a*?b`, `(a*)*`, `(|a)*b`, `(?U)a+b`, `x*`, `[[:alpha:]]+[[:digit:]]`, `\Q.+\E`, `error|panic|FAIL`, `\x{fffd}`,
	`a.c`, `^\s*$`, `(^|b)a`, `a(\b|$)`, `(?:^a|b$)+`, `\b`, `\B`, `$^`, `a^b`, `[^\x00-\x7f]`, `(?i)ſ`, `(?i)[k-s]`,
}

var lines = []string{
	"", "a", "b", "ab", "aab", "aaaa b", "cab", "STRASSE", "straße", "STRAẞE", "K", "k", "é", "É", "漢字", "12 x", "x1", ".+", "an error", "\xff", "a\xffc", "a\xe6\xbcb", "\xe6",
	"  ", "ba", "a b", "-a-", "_a_", "ſ", "s", "\x00", strings.Repeat("a", 500) + "b", strings.Repeat("é", 300) + "x", "\U0010ffff", "a\r",
}

// The answer is that of package regexp, however the line is split into blocks, and a matcher that has
// seen other lines returns the same.
func TestAnswersAsPackageRegexpDoes(t *testing.T) {
	for _, expr := range exprs {
		re := regexp.MustCompile(expr)
		p, err := Compile(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		used := NewMatcher(p, 0)
		for _, line := range lines {
			want := re.MatchString(line)
			for _, block := range []int{1, 3, 1 << 20} {
				if got := match(t, p, line, block); got != want {
					t.Errorf("%s on %q in blocks of %d: %v", expr, line, block, got)
				}
				if got := matchAgain(t, used, line, block); got != want {
					t.Errorf("%s on %q after other lines: %v", expr, line, got)
				}
			}
		}
	}
}

func FuzzAnswersAsPackageRegexpDoes(f *testing.F) {
	for i, e := range exprs {
		f.Add(e, lines[i%len(lines)], 2)
	}
	f.Fuzz(func(t *testing.T, expr, line string, block int) {
		p, err := Compile(expr)
		if err != nil || len(line) > 1<<12 {
			return
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			t.Fatalf("regexp refuses %q: %v", expr, err)
		}
		line = strings.ReplaceAll(line, "\n", " ")
		if got, want := match(t, p, line, min(max(block, 1), 1<<16)), re.MatchString(line); got != want {
			t.Errorf("%q on %q: %v", expr, line, got)
		}
	})
}

// Refused expressions are refused cheaply.
func TestRefusesWhatIsTooLarge(t *testing.T) {
	why := func(code string) error { return fault.New(fault.BadParams, errSyntax.Public+": "+code) }
	for expr, want := range map[string]error{
		`(`: why("missing closing )"), `a{1001}`: errTooLarge, `(?=a)`: why("invalid or unsupported Perl syntax"),
		`\1`: why("invalid escape sequence"), "\xff": why("invalid UTF-8"),
		strings.Repeat("a", 513):        errTooLong,
		`((a{100}){100}){10}`:           errTooLarge,
		`(?:a{0,999}b{0,999}c{0,999})+`: errTooLarge,
		`((((a{9}){9}){9}){9}){9}`:      errTooLarge,
		`(?i)[a-äb-ëc-ïd-öe-üf-ÿ]`:      errTooLarge,
		strings.Repeat(`\pL`, 65):       errTooLarge,
		`(?i)[b-\x{10000}-\x{10001}`:    why("missing closing ]"),
	} {
		if _, err := Compile(expr); err == nil || err.Error() != want.Error() || fault.KindOf(err) != fault.BadParams {
			t.Errorf("%.40s: %v, want %v", expr, err, want)
		}
	}
	for _, expr := range []string{`[a-z]{1,1000}`, `\b\d{1,3}(\.\d{1,3}){3}\b`, `(?i)[à-ü]+`, `(?P<name>x-\x41)`, strings.Repeat("a", 512)} {
		if _, err := Compile(expr); err != nil {
			t.Errorf("%.40s: %v", expr, err)
		}
	}
}

// A search ends at its work limit, or with its context.
func TestEnds(t *testing.T) {
	p, err := Compile(`(?:a|b)*a(?:a|b){200}c`)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("ab", 1<<20))
	s := NewMatcher(p, 1<<20)
	if err := s.Feed(context.Background(), line); !errors.Is(err, ErrWorkLimit) {
		t.Errorf("got %v after %d", err, s.Work())
	}
	if s.Work() > 1<<20+checkEvery {
		t.Errorf("%d units of work", s.Work())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s = NewMatcher(p, 0)
	if err := s.Feed(ctx, line); !errors.Is(err, context.Canceled) || s.Work() > 2*checkEvery {
		t.Errorf("got %v after %d", err, s.Work())
	}
}
