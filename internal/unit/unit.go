// Package unit has the two quantities of config files: durations and sizes. Both parse a plain number
// (seconds, bytes) or a number with its unit, and print in a form that they parse.
package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a number of seconds, or text such as "30s", "1h30m" or "7d".
type Duration time.Duration

// D converts to [time.Duration].
func (d Duration) D() time.Duration { return time.Duration(d) }

// String prints whole days as "7d" and anything else as [time.Duration] does.
func (d Duration) String() string {
	const day = 24 * time.Hour
	if t := time.Duration(d); t != 0 && t%day == 0 {
		return strconv.FormatInt(int64(t/day), 10) + "d"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Seconds converts a plain number of seconds.
func Seconds(n float64) (Duration, error) {
	t := n * float64(time.Second)
	if math.IsNaN(t) || t >= math.MaxInt64 || t < 0 {
		return 0, fmt.Errorf("%v seconds is out of range", n)
	}
	return Duration(t), nil
}

// ParseDuration parses "30", "30s", "1h30m" or "7d".
func ParseDuration(s string) (Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return Seconds(n)
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil {
			return Seconds(n * 86400)
		}
	}
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 {
		return 0, fmt.Errorf("%q is not a duration: write seconds, or a number with its unit such as \"30s\", \"5m\", \"7d\"", s)
	}
	return Duration(t), nil
}

// Bytes is a size: a number of bytes, or text such as "64KiB", "32MiB" or "1GiB".
type Bytes int64

var scales = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

// String prints the largest binary unit that divides the size.
func (b Bytes) String() string {
	for _, s := range scales[:3] {
		if b != 0 && int64(b)%s.size == 0 {
			return strconv.FormatInt(int64(b)/s.size, 10) + s.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseBytes parses "1024", "64KiB", "32 MiB", "1GB".
func ParseBytes(s string) (Bytes, error) {
	scale := int64(1)
	num := s
	for _, u := range scales {
		if rest, ok := cutSuffixFold(s, u.name); ok {
			num, scale = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/scale {
		return 0, fmt.Errorf("%q is not a size: write bytes, or a number with its unit such as \"64KiB\", \"32MiB\", \"1GiB\"", s)
	}
	return Bytes(n * scale), nil
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s[:len(s)-len(suffix)], true
	}
	return s, false
}
