// Package retryafter reads and writes the Retry-After header (RFC 9110, section 10.2.3).
package retryafter

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Parse returns how long a response asks its client to wait: seconds, or a date. It is 0 for a header that
// is missing, cannot be read or names a time before now.
func Parse(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// ParseMillis is Parse for LLM providers, which may send the more exact Retry-After-Ms as well.
func ParseMillis(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseUint(h.Get("Retry-After-Ms"), 10, 31); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	return Parse(h, now)
}

// Set writes the header, in whole seconds rounded up, if wait is positive.
func Set(h http.Header, wait time.Duration) {
	if wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
}
