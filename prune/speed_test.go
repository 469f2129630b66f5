package prune

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownSource is this repository's code, repeated until it has n lines.
func ownSource(b testing.TB, n int) string {
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) == 0 {
		b.Fatal("no source to read")
	}
	var text strings.Builder
	for lines := 0; ; {
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				b.Fatal(err)
			}
			text.Write(data)
			if lines += strings.Count(string(data), "\n"); lines >= n {
				return strings.Join(strings.SplitN(text.String(), "\n", n+1)[:n], "\n")
			}
		}
	}
}

func benchRead(b *testing.B, text, goal string, kind Kind) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		d, err := Score(context.Background(), text, goal, kind)
		if err != nil {
			b.Fatal(err)
		}
		d.AppendPruned(nil, d.Cut(Budget{MaxPruneRatio: .7, MinKeepLines: 20}), Format{Markers: true})
	}
}

func BenchmarkPruneCode(b *testing.B) {
	benchRead(b, ownSource(b, 10_000), "retry the connection when the session has expired", Code)
}

func BenchmarkPruneLogs(b *testing.B) {
	benchRead(b, serviceLog(1_000_000), "why is the connection to the upstream refused", Logs)
}

func BenchmarkPruneDocs(b *testing.B) {
	benchRead(b, strings.Repeat("# A heading\n\nSome words about sessions that expire, and what is done then.\n\n- an item\n", 2000), "what happens to expired sessions", Docs)
}

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
