package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// sweepEvery is how often Run removes what has expired. Expiry does not wait for it.
const sweepEvery = time.Minute

// Room is made in the background once so much of the cap is taken, until less is.
const (
	highWater = 95 // percent
	lowWater  = 90
)

// maxPinned is the most that pinned groups may have together, beside the cap.
const maxPinned = 8 << 20

// sweepRest is how long the background rests after a sweep that found nothing to remove.
const sweepRest = time.Second

// Store is a [Driver] with a clock, a lifetime, a cap and a time limit.
type Store struct {
	*shared
	config Config
}

// shared is what stores over one driver have in common.
type shared struct {
	driver Driver
	now    func() time.Time

	pending  atomic.Int64  // bytes of the Puts under way in this process
	sweeping chan struct{} // holds one token while a Put makes room
	crowded  chan struct{} // holds one token while the background is to make room
	resting  atomic.Int64  // until when nothing is asked, in nanoseconds of Unix
}

// New makes a store over an open driver, which it then owns. The config must be valid.
func New(driver Driver, config Config, now func() time.Time) *Store {
	return &Store{&shared{driver: driver, now: now, sweeping: make(chan struct{}, 1), crowded: make(chan struct{}, 1)}, config}
}

// Lasting is the same store for what lives for another time: a lease is set by whoever puts or
// touches, and none shortens another's. Run and Close of either are those of both.
func (s *Store) Lasting(ttl time.Duration) *Store {
	config := s.config
	config.TTL = unit.Duration(ttl)
	return &Store{s.shared, config}
}

// AckAge is how old an acknowledgement may be that is relied on without asking again, under one
// [Epoch]: far less than the group lives, and at most half of the time for which it is spared.
func (s *Store) AckAge() time.Duration {
	return min(MaxAckAge/2, s.config.TTL.D()/8, s.config.Spare.D()/2)
}

// Put keeps all items or none. It returns [fault.Full] when the cap leaves no room for them.
func (s *Store) Put(ctx context.Context, items ...Item) error {
	if len(items) == 0 {
		return nil
	}
	var need, pinned int64
	for _, item := range items {
		if item.Pinned {
			pinned += item.Size()
		} else {
			need += item.Size()
		}
	}
	_, err := ask(ctx, s, func(ctx context.Context) (struct{}, error) {
		s.pending.Add(need)
		defer s.pending.Add(-need)
		isNear, err := s.makeRoom(ctx, need, pinned)
		if err == nil {
			err = s.driver.Put(ctx, items, s.lease())
		}
		if isNear { // told before, the background would not see what was put
			s.callBackground()
		}
		return struct{}{}, err
	})
	return err
}

// callBackground has Run make room, at once or after the sweep that is under way.
func (s *Store) callBackground() {
	select {
	case s.crowded <- struct{}{}:
	default:
	}
}

// Get reads a value back; a key that is absent or expired is [fault.Unknown].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	return ask(ctx, s, func(ctx context.Context) ([]byte, error) {
		return s.driver.Get(ctx, key, s.clock())
	})
}

// Touch starts the group's lifetime anew because it is shown again. False means that there is
// no such group any more and its items have to be put again.
func (s *Store) Touch(ctx context.Context, group string) (bool, error) {
	return ask(ctx, s, func(ctx context.Context) (bool, error) {
		return s.driver.Touch(ctx, group, s.lease())
	})
}

// Drop forgets a group.
func (s *Store) Drop(ctx context.Context, group string) error {
	_, err := ask(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.driver.Drop(ctx, group)
	})
	return err
}

// Stat says how much is kept.
func (s *Store) Stat(ctx context.Context) (Stat, error) {
	return ask(ctx, s, s.driver.Stat)
}

// Epoch tells whether the store is still the one that acknowledged something; see [Epoch].
func (s *Store) Epoch(ctx context.Context) (Epoch, error) {
	return ask(ctx, s, s.driver.Epoch)
}

// Run removes what has expired, at once and then every minute, and makes room when the store gets
// full, until ctx ends. A sweep that fails is logged and tried again.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for room := false; ; {
		swept := s.clean(ctx, room)
		crowded := s.crowded
		var rested <-chan time.Time
		if room && swept.Groups == 0 { // all that is left is spared: every Put would ask again
			crowded, rested = nil, time.After(sweepRest)
		}
		for waiting := true; waiting; {
			select {
			case <-rested:
				crowded, rested = s.crowded, nil
			case <-crowded:
				room, waiting = true, false
			case <-tick.C:
				room, waiting = false, false
			case <-ctx.Done():
				return
			}
		}
	}
}

// clean is one sweep that nobody waits for: long after a stop there may be much to remove, so that
// it may take as long as the pause between two.
func (s *Store) clean(ctx context.Context, room bool) Swept {
	sweep := s.sweep(0)
	if room {
		sweep.MaxBytes = sweep.MaxBytes / 100 * lowWater
	}
	swept, err := do(ctx, sweepEvery, func(ctx context.Context) (Swept, error) { return s.driver.Sweep(ctx, sweep) })
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "the store could not be swept", "error", err)
	} else if swept.Groups > 0 {
		slog.DebugContext(ctx, "the store was swept", "groups", swept.Groups, "bytes", swept.Bytes)
	}
	return swept
}

