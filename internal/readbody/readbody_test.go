package readbody

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

func TestReads(t *testing.T) {
	for _, n := range []int64{0, 1, firstPiece - 1, firstPiece, firstPiece + 1, trustedSize, trustedSize + 1, 5 << 20} {
		want := bytes.Repeat([]byte("x"), int(n))
		for name, read := range map[string]func(io.Reader, int64, int64, *membudget.Scope) ([]byte, error){
			"untrusted": ReadUntrusted, "sized": ReadSized,
		} {
			for _, size := range []int64{n, -1} {
				rich := membudget.New(64 << 20)
				got, err := read(bytes.NewReader(want), size, n, rich.Scope("a"))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %d (size %d): %d bytes, %v", name, n, size, len(got), err)
				}
				if held := rich.Stats().Held; held < n || held > n+firstPiece {
					t.Errorf("%s of %d (size %d): reserved %d", name, n, size, held)
				}
				if n > trustedSize {
					poor := membudget.New(2*n - 2)
					if _, err := read(bytes.NewReader(want), size, n, poor.Scope("a")); fault.KindOf(err) != fault.Full || poor.Stats().Held != 0 {
						t.Errorf("%s of %d (size %d) with a smaller budget: %v, %d stay reserved", name, n, size, err, poor.Stats().Held)
					}
				}
				if n == 0 {
					continue
				}
				if _, err := read(bytes.NewReader(want), size, n-1, nil); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s of %d over the limit: %v", name, n, err)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	if _, err := ReadSized(iotest.ErrReader(broken), -1, 10, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := ReadSized(bytes.NewReader([]byte("ab")), 3, 10, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short body: %v", err)
	}
}

// I9: a declared size that does not arrive takes no memory, and the read fails.
func TestShortBodyOfALargeDeclaredSize(t *testing.T) {
	if _, err := ReadUntrusted(bytes.NewReader(make([]byte, trustedSize+5)), 1<<40, 1<<41, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short body: %v", err)
	}
}
