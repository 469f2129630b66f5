package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// bestLines are the n lines of a log that matter most, in their order.
func bestLines(t *testing.T, text, goal string, n int) []string {
	t.Helper()
	d, err := Read(context.Background(), text, goal, Logs)
	if err != nil {
		t.Fatal(err)
	}
	order := d.ranked()[:n]
	slices.Sort(order)
	var out []string
	for _, i := range order {
		out = append(out, d.lines.at(int(i)))
	}
	return out
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, w) }) {
			t.Errorf("no line with %q among the best:\n%s", w, strings.Join(got, "\n"))
		}
	}
}

// quiet are n lines of a build that goes well.
func quiet(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Compiling part %d of the library\n", i)
	}
	return b.String()
}

// P8: lines with error, exception or traceback stay, in any case and inside words.
func TestMustLogs(t *testing.T) {
	text := "all is well\nERROR 5\nNullPointerException\ntraceback (most recent call last)\n0 Errors\nTerror\nexcept\ntrace back\nerr"
	want := []bool{false, true, true, true, true, true, false, false, false}
	if got := mustLogs(split(text)); !slices.Equal(got, want) {
		t.Errorf("must = %v, want %v", got, want)
	}
}

// P8: the context of an error scores above the rest of the log.
func TestErrorContext(t *testing.T) {
	text := quiet(60) + "opening the store\nerror: the store is locked\n  by process 4711\n" + quiet(40)
	wantLines(t, bestLines(t, text, "", 5), "opening the store", "store is locked", "by process 4711")
}

// P+1: what was printed right before a command failed, though no word of it is bad.
func TestBeforeExit(t *testing.T) {
	text := quiet(40) + "$ make style\nsrc/a.js needs two more spaces\n\nThe command \"make style\" exited with 1.\n" +
		"$ make cache\n" + quiet(10) + "The command \"make cache\" exited with 0.\n"
	wantLines(t, bestLines(t, text, "why did the build fail", 4), "two more spaces", "exited with 1")
}

// P+1: a trace stays with the line that heads it, in the shapes of several languages.
func TestTraces(t *testing.T) {
	for name, trace := range map[string]string{
		"java":   "java.lang.IllegalStateException: closed\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)\nCaused by: a.Gone: disk\n\tat a.E.f(E.java:3)\n\t... 12 more",
		"python": "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\n  File \"b.py\", line 9, in g\n    h()\nValueError: no such key",
		"go":     "panic: nil map\n\ngoroutine 1 [running]:\nmain.f(0x1)\n\t/src/a.go:3 +0x1d\nmain.main()\n\t/src/a.go:9 +0x2b",
		"rust":   "error[E0425]: cannot find value `x`\n  --> src/a.rs:3:5\n   |\n3  |     x + 1\n   |     ^ not found in this scope",
		"node":   "TypeError: x is not a function\n    at f (/a.js:3:5)\n    at Module._compile (module.js:577:32)",
		"csharp": "System.Exception: broken\n   at A.B.C() in /a.cs:line 3\n   at A.D() in /a.cs:line 9",
		"ruby":   "rake aborted!\nLoadError: cannot load x\n/a.rb:3:in `load'\n/a.rb:9:in `<main>'",
		"php":    "PHP Fatal error: Uncaught Gone in /a.php:3\nStack trace:\n#0 /a.php(9): f()\n#1 {main}",
		"elixir": "** (throw) \"gone\"\n    a.exs:3: A.f/1\n    (elixir) lib/enum.ex:1755: Enum.map/2",
		"swift":  "❌  a.swift:9:2: unknown attribute 'x'\n@x\n ^",
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(trace, "\n")
			text := quiet(100) + trace + "\n" + quiet(100)
			for _, line := range lines {
				if hasWords([]byte(line)) {
					wantLines(t, bestLines(t, text, "", len(lines)+2), line)
				}
			}
		})
	}
}

