package replica_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// cutOff is the leases of a replica that may lose its connection to the store.
type cutOff struct {
	state.Leases
	isCut atomic.Bool
}

// Hold fails while the replica is cut off.
func (l *cutOff) Hold(ctx context.Context, key string, value []byte, lifetime time.Duration) (bool, error) {
	if l.isCut.Load() {
		return false, errors.New("cut off")
	}
	return l.Leases.Hold(ctx, key, value, lifetime)
}

// One replica leads at a time: one that is cut off from the store stops before another starts, however long its stop
// takes within the grace period, and one that ends is replaced at once.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		const grace = 3 * time.Second
		var leading [3]atomic.Bool
		var count atomic.Int32
		var links [3]*cutOff
		var ends [3]func()
		for i := range links {
			links[i] = &cutOff{Leases: store}
			r, err := replica.New(links[i], root(1))
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = r.Lead(t.Context(), "x", grace, func() {
				leading[i].Store(true)
				if count.Add(1) != 1 {
					t.Errorf("replica %d starts while another runs", i)
				}
			}, func() {
				time.Sleep(grace)
				count.Add(-1)
				leading[i].Store(false)
			})
		}
		leader := func() int {
			for i := range leading {
				if leading[i].Load() {
					return i
				}
			}
			return -1
		}
		time.Sleep(30 * time.Second)
		first := leader()
		if first != 0 {
			t.Fatalf("replica %d leads", first)
		}
		links[first].isCut.Store(true)
		time.Sleep(30 * time.Second)
		second := leader()
		if second < 1 {
			t.Fatalf("replica %d leads after the first was cut off", second)
		}
		links[first].isCut.Store(false)
		time.Sleep(30 * time.Second)
		if now := leader(); now != second {
			t.Errorf("replica %d leads when the first is back, not %d", now, second)
		}
		// A short failure of the store changes nothing.
		links[second].isCut.Store(true)
		time.Sleep(2 * time.Second)
		links[second].isCut.Store(false)
		time.Sleep(10 * time.Second)
		if now := leader(); now != second {
			t.Errorf("replica %d leads after a short failure, not %d", now, second)
		}
		ends[second]()
		time.Sleep(2 * time.Second)
		if now := leader(); now < 0 || now == second {
			t.Errorf("replica %d leads after the end of %d", now, second)
		}
		for _, end := range ends {
			end()
		}
		if leader() >= 0 {
			t.Error("a replica that has ended leads")
		}
	})
}
