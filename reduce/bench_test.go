package reduce

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// records is a JSON text of about size bytes, as an API answers.
func records(size int) string {
	var b strings.Builder
	b.WriteString(`{"total":99,"items":[`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"id":%d,"name":"record number %d","tags":["a","b"],"score":%d.5,"open":true,"note":"something \"quoted\" to read"},`, i, i, i%97)
	}
	return b.String() + `null]}`
}

// 10 MB of JSON in a string of a reply: shortened as JSON, beside the scan that finds the string and the
// plain mask.
func BenchmarkCutJSON(b *testing.B) {
	text := records(10 << 20)
	accents := strings.ReplaceAll(text, "something", "été")
	m := DefaultMask()
	for name, text := range map[string]string{"ascii": text, "accents": accents} {
		body, _ := json.Marshal(text)
		strs, _, _ := jsonscan.New(body, 0).LongStrings(nil, m.MaxChars)
		run := func(way string, f func()) {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
		run("scan", func() { _, _, _ = jsonscan.New(body, 0).LongStrings(nil, m.MaxChars) })
		run("mask", func() { c, _ := m.CutString(body, strs[0]); c.Edit(testID) })
		run("decode", func() { jsonscan.AppendDecoded(nil, strs[0].Of(body)) })
		run("json", func() {
			text := jsonscan.AppendDecoded(nil, strs[0].Of(body))
			p, ok := m.CutJSON(text, len(testID))
			if !ok {
				b.Fatal("not shortened")
			}
			p.ForString(body, strs[0].Span).Edits(testID)
		})
	}
}

// G+4: whatever its shape, four times the text takes about four times as long.
func TestGPlus4TimeIsLinear(t *testing.T) {
	for name, shape := range map[string]func(n int) string{
		"records":     func(n int) string { return records(n) },
		"backslashes": func(n int) string { return `["` + strings.Repeat(`\\\"`, n/4) + `",1]` },
		"quotes":      func(n int) string { return `[` + strings.Repeat(`"",`, n/3) + `1]` },
		"deep": func(n int) string {
			return "[" + strings.Repeat(strings.Repeat("[", 900)+strings.Repeat("]", 900)+",", n/1800) + "1]"
		},
		"last is large": func(n int) string {
			return strings.Repeat(`[1,`, 900) + "[" + strings.Repeat("1,", n/2) + "1]" + strings.Repeat("]", 900)
		},
		"and accented": func(n int) string {
			return strings.Repeat(`[1,`, 900) + "[" + strings.Repeat(`"é",`, n/5) + "1]" + strings.Repeat(",2,3]", 900)
		},
		"members": func(n int) string {
			return `{"a":[` + strings.Repeat(`{"k":"`+strings.Repeat("v", 300)+`"},`, n/310) + `1],"b":1}`
		},
		"accents": func(n int) string { return `["` + strings.Repeat(`é\u00e9","`, n/11) + `"]` },
		"lines":   func(n int) string { return strings.Repeat("{\"a\":[1,2,3]}\n", n/14) },
	} {
		small, large := []byte(shape(60<<10)), []byte(shape(240<<10))
		took := func(text []byte) time.Duration {
			start := time.Now()
			if _, ok := DefaultMask().CutJSON(text, len(testID)); !ok {
				t.Fatalf("%s was not shortened", name)
			}
			return time.Since(start)
		}
		// What else the machine does can only add: the best of each counts, and there are more
		// tries while the bar is missed.
		one, four := time.Hour, time.Hour
		for try := 0; try < 7 || try < 200 && four > 10*one; try++ {
			one, four = min(one, took(small)), min(four, took(large))
		}
		if four > 10*one {
			t.Errorf("%s: four times the text took %v instead of %v", name, four, one)
		}
	}
}

// G+4: the number of allocations does not grow with the text.
func TestGPlus4AllocationsDoNotGrow(t *testing.T) {
	count := func(size int) float64 {
		text := []byte(records(size))
		return testing.AllocsPerRun(3, func() { DefaultMask().CutJSON(text, len(testID)) })
	}
	if few, many := count(100_000), count(2_000_000); many > few+2 {
		t.Errorf("%v allocations for 100 kB, %v for 2 MB", few, many)
	}
}
