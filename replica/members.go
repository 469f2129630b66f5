package replica

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

const (
	memberLifetime = 10 * time.Second
	joinInterval   = 2 * time.Second
	memberSet      = "replicas"
)

// Members counts the processes that share a store.
type Members struct {
	count atomic.Int64
	end   context.CancelFunc
	ended chan struct{}
}

// Join makes this process one of the members, until Close. A process that ends without it is counted for ten seconds more.
func Join(ctx context.Context, leases state.Leases) *Members {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &Members{end: cancel, ended: make(chan struct{})}
	m.count.Store(1)
	id := rand.Text()
	failed := false
	join := func() {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		members, err := leases.Join(ctx, memberSet, id, memberLifetime)
		if err != nil {
			slog.DebugContext(ctx, "the replicas were not counted: the last count stays", "error", err)
			failed = true
			return
		}
		// While the store was away, memberships have ended: the others join again now, too.
		if n := int64(len(members)); !failed || n > m.count.Load() {
			m.count.Store(n)
		}
		failed = false
	}
	join()
	go func() {
		defer close(m.ended)
		tick := time.NewTicker(joinInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				join()
			case <-ctx.Done():
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
				defer cancel()
				if err := leases.Leave(ctx, memberSet, id); err != nil {
					slog.DebugContext(ctx, "this process did not leave the replicas; others count it for a moment longer", "error", err)
				}
				return
			}
		}
	}()
	return m
}

// Count is how many there are, this one included. While the store does not answer, it is the last that was known.
func (m *Members) Count() int { return int(m.count.Load()) }

// Close leaves the members.
func (m *Members) Close() {
	m.end()
	<-m.ended
}