// Close closes the driver.
func (s *Store) Close() error {
	if err := s.driver.Close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// makeRoom returns no error when so many more bytes fit, after one sweep if it takes one, and says
// whether the store is near its cap with them.
func (s *Store) makeRoom(ctx context.Context, need, pinned int64) (isNear bool, err error) {
	if need > int64(s.config.MaxBytes) {
		return false, errFull // sweeping would empty the store for nothing
	}
	ok, isNear, err := s.fits(ctx, need, pinned)
	if ok || err != nil {
		return isNear, err
	}
	// A store in which no room can be made in time is full; it is not one that does not answer.
	sweeping, cancel := context.WithTimeout(ctx, s.config.Timeout.D()/2)
	defer cancel()
	err = s.evict(sweeping, need, pinned)
	if err != nil && ctx.Err() == nil && sweeping.Err() != nil {
		err = fault.Wrap(fault.Full, "the store is full: no room was made in time", err)
	}
	return true, err
}

// evict removes what has to go for the Puts under way, and no more.
func (s *Store) evict(ctx context.Context, need, pinned int64) error {
	select {
	case s.sweeping <- struct{}{}:
		defer func() { <-s.sweeping }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Whoever swept while this one waited may have made room for both.
	if ok, _, err := s.fits(ctx, need, pinned); ok || err != nil {
		return err
	}
	if _, err := s.driver.Sweep(ctx, s.sweep(s.pending.Load())); err != nil {
		return err
	}
	ok, _, err := s.fits(ctx, need, pinned)
	if err == nil && !ok {
		return errFull
	}
	return err
}

var errFull = fault.New(fault.Full, "the store is full")

// fits compares the driver's own total with the cap: it is one small read, and other
// processes may be writing to the same store. It also says whether the total is near the cap.
func (s *Store) fits(ctx context.Context, need, pinned int64) (ok, isNear bool, err error) {
	stat, err := s.driver.Stat(ctx)
	switch {
	case err != nil:
		return false, false, err
	case pinned > 0 && stat.Pinned+pinned > maxPinned:
		return false, false, errPinned
	case need == 0:
		return true, false, nil
	}
	taken, most := stat.Bytes+s.pending.Load(), int64(s.config.MaxBytes)
	return taken <= most, taken > most/100*highWater, nil
}

var errPinned = fault.New(fault.Full, "the store has no room for another token")

// clock is now in the whole milliseconds that drivers keep.
func (s *Store) clock() time.Time { return s.now().Truncate(time.Millisecond) }

func (s *Store) lease() Lease {
	now := s.clock()
	return Lease{Seen: now, Expires: now.Add(s.config.TTL.D()), Grain: s.grain()}
}

// grain is small beside both spans that a touch renews.
func (s *Store) grain() time.Duration {
	return min(s.config.TTL.D(), s.config.Spare.D()) / 32
}

func (s *Store) sweep(need int64) Sweep {
	now := s.clock()
	// A touch may have left Seen behind by up to the grain: what was shown then is spared too.
	spare := s.config.Spare.D() + s.grain()
	return Sweep{Now: now, SpareAfter: now.Add(-spare), MaxBytes: int64(s.config.MaxBytes), Need: need}
}

// do runs one operation under a time limit. The driver works beside the caller, so that one
// that is stuck in a system call, as on a dead disk, holds up nobody; how many can be stuck at
// once is bounded by the driver's connections.
func do[T any](ctx context.Context, limit time.Duration, op func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	done := make(chan answer, 1)
	go func() {
		defer cancel() // after the answer is there, or the caller would take it for its own end
		defer func() {
			if p := recover(); p != nil { // a driver's mistake is a store that cannot be used
				done <- answer{err: classify(ctx, fmt.Errorf("the driver panicked: %v\n%s", p, debug.Stack()))}
			}
		}()
		value, err := op(ctx)
		done <- answer{value, classify(ctx, err)}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		return a.value, a.err
	default:
		var none T
		return none, classify(ctx, ctx.Err())
	}
}

// restFactor is for how many times the time limit nothing is asked after something took too long:
// whoever asks meanwhile is told at once, instead of waiting as long.
const restFactor = 5

var errResting = fault.New(fault.Unavailable, "the store is not asked for now: it did not answer in time")

// ask is do, for a store that answers. One that lets its whole time limit pass is left alone for a
// while.
func ask[T any](ctx context.Context, s *Store, op func(context.Context) (T, error)) (T, error) {
	begun, limit := time.Now(), s.config.Timeout.D()
	if begun.UnixNano() < s.resting.Load() {
		var none T
		return none, errResting
	}
	value, err := do(ctx, limit, op)
	if now := time.Now(); err != nil && fault.KindOf(err) == fault.Timeout && now.Sub(begun) >= limit {
		s.resting.Store(now.Add(restFactor * limit).UnixNano())
	}
	return value, err
}

// classify gives a driver's plain error its kind.
func classify(ctx context.Context, err error) error {
	var classified *fault.Error
	switch {
	case err == nil, errors.As(err, &classified):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "the store did not answer in time", err)
	case ctx.Err() != nil:
		return fault.Wrap(fault.Canceled, "the store was not waited for", err)
	}
	return fault.Wrap(fault.Unavailable, "the store cannot be used", err)
}
