package s3

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// readTimes times reads of originals, and beside each a range GET of the same bytes.
func readTimes(t *testing.T, d *Driver, originals, times int) (whole, bare []time.Duration) {
	t.Helper()
	for n := range originals * times {
		key := fmt.Sprint(n % originals)
		raw, err := d.base.Get(t.Context(), key, key, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p, err := decodePointer(raw)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := d.bucket.GetRange(t.Context(), segmentName(p.endHour, p.segment), p.offset, p.length); err != nil {
			t.Fatal(err)
		}
		middle := time.Now()
		if _, err := d.Get(t.Context(), key, key, middle); err != nil {
			t.Fatal(err)
		}
		whole, bare = append(whole, time.Since(middle)), append(bare, middle.Sub(start))
	}
	return whole, bare
}

func percentile(all []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(float64(len(sorted)-1)*part)]
}
