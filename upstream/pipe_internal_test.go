package upstream

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/frame"
)

// stub is a pipe without a program: only its way out is closed.
type stub struct{ *pipe }

func (s stub) close() { _ = s.out.Close(time.Second) }

// A2: a call that finds the way to its program closed hears how the program ended, as one does that
// came before it, and may be made again. One whose program lives on hears that it is of no use.
func TestUnsent(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe() // not of the system's: a program that another test starts holds those for a moment
	c := newConn("a", limits{timeout: time.Minute}, nil)
	p := &pipe{conn: c, out: frame.NewWriter(w, frame.Limits{}, func() frame.Framing { return frame.Newline })}
	c.wire = stub{p}
	f, err := c.open(context.Background(), &Call{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.shut(f)
	_ = r.Close()
	_ = p.out.Send([]byte("{}"))
	_ = p.out.Flush(t.Context())
	if err := p.send(f, []byte("{}")); fault.KindOf(err) != fault.Unavailable || fault.PublicOf(err) != "the server is not available" || isUnbegun(err) {
		t.Errorf("got %v", err)
	}
	why := errors.New("exit status 9")
	c.end(why)
	_, late := c.open(context.Background(), &Call{})
	for _, err := range []error{late, p.send(f, []byte("{}"))} {
		if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, why) || !isUnbegun(err) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := c.wait(t.Context(), f); !errors.Is(err, why) || isUnbegun(err) {
		t.Errorf("a call under way got %v", err)
	}
}
