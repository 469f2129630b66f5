package frame

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newlineFraming() Framing { return Newline }
func lengthFraming() Framing  { return ContentLength }

// recordingSink records what is written. While hold is set, writes block until a Close fails them.
type recordingSink struct {
	mu     sync.Mutex
	got    bytes.Buffer
	writes int
	fail   error
	hold   chan struct{} // nil does not block
	closed chan struct{}
}

func newSink() *recordingSink { return &recordingSink{closed: make(chan struct{})} }

func (s *recordingSink) Write(p []byte) (int, error) {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-s.closed:
			return 0, os.ErrClosed
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	s.writes++
	return s.got.Write(p)
}

func (s *recordingSink) Close() error { close(s.closed); return nil }

func (s *recordingSink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func TestSend(t *testing.T) {
	for name, c := range map[string]struct {
		framing func() Framing
		want    string
	}{
		"lines":   {newlineFraming, "{\"a\":1}\n{ \"b\" : 2  }\n"},
		"counted": {lengthFraming, "Content-Length: 7\r\n\r\n{\"a\":1}Content-Length: 12\r\n\r\n{\n\"b\" : 2\r\n}"},
	} {
		s := newSink()
		w := NewWriter(s, Limits{}, c.framing)
		for _, parts := range [][]string{{`{"a`, `":1}`}, {}, {""}, {"{\n\"b\"", " : 2\r\n}"}} {
			var p [][]byte
			for _, text := range parts {
				p = append(p, []byte(text))
			}
			if err := w.Send(p...); err != nil {
				t.Error(err)
			}
		}
		if err := w.Close(time.Second); err != nil {
			t.Error(err)
		}
		if got := s.String(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if err := w.Send([]byte("{}")); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := w.Close(time.Second); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	}
}

func TestLineEndsAcrossBuffers(t *testing.T) {
	text := "{" + strings.Repeat("\n 1", 30_000) + "\r}"
	s := newSink()
	w := NewWriter(s, Limits{}, newlineFraming)
	_ = w.Send([]byte(text))
	if err := w.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	if want := strings.NewReplacer("\n", " ", "\r", " ").Replace(text) + "\n"; s.String() != want {
		t.Errorf("%d bytes, want %d", len(s.String()), len(want))
	}
}

func TestSmallMessagesAreBatched(t *testing.T) {
	s := newSink()
	s.hold = make(chan struct{})
	w := NewWriter(s, Limits{}, newlineFraming)
	for range 50 {
		_ = w.Send([]byte("{}"))
	}
	close(s.hold)
	if err := w.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if s.writes > 3 {
		t.Errorf("%d writes", s.writes)
	}
	_ = w.Close(time.Second)
}

func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		s.hold = make(chan struct{})
		w := NewWriter(s, Limits{MaxMessages: 3, MaxBytes: 100}, newlineFraming)
		send := func(n int, want error) {
			t.Helper()
			if err := w.Send(bytes.Repeat([]byte("x"), n)); !errors.Is(err, want) {
				t.Errorf("Send of %d: %v, want %v", n, err, want)
			}
		}
		send(500, nil) // alone, so it may be larger
		send(1, ErrFull)
		s.hold <- struct{}{}
		synctest.Wait()
		send(50, nil)
		synctest.Wait() // it blocks in its write, apart from the others
		send(51, ErrFull)
		send(49, nil)
		send(1, nil)
		send(0, nil)
		send(1, ErrFull)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		if err := w.Close(time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		synctest.Wait()
		if err := w.Send([]byte("{}")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after the write failed: %v", err)
		}
	})
}

func TestWriteError(t *testing.T) {
	broken := errors.New("broken")
	s := newSink()
	s.fail = broken
	w := NewWriter(s, Limits{}, newlineFraming)
	if err := w.Send([]byte("{}")); err != nil {
		t.Error(err)
	}
	if err := w.Flush(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Flush: %v", err)
	}
	if err := w.Send([]byte("{}")); !errors.Is(err, broken) {
		t.Errorf("Send: %v", err)
	}
	if err := w.Flush(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Flush again: %v", err)
	}
	if err := w.Close(time.Second); !errors.Is(err, broken) {
		t.Errorf("Close: %v", err)
	}
	<-s.closed
}

// Close ends a write that blocks in the kernel, on a pipe without a reader.
func TestCloseEndsBlockedWrite(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w := NewWriter(out, Limits{}, newlineFraming)
	_ = w.Send(make([]byte, 900<<10))
	if err := w.Close(20 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	<-w.ended
}

func TestConcurrentSenders(t *testing.T) {
	in, out := io.Pipe()
	w := NewWriter(out, Limits{MaxMessages: 1 << 20, MaxBytes: 1 << 30}, newlineFraming)
	const senders, each = 8, 200
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range each {
				if err := w.Send([]byte(`{"a":`), []byte("1}")); err != nil {
					t.Error(err)
				}
			}
			if err := w.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	go func() { all.Wait(); _ = w.Close(time.Second) }()
	r := NewReader(in, 100, nil)
	for n := 0; ; n++ {
		text, err := r.Next()
		if errors.Is(err, io.EOF) && n == senders*each {
			return
		}
		if err != nil || string(text) != `{"a":1}` {
			t.Fatalf("message %d: %q, %v", n, text, err)
		}
	}
}
