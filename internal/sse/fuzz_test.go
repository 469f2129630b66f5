package sse

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// reference reads the whole stream at once, the way the standard's text goes.
func reference(in []byte, limit int) ([]Event, error) {
	text := strings.TrimPrefix(string(in), string(byteOrderMark))
	if text == "" && len(in) > 0 {
		return nil, io.ErrUnexpectedEOF
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	lines := strings.Split(strings.ReplaceAll(text, "\r", "\n"), "\n")
	var events []Event
	var e Event
	begun := false
	for i, line := range lines {
		last := i == len(lines)-1
		if line == "" && !last {
			if e.Data != nil || e.HasID || e.Retry != 0 {
				events = append(events, e)
			}
			e, begun = Event{}, false
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		known := fieldOf([]byte(name)) != OtherField
		size := len(e.Name) + len(e.ID) + len(e.Data) + len(value)
		if name == "data" && e.Data != nil {
			size++
		}
		switch {
		case known && size > limit && (!last || value != ""):
			return events, ErrTooLarge
		case last && (begun || line != ""):
			return events, io.ErrUnexpectedEOF
		case last:
			return events, io.EOF
		}
		begun = begun || known
		assign(&e, name, value)
	}
	panic("there is always a last line")
}

func assign(e *Event, name, value string) {
	switch name {
	case "event":
		e.Name = value
	case "id":
		if !strings.Contains(value, "\x00") {
			e.ID, e.HasID = value, true
		}
	case "retry":
		if d, ok := milliseconds(value); ok {
			e.Retry = d
		}
	case "data":
		if e.Data == nil {
			e.Data = []byte(value)
		} else {
			e.Data = append(append(e.Data, '\n'), value...)
		}
	}
}

// splitter cuts a stream into reads of chosen lengths.
type splitter struct {
	in  []byte
	rnd *rand.Rand
}

func (s *splitter) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := s.rnd.IntN(4)
	if s.rnd.IntN(8) == 0 {
		n = s.rnd.IntN(2 * readSize)
	}
	n = copy(p[:min(n, len(p))], s.in)
	s.in = s.in[n:]
	if len(s.in) == 0 && s.rnd.IntN(2) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// FuzzReader holds the reader to the reference, however the stream is cut.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"data: a\r\n\r\nid:\x00\nid: 7\nretry: 10\n\n", "\xEF\xBB\xBFevent\ndata:\n\n: c\rdata: b\r\rdata", "dat\xEF\xBB\xBF\n\n:", "\n\r\r\n\r\n\n",
	} {
		f.Add([]byte(seed), uint64(1), uint16(1000), uint16(0))
		f.Add([]byte(seed), uint64(2), uint16(8), uint16(readSize-4))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, limit, pad uint16) {
		// The pad moves the interesting bytes over the window's edge.
		if at := bytes.IndexByte(in, ':'); at >= 0 {
			in = bytes.Join([][]byte{in[:at], in[at:]}, bytes.Repeat([]byte("p"), int(pad)))
			if seed%2 == 0 {
				in = bytes.Join([][]byte{in[:at+int(pad)+1], in[at+int(pad)+1:]}, bytes.Repeat([]byte("q"), int(pad)))
			}
		}
		most := int(limit) + len("retry: ")
		want, wantErr := reference(in, most)
		got, err := readAll(&splitter{in, rand.New(rand.NewPCG(seed, 0))}, int64(most))
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, wantErr) {
			t.Errorf("%q: error %v, want %v; %s", in, err, wantErr, diff)
		}
	})
}

// FuzzRoundTrip: what is written reads back, and nothing in it becomes a line of its own.
func FuzzRoundTrip(f *testing.F) {
	f.Add("add", "7", true, []byte("a\nb"), uint32(3), uint8(1))
	f.Add("", "", true, []byte("\r\n\r\n{\r \"id: 1\": 2}\n"), uint32(0), uint8(4))
	f.Add("a\nid: 9", "b\rdata: c", true, []byte(nil), uint32(9), uint8(0))
	f.Fuzz(func(t *testing.T, name, id string, hasID bool, data []byte, retry uint32, cut uint8) {
		e := Event{Name: name, HasID: hasID, Data: data, Retry: time.Duration(retry) * time.Millisecond}
		if hasID {
			e.ID = id
		}
		want := carried(e)
		text := AppendEvent(nil, e)
		after := AppendEvent(text, message("after"))
		got, err := readAll(bytes.NewReader(after), 1<<20)
		if diff := cmp.Diff(dispatched(want, message("after")), got); diff != "" || !errors.Is(err, io.EOF) {
			t.Fatalf("%q: error %v; %s", text, err, diff)
		}

		at := min(int(cut), len(data))
		var w bytes.Buffer
		if err := errors.Join(Comment(&w, name), WriteData(&w, name, id, data[:at], nil, data[at:])); err != nil {
			t.Fatal(err)
		}
		e = carried(Event{Name: name, ID: id, HasID: id != "", Data: append([]byte{}, data...)})
		got, err = readAll(&w, 1<<20)
		if diff := cmp.Diff([]Event{e}, got); diff != "" || !errors.Is(err, io.EOF) {
			t.Fatalf("in parts: error %v; %s", err, diff)
		}
	})
}

// carried is the part of an event that the format can carry.
func carried(e Event) Event {
	if strings.ContainsAny(e.Name, "\r\n") {
		e.Name = ""
	}
	if strings.ContainsAny(e.ID, "\r\n\x00") {
		e.ID, e.HasID = "", false
	}
	if e.Data != nil {
		e.Data = []byte(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(e.Data)))
	}
	return e
}

// dispatched are the events that a reader returns: those without data, id and retry are ignored.
func dispatched(events ...Event) []Event {
	var out []Event
	for _, e := range events {
		if e.Data != nil || e.HasID || e.Retry != 0 {
			out = append(out, e)
		}
	}
	return out
}
