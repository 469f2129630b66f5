package main

import (
	"testing"

	"github.com/ctxgate/ctxgate/prune"
)

// The texts of `make bench`, for a profiler:
//
//	go test -run '^$' -bench Prune -cpuprofile cpu.out ./tools/bench

func BenchmarkPruneSource(b *testing.B) {
	b.Chdir("../..")
	source, err := repositoryText(".go", sourceLines)
	if err != nil {
		b.Fatal(err)
	}
	benchmarkPrune(b, source, sourceGoal, prune.Code)
}

func BenchmarkPruneLog(b *testing.B) { benchmarkPrune(b, serviceLog(200_000), logGoal, prune.Logs) }

func benchmarkPrune(b *testing.B, text, goal string, kind prune.Kind) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pruneOnce(b.Context(), text, goal, kind); err != nil {
			b.Fatal(err)
		}
	}
}
