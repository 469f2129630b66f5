package prunerd

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// words are what lines are made of: what the engine looks for, and what could confuse it.
var words = []string{
	"import os", "def run(self):", "func main() {", "}", "class A:", "# Title", "## Part", "```", "```go", "ERROR failed", "Traceback (most recent call last):",
	"2026-01-02T03:04:05Z INFO started", "⟦NO_PRUNE_BEGIN⟧", "⟦NO_PRUNE_END⟧", "⟦PRUNÉ: prune_id=x lignes 1-2 (2) raison=y⟧", "12│ numbered", "needle", "Needle in a haystack",
	"", " ", "\t", "\r", "é", "日本語", "👩‍👩‍👧", "\u2028", "\"quoted\" \\ back", "a perfectly ordinary line of prose, long enough to be worth leaving out of a text",
	strings.Repeat("long ", 60),
}

func drawText(t *rapid.T) string {
	n := rapid.IntRange(0, 200).Draw(t, "lines")
	line := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 3).Draw(t, "words"), " ")
	})
	text := strings.Join(rapid.SliceOfN(line, n, n).Draw(t, "text"), "\n")
	return text + rapid.SampledFrom([]string{"", "\n", "\n\n"}).Draw(t, "end")
}

// The laws of a cut, over any text and any options: P2, P3, P4, P5, P6, P+3.
func TestP5Laws(t *testing.T) {
	s, _ := open(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		text := drawText(rt)
		lines := strings.Split(text, "\n")
		o := options{
			Ratio: rapid.Float64Range(0, 1).Draw(rt, "ratio"), MinKeep: rapid.IntRange(0, 220).Draw(rt, "keep"), Timeout: 60_000,
			Number: rapid.Bool().Draw(rt, "number"), Markers: rapid.Bool().Draw(rt, "markers"),
		}
		goal := rapid.SampledFrom([]string{"", "needle", "why does it fail?", "où est l'erreur", "日本語"}).Draw(rt, "goal")
		kind := rapid.SampledFrom([]string{"code", "logs", "docs"}).Draw(rt, "kind")
		d := s.mustPrune(t, text, goal, kind, o)
		if o.MinKeep > len(lines) {
			isWhole(t, s, d, text, "constraints_unmet")
		} else if want := rebuilt(lines, d, o); d.Text != want { // P4, P5: tiles, in order
			rt.Fatalf("got\n%s\nwant\n%s", d.Text, want)
		}
		pruned := 0
		for _, a := range d.Annotations {
			pruned += a.Count
			if got := s.mustRecover(t, d.PruneID, false, a.First, a.Last); got != strings.Join(lines[a.First-1:a.Last], "\n") {
				rt.Fatalf("%d-%d come back as %q", a.First, a.Last, got)
			}
		}
		if float64(pruned) > math.Floor(o.Ratio*float64(len(lines))) || len(lines)-pruned < min(o.MinKeep, len(lines)) {
			rt.Fatalf("%d of %d lines pruned, with %+v", pruned, len(lines), o)
		}
		if d.Stats["pruned_lines"] != float64(pruned) || d.Stats["kept_lines"] != float64(len(lines)-pruned) || d.Stats["original_lines"] != float64(len(lines)) {
			rt.Fatalf("stats %v", d.Stats)
		}
		if got := s.mustRecover(t, d.PruneID, false, 1, len(lines)); got != text {
			rt.Fatalf("the whole comes back as %q", got)
		}
		again := s.mustPrune(t, text, goal, kind, o)
		if again.Text != d.Text || fmt.Sprint(again.Annotations) != fmt.Sprint(d.Annotations) || again.PruneID != d.PruneID {
			rt.Fatal("the same call gave other bytes")
		}
	})
}

// rebuilt is the pruned text that follows from the annotations.
func rebuilt(lines []string, d document, o options) string {
	var out []string
	keep := func(from, to int) {
		for n := from; n <= to; n++ {
			line := lines[n-1]
			if o.Number {
				line = strconv.Itoa(n) + "│ " + line
			}
			out = append(out, line)
		}
	}
	at := 1
	for _, a := range d.Annotations {
		if a.First < at || a.Last < a.First || a.Last > len(lines) || a.Count != a.Last-a.First+1 || a.First == at && at > 1 {
			return fmt.Sprintf("annotation %+v after line %d", a, at-1)
		}
		if want := fmt.Sprintf("⟦PRUNÉ: prune_id=%s lignes %d-%d (%d) raison=%s⟧", d.PruneID, a.First, a.Last, a.Count, a.Reason); a.Marker != want {
			return "marker " + a.Marker
		}
		keep(at, a.First-1)
		if o.Markers {
			out = append(out, a.Marker)
		}
		at = a.Last + 1
	}
	keep(at, len(lines))
	return strings.Join(out, "\n")
}
