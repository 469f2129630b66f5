package prune

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
)

// bestOfDoc are the n best lines of a document for a goal, in the order of the text, without the spaces
// around them.
func bestOfDoc(t *testing.T, text, goal string, n int) []string {
	t.Helper()
	d, err := Read(context.Background(), text, goal, Docs)
	if err != nil {
		t.Fatal(err)
	}
	order := d.ranked()[:n]
	slices.Sort(order)
	var out []string
	for _, i := range order {
		out = append(out, strings.TrimSpace(d.Text(int(i)+1, int(i)+1)))
	}
	return out
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

// P+1: what the goal asks for comes first, by the words of a line and by the headings above it.
func TestDocsFollowTheGoal(t *testing.T) {
	for goal, want := range map[string][]string{
		"Where do log lines go?":                   {"## Logging", "Lines go to the standard error.", "They are JSON, one object each."},
		"document the write timeout of the server": {"- write: how long an answer may take."},
		"compare the checksum of the archive":      {"The archive has a checksum; compare it first."},
	} {
		if got := bestOfDoc(t, guideDoc, goal, len(want)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", goal, got, want)
		}
	}
}

// P+1: a body inherits the words of what it stands under; its neighbours under another item do not.
func TestBodiesInheritTheirOpening(t *testing.T) {
	text := "Options\n=======\n\n.. option:: --verbose\n\n   Says more.\n\n   Twice says even more.\n\n" +
		".. option:: --cache\n\n   Keeps results.\n\n   They live in a folder.\n\n.. option:: --color\n\n   Paints."
	want := []string{".. option:: --cache", "Keeps results.", "They live in a folder."}
	if got := bestOfDoc(t, text, "explain cache", 3); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// P+1: two words of the goal once beat one of them again and again.
func TestDistinctWordsCount(t *testing.T) {
	text := "alpha alpha\nalpha\nalpha\n" + strings.Repeat("filler\n", 20) + "alpha with omega\n" + strings.Repeat("filler\n", 20)
	if got := bestOfDoc(t, text, "alpha omega", 1); got[0] != "alpha with omega" {
		t.Error(got)
	}
}

// P+1: goals and texts in French and Chinese.
func TestDocsInOtherLanguages(t *testing.T) {
	french := "# Guide\n\nLe serveur écoute sur un port.\n\n## Journaux\n\nLes lignes vont sur la sortie d'erreur.\n\n## Délais\n\nChaque requête a un délai.\n"
	if got := bestOfDoc(t, french, "quel est le délai des requêtes ?", 2); !slices.Equal(got, []string{"## Délais", "Chaque requête a un délai."}) {
		t.Error(got)
	}
	chinese := "# 网关\n\n服务器监听一个端口。\n\n## 日志\n\n日志写到标准错误输出。\n\n## 超时\n\n每个请求都有时限。\n"
	if got := bestOfDoc(t, chinese, "日志写到哪里", 2); !slices.Equal(got, []string{"## 日志", "日志写到标准错误输出。"}) {
		t.Error(got)
	}
}

// A goal that the text has no word of leaves an outline: headings and what follows them.
func TestOutlineWithoutWords(t *testing.T) {
	want := []string{"# Gateway", "## Installation", "## Server", "### Timeouts", "### Compression", "## Logging"}
	got := bestOfDoc(t, guideDoc, "xyzzy", 14)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%q is gone from %q", w, got)
		}
	}
	if slices.Contains(got, "") {
		t.Errorf("a blank line before text: %q", got)
	}
}

// Literals count where they stand by themselves.
func TestLiterals(t *testing.T) {
	goal := "fix `x.level`, (--cache) and no-undef for \"-k\". See a/b... - why a/b?"
	want := []string{"x.level", "--cache", "no-undef", "-k", "a/b"}
	if got := docLiterals(goal); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(docLiterals(strings.Join(strings.Split("abcdefghijklmnopqrst", ""), "- -"))); n != maxLiterals {
		t.Error(n, "literals")
	}
	l := split("max.level\nx.level\nx.levels\n(x.level)\n-k\nlook-k\n--k")
	d := newDocScorer(newDocShape(l), newIndex(l, newGoal(goal)))
	if n := d.markText(l, "x.level"); n != 2 || d.has[1] != 1 || d.has[3] != 1 {
		t.Error("x.level", n, d.has)
	}
	if n := d.markText(l, "-k"); n != 1 || d.has[4] != 1 {
		t.Error("-k", n, d.has)
	}
}

// The same text and goal have the same scores; all are numbers, and none is below nothing.
func TestDocScoresAreSound(t *testing.T) {
	for _, text := range []string{"", "\n", "# A", guideDoc, strings.Repeat(guideDoc, 3), "```\n", "- \n", "\xff\xfe\n", strings.Repeat("log ", 1000)} {
		for _, goal := range []string{"", "the", "log lines", "日志", strings.Repeat("word ", 100) + "a-b"} {
			a, _ := Read(context.Background(), text, goal, Docs)
			b, _ := Read(context.Background(), text, goal, Docs)
			if !slices.Equal(a.Scores(), b.Scores()) || len(a.Scores()) != a.Len() {
				t.Fatalf("%q for %q: %v, then %v", text, goal, a.Scores(), b.Scores())
			}
			for _, s := range a.Scores() {
				if !(s >= 0) || math.IsInf(float64(s), 0) {
					t.Fatalf("%q for %q: %v", text, goal, a.Scores())
				}
			}
		}
	}
}
