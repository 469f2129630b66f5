package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	sourceLines = 10_000
	logLines    = 1_000_000
	sourceGoal  = "why does a reply go through whole when the store does not acknowledge the original in time"
	logGoal     = "why do writes of orders to the store fail with a connection reset"
)

// repositoryText concatenates the repository's own files with an extension, repeated if there are too few.
// The working directory is the root.
func repositoryText(ext string, lines int) (string, error) {
	var all []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ext || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		all = slices.AppendSeq(all, strings.Lines(string(text)))
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no %s files found: run this in the root of the repository", ext)
	}
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range lines {
		b.WriteString(strings.TrimSuffix(all[i%len(all)], "\n"))
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// serviceLog is the log of a busy service: requests, a pool, a scheduler, warnings, and some errors with
// their traces. It is the same on every machine.
func serviceLog(n int) string {
	var b strings.Builder
	b.Grow(n * 104)
	r := rand.New(rand.NewPCG(8, 6))
	trace := 0
	for i := range n {
		at := fmt.Sprintf("2026-03-14T%02d:%02d:%02d.%03dZ", i/3_600_000%24, i/60_000%60, i/1000%60, i%1000)
		switch k := r.IntN(1000); {
		case trace > 0:
			trace--
			class := pick(r, "Store", "Writer", "Batch", "Retry")
			fmt.Fprintf(&b, "\tat com.example.orders.%s.%s(%s.java:%d) ~[orders-service-%d.%d.jar:na]\n",
				class, pick(r, "write", "flush", "run", "attempt"), class, r.IntN(400), r.IntN(3), r.IntN(20))
		case k == 0:
			trace = 4 + r.IntN(12)
			fmt.Fprintf(&b, "%s ERROR [worker-%d] c.e.orders.Store - could not write order %d: java.io.IOException: connection reset by peer\n", at, r.IntN(8), r.IntN(1e6))
		case k < 25:
			fmt.Fprintf(&b, "%s WARN  [http-%d] c.e.http.Front - slow request id=%08x took %d ms (limit 200), client 10.0.%d.%d\n", at, r.IntN(32), r.Uint32(), 200+r.IntN(900), r.IntN(256), r.IntN(256))
		case k < 250:
			fmt.Fprintf(&b, "%s DEBUG [pool-1-thread-%d] c.e.pool.Pool - connection %d returned to the pool after %d ms\n", at, r.IntN(16), r.IntN(97), r.IntN(40))
		case k < 300:
			fmt.Fprintf(&b, "%s INFO  [scheduler] c.e.jobs.Clock - job %s finished, %d items, next run in %d s\n", at, pick(r, "sweep", "refresh", "billing", "export"), r.IntN(1e4), r.IntN(3600))
		default:
			fmt.Fprintf(&b, "%s INFO  [http-%d] c.e.http.Front - %s /api/v1/orders/%d %d %d ms id=%08x\n", at, r.IntN(32), pick(r, "GET", "GET", "POST", "PUT"), r.IntN(1e6), 200+r.IntN(2)*r.IntN(5), r.IntN(200), r.Uint32())
		}
	}
	return b.String()
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }
