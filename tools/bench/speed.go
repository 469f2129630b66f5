package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/prune"
)

const (
	barSource      = 15 * time.Millisecond
	barSourceAlloc = 8.0 // bytes allocated for a byte of text
	barLog         = 3 * time.Second
	barLogPeak     = 6.0 // bytes of heap for a byte of text, the text included
	barGrowth      = 2.0 // ratio between the costs of a line in texts of different lengths
)

var budget = prune.Budget{MaxPruneRatio: .7, MinKeepLines: 20}

// benchPruning measures pruning speed and memory and reports whether the ratios were met.
func benchPruning(ctx context.Context) (bool, error) {
	source, err1 := repositoryText(".go", 10*sourceLines)
	prose, err2 := repositoryText(".md", 10*sourceLines)
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	log := serviceLog(logLines)
	held, err1 := reportPruning(ctx, "a source file", head(source, sourceLines), sourceGoal, prune.Code, limits{took: barSource, allocated: barSourceAlloc, rounds: 15})
	also, err2 := reportPruning(ctx, "a log", log, logGoal, prune.Logs, limits{took: barLog, peak: barLogPeak, rounds: 3})
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	held = held && also
	fmt.Println("\ncost of a line by length of the text")
	for _, g := range []struct {
		text, goal string
		kind       prune.Kind
	}{{log, logGoal, prune.Logs}, {source, sourceGoal, prune.Code}, {prose, sourceGoal, prune.Docs}} {
		linear, err := reportGrowth(ctx, g.text, g.goal, g.kind)
		if err != nil {
			return false, err
		}
		held = held && linear
	}
	return held, nil
}

// limits are the bars for a text; zero is no bar.
type limits struct {
	took            time.Duration
	allocated, peak float64
	rounds          int
}

// cost is the cost of pruning a text.
type cost struct {
	took            time.Duration
	allocated, peak float64 // bytes for a byte of text
	left            int     // bytes
}

func reportPruning(ctx context.Context, name, text, goal string, kind prune.Kind, bar limits) (held bool, err error) {
	var costs []cost
	for range bar.rounds {
		c, err := pruneOnce(ctx, text, goal, kind)
		if err != nil {
			return false, err
		}
		costs = append(costs, c)
	}
	slices.SortFunc(costs, func(a, b cost) int { return int(a.took - b.took) })
	c := costs[len(costs)/2]
	size := float64(len(text))
	fmt.Printf("\npruning %s: %d lines, %.1f MB, %.0f %% of the bytes left\n", name, strings.Count(text, "\n"), size/1e6, 100*float64(c.left)/size)
	fmt.Printf("  %-26s %9.1f ms   %6.0f MB/s   %s\n", "read, cut and append", ms(c.took), size/1e6/c.took.Seconds(), verdictText(bar.took == 0 || c.took <= bar.took, "≤ %v", bar.took))
	ok := row("bytes allocated", c.allocated, bar.allocated)
	ok = row("peak heap, text included", c.peak, bar.peak) && ok
	return ok, compareGrep(ctx, text, goal, c.took)
}

func row(name string, got, bar float64) bool {
	ok := bar == 0 || got <= bar
	verdict := ""
	if bar > 0 {
		verdict = verdictText(ok, "≤ %v×", bar)
	}
	fmt.Printf("  %-26s %9.2f × the text          %s\n", name, got, verdict)
	return ok
}

func verdictText(ok bool, bar string, args ...any) string {
	if ok {
		return "ok: " + fmt.Sprintf(bar, args...)
	}
	return "MISSED: " + fmt.Sprintf(bar, args...)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// pruneOnce prunes a text as prune_text does. The peak includes garbage that is not collected yet.
func pruneOnce(ctx context.Context, text, goal string, kind prune.Kind) (c cost, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stop := peakHeap()
	began := time.Now()
	doc, err := prune.Score(ctx, text, goal, kind)
	if err != nil {
		return c, err
	}
	out := doc.AppendPruned(nil, doc.Cut(budget), prune.Format{ID: "prn_00000000000000000000000000", Markers: true})
	c.took = time.Since(began)
	peak := stop()
	runtime.ReadMemStats(&after)
	size := float64(len(text))
	c.left, c.allocated = len(out), float64(after.TotalAlloc-before.TotalAlloc)/size
	c.peak = (float64(peak)-float64(before.HeapAlloc))/size + 1
	return c, nil
}

// peakHeap samples the heap until stop is called, which returns the peak.
func peakHeap() (stop func() uint64) {
	end, most := make(chan struct{}), make(chan uint64)
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		var peak uint64
		for tick := time.Tick(time.Millisecond); ; {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-tick:
			case <-end:
				most <- peak
				return
			}
		}
	}()
	return func() uint64 { close(end); return <-most }
}

// compareGrep times grep for the same words, its process included.
func compareGrep(ctx context.Context, text, goal string, own time.Duration) error {
	if _, err := exec.LookPath("grep"); err != nil {
		fmt.Println("  grep is not installed")
		return nil
	}
	file, err := os.CreateTemp("", "ctxgate-bench-*.txt")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	pattern := strings.Join(regexp.MustCompile(`\w{4,}`).FindAllString(goal, -1), "|")
	var times []time.Duration
	for range 3 {
		began := time.Now()
		// Its output is read: grep stops at the first match if it writes to /dev/null.
		if _, err := exec.CommandContext(ctx, "grep", "-c", "-i", "-E", pattern, file.Name()).Output(); err != nil {
			return fmt.Errorf("grep: %w", err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	fmt.Printf("  %-26s %9.1f ms   ctxgate takes %.2f× that\n", "grep -c -i -E of the goal", ms(times[1]), own.Seconds()/times[1].Seconds())
	return nil
}

// reportGrowth measures the cost of a line in the first thousand lines of a text, the first ten thousand, and
// so on. The best of three passes counts, or of up to eight if the bar is missed: other load can only add
// time.
func reportGrowth(ctx context.Context, text, goal string, kind prune.Kind) (held bool, err error) {
	var parts []string
	var perLine []float64
	for lines := 1000; lines <= strings.Count(text, "\n"); lines *= 10 {
		parts, perLine = append(parts, head(text, lines)), append(perLine, math.Inf(1))
	}
	growth := 0.0
	for pass := 0; pass < 3 || pass < 8 && !held; pass++ {
		for i, part := range parts {
			lines := 1000 * math.Pow10(i)
			for range max(1, int(min(10, 70_000/lines))) {
				c, err := pruneOnce(ctx, part, goal, kind)
				if err != nil {
					return false, err
				}
				perLine[i] = min(perLine[i], float64(c.took.Nanoseconds())/lines)
			}
		}
		growth = slices.Max(perLine) / slices.Min(perLine)
		held = growth <= barGrowth
	}
	fmt.Printf("  %s:", kind)
	for i, ns := range perLine {
		fmt.Printf(" %.0f ns of %.0f,", ns, 1000*math.Pow10(i))
	}
	fmt.Printf(" highest %.2f× the lowest   %s\n", growth, verdictText(held, "≤ %v×", barGrowth))
	return held, nil
}

// head is the first n lines of a text.
func head(text string, n int) string {
	end := 0
	for range n {
		end += strings.IndexByte(text[end:], '\n') + 1
	}
	return text[:end]
}
