package jsonscan

import (
	"fmt"
	"strings"
	"testing"
)

// The two shapes that cost the scanner most: many short strings, and long ones full of escapes.
// tools/bench compares it with other scanners.
func BenchmarkLong(b *testing.B) {
	var short strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&short, `{"k":%d,"s":"short string number %d here"},`, i, i)
	}
	for name, doc := range map[string]string{
		"short":   "[" + short.String() + "null]",
		"escapes": `["` + strings.Repeat(`2026-11-14 INFO \"worker\" read\tC:\\tmp\\x in 12ms\n`, 20_000) + `"]`,
		"accents": `["` + strings.Repeat(`L’été, à la forêt près du château. `, 20_000) + `"]`,
		"chinese": `["` + strings.Repeat(`代理作为单一服务器提供给客户端，`, 20_000) + `"]`,
	} {
		b.Run(name, func(b *testing.B) {
			data := []byte(doc)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(data, 0).Skip(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
