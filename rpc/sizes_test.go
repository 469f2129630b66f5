package rpc

import (
	"bytes"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// S9: messages that are built to cost much are refused, or read, with little memory: at most a fifth of the 20 times their
// size that the bar allows, whatever their shape.
func TestS9HostileSizes(t *testing.T) {
	const head = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`
	var keys bytes.Buffer
	for i := range 1_000_000 {
		keys.WriteString(`"` + strconv.Itoa(i) + `":1,`)
	}
	for name, body := range map[string]string{
		"depth 10^6":        head + strings.Repeat("[", 1_000_000),
		"depth 10^6, pairs": head + strings.Repeat(`{"a":`, 1_000_000) + "1" + strings.Repeat("}", 1_000_000) + "}",
		"10^6 keys":         head + "{" + keys.String() + `"name":"x"}}`,
		"10^6 nested keys":  head + `{"arguments":{` + keys.String() + `"name":"x"}}}`,
		"10^6 empty":        head + `{"arguments":[` + strings.Repeat("{},", 1_000_000) + `1]}}`,
		"a string":          head + `{"name":"` + strings.Repeat(`\u00e9`, 4<<20) + `"}}`,
		"a number":          head + `{"name":` + strings.Repeat("9", 16<<20) + `}}`,
		"spaces":            head + strings.Repeat(" ", 16<<20) + `{}}`,
	} {
		raw := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		req, err := ParseRequest(raw, 128)
		runtime.ReadMemStats(&after)
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(raw)); times > 4 {
			t.Errorf("%s: %.1f times the input in memory", name, times)
		}
		if err == nil && strings.HasPrefix(name, "depth") {
			t.Errorf("%s: accepted %s", name, req.Method)
		}
	}
}
