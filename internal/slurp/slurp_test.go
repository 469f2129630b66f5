package slurp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestReads(t *testing.T) {
	for _, n := range []int64{0, 1, first - 1, first, first + 1, trusted, trusted + 1, 5 << 20} {
		want := bytes.Repeat([]byte("x"), int(n))
		for name, read := range map[string]func(io.Reader, int64, int64) ([]byte, error){"claimed": Claimed, "sized": Sized} {
			for _, size := range []int64{n, -1} {
				got, err := read(bytes.NewReader(want), size, n)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %d (size %d): %d bytes, %v", name, n, size, len(got), err)
				}
				if n == 0 {
					continue
				}
				if _, err := read(bytes.NewReader(want), size, n-1); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s of %d over the limit: %v", name, n, err)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Sized(iotest.ErrReader(broken), -1, 10); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := Sized(bytes.NewReader([]byte("ab")), 3, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short body: %v", err)
	}
}
