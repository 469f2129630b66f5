package sse

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestAppendEvent(t *testing.T) {
	for want, e := range map[string]Event{
		"\n":                             {},
		"data: \n\n":                     {Data: []byte{}},
		"data: a\n\n":                    message("a"),
		"data: a\ndata: b\ndata: \n\n":   message("a\r\nb\r"),
		"event: x\nid: 1\ndata: a\n\n":   {Name: "x", ID: "1", HasID: true, Data: []byte("a")},
		"id: \n\n":                       {HasID: true},
		"id: 5\nretry: 2000\ndata: \n\n": {ID: "5", HasID: true, Retry: 2 * time.Second, Data: []byte{}},
		"retry: 1\n\n":                   {Retry: time.Nanosecond},
		"retry: 9223372036855\n\n":       {Retry: math.MaxInt64},
		"data:  a\n\n":                   message(" a"),
		"data: b\n\n":                    {Name: "x\ny", ID: "1\r2", HasID: true, Data: []byte("b")},
	} {
		if got := string(AppendEvent(nil, e)); got != want {
			t.Errorf("%+v:\n got %q\nwant %q", e, got, want)
		}
	}
}

func TestWriteData(t *testing.T) {
	for want, parts := range map[string][]string{
		"event: e\nid: i\ndata: \n\n":                          nil,
		"event: e\nid: i\ndata: {}\n\n":                        {"{", "}"},
		"event: e\nid: i\ndata: {\ndata: \"a\":1\ndata: }\n\n": {"{\r", "\n\"a\":", "", "1\n}"},
		"event: e\nid: i\ndata: [\ndata: \ndata: 1]\n\n":       {"[\r", "\r1]"},
	} {
		var raw [][]byte
		for _, p := range parts {
			raw = append(raw, []byte(p))
		}
		var w bytes.Buffer
		if err := WriteData(&w, "e", "i", raw...); err != nil || w.String() != want {
			t.Errorf("%q: error %v\n got %q\nwant %q", parts, err, w.String(), want)
		}
	}
}

func TestComment(t *testing.T) {
	for text, want := range map[string]string{"": ":\n\n", "ping": ": ping\n\n", "a\ndata: b": ": a\n\n", "\r": ":\n\n"} {
		var w bytes.Buffer
		if err := Comment(&w, text); err != nil || w.String() != want {
			t.Errorf("%q: %q, %v", text, w.String(), err)
		}
	}
}

// limitedWriter fails after so many writes.
type limitedWriter struct{ left int }

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestWriteDataErrors(t *testing.T) {
	part := []byte("a\nb")
	for n := range 5 {
		if err := WriteData(&limitedWriter{n}, "", "", part); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %d writes: %v", n, err)
		}
	}
	if err := WriteData(&limitedWriter{5}, "", "", part); err != nil {
		t.Error(err)
	}
	if err := WriteData(iotest.TruncateWriter(io.Discard, 0), "", "", part); err != nil {
		t.Error(err)
	}
}

func TestWriteDataCopiesNothing(t *testing.T) {
	part := bytes.Repeat([]byte("123456789\r"), 100000)
	if used := allocated(func() { _ = WriteData(io.Discard, "message", "1", part, part) }); used > 64<<10 {
		t.Errorf("%d bytes allocated", used)
	}
}

func BenchmarkWriteData(b *testing.B) {
	for name, part := range map[string]string{
		"8MB":      strings.Repeat("x", 8<<20),
		"lines/LF": strings.Repeat("123456789\n", 800000),
		"lines/CR": strings.Repeat("123456789\r", 800000),
	} {
		b.Run(name, func(b *testing.B) {
			p := []byte(part)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				if err := WriteData(io.Discard, "message", "1", p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
