package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readAll is every event of the stream, and what ended it.
func readAll(r io.Reader, limit int64) ([]Event, error) {
	var events []Event
	for rd := NewReader(r, limit); ; {
		e, err := rd.Next()
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func message(data string) Event { return Event{Data: []byte(data)} }

// A13: the streams of MCP's HTTP transports. The first cases are the standard's own examples.
func TestReader(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want []Event
		err  error
	}{
		"empty":        {"", nil, io.EOF},
		"two messages": {"data: This is the first message.\n\ndata: This is the second message, it\ndata: has two lines.\n\n", []Event{message("This is the first message."), message("This is the second message, it\nhas two lines.")}, io.EOF},
		"comment, ids": {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n", []Event{
			{ID: "1", HasID: true, Data: []byte("first event")}, {HasID: true, Data: []byte("second event")}, message(" third event"),
		}, io.EOF},
		"data alone":   {"data\n\ndata\ndata\n\ndata:", []Event{message(""), message("\n")}, io.ErrUnexpectedEOF},
		"named":        {"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n", []Event{{Name: "add", Data: []byte("73857293")}, {Name: "remove", Data: []byte("2153")}}, io.EOF},
		"CR":           {"data: a\r\rdata: b\rdata: c\r\r", []Event{message("a"), message("b\nc")}, io.EOF},
		"CRLF":         {"data: a\r\n\r\ndata: b\r\ndata: c\r\n\r\n", []Event{message("a"), message("b\nc")}, io.EOF},
		"mixed ends":   {"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", []Event{message("a"), message("b"), message("c")}, io.EOF},
		"LF then CR":   {"data: a\n\rdata: b\n\r", []Event{message("a"), message("b")}, io.EOF},
		"mark":         {"\xEF\xBB\xBFdata: a\n\n", []Event{message("a")}, io.EOF},
		"mark, blank":  {"\xEF\xBB\xBF\n\xEF\xBB\xBFdata: a\n\ndata: b\n\n", []Event{message("b")}, io.EOF},
		"only a mark":  {"\xEF\xBB\xBF", nil, io.ErrUnexpectedEOF},
		"keep-alives":  {":\r\n:\n\n: ping\n\ndata: a\n: inside\ndata: b\n\n:\n", []Event{message("a\nb")}, io.EOF},
		"priming":      {"id: x\nretry: 500\ndata: \n\n", []Event{{ID: "x", HasID: true, Retry: 500 * time.Millisecond, Data: []byte{}}}, io.EOF},
		"id alone":     {"id: x\n\n", []Event{{ID: "x", HasID: true}}, io.EOF},
		"retry alone":  {"retry: 1000\n\n", []Event{{Retry: time.Second}}, io.EOF},
		"name alone":   {"event: x\n\ndata: a\n\n", []Event{message("a")}, io.EOF},
		"last wins":    {"id: 1\nid: 2\nevent: a\nevent: b\nretry: 1\nretry: 2\ndata:\n\n", []Event{{Name: "b", ID: "2", HasID: true, Retry: 2 * time.Millisecond, Data: []byte{}}}, io.EOF},
		"NUL in an id": {"id: a\nid: b\x00c\ndata: d\n\n", []Event{{ID: "a", HasID: true, Data: []byte("d")}}, io.EOF},
		"only NUL":     {"id: \x00\n\n", nil, io.EOF},
		"bad retries":  {"retry: -1\nretry: 1.5\nretry: 1 \nretry:\nretry: 0x1\ndata: a\n\n", []Event{message("a")}, io.EOF},
		"huge retry":   {"retry: 99999999999999999999\n\n", []Event{{Retry: math.MaxInt64 / time.Millisecond * time.Millisecond}}, io.EOF},
		"other fields": {"datas: x\nDATA: x\n data: x\ndat\nretryy: 5\nevents:x\nsomething very long without a colon\ndata: a\n\n", []Event{message("a")}, io.EOF},
		"colons":       {"data:a:b\ndata::c\n\n", []Event{message("a:b\n:c")}, io.EOF},
		"tab kept":     {"data:\ta\n\n", []Event{message("\ta")}, io.EOF},
		"cut event":    {"data: a\n\ndata: b\n", []Event{message("a")}, io.ErrUnexpectedEOF},
		"cut line":     {"data: a\n\ndata: b", []Event{message("a")}, io.ErrUnexpectedEOF},
		"cut comment":  {"data: a\n\n: comm", []Event{message("a")}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in))} {
				got, err := readAll(r, 1000)
				if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
					t.Errorf("error %v, want %v; %s", err, tt.err, diff)
				}
			}
			want, wantErr := reference([]byte(tt.in), 1000)
			if diff := cmp.Diff(tt.want, want); diff != "" || !errors.Is(wantErr, tt.err) {
				t.Errorf("the reference: error %v, want %v; %s", wantErr, tt.err, diff)
			}
		})
	}
}

