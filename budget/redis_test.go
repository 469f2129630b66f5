package budget

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/redis"
)

// Four processes share a budget in Redis: requests at the same time exceed it by at most one of them, and what each used
// adds up.
func TestReplicasShareABudget(t *testing.T) {
	const replicas, limit, each = 4, 1_000_000, 45_000 // 22 requests are within it, the 23rd goes beyond
	for _, mode := range []redisserver.Mode{redisserver.Single, redisserver.Cluster} {
		t.Run(string(mode), func(t *testing.T) {
			server := redisserver.Start(t, mode, redisserver.Options{})
			cfg := state.Default()
			cfg.Timeout = unit.Duration(20 * time.Second) // a busy machine must not look like a store that is away
			var trackers []*Tracker
			var drivers []*redis.Driver
			c := newClock()
			for range replicas {
				d, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), Durability: "wait-all"})
				if err != nil {
					t.Fatal(err)
				}
				store := state.New(d, cfg, c.now)
				t.Cleanup(func() { _ = store.Close() })
				drivers = append(drivers, d)
				trackers = append(trackers, New(configOf(func(e *Entry) { e.Tokens = limit }), store, c.now))
			}
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					r, err := trackers[i%replicas].Reserve(context.Background(), "a", Amount{1, each, 0})
					if err != nil {
						if fault.KindOf(err) != fault.RateLimited && fault.KindOf(err) != fault.OverBudget {
							t.Error(err)
						}
						return
					}
					admitted.Add(1)
					r.Settle(Amount{1, each, 0})
				})
			}
			wg.Wait()
			for _, tr := range trackers {
				tr.Close()
			}
			used := admitted.Load() * each
			if used > limit+each || used < limit-each {
				t.Errorf("%d requests used %d of %d", admitted.Load(), used, limit)
			}
			// A process that starts now finds what all of them used.
			fresh := New(configOf(func(e *Entry) { e.Tokens = limit }), state.New(drivers[0], cfg, c.now), c.now)
			if used < limit { // the others were refused while the rest was reserved
				if err := spend(t, fresh, "a", Amount{1, limit - used, 0}); err != nil {
					t.Error(err)
				}
			}
			c.pass(freshFor)
			err := spend(t, fresh, "a", Amount{1, each, 0})
			fresh.Close()
			if fault.KindOf(err) != fault.OverBudget {
				t.Errorf("after all of them: %v", err)
			}
		})
	}
}
