package state

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
)

const (
	sweepEvery = time.Minute // how often Run removes expired groups; they are unreadable before that
	sweepPause = time.Second // how long Run pauses after a sweep that found nothing to remove

	// The background evicts from highWater percent of the cap down to lowWater.
	highWater = 95
	lowWater  = 90

	maxPinnedBytes = 8 << 20 // of all pinned groups together, beside the cap
)

// Store is a [Driver] with a clock, a lifetime, a size cap, a time limit and a circuit breaker.
type Store struct {
	*shared
	config Config
}

// shared is what all stores over one driver have in common.
type shared struct {
	driver   Driver
	now      func() time.Time
	breakers breakers

	pendingBytes atomic.Int64  // of the Puts in flight in this process
	evicting     chan struct{} // holds one token while a Put evicts
	nearCap      chan struct{} // holds one token while the background is to evict
	pendingOwned pendingOwned
}

// New makes a store over an open driver, which it then owns. The config must be valid.
func New(driver Driver, config Config, now func() time.Time) *Store {
	return &Store{&shared{driver: driver, now: now, evicting: make(chan struct{}, 1), nearCap: make(chan struct{}, 1)}, config}
}

// WithTTL returns the same store with another lifetime for what is put or touched through it. No
// lease shortens another. Run and Close of either store serve both.
func (s *Store) WithTTL(ttl time.Duration) *Store {
	config := s.config
	config.TTL = unit.Duration(ttl)
	return &Store{s.shared, config}
}

// TTL is how long what is put or touched stays.
func (s *Store) TTL() time.Duration { return s.config.TTL.D() }

// AckLifetime is how long an acknowledgement can be relied on without asking again, under one
// [Epoch]: far less than a group lives, and at most half of the spare time. It is 0 for a store that may lose what it acknowledged
// without a new epoch.
func (s *Store) AckLifetime() time.Duration {
	if s.config.Driver == "redis" && s.config.Durability == "none" {
		return 0
	}
	return min(MaxAckLifetime/2, s.config.TTL.D()/8, s.config.Spare.D()/2)
}

// Put stores all items or none. It returns [fault.Full] when the cap, or its owner's share of it, leaves no
// room for them.
func (s *Store) Put(ctx context.Context, items ...Item) error {
	_, err := s.putIn(ctx, items, func(ctx context.Context, lease Lease) (bool, error) {
		return true, s.driver.Put(ctx, items, lease)
	})
	return err
}

// PutIf is Put if a condition holds, and reports whether it held.
func (s *Store) PutIf(ctx context.Context, cond Condition, items ...Item) (bool, error) {
	return s.putIn(ctx, items, func(ctx context.Context, lease Lease) (bool, error) {
		return s.driver.PutIf(ctx, cond, items, lease)
	})
}

// putIn makes room for items and runs their put.
func (s *Store) putIn(ctx context.Context, items []Item, put func(context.Context, Lease) (bool, error)) (bool, error) {
	if len(items) == 0 {
		return true, nil
	}
	n := needOf(items)
	return guardWrite(ctx, s, func(ctx context.Context) (stored bool, err error) {
		s.pendingBytes.Add(n.bytes)
		defer s.pendingBytes.Add(-n.bytes)
		s.pendingOwned.addBytes(n.owner, n.bytes)
		defer s.pendingOwned.addBytes(n.owner, -n.bytes)
		if err := s.makeShareRoom(ctx, n); err != nil {
			return false, err
		}
		isNearCap, err := s.makeRoom(ctx, n)
		if err == nil {
			stored, err = put(ctx, s.newLease())
		}
		if isNearCap { // only now: a sweep that began earlier would not see these items
			select {
			case s.nearCap <- struct{}{}:
			default:
			}
		}
		return stored, err
	})
}

// Get reads the value back whose key is the name of its group, too; one that is absent or expired is
// [fault.UnknownHandle].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) { return s.GetIn(ctx, key, key) }

// GetIn reads a value of a group back.
func (s *Store) GetIn(ctx context.Context, group, key string) ([]byte, error) {
	return guardRead(ctx, s, func(ctx context.Context) ([]byte, error) {
		return s.driver.Get(ctx, group, key, s.clock())
	})
}

