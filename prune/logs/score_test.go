package logs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// bestLines are the n lines with the highest scores, in the order of the log.
func bestLines(t *testing.T, text, goal string, n int) []string {
	t.Helper()
	l, g := relevance.Split(text), relevance.NewGoal(goal)
	score := Score(l, g, relevance.NewIndex(l, g))
	order := make([]int, l.Count())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score[b], score[a]) })
	order = order[:n]
	slices.Sort(order)
	var out []string
	for _, i := range order {
		out = append(out, l.At(i))
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

// quiet is n lines of a build without problems.
func quiet(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Compiling part %d of the library\n", i)
	}
	return b.String()
}

// P8: lines with error, exception or traceback stay, in any case and inside words.
func TestMustKeep(t *testing.T) {
	text := "all is well\nERROR 5\nNullPointerException\ntraceback (most recent call last)\n0 Errors\nTerror\nexcept\ntrace back\nerr"
	want := []bool{false, true, true, true, true, true, false, false, false}
	if got := MustKeep(relevance.Split(text)); !slices.Equal(got, want) {
		t.Errorf("must = %v, want %v", got, want)
	}
}

// P8: the lines around an error score above the rest of the log.
func TestErrorContext(t *testing.T) {
	text := quiet(60) + "opening the store\nerror: the store is locked\n  by process 4711\n" + quiet(40)
	wantLines(t, bestLines(t, text, "", 5), "opening the store", "store is locked", "by process 4711")
}

// P+1: lines printed right before a command failed score high, though their words are harmless.
func TestLinesBeforeAFailedCommand(t *testing.T) {
	text := quiet(40) + "$ make style\nsrc/a.js needs two more spaces\n\nThe command \"make style\" exited with 1.\n" +
		"$ make cache\n" + quiet(10) + "The command \"make cache\" exited with 0.\n"
	wantLines(t, bestLines(t, text, "why did the build fail", 4), "two more spaces", "exited with 1")
}

// P+1: stack traces score as high as the line above them, in the formats of several languages.
func TestStackTraces(t *testing.T) {
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

// P+1: the lines of a failing test are found, though the results of subtests come much later.
func TestOutputOfFailingGoTests(t *testing.T) {
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

// P+1: errors of a service's log score high with their traces, for goals in several languages.
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

// P+1: a rare term of the goal counts in a log without failures.
func TestGoalInALogWithoutFailures(t *testing.T) {
	text := quiet(50) + "migration 42 took 17 minutes\n" + quiet(50)
	wantLines(t, bestLines(t, text, "how long did the migration take", 3), "migration 42")
}

func TestRepeatsFade(t *testing.T) {
	text := strings.Repeat("warning: 12 files are old\n", 50) + "warning: the disk is full\n" + strings.Repeat("warning: 7 files are old\n", 50)
	wantLines(t, bestLines(t, text, "", 10), "disk is full")
}

// Timestamps before every line, as many CIs write them, change nothing.
func TestTimestampsDoNotMatter(t *testing.T) {
	text := quiet(20) + "--- FAIL: TestA (0.00s)\n    a_test.go:3: want 1\n" + quiet(20)
	plain, _ := readLines(relevance.Split(text))
	for _, stamp := range []string{"2026-03-14T10:00:00.1234567Z ", "[10:00:00] ", "2026-03-14 10:00:00,123 ", "[2026-03-14T10:00:00+01:00] "} {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(stamp + line)
		}
		stamped, _ := readLines(relevance.Split(b.String()))
		for i := range len(plain) - 1 {
			if plain[i] != stamped[i] {
				t.Errorf("%q: line %d is %+v, without it %+v", stamp, i+1, stamped[i], plain[i])
			}
		}
	}
}

// FuzzScoreLogs: any bytes are scored, deterministically, one score per line.
func FuzzScoreLogs(f *testing.F) {
	f.Add("a\x1b[31mb\r\n\xe2\x9c\n--- FAIL: \n=== RUN\nexit 1", "why")
	f.Add(strings.Repeat("error ", 10_000), "为什么")
	f.Add("\x1b[\n[\n:1\n'\n$ \ntravis_\n- \n0 errors", "")
	f.Fuzz(func(t *testing.T, text, ask string) {
		l, g := relevance.Split(text), relevance.NewGoal(ask)
		x := relevance.NewIndex(l, g)
		a, b := Score(l, g, x), Score(l, g, x)
		if len(a) != l.Count() || !slices.Equal(a, b) {
			t.Fatalf("%d lines have %d scores, the same twice: %v", l.Count(), len(a), slices.Equal(a, b))
		}
		if len(MustKeep(l)) != l.Count() {
			t.Fatal("MustKeep does not have one value per line")
		}
	})
}

// serviceLog is n lines of a busy service: five kinds of lines, and now and then an error with its
// stack trace.
func serviceLog(n int) string {
	var b strings.Builder
	for i := range n {
		at := fmt.Sprintf("2026-03-14T%02d:%02d:%02d.%03dZ", i/3600%24, i/60%60, i%60, i%1000)
		switch {
		case i%5000 == 4711:
			fmt.Fprintf(&b, "%s ERROR [worker-%d] c.e.orders.Store - could not write order %d: connection reset by peer\n", at, i%8, i)
		case i%5000 > 4711 && i%5000 < 4720:
			fmt.Fprintf(&b, "\tat com.example.orders.Store.write%d(Store.java:%d)\n", i%7, i%300)
		case i%9 == 0:
			fmt.Fprintf(&b, "%s DEBUG [pool-1-thread-%d] c.e.pool.Pool - connection %d returned to the pool after %d ms\n", at, i%16, i%97, i%40)
		case i%31 == 0:
			fmt.Fprintf(&b, "%s WARN  [http-%d] c.e.http.Front - slow request id=%08x took %d ms (limit 200)\n", at, i%32, i*2654435761, i%900)
		default:
			fmt.Fprintf(&b, "%s INFO  [http-%d] c.e.http.Front - GET /api/v1/orders/%d 200 %d ms id=%08x\n", at, i%32, i%10007, i%200, i*2654435761)
		}
	}
	return b.String()
}

// BenchmarkScoreLogs scores a log of a million lines, without searching it for the goal.
func BenchmarkScoreLogs(b *testing.B) {
	text := serviceLog(1_000_000)
	l, g := relevance.Split(text), relevance.NewGoal("why do writes of orders fail")
	x := relevance.NewIndex(l, g)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		Score(l, g, x)
	}
}

func BenchmarkMustKeep(b *testing.B) {
	text := serviceLog(1_000_000)
	l := relevance.Split(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		MustKeep(l)
	}
}
