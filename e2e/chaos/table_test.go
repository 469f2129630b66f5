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

// results is the table that a run prints at its end.
var results table

type table struct {
	mu   sync.Mutex
	rows []row
}

// row is what came of one scenario.
type row struct {
	id, scenario string
	cs           calls
	found        string
	passed       bool
}

// report adds a row when the test ends, so that it knows how it ended.
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

// print writes Markdown.
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
		held := "held"
		if !r.passed {
			held = "**not held**"
		}
		fmt.Fprintf(w, "| %s | %s | %d | %d | %s | %d | %d | %s | %s | %s | %s |\n", r.id, r.scenario, len(r.cs), r.cs.count(ok),
			r.cs.errors(), r.cs.count(lost), r.cs.count(corrupt), brief(r.cs.quantile(0.5)), brief(r.cs.quantile(0.99)), r.found, held)
	}
}

// errors are how many calls failed and, where any did, of what.
func (cs calls) errors() string {
	n := cs.count(failed) + cs.count(malformed)
	if kinds := cs.kinds(); kinds != "" {
		return fmt.Sprintf("%d (%s)", n, kinds)
	}
	return fmt.Sprint(n)
}

// order makes R2 come before R17.
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

// noisier fails the test when a latency grew by more than a ratio. What is within floor of the old
// value is noise. The short form runs on machines that are shared, and looks only for a stall.
func noisier(t *testing.T, what string, before, now time.Duration, ratio float64, floor time.Duration) string {
	t.Helper()
	if !full {
		ratio, floor = 4*ratio, 200*time.Millisecond
	}
	found := fmt.Sprintf("%s %s, was %s (×%.2f)", what, short(now), short(before), float64(now)/float64(max(before, 1)))
	if now > time.Duration(float64(before)*ratio) && now > before+floor {
		t.Errorf("%s; the bar is ×%.1f", found, ratio)
	}
	return found
}
