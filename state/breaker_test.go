package state_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// stuck is a driver on a dead disk: until it is free, it does not return, not even when its context ends.
type stuck struct {
	state.Driver
	free chan struct{}
}

func (d stuck) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	<-d.free
	return d.Driver.Put(ctx, items, lease)
}

func (d stuck) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	<-d.free
	return d.Driver.Get(ctx, group, key, now)
}

func (d stuck) Epoch(ctx context.Context) (state.Epoch, error) {
	<-d.free
	return d.Driver.Epoch(ctx)
}

func TestStuckDriverOpensTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := stuck{memory.New(), make(chan struct{})}
		s := state.New(d, state.Default(), time.Now)
		put := func() error { return s.Put(t.Context(), item("a")) }
		get := func() error { _, err := s.Get(t.Context(), "a"); return err }
		check := func(what string, do func() error, want fault.Kind, wantTook time.Duration) {
			t.Helper()
			start := time.Now()
			if err := do(); fault.KindOf(err) != want || time.Since(start) != wantTook {
				t.Errorf("%s: %v after %v, want %v after %v", what, err, time.Since(start), want, wantTook)
			}
		}
		check("a caller's own deadline does not open the breaker", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Get(ctx, "a")
			return err
		}, fault.Timeout, time.Second)
		check("nor does one who left", func() error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := s.Get(ctx, "a")
			return err
		}, fault.Canceled, 0)
		check("the first Put", put, fault.Timeout, 2*time.Second)
		check("the next Put", put, fault.Unavailable, 0)
		check("a store that cannot write may still be read", get, fault.Timeout, 2*time.Second)
		check("the next Get", get, fault.Unavailable, 0)
		for range 100 { // no caller waits while probes are stuck, and they do not pile up
			time.Sleep(time.Second)
			check("Put while the driver is stuck", put, fault.Unavailable, 0)
			check("Get while the driver is stuck", get, fault.Unavailable, 100*time.Millisecond)
		}
		close(d.free)
		synctest.Wait()
		time.Sleep(time.Second) // stuck for so long, the probes have failed; the next ones work
		check("the first Put after the driver came back", put, fault.Unavailable, 0)
		synctest.Wait()
		if err := errors.Join(put(), get()); err != nil { // the Get waits for its probe
			t.Errorf("after the driver came back: %v", err)
		}
	})
}

// slowDriver is a server at the end of a slow network.
type slowDriver struct {
	state.Driver
	delay   atomic.Int64
	aborted atomic.Int64 // probes
}

func (d *slowDriver) sleep(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(d.delay.Load())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *slowDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if err := d.sleep(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Get(ctx, group, key, now)
}

func (d *slowDriver) Epoch(ctx context.Context) (state.Epoch, error) {
	if err := d.sleep(ctx); err != nil {
		d.aborted.Add(1)
		return 0, err
	}
	return d.Driver.Epoch(ctx)
}

// A store in the network that is slow or does not answer is not waited for by every reply, while who asks for an
// original gets it.
func TestSlowDriverOpensTheQuickBreaker(t *testing.T) {
	for name, delay := range map[string]time.Duration{"slow": 200 * time.Millisecond, "stuck": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &slowDriver{Driver: memory.New()}
				config := state.Default()
				config.Driver = "redis"
				s := state.New(d, config, time.Now)
				if err := s.Put(t.Context(), item("a")); err != nil {
					t.Fatal(err)
				}
				read := func() time.Duration {
					start := time.Now()
					_, _ = s.GetQuick(t.Context(), "a")
					return time.Since(start)
				}
				if took := read(); took != 0 || s.Ready() != nil {
					t.Fatalf("%v, %v", took, s.Ready())
				}
				d.delay.Store(int64(delay))
				var longest atomic.Int64
				var readers sync.WaitGroup
				for range 400 { // for two seconds
					time.Sleep(5 * time.Millisecond)
					readers.Go(func() { longest.Store(max(longest.Load(), int64(read()))) })
				}
				readers.Wait()
				if s.Ready() == nil || longest.Load() > int64(1100*time.Millisecond) {
					t.Errorf("ready: %v; the longest read took %v", s.Ready(), time.Duration(longest.Load()))
				}
				if took := read(); took != 0 {
					t.Errorf("with an open breaker a read took %v", took)
				}
				if _, err := s.Get(t.Context(), "a"); delay < time.Second && err != nil {
					t.Errorf("an original is not returned: %v", err)
				}
				if d.aborted.Load() > 0 && delay < time.Second {
					t.Error("a probe was not given the time that a new connection needs")
				}
				d.delay.Store(0)
				time.Sleep(10 * time.Second)
				_ = s.Ready() // probes
				synctest.Wait()
				if _, err := s.GetQuick(t.Context(), "a"); err != nil && delay < time.Second || s.Ready() != nil {
					t.Errorf("after it came back: %v, ready %v", err, s.Ready())
				}
				time.Sleep(time.Minute)
			})
		})
	}
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
