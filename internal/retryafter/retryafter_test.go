package retryafter

import (
	"net/http"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"7":                             7 * time.Second,
		"-7":                            0,
		"1.5":                           0,
		"soon":                          0,
		"99999999999":                   0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:03:05 GMT": 0,
	} {
		h := http.Header{"Retry-After": {value}}
		if got := Parse(h, now); got != want {
			t.Errorf("Parse(%q) = %v, want %v", value, got, want)
		}
		if got := ParseMillis(h, now); got != want {
			t.Errorf("ParseMillis(%q) = %v, want %v", value, got, want)
		}
		h["Retry-After-Ms"] = []string{"250"}
		if got := ParseMillis(h, now); got != 250*time.Millisecond {
			t.Errorf("ParseMillis(%q) with 250 ms = %v", value, got)
		}
	}
}

func TestSet(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		-time.Second: "", 0: "", time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2",
	} {
		h := http.Header{}
		Set(h, wait)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("Set(%v) wrote %q, want %q", wait, got, want)
		}
	}
}
