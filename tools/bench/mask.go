package main

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"time"
)

const (
	rounds      = 9
	barStd      = 15.0
	barJSONText = 2.0
	barAllocs   = 64
)

type method struct {
	name string
	run  func(dst, body []byte) []byte
}

// benchMasking measures all bodies and reports whether every bar was met.
func benchMasking() bool {
	held := true
	for _, b := range bodies() {
		held = reportBody(b) && held
	}
	return held
}

// reportBody measures one body, prints its rows and reports whether every bar was met.
func reportBody(b body) bool {
	methods := []method{
		{"copy", func(dst, body []byte) []byte { return append(dst, body...) }},
		{"encoding/json, any", maskWithAny},
		{"jsontext splice, names checked", func(dst, body []byte) []byte { return maskWithJSONText(dst, body, false) }},
		{"jsontext splice", func(dst, body []byte) []byte { return maskWithJSONText(dst, body, true) }},
		{"ctxgate", maskWithCtxgate},
	}
	want := maskWithCtxgate(nil, b.data)
	if got := maskWithJSONText(nil, b.data, true); !bytes.Equal(got, want) {
		fmt.Println("ctxgate and jsontext disagree on", b.name)
		return false
	}
	speed := measure(methods, b.data)
	own := speed[len(speed)-1]
	allocs := allocsUncut(b.data)
	fmt.Printf("\n%s: %.1f MB, %d KB after masking\n", b.name, float64(len(b.data))/1e6, len(want)/1000)
	for i, m := range methods {
		fmt.Printf("  %-32s %8.0f MB/s   ctxgate is %6.2f×\n", m.name, speed[i], own/speed[i])
	}
	fmt.Printf("  allocations when nothing is cut: %d\n", allocs)
	std, jt := own/speed[1], own/speed[3]
	return verdict("≥ 15× encoding/json", std >= barStd) && verdict("≥ 2× jsontext splice", jt >= barJSONText) &&
		verdict("≤ 64 allocations", allocs <= barAllocs)
}

func verdict(bar string, met bool) bool {
	if !met {
		fmt.Println("  MISSED:", bar)
	}
	return met
}

// measure returns each method's median speed in MB/s.
func measure(methods []method, body []byte) []float64 {
	times := make([][]time.Duration, len(methods))
	dst := make([]byte, 0, len(body)+4096)
	for range rounds {
		for i, m := range methods {
			runtime.GC()
			start := time.Now()
			runs := 0
			for time.Since(start) < 60*time.Millisecond || runs == 0 {
				dst = m.run(dst[:0], body)
				runs++
			}
			times[i] = append(times[i], time.Since(start)/time.Duration(runs))
		}
	}
	speed := make([]float64, len(methods))
	for i := range times {
		slices.Sort(times[i])
		speed[i] = float64(len(body)) / 1e6 / times[i][rounds/2].Seconds()
	}
	return speed
}
