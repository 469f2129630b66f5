package sqlite

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
)

// BenchmarkPut has 32 concurrent callers per CPU, as a gateway has: they share commits.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20} {
		b.Run(unit.Bytes(size).String(), func(b *testing.B) {
			d := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
			value := make([]byte, size)
			var n atomic.Int64
			b.SetBytes(int64(size))
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := fmt.Sprint(n.Add(1))
					if err := d.Put(b.Context(), []state.Item{{Key: key, Group: key, Value: value}}, forever); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/float64(d.writer.commits.Load()), "puts/commit")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	d := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
	put(b, d, "a", string(make([]byte, 4<<10)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := d.Get(b.Context(), "a", "a", epoch); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkStat(b *testing.B) {
	d := mustOpen(b, filepath.Join(b.TempDir(), "store.db"))
	for b.Loop() {
		if _, err := d.Stat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
