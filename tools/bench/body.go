package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

type body struct {
	name string
	data []byte
}

// bodies are three typical large tool results: one file, a long list, and a mixture.
func bodies() []body {
	text := logText(9 << 20)
	var rows []any
	for i := range 30_000 {
		rows = append(rows, map[string]any{"id": i, "name": fmt.Sprintf("item number %d", i), "ok": true, "score": float64(i) / 7})
	}
	var short []any
	for i := range 200_000 {
		short = append(short, map[string]any{"k": i, "s": fmt.Sprintf("short string number %d here", i)})
	}
	var mixed []any
	for i := range 38_000 {
		if i%100 == 0 {
			mixed = append(mixed, text[i*100:i*100+20_000])
		} else {
			mixed = append(mixed, text[i*100:i*100+40])
		}
	}
	return []body{
		{"one 8 MB string", reply(map[string]any{"content": []any{map[string]any{"type": "text", "text": text[:7_400_000]}}, "rows": rows})},
		{"200,000 short strings", reply(short)},
		{"1 % long strings", reply(mixed)},
	}
}

func reply(result any) []byte {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "result": result})
	if err != nil {
		panic(err)
	}
	return b
}

// logText is text as tools return it, with an escaped character every dozen bytes.
func logText(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "2026-11-14T12:00:%02d.123Z INFO \"worker %d\" processed\tjob path=C:\\tmp\\%d in %dms\n", i%60, i, i*7, i%900)
	}
	return b.String()
}
