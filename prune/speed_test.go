package prune

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownSource is this repository's code, repeated until it has n lines.
func ownSource(b *testing.B, n int) string {
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
		d, err := Read(context.Background(), text, goal, kind)
		if err != nil {
			b.Fatal(err)
		}
		d.Append(nil, d.Cut(Budget{MaxRatio: .7, MinKeep: 20}), Style{Markers: true})
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
