package sse

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// split cuts a stream into events, in pieces of random lengths. An LF that came late is put back where it
// belongs.
func split(in []byte, rnd *rand.Rand) (events []string, rest string) {
	s := Splitter{MaxEvent: len(in)}
	for len(in) > 0 {
		n := min(len(in), rnd.IntN(9)+1)
		_ = s.Write(in[:n], func(raw []byte) { events = append(events, string(raw)) }, func() { events[len(events)-1] += "\n" })
		in = in[n:]
	}
	return events, string(s.Reset())
}

// FuzzSplitter: no byte is lost or changed however the stream is cut, the events do not depend on it, and
// their data is what the reader reads.
func FuzzSplitter(f *testing.F) {
	for _, seed := range []string{
		"data: a\r\n\r\nid: 7\n\n", "\xEF\xBB\xBFdata: a\ndata\ndata:b\n\n: c\rdata: b\r\rdata", "data:\n\ndata: x", "\n\r\r\n\r\n\n", "event: x\ndatax: 1\n\n",
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		events, rest := split(in, rand.New(rand.NewPCG(seed, 0)))
		if all := strings.Join(events, "") + rest; all != string(in) {
			t.Fatalf("%q became %q", in, all)
		}
		again, _ := split(in, rand.New(rand.NewPCG(seed, 1)))
		if diff := cmp.Diff(events, again); diff != "" {
			t.Fatalf("%q, cut in another way: %s", in, diff)
		}
		var got, want []string
		for i, raw := range events {
			if e := ParseRaw([]byte(raw), i == 0); e.Data != nil {
				got = append(got, string(e.Data))
			}
		}
		read, _ := readAll(bytes.NewReader(in), int64(len(in)+1))
		for _, e := range read {
			if e.Data != nil {
				want = append(want, string(e.Data))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q: data %s", in, diff)
		}
	})
}

// Other data takes the place of an event's data, and the other lines stay.
func TestAppendWith(t *testing.T) {
	for raw, want := range map[string]string{
		"data: old\n\n":                         "data: new\n\n",
		"data:old\r\nid: 1\r\n\r\n":             "data:new\r\nid: 1\r\n\r\n",
		"event: x\ndata: a\ndata: b\nid: 1\n\n": "event: x\nid: 1\ndata: new\n\n",
		"data\n\n":                              "data: new\n\n",
	} {
		e := ParseRaw([]byte(raw), false)
		if got := string(e.AppendWith(nil, []byte("new"))); got != want {
			t.Errorf("%q became %q, not %q", raw, got, want)
		}
	}
}

func TestSplitterLimit(t *testing.T) {
	s := Splitter{MaxEvent: 10}
	ignore := func([]byte) {}
	if err := s.Write([]byte("data: a\n\ndata: b\n\n"), ignore, nil); err != nil {
		t.Error(err)
	}
	if err := s.Write([]byte("data: abcdef"), ignore, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
