package state_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// withShare runs a test in fake time on a store of 1000 bytes, of which one owner may have 400.
func withShare(t *testing.T, test func(t *testing.T, s *state.Store)) {
	synctest.Test(t, func(t *testing.T) {
		config := state.Default()
		config.TTL, config.Spare = unit.Duration(time.Hour), unit.Duration(10*time.Minute)
		config.MaxBytes, config.TenantShare = 1000, 0.4
		s := state.New(memory.New(), config, time.Now)
		defer s.Close()
		test(t, s)
	})
}

func itemOf(owner, name string) state.Item {
	i := item(name)
	i.Owner = owner
	return i
}

func bytesOf(t *testing.T, s *state.Store, owner string) int64 {
	t.Helper()
	owners, err := s.Owners(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owners {
		if o.Owner == owner {
			return o.Bytes
		}
	}
	return 0
}

// A tenant that has used up its share evicts its own oldest, and nothing of another.
func TestShareEvictsItsOwner(t *testing.T) {
	withShare(t, func(t *testing.T, s *state.Store) {
		for i := range 4 { // the oldest of all
			if err := s.Put(t.Context(), itemOf("b", fmt.Sprint("b", i))); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 40 { // ten times its share
			if err := s.Put(t.Context(), itemOf("a", fmt.Sprint("a", i))); err != nil {
				t.Fatalf("text %d: %v", i, err)
			}
			if n := bytesOf(t, s, "a"); n > 400 {
				t.Fatalf("%d bytes after text %d", n, i)
			}
			time.Sleep(time.Minute)
			for j := range 4 {
				if _, err := s.Touch(t.Context(), fmt.Sprint("b", j)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
		}
		keeps(t, s, true, "b0", "b1", "b2", "b3", "a39", "a38", "a37")
		keeps(t, s, false, "a0", "a35")
	})
}

// What is spared is not evicted for a share either: then its owner's Puts fail, and nobody else's.
func TestShareSpares(t *testing.T) {
	withShare(t, func(t *testing.T, s *state.Store) {
		for i := range 4 {
			if err := s.Put(t.Context(), itemOf("a", fmt.Sprint("a", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Put(t.Context(), itemOf("a", "new")); fault.KindOf(err) != fault.Full {
			t.Errorf("Put over the share = %v, want %v", err, fault.Full)
		}
		large := itemOf("c", "large")
		large.Value = make([]byte, 401)
		if err := s.Put(t.Context(), large); fault.KindOf(err) != fault.Full {
			t.Errorf("Put of more than the share = %v, want %v", err, fault.Full)
		}
		if err := s.Put(t.Context(), itemOf("b", "b")); err != nil {
			t.Errorf("Put of another: %v", err)
		}
		for i := range 5 { // the gateway itself has no share
			if err := s.Put(t.Context(), item(fmt.Sprint("own", i))); err != nil {
				t.Errorf("Put of the gateway: %v", err)
			}
		}
		keeps(t, s, true, "a0", "a3", "b", "own4")
		keeps(t, s, false, "new", "large")
		time.Sleep(11 * time.Minute)
		if err := s.Put(t.Context(), itemOf("a", "new")); err != nil {
			t.Error(err)
		}
		keeps(t, s, true, "new")
	})
}

// Puts in flight together stay within the share.
func TestConcurrentPutsStayWithinTheShare(t *testing.T) {
	withShare(t, func(t *testing.T, s *state.Store) {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := s.Put(t.Context(), itemOf("a", fmt.Sprint(i))); err != nil && fault.KindOf(err) != fault.Full {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := bytesOf(t, s, "a"); n == 0 || n > 400 {
			t.Errorf("%d bytes, want at most 400", n)
		}
	})
}

// A tenant that is over its share, as after the share was made smaller, is brought back to it in the background.
func TestBackgroundEnforcesShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := state.Default()
		config.TTL, config.Spare, config.MaxBytes = unit.Duration(9*time.Hour), unit.Duration(10*time.Minute), 1000
		d := memory.New()
		before := state.New(d, config, time.Now)
		for i := range 8 {
			if err := before.Put(t.Context(), itemOf("a", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := before.Put(t.Context(), itemOf("b", "b")); err != nil {
			t.Fatal(err)
		}
		config.TenantShare = 0.5
		s := state.New(d, config, time.Now)
		defer s.Close()
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		synctest.Wait()
		if n := bytesOf(t, s, "a"); n != 400 {
			t.Errorf("%d bytes, want at most 90 %% of the share", n)
		}
		keeps(t, s, true, "b", "7")
		keeps(t, s, false, "0")
	})
}
