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
	barLogPeak     = 6.0 // bytes of heap for a byte of text, which is one of them
	barGrowth      = 2.0 // what a line may cost in one text beside one ten, a hundred … times as long
)

var budget = prune.Budget{MaxRatio: .7, MinKeep: 20}

// pruningHolds measures how fast texts are pruned, prints it, and says whether the ratios were met.
func pruningHolds(ctx context.Context) (bool, error) {
	source, err1 := ownText(".go", 10*sourceLines)
	prose, err2 := ownText(".md", 10*sourceLines)
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
	fmt.Println("\nwhat a line costs in ever longer texts")
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

// limits are what a text may cost; zero is no limit.
type limits struct {
	took            time.Duration
	allocated, peak float64
	rounds          int
}

// cost is what pruning one text took.
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
	fmt.Printf("  %-26s %9.1f ms   %6.0f MB/s   %s\n", "read, cut and append", ms(c.took), size/1e6/c.took.Seconds(), said(bar.took == 0 || c.took <= bar.took, "≤ %v", bar.took))
	ok := row("bytes allocated", c.allocated, bar.allocated)
	ok = row("peak heap, text included", c.peak, bar.peak) && ok
	return ok, besideGrep(ctx, text, goal, c.took)
}

func row(name string, got, bar float64) bool {
	ok := bar == 0 || got <= bar
	verdict := ""
	if bar > 0 {
		verdict = said(ok, "≤ %v×", bar)
	}
	fmt.Printf("  %-26s %9.2f × the text          %s\n", name, got, verdict)
	return ok
}

func said(ok bool, bar string, args ...any) string {
	if ok {
		return "held: " + fmt.Sprintf(bar, args...)
	}
	return "NOT HELD: " + fmt.Sprintf(bar, args...)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// pruneOnce prunes a text as prune_text does and measures that. What the collector has not come
// to yet counts into the peak.
func pruneOnce(ctx context.Context, text, goal string, kind prune.Kind) (c cost, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stop := peakHeap()
	began := time.Now()
	doc, err := prune.Read(ctx, text, goal, kind)
	if err != nil {
		return c, err
	}
	out := doc.Append(nil, doc.Cut(budget), prune.Style{ID: "prn_00000000000000000000000000", Markers: true})
	c.took = time.Since(began)
	peak := stop()
	runtime.ReadMemStats(&after)
	size := float64(len(text))
	c.left, c.allocated = len(out), float64(after.TotalAlloc-before.TotalAlloc)/size
	c.peak = (float64(peak)-float64(before.HeapAlloc))/size + 1
	return c, nil
}

// peakHeap watches the heap, without stopping anything, until it is asked for the most it saw.
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

// besideGrep is what a search for the same words costs, a process of its own included.
func besideGrep(ctx context.Context, text, goal string, own time.Duration) error {
	if _, err := exec.LookPath("grep"); err != nil {
		fmt.Println("  there is no grep here to compare with")
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
		// Its output is read: into nothing it would write no more than the first match.
		if _, err := exec.CommandContext(ctx, "grep", "-c", "-i", "-E", pattern, file.Name()).Output(); err != nil {
			return fmt.Errorf("grep: %w", err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	fmt.Printf("  %-26s %9.1f ms   ctxgate takes %.2f× that\n", "grep -c -i -E of the goal", ms(times[1]), own.Seconds()/times[1].Seconds())
	return nil
}

// reportGrowth measures what a line costs in the first thousand lines of a text, the first ten
// thousand, and so on. The best of some passes counts, and of some more where that is too much: what
// else the machine does can only add, and a stall of a second hits one pass of one length.
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
	fmt.Printf(" the dearest %.2f× the cheapest   %s\n", growth, said(held, "≤ %v×", barGrowth))
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
