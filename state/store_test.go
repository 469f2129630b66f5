package state_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// with runs a test in a bubble of fake time, on a store of 1000 bytes that keeps for an hour
// and spares for ten minutes.
func with(t *testing.T, driver state.Driver, test func(t *testing.T, s *state.Store)) {
	synctest.Test(t, func(t *testing.T) {
		config := state.Default()
		config.TTL = unit.Duration(time.Hour)
		config.Spare = unit.Duration(10 * time.Minute)
		config.MaxBytes = 1000
		s := state.New(driver, config, time.Now)
		defer s.Close()
		test(t, s)
	})
}

// item is a group of its own that counts 100 bytes.
func item(name string) state.Item {
	return state.Item{Key: name, Group: name, Value: []byte(strings.Repeat("x", 100-2*len(name)))}
}

func put(t *testing.T, s *state.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.Put(t.Context(), item(name)); err != nil {
			t.Fatalf("Put(%s): %v", name, err)
		}
	}
}

// keeps checks which of the names can be read.
func keeps(t *testing.T, s *state.Store, want bool, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Get(t.Context(), name)
		if want && err != nil || !want && fault.KindOf(err) != fault.Unknown {
			t.Errorf("Get(%s): %v; kept should be %v", name, err, want)
		}
	}
}

func TestTTL(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		put(t, s, "a", "b")
		time.Sleep(30 * time.Minute)
		if found, err := s.Touch(t.Context(), "b"); !found || err != nil {
			t.Errorf("Touch = %v, %v", found, err)
		}
		time.Sleep(30*time.Minute - time.Millisecond)
		keeps(t, s, true, "a", "b")
		time.Sleep(time.Millisecond)
		keeps(t, s, false, "a")
		keeps(t, s, true, "b")
		if found, err := s.Touch(t.Context(), "a"); found || err != nil {
			t.Errorf("Touch of an expired group = %v, %v", found, err)
		}
		time.Sleep(30 * time.Minute)
		keeps(t, s, false, "b")
	})
}

func TestDrop(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		put(t, s, "a", "b")
		if err := s.Drop(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		keeps(t, s, false, "a")
		keeps(t, s, true, "b")
		if stat, err := s.Stat(t.Context()); err != nil || stat != (state.Stat{Items: 1, Bytes: 100}) {
			t.Errorf("Stat = %+v, %v", stat, err)
		}
		if err := s.Put(t.Context()); err != nil {
			t.Errorf("putting nothing: %v", err)
		}
	})
}

func TestCapEvictsOldest(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		for i := range 10 {
			put(t, s, fmt.Sprint(i))
			time.Sleep(time.Minute)
		}
		keeps(t, s, true, "0", "9") // 1000 bytes fit exactly
		time.Sleep(10 * time.Minute)
		if _, err := s.Touch(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		// Room for it and no more: the oldest goes, but not the one shown just now.
		put(t, s, "new")
		keeps(t, s, false, "1")
		keeps(t, s, true, "new", "0", "2", "3", "9")
		put(t, s, "more")
		keeps(t, s, false, "2")
		keeps(t, s, true, "3")
	})
}

func TestFullWhenAllWasShown(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		names := strings.Split("0123456789", "")
		put(t, s, names...)
		time.Sleep(10 * time.Minute)
		if err := s.Put(t.Context(), item("new")); fault.KindOf(err) != fault.Full {
			t.Errorf("Put = %v, want %v", err, fault.Full)
		}
		keeps(t, s, true, names...)
		keeps(t, s, false, "new")
		// Now they are older than spare, and older than what a touch may leave out.
		time.Sleep(time.Minute)
		put(t, s, "new")
		keeps(t, s, true, "new")
	})
}

func TestTooLargeForTheCap(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		put(t, s, "a")
		time.Sleep(30 * time.Minute)
		parts := make([]state.Item, 11)
		for i := range parts {
			parts[i] = item(fmt.Sprint(i + 10))
		}
		if err := s.Put(t.Context(), parts...); fault.KindOf(err) != fault.Full {
			t.Errorf("Put = %v, want %v", err, fault.Full)
		}
		keeps(t, s, true, "a") // nothing was evicted for what could never fit
		keeps(t, s, false, "10", "20")
	})
}

// Puts at the same time do not get past the cap together.
func TestCapHoldsTogether(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := s.Put(t.Context(), item(fmt.Sprint(i))); err != nil && fault.KindOf(err) != fault.Full {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if stat, err := s.Stat(t.Context()); err != nil || stat.Bytes > 1000 || stat.Bytes == 0 {
			t.Errorf("Stat = %+v, %v; want at most 1000 bytes", stat, err)
		}
	})
}

func TestRunSweeps(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		put(t, s, "a")
		time.Sleep(30 * time.Minute)
		put(t, s, "b")
		time.Sleep(32 * time.Minute)
		if stat, err := s.Stat(t.Context()); err != nil || stat.Items != 1 {
			t.Errorf("Stat = %+v, %v; want the live item only", stat, err)
		}
		cancel()
		<-done
	})
}

// stuck is a driver on a dead disk: it does not even notice that its context ended.
type stuck struct {
	state.Driver
	free chan struct{}
}

func (d stuck) Put(context.Context, []state.Item, state.Lease) error { <-d.free; return nil }

func (d stuck) Get(context.Context, string, time.Time) ([]byte, error) { <-d.free; return nil, nil }

func TestStuckDriver(t *testing.T) {
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
		// It is left alone for a while: nobody waits for it again.
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
		// A caller who had no more time says nothing of the store.
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

// failing is a driver that answers with one error.
type failing struct {
	state.Driver
	err error
}

func (d failing) Stat(context.Context) (state.Stat, error) { return state.Stat{}, d.err }

func (d failing) Get(context.Context, string, time.Time) ([]byte, error) { return nil, d.err }

func (d failing) Close() error { return d.err }

func TestFailingDriver(t *testing.T) {
	broken := errors.New("broken")
	for err, want := range map[error]fault.Kind{
		broken:           fault.Unavailable,
		state.ErrUnknown: fault.Unknown,
		state.ErrClosed:  fault.Unavailable,
		context.Canceled: fault.Unavailable, // not ours: nobody left
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

// noting remembers the leases it was asked for.
type noting struct {
	state.Driver
	leases []state.Lease
}

func (d *noting) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	d.leases = append(d.leases, lease)
	return d.Driver.Touch(ctx, group, lease)
}

func TestLease(t *testing.T) {
	d := &noting{Driver: memory.New()}
	with(t, d, func(t *testing.T, s *state.Store) {
		put(t, s, "a")
		time.Sleep(1500 * time.Microsecond)
		if _, err := s.Touch(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		l := d.leases[0]
		if l.Seen.Nanosecond()%1e6 != 0 || l.Expires.Sub(l.Seen) != time.Hour {
			t.Errorf("lease %+v: want whole milliseconds, an hour", l)
		}
		if l.Grain <= 0 || l.Grain > 20*time.Second {
			t.Errorf("a grain of %v is not small beside ten minutes", l.Grain)
		}
	})
}
