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

// At the cap a Put removes what it needs, and nothing that has expired beyond that: whoever sweeps
// more than needed makes somebody wait for it.
func TestPutRemovesOnlyWhatItNeeds(t *testing.T) {
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

// Room is made before a Put has to wait for it.
func TestRoomIsMadeInTheBackground(t *testing.T) {
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

// The background sweeps for all stores over one driver.
func TestRoomIsMadeForALastingStoreToo(t *testing.T) {
	with(t, memory.New(), func(t *testing.T, s *state.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for i := range 9 {
			put(t, s, fmt.Sprint(i))
		}
		time.Sleep(20 * time.Minute)
		put(t, s.Lasting(9*time.Hour), "9")
		synctest.Wait()
		if stat, err := s.Stat(t.Context()); err != nil || stat.Bytes != 900 {
			t.Errorf("%+v, %v; want 900 bytes, the low-water mark", stat, err)
		}
		time.Sleep(time.Hour)
		keeps(t, s, false, "8")
		keeps(t, s, true, "9")
	})
}

// slow is a driver whose sweeps take longer than anybody waits.
type slow struct {
	state.Driver
	sweeps atomic.Int64 // those that nobody waits for
}

func (d *slow) Sweep(ctx context.Context, sweep state.Sweep) (state.Swept, error) {
	if sweep.Need == 0 {
		d.sweeps.Add(1)
	}
	select {
	case <-time.After(30 * time.Second):
		return d.Driver.Sweep(ctx, sweep)
	case <-ctx.Done():
		return state.Swept{}, ctx.Err()
	}
}

// A slow sweep costs who needs its room a place in the store; everybody else goes on.
func TestSlowSweepDoesNotSwitchTheStoreOff(t *testing.T) {
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

// Where everything is spared, the background does not sweep for every Put.
func TestBackgroundRestsWhenAllIsSpared(t *testing.T) {
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

// Pinned groups are not evicted, do not count towards the cap, and have a bound of their own.
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

// What is relied on without asking is spared for at least twice as long.
func TestAckAgeIsAtMostHalfOfSpare(t *testing.T) {
	for _, spare := range []time.Duration{0, time.Second, 4 * time.Minute, time.Hour} {
		config := state.Default()
		config.Spare = unit.Duration(spare)
		s := state.New(memory.New(), config, time.Now)
		if age := s.AckAge(); age > spare/2 || age > state.MaxAckAge/2 {
			t.Errorf("with spare = %v an acknowledgement counts for %v", spare, age)
		}
	}
}
