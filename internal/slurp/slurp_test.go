package slurp

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
	for _, n := range []int64{0, 1, first - 1, first, first + 1, trusted, trusted + 1, 5 << 20} {
		want := bytes.Repeat([]byte("x"), int(n))
		for name, read := range map[string]func(io.Reader, int64, int64, *membudget.Scope) ([]byte, error){
			"claimed": Claimed, "sized": Sized,
			"into": func(r io.Reader, size, limit int64, to *membudget.Scope) ([]byte, error) {
				return Into(make([]byte, 7, 2<<20), r, size, limit, to)
			},
		} {
			for _, size := range []int64{n, -1} {
				rich := membudget.New(64 << 20)
				got, err := read(bytes.NewReader(want), size, n, rich.Scope("a"))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %d (size %d): %d bytes, %v", name, n, size, len(got), err)
				}
				if held := rich.Stats().Held; held < n || held > n+first {
					t.Errorf("%s of %d (size %d): charged %d", name, n, size, held)
				}
				if n > trusted {
					poor := membudget.New(2*n - 2)
					if _, err := read(bytes.NewReader(want), size, n, poor.Scope("a")); fault.KindOf(err) != fault.Full || poor.Stats().Held != 0 {
						t.Errorf("%s of %d (size %d) with less to take: %v, %d stay charged", name, n, size, err, poor.Stats().Held)
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
	if _, err := Sized(iotest.ErrReader(broken), -1, 10, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := Sized(bytes.NewReader([]byte("ab")), 3, 10, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short body: %v", err)
	}
}

// I9: what is claimed and does not come takes no memory, and is no body.
func TestClaimsThatAreNotKept(t *testing.T) {
	if _, err := Claimed(bytes.NewReader(make([]byte, trusted+5)), 1<<40, 1<<41, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short body: %v", err)
	}
	room := make([]byte, 0, 8)
	if got, err := Into(room, bytes.NewReader([]byte("abcdefgh")), 8, 10, nil); err != nil || &got[0] != &room[:1][0] {
		t.Errorf("room that is there was not used: %q, %v", got, err)
	}
}
