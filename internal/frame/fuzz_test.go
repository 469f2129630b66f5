package frame

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// chunkReader returns its text in reads whose sizes are those in cuts, repeated.
type chunkReader struct {
	text []byte
	cuts []byte
	i    int
}

func (s *chunkReader) Read(p []byte) (int, error) {
	if len(s.text) == 0 {
		return 0, io.EOF
	}
	n := len(s.text)
	if len(s.cuts) > 0 {
		n = 1 + int(s.cuts[s.i%len(s.cuts)])
		s.i++
	}
	n = copy(p, s.text[:min(n, len(s.text))])
	s.text = s.text[n:]
	return n, nil
}

// For all bytes, a Reader returns the same however they are split into reads, nothing over the limit, no more than there
// is, and it finds the next message on a line of its own.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"{}\n[]\n", "hello\r\n\xef\xbb\xbf{\"a\":1}\r\n", "{\"a\":\n{}", "\xff\xfe{\x00}\x00\n\x00",
		"Content-Length: 2\r\n\r\n{}Content-Length: 3\r\n\r\n[1]", "Content-Type: x\nContent-Length: 9999\n\n{}",
		"Content-Length: 2\n\n{}Content-Length: z\n\n{}Content-Length: 2\n\n[]", "Content-Length: 5\n{}\n",
		"{" + strings.Repeat("x", 700) + "\n{}\n", strings.Repeat("junk ", 700) + "\n{}\n",
	} {
		f.Add([]byte(s), []byte{0, 3}, uint16(64))
		f.Add([]byte(s), []byte{}, uint16(1000))
	}
	f.Fuzz(func(t *testing.T, text, cuts []byte, limit uint16) {
		whole, framing := readAll(bytes.NewReader(text), int64(limit))
		split, other := readAll(&chunkReader{text: text, cuts: cuts}, int64(limit))
		if framing != other || !slices.Equal(whole, split) {
			t.Fatalf("in one read %v %.2000q\nin several %v %.2000q", framing, whole, other, split)
		}
		if len(whole) > len(text)+1 {
			t.Fatalf("%d results from %d bytes", len(whole), len(text))
		}
		checkLimit(t, &chunkReader{text: text, cuts: cuts}, int64(limit))

		const next = `{"next":1}`
		after, framing := readAll(io.MultiReader(bytes.NewReader(text), strings.NewReader("\n"+next+"\n")), max(int64(limit), int64(len(next))))
		if framing == Newline && (len(after) < 2 || after[len(after)-2] != next) {
			t.Fatalf("the next message was lost: %.2000q", after)
		}
	})
}

// checkLimit reads everything and checks its size.
func checkLimit(t *testing.T, from io.Reader, limit int64) {
	r := NewReader(from, limit, func(line []byte) {
		if len(line) == 0 || len(line) > maxJunk {
			t.Fatalf("junk of %d bytes", len(line))
		}
	})
	for {
		text, err := r.Next()
		big, over := errors.AsType[*TooLargeError](err)
		switch {
		case over:
			if big.Size <= limit || len(big.Head) > endBytes || len(big.Tail) > endBytes {
				t.Fatalf("too large: %d, ends of %d and %d", big.Size, len(big.Head), len(big.Tail))
			}
		case err != nil:
			return
		case len(text) == 0 || int64(len(text)) > limit:
			t.Fatalf("a message of %d bytes at a limit of %d", len(text), limit)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		framing := rapid.SampledFrom([]func() Framing{newlineFraming, lengthFraming}).Draw(t, "framing")
		bodies := rapid.SliceOfN(rapid.StringMatching(`[\[{][ -~\n\r]{0,40}[\]}]`), 1, 20).Draw(t, "bodies")
		repeat := rapid.SampledFrom([]int{1, 40, 3000}).Draw(t, "repeat")
		s := newSink()
		w := NewWriter(s, Limits{MaxBytes: 1 << 30}, framing)
		for i, b := range bodies {
			bodies[i] = b[:1] + strings.Repeat(b[1:len(b)-1], repeat) + b[len(b)-1:]
			cut := rapid.IntRange(0, len(bodies[i])).Draw(t, "cut")
			if err := w.Send([]byte(bodies[i][:cut]), []byte(bodies[i][cut:])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		r := NewReader(&chunkReader{text: []byte(s.String()), cuts: rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "cuts")}, 1<<20, func(line []byte) { t.Fatalf("junk %q", line) })
		for _, want := range bodies {
			if framing() == Newline {
				want = strings.NewReplacer("\n", " ", "\r", " ").Replace(want)
			}
			if got, err := r.Next(); err != nil || string(got) != want {
				t.Fatalf("got %.200q, %v, want %.200q", got, err, want)
			}
		}
		if got, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("got %q, %v", got, err)
		}
		if r.Framing() != framing() {
			t.Fatalf("framing %v", r.Framing())
		}
	})
}
