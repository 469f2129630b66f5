package docs

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// bestLines are the n lines with the highest scores, in the order of the text, without the spaces
// around them.
func bestLines(t *testing.T, text, goal string, n int) []string {
	t.Helper()
	l, score := scored(text, goal)
	order := make([]int, l.Count())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score[b], score[a]) })
	order = order[:n]
	slices.Sort(order)
	var out []string
	for _, i := range order {
		out = append(out, strings.TrimSpace(l.At(i)))
	}
	return out
}

func scored(text, goal string) (relevance.Lines, []float32) {
	l, g := relevance.Split(text), relevance.NewGoal(goal)
	return l, Score(l, g, relevance.NewIndex(l, g), Parse(l))
}

const guideDoc = `# Gateway

This guide describes the gateway and how it is run.

## Installation

Get the binary for your platform and put it on your path.
The archive has a checksum; compare it first.

## Server

The server listens on one port.
It answers requests of many clients.

### Timeouts

Every request has a deadline.
When it passes, the client gets an answer all the same.

- read: how long a body may take.
  Thirty seconds unless told otherwise.
- write: how long an answer may take.

### Compression

Answers are compressed when the client asks for it.

## Logging

Lines go to the standard error.
They are JSON, one object each.
`

// P+1: lines with the words of the goal, in them or in the headings above them, score highest.
func TestDocsFollowTheGoal(t *testing.T) {
	for goal, want := range map[string][]string{
		"Where do log lines go?":                   {"## Logging", "Lines go to the standard error.", "They are JSON, one object each."},
		"document the write timeout of the server": {"- write: how long an answer may take."},
		"compare the checksum of the archive":      {"The archive has a checksum; compare it first."},
	} {
		if got := bestLines(t, guideDoc, goal, len(want)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", goal, got, want)
		}
	}
}

// P+1: a body inherits the words of the line it is nested in; bodies of other items do not.
func TestBodiesInheritTheWordsOfTheirParent(t *testing.T) {
	text := "Options\n=======\n\n.. option:: --verbose\n\n   Says more.\n\n   Twice says even more.\n\n" +
		".. option:: --cache\n\n   Keeps results.\n\n   They live in a folder.\n\n.. option:: --color\n\n   Paints."
	want := []string{".. option:: --cache", "Keeps results.", "They live in a folder."}
	if got := bestLines(t, text, "explain cache", 3); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// P+1: two words of the goal once beat one of them many times.
func TestDistinctWordsCount(t *testing.T) {
	text := "alpha alpha\nalpha\nalpha\n" + strings.Repeat("filler\n", 20) + "alpha with omega\n" + strings.Repeat("filler\n", 20)
	if got := bestLines(t, text, "alpha omega", 1); got[0] != "alpha with omega" {
		t.Error(got)
	}
}

// P+1: goals and texts in French and Chinese.
func TestDocsInOtherLanguages(t *testing.T) {
	french := "# Guide\n\nLe serveur écoute sur un port.\n\n## Journaux\n\nLes lignes vont sur la sortie d'erreur.\n\n## Délais\n\nChaque requête a un délai.\n"
	if got := bestLines(t, french, "quel est le délai des requêtes ?", 2); !slices.Equal(got, []string{"## Délais", "Chaque requête a un délai."}) {
		t.Error(got)
	}
	chinese := "# 网关\n\n服务器监听一个端口。\n\n## 日志\n\n日志写到标准错误输出。\n\n## 超时\n\n每个请求都有时限。\n"
	if got := bestLines(t, chinese, "日志写到哪里", 2); !slices.Equal(got, []string{"## 日志", "日志写到标准错误输出。"}) {
		t.Error(got)
	}
}

// A goal without any word in the text leaves an outline: headings and what follows them.
func TestOutlineWithoutWords(t *testing.T) {
	want := []string{"# Gateway", "## Installation", "## Server", "### Timeouts", "### Compression", "## Logging"}
	got := bestLines(t, guideDoc, "xyzzy", 14)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%q is gone from %q", w, got)
		}
	}
	if slices.Contains(got, "") {
		t.Errorf("a blank line before text: %q", got)
	}
}

// Literals count only as whole words.
func TestLiterals(t *testing.T) {
	goal := "fix `x.level`, (--cache) and no-undef for \"-k\". See a/b... - why a/b?"
	want := []string{"x.level", "--cache", "no-undef", "-k", "a/b"}
	if got := goalLiterals(goal); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(goalLiterals(strings.Join(strings.Split("abcdefghijklmnopqrst", ""), "- -"))); n != maxLiterals {
		t.Error(n, "literals")
	}
	l := relevance.Split("max.level\nx.level\nx.levels\n(x.level)\n-k\nlook-k\n--k")
	d := newDocScorer(Parse(l), relevance.NewIndex(l, relevance.NewGoal(goal)))
	if n := d.markLiteral(l, "x.level"); n != 2 || d.own[1] != 1 || d.own[3] != 1 {
		t.Error("x.level", n, d.own)
	}
	if n := d.markLiteral(l, "-k"); n != 1 || d.own[4] != 1 {
		t.Error("-k", n, d.own)
	}
}

// The same text and goal have the same scores; all are finite and not negative.
func TestDocScoresAreSound(t *testing.T) {
	for _, text := range []string{"", "\n", "# A", guideDoc, strings.Repeat(guideDoc, 3), "```\n", "- \n", "\xff\xfe\n", strings.Repeat("log ", 1000)} {
		for _, goal := range []string{"", "the", "log lines", "日志", strings.Repeat("word ", 100) + "a-b"} {
			l, a := scored(text, goal)
			_, b := scored(text, goal)
			if !slices.Equal(a, b) || len(a) != l.Count() {
				t.Fatalf("%q for %q: %v, then %v", text, goal, a, b)
			}
			for _, s := range a {
				if !(s >= 0) || math.IsInf(float64(s), 0) {
					t.Fatalf("%q for %q: %v", text, goal, a)
				}
			}
		}
	}
}
