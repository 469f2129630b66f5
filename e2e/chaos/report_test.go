//go:build linux

package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// results is printed at the end of a run.
var results table

type table struct {
	mu   sync.Mutex
	rows []row
}

// row is the result of a scenario.
type row struct {
	id, scenario string
	cs           calls
	found        string
	passed       bool
}

// report adds a row at the end of the test, when it is known whether it passed.
func report(t *testing.T, id, scenario string, cs calls, format string, args ...any) {
	t.Helper()
	found := fmt.Sprintf(format, args...)
	t.Logf("%s %s: %s; %s", id, scenario, cs.summary(), found)
	t.Cleanup(func() { results.add(row{id, scenario, cs, found, !t.Failed()}) })
}

func (tb *table) add(r row) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = append(tb.rows, r)
}

// print writes the table as Markdown.
func (tb *table) print(w io.Writer) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if len(tb.rows) == 0 {
		return
	}
	slices.SortStableFunc(tb.rows, func(a, b row) int { return strings.Compare(order(a.id), order(b.id)) })
	fmt.Fprintln(w, "\n| id | scenario | calls | ok | errors | lost | corrupt | p50 | p99 | found | |")
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|")
	for _, r := range tb.rows {
		verdict := "passed"
		if !r.passed {
			verdict = "**failed**"
		}
		fmt.Fprintf(w, "| %s | %s | %d | %d | %s | %d | %d | %s | %s | %s | %s |\n", r.id, r.scenario, len(r.cs), r.cs.count(ok),
			r.cs.errorSummary(), r.cs.count(lost), r.cs.count(corrupt), brief(r.cs.quantile(0.5)), brief(r.cs.quantile(0.99)), r.found, verdict)
	}
}

// errorSummary counts the failed calls by reason.
func (cs calls) errorSummary() string {
	n := cs.count(failed) + cs.count(malformed)
	if kinds := cs.errorReasons(); kinds != "" {
		return fmt.Sprintf("%d (%s)", n, kinds)
	}
	return fmt.Sprint(n)
}

// order sorts R2 before R17.
func order(id string) string {
	letters := strings.TrimRight(id, "0123456789")
	return fmt.Sprintf("%s%4s", letters, id[len(letters):])
}

func brief(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return short(d)
}

// checkSlowdown fails the test if a latency grew by more than the ratio and the floor. The short form runs on
// shared machines and only looks for stalls.
func checkSlowdown(t *testing.T, what string, before, now time.Duration, ratio float64, floor time.Duration) string {
	t.Helper()
	if !fullRun {
		ratio, floor = 4*ratio, 200*time.Millisecond
	}
	found := fmt.Sprintf("%s %s, was %s (×%.2f)", what, short(now), short(before), float64(now)/float64(max(before, 1)))
	if now > time.Duration(float64(before)*ratio) && now > before+floor {
		t.Errorf("%s; the bar is ×%.1f", found, ratio)
	}
	return found
}
