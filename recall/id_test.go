package recall

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
)

// FuzzID: every id reads back as itself in any case and with look-alike letters, and nothing
// else reads as an id.
func FuzzID(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), "prn_0123456789abcdefghjkmnpqrs")
	f.Add(bytes.Repeat([]byte{0xff}, 16), "PRN_OIL3456789ABCDEFGHJKMNPQRS")
	f.Add(make([]byte, 16), "prn_zzzzzzzzzzzzzzzzzzzzzzzzzz")
	f.Fuzz(func(t *testing.T, sum []byte, text string) {
		if len(sum) >= idBytes {
			id := formatID([idBytes]byte(sum))
			for _, form := range []string{id, strings.ToUpper(id), " " + id + "\n", strings.ReplaceAll(id, "0", "O"), strings.ReplaceAll(id, "1", "l")} {
				if got, err := ParseID(form); err != nil || got != id {
					t.Fatalf("%q reads %q, %v; want %q", form, got, err, id)
				}
			}
		}
		got, err := ParseID(text)
		if err != nil {
			if !errors.Is(err, ErrUnknown) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if again, err := ParseID(got); err != nil || again != got || !regexp.MustCompile(`^prn_[0-9a-hjkmnp-tv-z]{26}$`).MatchString(got) {
			t.Fatalf("%q reads %q, which reads %q, %v", text, got, again, err)
		}
	})
}

// An id has one spelling: the two unused bits of its 26 digits must be zero.
func TestIDHasOneSpelling(t *testing.T) {
	zero := formatID([idBytes]byte{})
	for _, last := range "123" {
		if got, err := ParseID(zero[:len(zero)-1] + string(last)); err == nil {
			t.Errorf("digit %c reads %q", last, got)
		}
	}
	if got, err := ParseID(zero[:len(zero)-1] + "4"); err != nil || got == zero {
		t.Errorf("the next id reads %q, %v", got, err)
	}
}

// FuzzManifest: decoding any bytes returns a manifest or an error.
func FuzzManifest(f *testing.F) {
	f.Add((&manifest{Bytes: 10, Chars: 9, Parts: 1, Origins: []Origin{{Server: "a", Tool: "b"}}, inline: []byte("xyz")}).encode())
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		if back, err := decodeManifest(m.encode()); err != nil || !bytes.Equal(back.inline, m.inline) || len(back.Origins) != len(m.Origins) {
			t.Fatalf("%+v reads back as %+v, %v", m, back, err)
		}
	})
}

func TestLines(t *testing.T) {
	text := "one\ntwo\nthree\n"
	for _, tt := range []struct{ ranges, want string }{
		{"1", "one\n"}, {"2-3", "two\nthree\n"}, {"3,1", "three\none\n"}, {"2-99", "two\nthree\n"}, {"3-", "three\n"}, {"9", ""}, {"1-2, 2-3", "one\ntwo\nthree\n"}, {"2-3,1-9", "two\nthree\none\n"}, {"3,3,3-", "three\n"},
	} {
		ranges, err := ParseRanges(tt.ranges)
		if err != nil {
			t.Fatal(err)
		}
		if got := readText(t, text, 1<<20, ReadRequest{Ranges: ranges}, ReadLimit{}); string(got.Text) != tt.want || got.Next != nil {
			t.Errorf("%s: %q, want %q", tt.ranges, got.Text, tt.want)
		}
	}
	for _, bad := range []string{"", "0", "3-2", "a", "1-b", "-1", "1,,2"} {
		if got, err := ParseRanges(bad); err == nil {
			t.Errorf("%q reads %v", bad, got)
		}
	}
	if got := readText(t, text, 1<<20, ReadRequest{Pattern: pattern(t, "t"), Ranges: []Range{{3, 9}}, LineNumbers: true}, ReadLimit{}); string(got.Text) != "3│ three\n" {
		t.Errorf("%q", got.Text)
	}
	if got := readText(t, text, 1<<20, ReadRequest{Pattern: pattern(t, "o")}, ReadLimit{}); string(got.Text) != "one\ntwo\n" {
		t.Errorf("%q", got.Text)
	}
}