// An event is there with the byte that ends it, also where an LF could still follow.
func TestReaderDoesNotWait(t *testing.T) {
	for _, in := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r", "id: a\n\n"} {
		blocked := errors.New("asked for more")
		r := NewReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(blocked)), 100)
		if _, err := r.Next(); err != nil {
			t.Errorf("%q: %v", in, err)
		}
		for range 2 { // and an error stays
			if _, err := r.Next(); !errors.Is(err, blocked) {
				t.Errorf("%q: %v", in, err)
			}
		}
	}
}

func TestReaderLimit(t *testing.T) {
	for _, n := range []int{1, 100, readSize - 6, readSize, 3 * readSize} {
		data := strings.Repeat("x", n)
		for in, size := range map[string]int{
			"data: " + data + "\n\n":                               n,
			"data: " + data + "\r\rdata: " + data + "\r\n\n":       n,
			"data:\ndata: " + data + "\n\n":                        n + 1,
			"id: " + data + "\n\n":                                 n,
			"id: ab\ndata: " + data + "\nevent: cd\n\n":            n + 4,
			":" + data + data + "\n" + data + ":1\nid: ab\n\n":     2,
			strings.Repeat("data:\n", n) + "\n":                    n - 1,
			"data: " + data + "\n\nevent: " + data + data + "\n\n": 2 * n,
		} {
			if _, err := readAll(strings.NewReader(in), int64(size)); !errors.Is(err, io.EOF) {
				t.Errorf("%.20q… of %d at its limit: %v", in, size, err)
			}
			if _, err := readAll(strings.NewReader(in), int64(size)-1); size > 0 && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%.20q… of %d over its limit: %v", in, size, err)
			}
		}
	}
}

// endless is a stream that begins and never ends its line.
type endless struct{ begin string }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.begin)
	e.begin = e.begin[n:]
	for i := range p[n:] {
		p[n+i] = 'x'
	}
	return len(p), nil
}

// allocated is how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestReaderMemory(t *testing.T) {
	const limit = 8 << 20
	for _, begin := range []string{"data: ", "id: ", "event:"} {
		used := allocated(func() {
			if _, err := readAll(&endless{begin}, limit); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%q: %v", begin, err)
			}
		})
		if used > limit+maxSlack+4*readSize {
			t.Errorf("%q: %d bytes for a limit of %d", begin, used, limit)
		}
	}
	in := []byte("data: " + strings.Repeat("x", limit-1) + "\n\n")
	used := allocated(func() {
		if _, err := readAll(bytes.NewReader(in), limit); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	if used > 2*limit+maxSlack+4*readSize {
		t.Errorf("%d bytes for an event of %d", used, limit)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, in := range []string{"", "da", "data: a", "data: " + strings.Repeat("x", 2*readSize), ":", strings.Repeat("x", 2*readSize)} {
		_, err := readAll(io.MultiReader(strings.NewReader(in), iotest.ErrReader(broken)), 1<<20)
		if !errors.Is(err, broken) {
			t.Errorf("%.20q: %v", in, err)
		}
	}
	still := readerFunc(func([]byte) (int, error) { return 0, nil })
	if _, err := readAll(still, 100); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that brings nothing: %v", err)
	}
}

// Lines of any length cost the same per byte, whatever ends them.
func BenchmarkReader(b *testing.B) {
	for name, in := range map[string]string{
		"8MB":      "data: " + strings.Repeat("x", 8<<20) + "\n\n",
		"200B":     strings.Repeat("event: message\nid: 12\ndata: "+strings.Repeat("x", 170)+"\n\n", 10000),
		"200B/LF":  strings.Repeat("data: "+strings.Repeat("x", 190)+"\n\n", 10000),
		"lines/LF": "data: x\n" + strings.Repeat("data: 123456789\n", 50000) + "\n",
		"lines/CR": "data: x\r" + strings.Repeat("data: 123456789\r", 50000) + "\r",
		"blank/CR": strings.Repeat("\r", 1<<20) + "data: x\r\r",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				events, err := readAll(strings.NewReader(in), 16<<20)
				if len(events) == 0 || !errors.Is(err, io.EOF) {
					b.Fatal(fmt.Errorf("%d events, %w", len(events), err))
				}
			}
		})
	}
}
