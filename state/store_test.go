package state_test

import (
	"context"
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

// with runs a test in fake time, on a store with a cap of 1000 bytes, a ttl of an hour and a spare time
// of ten minutes.
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

// item is a group of its own of 100 bytes.
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
		if want && err != nil || !want && fault.KindOf(err) != fault.UnknownHandle {
			t.Errorf("Get(%s): %v; want found %v", name, err, want)
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

func TestFullWhenAllIsSpared(t *testing.T) {
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

// Concurrent Puts do not exceed the cap together.
func TestConcurrentPutsStayWithinTheCap(t *testing.T) {
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

// noting records the leases that it gets.
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
		if l.LastUsed.Nanosecond()%1e6 != 0 || l.Expires.Sub(l.LastUsed) != time.Hour {
			t.Errorf("lease %+v: want whole milliseconds, an hour", l)
		}
		if l.Granularity <= 0 || l.Granularity > 20*time.Second {
			t.Errorf("a grain of %v is not small beside ten minutes", l.Granularity)
		}
	})
}