// GetQuick is Get for a value that every reply is looked up by. With a driver in the network it fails at once while
// the driver is slow: when no read was answered within 50 ms for a while, until one is.
func (s *Store) GetQuick(ctx context.Context, key string) ([]byte, error) {
	return guardQuick(ctx, s, func(ctx context.Context) ([]byte, error) {
		return s.driver.Get(ctx, key, key, s.clock())
	})
}

// Ready returns an error if a reply should not wait for the store now, because it is down or slow.
func (s *Store) Ready() error {
	if s.guardingQuick().refuses() {
		return errBreakerOpen
	}
	return nil
}

// List returns the first items that a request asks for, which need not say the time. It may have to look at all that
// is stored, so that the time limit of other operations does not apply.
func (s *Store) List(ctx context.Context, req ListRequest) ([]Entry, error) {
	req.Now = s.clock()
	return withTimeout(ctx, sweepEvery, func(ctx context.Context) ([]Entry, error) { return s.driver.List(ctx, req) })
}

// Now is the store's time, in whole milliseconds.
func (s *Store) Now() time.Time { return s.clock() }

// Touch renews the group's lease because it is used again. False means that the group is gone and its
// items have to be put again.
func (s *Store) Touch(ctx context.Context, group string) (bool, error) {
	return guardWrite(ctx, s, func(ctx context.Context) (bool, error) {
		return s.driver.Touch(ctx, group, s.newLease())
	})
}

// Drop removes a group.
func (s *Store) Drop(ctx context.Context, group string) error {
	_, err := guardWrite(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.driver.Drop(ctx, group)
	})
	return err
}

// DropOwners removes the groups of all owners whose names begin with prefix, except those of keep. There may be
// much to remove, so that the time limit of other operations does not apply.
func (s *Store) DropOwners(ctx context.Context, prefix, keep string) (SweepResult, error) {
	return withTimeout(ctx, sweepEvery, func(ctx context.Context) (SweepResult, error) {
		return s.driver.DropOwners(ctx, prefix, keep)
	})
}

// Owners says how much the owners have whose names begin with prefix.
func (s *Store) Owners(ctx context.Context, prefix string) ([]OwnerStat, error) {
	return guardRead(ctx, s, func(ctx context.Context) ([]OwnerStat, error) { return s.driver.Owners(ctx, prefix) })
}

// Stat says how much is stored.
func (s *Store) Stat(ctx context.Context) (Stat, error) {
	return guardRead(ctx, s, s.driver.Stat)
}

// Epoch tells whether the store still holds what it acknowledged; see [Epoch].
func (s *Store) Epoch(ctx context.Context) (Epoch, error) {
	return guardQuick(ctx, s, s.driver.Epoch)
}

// Run removes expired groups, at once and then every minute, and evicts when the store is near its
// cap, until ctx ends. A sweep that fails is logged and tried again.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for evict := false; ; {
		swept := s.sweepInBackground(ctx, evict)
		nearCap := s.nearCap
		var paused <-chan time.Time
		if evict && swept.Groups == 0 { // the rest is spared, and every Put would start a sweep
			nearCap, paused = nil, time.After(sweepPause)
		}
		for waiting := true; waiting; {
			select {
			case <-paused:
				nearCap, paused = s.nearCap, nil
			case <-nearCap:
				evict, waiting = true, false
			case <-tick.C:
				evict, waiting = false, false
			case <-ctx.Done():
				return
			}
		}
	}
}

// sweepInBackground may take as long as the pause between two sweeps: after a long stop there may be
// much to remove, and no caller waits for it.
func (s *Store) sweepInBackground(ctx context.Context, evict bool) SweepResult {
	req := s.newSweep(0)
	if evict {
		req.MaxBytes = req.MaxBytes / 100 * lowWater
	}
	swept, err := withTimeout(ctx, sweepEvery, func(ctx context.Context) (SweepResult, error) { return s.sweep(ctx, req) })
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "expired originals could not be removed from the store; the next sweep tries again", "error", err)
	} else if swept.Groups > 0 {
		slog.DebugContext(ctx, "expired originals were removed from the store", "groups", swept.Groups, "bytes", swept.Bytes)
	}
	if err := s.sweepShares(ctx); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "originals over a tenant's share could not be removed; the next sweep tries again", "error", err)
	}
	return swept
}