// P+1: what a failing test wrote is found, though its subtests' results come much later.
func TestGoTests(t *testing.T) {
	var b strings.Builder
	b.WriteString("=== RUN   TestA\n")
	for i := range 50 {
		fmt.Fprintf(&b, "=== RUN   TestA/%d\n    a_test.go:7: case %d\n", i, i)
	}
	b.WriteString("--- FAIL: TestA (0.01s)\n")
	for i := range 50 {
		result := "PASS"
		if i == 17 {
			result = "FAIL"
		}
		fmt.Fprintf(&b, "    --- %s: TestA/%d (0.00s)\n", result, i)
	}
	b.WriteString("FAIL\nFAIL\texample.com/a\t0.02s\n")
	got := bestLines(t, b.String(), "which tests failed and why", 3)
	want := []string{"    a_test.go:7: case 17", "--- FAIL: TestA (0.01s)", "    --- FAIL: TestA/17 (0.00s)"}
	if !slices.Equal(got, want) {
		t.Errorf("best = %q, want %q", got, want)
	}
}

// P+1: a service's log: its errors with their traces, whatever language the question is in.
func TestServiceLog(t *testing.T) {
	text := serviceLog(10_000)
	for _, goal := range []string{"", "why do writes fail", "pourquoi la connexion échoue", "为什么连接失败"} {
		got := bestLines(t, text, goal, 50)
		wantLines(t, got, "could not write order 4711", "could not write order 9711", "Store.java:112")
	}
}

func TestJSONLog(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		level, msg, err := "info", "request served", "null"
		switch i {
		case 60:
			level, msg, err = "error", "upstream is gone", `"dial tcp: refused"`
		case 90:
			level, msg = "warn", "pool is nearly full"
		}
		fmt.Fprintf(&b, `{"time":"10:00:%02d","level":%q,"msg":%q,"error":%s,"n":%d}`+"\n", i%60, level, msg, err, i)
	}
	wantLines(t, bestLines(t, b.String(), "what is wrong", 8), "upstream is gone", "nearly full")
}

// P+1: a goal's rare word counts in a log where nothing went wrong.
func TestLogGoal(t *testing.T) {
	text := quiet(50) + "migration 42 took 17 minutes\n" + quiet(50)
	wantLines(t, bestLines(t, text, "how long did the migration take", 3), "migration 42")
}

func TestRepeatsFade(t *testing.T) {
	text := strings.Repeat("warning: 12 files are old\n", 50) + "warning: the disk is full\n" + strings.Repeat("warning: 7 files are old\n", 50)
	wantLines(t, bestLines(t, text, "", 10), "disk is full")
}

// A time before every line, as many CIs write it, changes nothing.
func TestStamps(t *testing.T) {
	text := quiet(20) + "--- FAIL: TestA (0.00s)\n    a_test.go:3: want 1\n" + quiet(20)
	plain, _ := readLog(split(text))
	for _, stamp := range []string{"2026-03-14T10:00:00.1234567Z ", "[10:00:00] ", "2026-03-14 10:00:00,123 ", "[2026-03-14T10:00:00+01:00] "} {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(stamp + line)
		}
		stamped, _ := readLog(split(b.String()))
		for i := range len(plain) - 1 {
			if plain[i] != stamped[i] {
				t.Errorf("%q: line %d is %+v, without it %+v", stamp, i+1, stamped[i], plain[i])
			}
		}
	}
}

// Whatever the bytes, a log is scored, in time that its length bounds.
func FuzzScoreLogs(f *testing.F) {
	f.Add("a\x1b[31mb\r\n\xe2\x9c\n--- FAIL: \n=== RUN\nexit 1", "why")
	f.Add(strings.Repeat("error ", 10_000), "为什么")
	f.Add("\x1b[\n[\n:1\n'\n$ \ntravis_\n- \n0 errors", "")
	f.Fuzz(func(t *testing.T, text, ask string) {
		l, g := split(text), newGoal(ask)
		x := newIndex(l, g)
		a, b := scoreLogs(l, g, x), scoreLogs(l, g, x)
		if len(a) != l.count() || !slices.Equal(a, b) {
			t.Fatalf("%d lines have %d scores, the same twice: %v", l.count(), len(a), slices.Equal(a, b))
		}
		if len(mustLogs(l)) != l.count() {
			t.Fatal("not every line is said to stay or not")
		}
	})
}
