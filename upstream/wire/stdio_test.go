package wire

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/frame"
)

// endedConn is a connection that a test ends.
type endedConn struct {
	Receiver
	ctx    context.Context //nolint:containedctx // its end is the connection's
	cancel context.CancelCauseFunc
}

func newEndedConn() *endedConn {
	c := &endedConn{}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

func (c *endedConn) Done() <-chan struct{} { return c.ctx.Done() }
func (c *endedConn) Err() error            { return context.Cause(c.ctx) }

// A2: a request that finds its child's stdin closed fails with the reason why the child ended, and may be sent
// again. If the child still runs, the request fails and may not.
func TestSendToClosedStdin(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe() // not an OS pipe: a child that another test starts would hold it open for a moment
	conn := newEndedConn()
	s := &Stdio{Options: Options{Receiver: conn}, out: frame.NewWriter(w, frame.Limits{}, func() frame.Framing { return frame.Newline })}
	_ = r.Close()
	_ = s.out.Send([]byte("{}"))
	_ = s.out.Flush(t.Context())
	if err := s.Send(nil, []byte("{}")); fault.KindOf(err) != fault.Unavailable || fault.PublicOf(err) != "the server is not available" || IsNotStarted(err) {
		t.Errorf("child still runs: got %v", err)
	}
	why := errors.New("exit status 9")
	conn.cancel(why)
	if err := s.Send(nil, []byte("{}")); fault.KindOf(err) != fault.Unavailable || !errors.Is(err, why) || !IsNotStarted(err) {
		t.Errorf("child has ended: got %v", err)
	}
}
