package varint

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, math.MaxInt32).Draw(t, "uint")
		i := rapid.Int64().Draw(t, "int64")
		s := rapid.String().Draw(t, "string")
		is := rapid.Bool().Draw(t, "bool")
		raw := AppendBool(AppendString(AppendInt64(AppendUint([]byte{7}, n), i), s), is)
		d := NewDecoder(raw)
		if d.Byte() != 7 || d.Uint() != n || d.Int64() != i || d.String() != s || d.Bool() != is || d.Failed() || len(d.Rest()) != 0 {
			t.Fatalf("%x is read differently", raw)
		}
		// Every record that is cut short fails, and stays failed.
		d = NewDecoder(raw[:rapid.IntRange(0, len(raw)-1).Draw(t, "cut")])
		_, _, _, _, _ = d.Byte(), d.Uint(), d.Int64(), d.String(), d.Bool()
		if !d.Failed() || d.Uint() != 0 || d.String() != "" || d.Bool() {
			t.Fatal("a record that was cut short is read")
		}
	})
}

func TestTooLarge(t *testing.T) {
	for name, raw := range map[string][]byte{
		"32 bits":           AppendUint(nil, math.MaxInt32+1),
		"more than follows": AppendUint(nil, 1),
		"endless":           {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if d := NewDecoder(raw); d.String() != "" || !d.Failed() {
			t.Errorf("%s: read", name)
		}
	}
	if d := NewDecoder(AppendUint(nil, math.MaxInt64)); d.Uint64() != math.MaxInt64 || d.Failed() {
		t.Error("64 bits are not read")
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(AppendString(AppendBool(nil, true), "x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := NewDecoder(raw)
		for range 4 {
			_, _, _, _ = d.Count(), d.String(), d.Int64(), d.Bytes(2)
		}
		if d.Failed() && d.Rest() != nil {
			t.Error("something is left after a failure")
		}
	})
}
