package state_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// At the cap a Put evicts what it needs and no more, not even expired groups: its caller waits for it.
func TestPutEvictsOnlyWhatItNeeds(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		for i := range 10 {
			put(t, s, fmt.Sprint(i))
		}
		time.Sleep(2 * time.Hour) // all have expired
		put(t, s, "new")
		stat, err := s.Stat(t.Context())
		if err != nil || stat.Items != 10 {
			t.Errorf("%+v, %v; want nine of the ten, and the new one", stat, err)
		}
	})
}

// The background evicts before a Put has to wait for it.
func TestBackgroundEvicts(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for i := range 9 {
			put(t, s, fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Minute)
		put(t, s, "9") // 1000 of 1000 bytes
		synctest.Wait()
		if stat, err := s.Stat(t.Context()); err != nil || stat.Bytes != 900 {
			t.Errorf("%+v, %v; want 900 bytes, the low-water mark", stat, err)
		}
		keeps(t, s, false, "0")
		keeps(t, s, true, "1", "9")
	})
}

// The background evicts for all stores over one driver.
func TestBackgroundEvictsForAllStores(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for i := range 9 {
			put(t, s, fmt.Sprint(i))
		}
		time.Sleep(20 * time.Minute)
		put(t, s.WithTTL(9*time.Hour), "9")
		synctest.Wait()
		if stat, err := s.Stat(t.Context()); err != nil || stat.Bytes != 900 {
			t.Errorf("%+v, %v; want 900 bytes, the low-water mark", stat, err)
		}
		time.Sleep(time.Hour)
		keeps(t, s, false, "8")
		keeps(t, s, true, "9")
	})
}

// slow is a driver whose sweeps take longer than any timeout.
type slow struct {
	state.Driver
	sweeps atomic.Int64 // those in the background
}

func (d *slow) Sweep(ctx context.Context, sweep state.SweepRequest) (state.SweepResult, error) {
	if sweep.Need == 0 {
		d.sweeps.Add(1)
	}
	select {
	case <-time.After(30 * time.Second):
		return d.Driver.(state.Sweeper).Sweep(ctx, sweep)
	case <-ctx.Done():
		return state.SweepResult{}, ctx.Err()
	}
}

// A slow eviction fails the Put that needs it; other operations go on.
func TestSlowEvictionDoesNotOpenTheBreaker(t *testing.T) {
	d := &slow{Driver: memory.New()}
	with(t, d, func(t *testing.T, s *state.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for i := range 9 {
			put(t, s, fmt.Sprint(i))
		}
		time.Sleep(20 * time.Minute)
		began, before := time.Now(), d.sweeps.Load()
		put(t, s, "9") // from here on the background sweeps
		if took := time.Since(began); took != 0 {
			t.Errorf("a Put that fits waited %v for the background", took)
		}
		if err := s.Put(t.Context(), item("x")); fault.KindOf(err) != fault.Full {
			t.Errorf("Put into the full store: %v, want %v", err, fault.Full)
		}
		keeps(t, s, true, "9") // at once: the store is asked
		if found, err := s.Touch(t.Context(), "9"); !found || err != nil {
			t.Errorf("Touch = %v, %v", found, err)
		}
		time.Sleep(time.Minute)
		put(t, s, "x") // the background made room
		if n := d.sweeps.Load() - before; n > 5 {
			t.Errorf("%d sweeps", n)
		}
	})
}

// When everything is spared, the background does not sweep for every Put.
func TestBackgroundPausesWhenAllIsSpared(t *testing.T) {
	d := &slow{Driver: memory.New()}
	with(t, d, func(t *testing.T, s *state.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(time.Minute)
		before := d.sweeps.Load()
		for i := range 10 {
			put(t, s, fmt.Sprint(i))
		}
		for range 600 {
			_ = s.Put(t.Context(), item("0"))
			time.Sleep(100 * time.Millisecond)
		}
		if n := d.sweeps.Load() - before; n > 65 {
			t.Errorf("%d sweeps of which nothing came in a minute of 600 Puts", n)
		}
	})
}

// Pinned groups are not evicted, do not count towards the cap, and have a cap of their own.
func TestPinnedGroups(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		pinned := item("token")
		pinned.Pinned = true
		if err := s.Put(t.Context(), pinned); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		for i := range 20 {
			put(t, s, fmt.Sprint(i+10)) // a full cap beside it
			time.Sleep(90 * time.Second)
		}
		keeps(t, s, true, "token", "29")
		// With all of the cap spared a token still has its place.
		again := item("other")
		again.Pinned = true
		if err := s.Put(t.Context(), again); err != nil {
			t.Errorf("a token beside a full store: %v", err)
		}
		again.Key, again.Value = "large", make([]byte, 9<<20)
		if err := s.Put(t.Context(), again); fault.KindOf(err) != fault.Full {
			t.Errorf("tokens without a bound: %v", err)
		}
		time.Sleep(time.Hour)
		keeps(t, s, false, "token") // it expires as everything does
	})
}

// An acknowledgement is relied on for at most half of the spare time.
func TestAckLifetimeIsAtMostHalfOfSpare(t *testing.T) {
	for _, spare := range []time.Duration{0, time.Second, 4 * time.Minute, time.Hour} {
		config := state.Default()
		config.Spare = unit.Duration(spare)
		s := state.New(memory.New(), config, time.Now)
		if age := s.AckLifetime(); age > spare/2 || age > state.MaxAckLifetime/2 {
			t.Errorf("with spare = %v an acknowledgement counts for %v", spare, age)
		}
	}
}