// sweep removes groups if the driver can.
func (s *Store) sweep(ctx context.Context, req SweepRequest) (SweepResult, error) {
	if driver, ok := s.driver.(Sweeper); ok {
		return driver.Sweep(ctx, req)
	}
	return SweepResult{}, nil
}

// Close closes the driver.
func (s *Store) Close() error {
	if err := s.driver.Close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

var (
	errFull       = fault.New(fault.Full, "the store is full")
	errPinnedFull = fault.New(fault.Full, "the store has no room for another token")
)

// need is the room that a Put needs.
type need struct {
	owner         string
	bytes, pinned int64
}

func needOf(items []Item) need {
	n := need{owner: items[0].Owner}
	for _, item := range items {
		if item.Pinned {
			n.pinned += item.Size()
		} else {
			n.bytes += item.Size()
		}
	}
	return n
}

// makeRoom returns nil when a Put's bytes fit, if necessary after an eviction, and says whether the store
// is then near its cap.
func (s *Store) makeRoom(ctx context.Context, n need) (isNearCap bool, err error) {
	if n.bytes > int64(s.config.MaxBytes) {
		return false, errFull // an eviction would empty the store for nothing
	}
	ok, isNearCap, err := s.fits(ctx, n)
	if ok || err != nil {
		return isNearCap, err
	}
	return true, s.evictInTime(ctx, func(ctx context.Context) error { return s.evict(ctx, n) })
}

// evictInTime runs an eviction. One that takes too long means a full store, not one that is down.
func (s *Store) evictInTime(ctx context.Context, evict func(context.Context) error) error {
	evictCtx, cancel := context.WithTimeout(ctx, s.config.Timeout.D()/2)
	defer cancel()
	err := evict(evictCtx)
	if err != nil && ctx.Err() == nil && evictCtx.Err() != nil {
		err = fault.Wrap(fault.Full, "the store is full: no room was made in time", err)
	}
	return err
}

// evict removes what has to go for the Puts in flight, and no more.
func (s *Store) evict(ctx context.Context, n need) error {
	select {
	case s.evicting <- struct{}{}:
		defer func() { <-s.evicting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Another Put's eviction, while this one waited, may have made room for both.
	if ok, _, err := s.fits(ctx, n); ok || err != nil {
		return err
	}
	for {
		sweep := s.newSweep(s.pendingBytes.Load())
		sweep.Owner = n.owner
		swept, err := s.sweep(ctx, sweep)
		if err != nil {
			return err
		}
		ok, _, err := s.fits(ctx, n)
		if ok || err != nil {
			return err
		}
		if swept.Groups == 0 {
			return errFull
		}
		// Puts that began during the sweep need room too.
	}
}

// fits compares the driver's total with the cap. The total is read each time, which is cheap: other
// processes may write to the same store.
func (s *Store) fits(ctx context.Context, n need) (ok, isNearCap bool, err error) {
	stat, err := s.driver.Stat(ctx)
	switch {
	case err != nil:
		return false, false, err
	case n.pinned > 0 && stat.Pinned+n.pinned > maxPinnedBytes:
		return false, false, errPinnedFull
	case n.bytes == 0:
		return true, false, nil
	}
	used, maxBytes := stat.Bytes+s.pendingBytes.Load(), int64(s.config.MaxBytes)
	return used <= maxBytes, used > maxBytes/100*highWater, nil
}

// clock is the time in whole milliseconds, as drivers store it.
func (s *Store) clock() time.Time { return s.now().Truncate(time.Millisecond) }

func (s *Store) newLease() Lease {
	now := s.clock()
	return Lease{LastUsed: now, Expires: now.Add(s.config.TTL.D()), Granularity: s.granularity()}
}

// granularity is small beside both times that a Touch moves.
func (s *Store) granularity() time.Duration {
	return min(s.config.TTL.D(), s.config.Spare.D()) / 32
}

func (s *Store) newSweep(need int64) SweepRequest {
	now := s.clock()
	// Touch may have left LastUsed behind by up to the granularity.
	spare := s.config.Spare.D() + s.granularity()
	return SweepRequest{Now: now, SpareAfter: now.Add(-spare), MaxBytes: int64(s.config.MaxBytes), Need: need}
}
