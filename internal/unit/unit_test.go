package unit

import (
	"math"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30": 30 * time.Second, "0.5": 500 * time.Millisecond, "30s": 30 * time.Second,
		"1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "0": 0, "250ms": 250 * time.Millisecond,
	} {
		got, err := ParseDuration(in)
		if err != nil || got.D() != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
		back, err := ParseDuration(got.String())
		if err != nil || back != got {
			t.Errorf("%q prints as %q, which reads back as %v, %v", in, got, back, err)
		}
	}
	for _, bad := range []string{"", "soon", "-1", "-5s", "1e300", "5 parsecs", "NaN"} {
		if got, err := ParseDuration(bad); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", bad, got)
		}
	}
	for d, want := range map[Duration]string{
		Duration(time.Hour): "1h", Duration(90 * time.Second): "1m30s", Duration(30 * time.Second): "30s",
		Duration(20 * time.Minute): "20m", Duration(48 * time.Hour): "2d", 0: "0s",
	} {
		if got := d.String(); got != want {
			t.Errorf("%v prints as %q, want %q", time.Duration(d), got, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	if _, err := Seconds(math.NaN()); err == nil {
		t.Error("NaN seconds accepted")
	}
	if d, err := Seconds(1.5); err != nil || d.D() != 1500*time.Millisecond {
		t.Errorf("got %v, %v", d, err)
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1024": 1024, "64KiB": 64 << 10, "32 MiB": 32 << 20, "1gib": 1 << 30, "1GB": 1e9, "10B": 10, "3kb": 3000,
	} {
		got, err := ParseBytes(in)
		if err != nil || int64(got) != want {
			t.Errorf("ParseBytes(%q) = %v, %v; want %d", in, int64(got), err, want)
		}
		back, err := ParseBytes(got.String())
		if err != nil || back != got {
			t.Errorf("%q prints as %q, which reads back as %v, %v", in, got, back, err)
		}
	}
	for _, bad := range []string{"", "MiB", "-1", "1.5MiB", "99999999999GiB", "many"} {
		if got, err := ParseBytes(bad); err == nil {
			t.Errorf("ParseBytes(%q) = %v, want an error", bad, got)
		}
	}
}
