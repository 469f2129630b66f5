package mcp

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A13: the encoding of 2026-07-28's headers. The first five are the specification's examples.
func TestEncodeHeader(t *testing.T) {
	for value, want := range map[string]string{
		"us-west1":           "us-west1",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":           "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":       "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",

		"us west 1":           "us west 1",
		"a\tb":                "a\tb",
		"~!":                  "~!",
		"":                    "=?base64??=",
		"us-west1 ":           "=?base64?dXMtd2VzdDEg?=",
		"\tindented":          "=?base64?CWluZGVudGVk?=",
		"line1\r\nline2":      "=?base64?bGluZTENCmxpbmUy?=",
		"\x7f":                "=?base64?fw==?=",
		"=?base64??=":         "=?base64?PT9iYXNlNjQ/Pz0=?=",
		"=?base64?=":          "=?base64?PT9iYXNlNjQ/PQ==?=",
		"=?base64?SGVsbG8=":   "=?base64?SGVsbG8=",
		"=?BASE64?SGVsbG8=?=": "=?BASE64?SGVsbG8=?=",
	} {
		got := EncodeHeader(value)
		if got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
		if back, err := DecodeHeader(got); back != value || err != nil {
			t.Errorf("%q back: %q, %v", value, back, err)
		}
	}
}

// A13: what a header carries, and what it must not. The conformance suite's cases are among them.
func TestDecodeHeader(t *testing.T) {
	for header, want := range map[string]string{
		"":                        "",
		"Hello":                   "Hello",
		"=?base64?SGVsbG8=?=":     "Hello",
		" \t=?base64?SGVsbG8=?= ": "Hello",
		"SGVsbG8=":                "SGVsbG8=",
		"=?base64?SGVsbG8=":       "=?base64?SGVsbG8=",
		"SGVsbG8=?=":              "SGVsbG8=?=",
		"=?Base64?SGVsbG8=?=":     "=?Base64?SGVsbG8=?=",
		"=?base64?=":              "=?base64?=",
		" a\tb ":                  "a\tb",
	} {
		if got, err := DecodeHeader(header); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", header, got, err, want)
		}
	}
	for _, header := range []string{
		"=?base64?SGVsbG8?=",     // no padding
		"=?base64?SGVsbG9=?=",    // bits left over
		"=?base64?SGVs!!!bG8=?=", // not the alphabet
		"=?base64?SGVs bG8=?=",   // nor is a space
		"=?base64?_-8=?=",        // another alphabet
		"=?base64?/w==?=",        // not UTF-8
		"=?base64?SGVsbG8=\n?=",  // a decoder would pass over it
		"a\nb", "a\x00", "\x7f", "é", "a\r\nX-Evil: 1",
	} {
		if got, err := DecodeHeader(header); err == nil {
			t.Errorf("%q: got %q", header, got)
		}
	}
}

// FuzzHeader: every text survives encoding and decoding, and the header is one plain line.
func FuzzHeader(f *testing.F) {
	for _, seed := range []string{"", " a ", "=?base64?YQ==?=", "é\n", "a\tb", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		header := EncodeHeader(s)
		if strings.Trim(header, " \t") != header || !isHeaderText(header) || header == "" {
			t.Fatalf("%q became %q", s, header)
		}
		back, err := DecodeHeader(header)
		if utf8.ValidString(s) && (back != s || err != nil) {
			t.Fatalf("%q became %q, and that %q, %v", s, header, back, err)
		}
		value, err := DecodeHeader(s)
		if err != nil {
			return
		}
		if again, err := DecodeHeader(EncodeHeader(value)); again != value || err != nil {
			t.Fatalf("%q carries %q, and that becomes %q, %v", s, value, again, err)
		}
	})
}
