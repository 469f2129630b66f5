package state_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// stuck is a driver on a dead disk: it does not return when its context ends.
type stuck struct {
	state.Driver
	free chan struct{}
}

func (d stuck) Put(context.Context, []state.Item, state.Lease) error { <-d.free; return nil }

func (d stuck) Get(context.Context, string, string, time.Time) ([]byte, error) {
	<-d.free
	return nil, nil
}

func TestStuckDriverOpensTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := stuck{memory.New(), make(chan struct{})}
		defer close(d.free)
		s := state.New(d, state.Default(), time.Now)
		start := time.Now()
		if err := s.Put(t.Context(), item("a")); fault.KindOf(err) != fault.Timeout {
			t.Errorf("Put = %v, want %v", err, fault.Timeout)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("Put took %v", took)
		}
		// The breaker is open: callers get an error at once.
		start = time.Now()
		if _, err := s.Get(t.Context(), "a"); fault.KindOf(err) != fault.Unavailable || time.Since(start) != 0 {
			t.Errorf("Get = %v after %v, want %v at once", err, time.Since(start), fault.Unavailable)
		}
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Get(ctx, "a"); fault.KindOf(err) != fault.Timeout {
			t.Errorf("Get within the caller's own second = %v, want %v", err, fault.Timeout)
		}
		// A caller's own deadline does not open the breaker.
		if _, err := s.Get(t.Context(), "a"); fault.KindOf(err) != fault.Timeout {
			t.Errorf("Get = %v, want %v", err, fault.Timeout)
		}
		time.Sleep(10 * time.Second)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := s.Get(ctx, "a"); fault.KindOf(err) != fault.Canceled {
			t.Errorf("Get of a caller who left = %v, want %v", err, fault.Canceled)
		}
	})
}

// failing is a driver that returns one error.
type failing struct {
	state.Driver
	err error
}

func (d failing) Stat(context.Context) (state.Stat, error) { return state.Stat{}, d.err }

func (d failing) Get(context.Context, string, string, time.Time) ([]byte, error) { return nil, d.err }

func (d failing) Close() error { return d.err }

func TestFailingDriver(t *testing.T) {
	broken := errors.New("broken")
	for err, want := range map[error]fault.Kind{
		broken:           fault.Unavailable,
		state.ErrUnknown: fault.UnknownHandle,
		state.ErrClosed:  fault.Unavailable,
		context.Canceled: fault.Unavailable, // not ours: the caller is still there
		fault.New(fault.Full, "the disk is full"): fault.Full,
	} {
		s := state.New(failing{memory.New(), err}, state.Default(), time.Now)
		_, got := s.Get(t.Context(), "a")
		if fault.KindOf(got) != want || !errors.Is(got, err) {
			t.Errorf("Get over %v = %v, want %v", err, got, want)
		}
		if got := s.Put(t.Context(), item("a")); fault.KindOf(got) != want || !errors.Is(got, err) {
			t.Errorf("Put over %v = %v, want %v", err, got, want)
		}
		if got := s.Close(); !errors.Is(got, err) {
			t.Errorf("Close over %v = %v", err, got)
		}
	}
}
