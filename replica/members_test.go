package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// awayLeases fail while they are away.
type awayLeases struct {
	state.Leases
	isAway atomic.Bool
}

var errAway = errors.New("the store is away")

func (l *awayLeases) Join(ctx context.Context, set, member string, lifetime time.Duration) ([]string, error) {
	if l.isAway.Load() {
		return nil, errAway
	}
	return l.Leases.Join(ctx, set, member, lifetime)
}

func TestMembersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &awayLeases{Leases: memory.New()}
		first, second := Join(t.Context(), leases), Join(t.Context(), leases)
		third := Join(t.Context(), leases)
		counts := func(want int) {
			t.Helper()
			time.Sleep(joinInterval + time.Millisecond)
			if a, b := first.Count(), second.Count(); a != want || b != want {
				t.Errorf("%d and %d replicas are counted; want %d", a, b, want)
			}
		}
		counts(3)
		leases.isAway.Store(true)
		counts(3) // the last count
		time.Sleep(time.Minute)
		leases.isAway.Store(false)
		counts(3)
		third.Close()
		counts(2)
		first.Close()
		second.Close()
	})
}
