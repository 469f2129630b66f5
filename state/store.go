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
)

// sweepEvery is how often Run removes what has expired. Expiry does not wait for it.
const sweepEvery = time.Minute

// Store is a [Driver] with a clock, a lifetime, a cap and a time limit.
type Store struct {
	driver Driver
	config Config
	now    func() time.Time

	pending  atomic.Int64  // bytes of the Puts under way in this process
	sweeping chan struct{} // holds one token while a Put makes room
	resting  atomic.Int64  // until when nothing is asked, in nanoseconds of Unix
}

// New makes a store over an open driver, which it then owns. The config must be valid.
func New(driver Driver, config Config, now func() time.Time) *Store {
	return &Store{driver: driver, config: config, now: now, sweeping: make(chan struct{}, 1)}
}

// Lifetime is how long what is kept lives after it was last put or touched.
func (s *Store) Lifetime() time.Duration { return s.config.TTL.D() }

// Put keeps all items or none. It returns [fault.Full] when the cap leaves no room for them.
func (s *Store) Put(ctx context.Context, items ...Item) error {
	if len(items) == 0 {
		return nil
	}
	var need int64
	for _, item := range items {
		need += item.Size()
	}
	_, err := ask(ctx, s, func(ctx context.Context) (struct{}, error) {
		s.pending.Add(need)
		defer s.pending.Add(-need)
		if err := s.makeRoom(ctx, need); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, s.driver.Put(ctx, items, s.lease())
	})
	return err
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

// Run removes what has expired, at once and then every minute, until ctx ends. A sweep that
// fails is logged and tried again a minute later; until then only disk space is lost.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		// Long after a stop there may be much to remove, and nobody waits for it: this one
		// operation may take as long as the pause between two.
		swept, err := do(ctx, sweepEvery, func(ctx context.Context) (Swept, error) {
			return s.driver.Sweep(ctx, s.sweep(0))
		})
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "the store could not be swept", "error", err)
		} else if swept.Groups > 0 {
			slog.DebugContext(ctx, "the store was swept", "groups", swept.Groups, "bytes", swept.Bytes)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close closes the driver.
func (s *Store) Close() error {
	if err := s.driver.Close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// makeRoom returns nil when need more bytes fit under the cap, after one sweep if it takes one.
func (s *Store) makeRoom(ctx context.Context, need int64) error {
	if need > int64(s.config.MaxBytes) {
		return errFull // sweeping would empty the store for nothing
	}
	if ok, err := s.fits(ctx); ok || err != nil {
		return err
	}
	select {
	case s.sweeping <- struct{}{}:
		defer func() { <-s.sweeping }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Whoever swept while this one waited may have made room for both.
	if ok, err := s.fits(ctx); ok || err != nil {
		return err
	}
	// A little more than needed, so that a store at its cap is not swept by every Put.
	slack := int64(s.config.MaxBytes) / 32
	if _, err := s.driver.Sweep(ctx, s.sweep(s.pending.Load()+slack)); err != nil {
		return err
	}
	ok, err := s.fits(ctx)
	if err == nil && !ok {
		return errFull
	}
	return err
}

var errFull = fault.New(fault.Full, "the store is full")

// fits compares the driver's own total with the cap: it is one small read, and other
// processes may be writing to the same store.
func (s *Store) fits(ctx context.Context) (bool, error) {
	stat, err := s.driver.Stat(ctx)
	return err == nil && stat.Bytes+s.pending.Load() <= int64(s.config.MaxBytes), err
}

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
