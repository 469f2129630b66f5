package prune

import (
	"fmt"
	"strings"
	"testing"
)

// serviceLog is a log as a busy service writes it: five kinds of lines over and over, and now and
// then an error with its trace.
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

// BenchmarkScoreLogs measures the scoring of a log of a million lines, apart from what Read does
// for every kind of text.
func BenchmarkScoreLogs(b *testing.B) {
	text := serviceLog(1_000_000)
	l, g := split(text), newGoal("why do writes of orders fail")
	x := newIndex(l, g)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		scoreLogs(l, g, x)
	}
}

func BenchmarkMustLogs(b *testing.B) {
	text := serviceLog(1_000_000)
	l := split(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		mustLogs(l)
	}
}
