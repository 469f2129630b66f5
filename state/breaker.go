package state

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

const (
	probeEvery = 250 * time.Millisecond // how often a driver is probed while a breaker is open
	probeWait  = 100 * time.Millisecond // how long a read waits for a probe
	probeCount = 8                      // groups that a probe of writes puts, so that several servers take part

	slowRead  = 50 * time.Millisecond // a quick read that takes longer is slow
	slowReads = 8                     // so many in a row open the breaker,
	slowFor   = time.Second           // if none was quick for so long: a disk that syncs delays all of them for a moment
)

// breaker is a circuit breaker: while it is open, the driver is not called and callers get [errBreakerOpen] at once,
// instead of waiting. No caller has to try whether the driver works again: a probe in the background does.
type breaker struct {
	open atomic.Bool

	mu        sync.Mutex
	nextProbe time.Time
	probing   chan struct{} // closed when the probe that runs has ended; nil if none runs
}

var errBreakerOpen = fault.New(fault.Unavailable, "the store is unavailable: its circuit breaker is open after a timeout")

func (b *breaker) trip() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextProbe = time.Now().Add(probeEvery)
	b.open.Store(true)
}

// guarding is how a kind of operations is guarded.
type guarding struct {
	breaker *breaker
	probe   func(context.Context) error
	limit   time.Duration // of an operation, and of a probe
	quick   time.Duration // a probe that takes longer does not close the breaker; it may have made a connection
	wait    time.Duration // how long a caller waits for a probe: who asks first after an outage is to get an answer
}

// refuses reports whether the breaker is open, and sees to it that the driver is probed now and then. A probe that works
// closes the breaker. One that is stuck is the only one.
func (g guarding) refuses() bool {
	if !g.breaker.open.Load() {
		return false
	}
	probing := g.startProbe()
	if probing == nil || g.wait == 0 {
		return true
	}
	select {
	case <-probing:
	case <-time.After(g.wait):
	}
	return g.breaker.open.Load()
}

// startProbe returns the probe that runs, nil if it is too early for another.
func (g guarding) startProbe() <-chan struct{} {
	b := g.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probing != nil || time.Now().Before(b.nextProbe) {
		return b.probing
	}
	done := make(chan struct{})
	b.probing = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), g.limit)
		defer cancel()
		start := time.Now()
		err := runProbe(ctx, g.probe)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probing, b.nextProbe = nil, time.Now().Add(probeEvery)
		if time.Since(start) < g.quick && !isDown(err) {
			b.open.Store(false)
		}
	}()
	return done
}

func runProbe(ctx context.Context, probe func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver panicked: %v", p)
		}
	}()
	return probe(ctx)
}

// isDown tells errors of a driver that does not work from those of one that refuses, because it is full or has no such
// key.
func isDown(err error) bool {
	if err == nil {
		return false
	}
	switch fault.KindOf(classify(context.Background(), err)) {
	case fault.Timeout, fault.Canceled, fault.Unavailable:
		return true
	default:
		return false
	}
}

// breakers are those of one driver. A store that cannot write may still be read.
type breakers struct {
	reads, writes breaker // open after an operation that used up its whole time limit
	quick         quickBreaker
}

func (s *shared) probeRead(ctx context.Context) error {
	_, err := s.driver.Epoch(ctx)
	return err
}

// probeWrite puts tiny items that expire at once, one of them where large values are stored.
func (s *shared) probeWrite(ctx context.Context) error {
	now := s.now().Truncate(time.Millisecond)
	items := make([]Item, probeCount)
	for i := range items {
		name := fmt.Sprint("probe ", i)
		items[i] = Item{Key: name, Group: name, Blob: i == 0}
	}
	return s.driver.Put(ctx, items, Lease{LastUsed: now, Expires: now.Add(time.Second)})
}

// guardRead runs an operation that reads under the store's time limit, unless the breaker is open.
func guardRead[T any](ctx context.Context, s *Store, op func(context.Context) (T, error)) (T, error) {
	return guard(ctx, s.guardingReads(probeWait), op)
}

// guardWrite is guardRead for an operation that changes the store.
func guardWrite[T any](ctx context.Context, s *Store, op func(context.Context) (T, error)) (T, error) {
	limit := s.config.Timeout.D()
	return guard(ctx, guarding{breaker: &s.breakers.writes, probe: s.probeWrite, limit: limit, quick: limit}, op)
}

func (s *Store) guardingReads(wait time.Duration) guarding {
	limit := s.config.Timeout.D()
	return guarding{breaker: &s.breakers.reads, probe: s.probeRead, limit: limit, quick: limit, wait: wait}
}

// guardingQuick is for reads that every reply waits for.
func (s *Store) guardingQuick() guarding {
	return guarding{breaker: &s.breakers.quick.breaker, probe: s.probeRead, limit: s.config.Timeout.D(), quick: slowRead}
}

func guard[T any](ctx context.Context, g guarding, op func(context.Context) (T, error)) (T, error) {
	if g.refuses() {
		var none T
		return none, errBreakerOpen
	}
	start := time.Now()
	value, err := withTimeout(ctx, g.limit, op)
	if err != nil && fault.KindOf(err) == fault.Timeout && time.Since(start) >= g.limit {
		g.breaker.trip()
	}
	return value, err
}

// quickBreaker is for reads that every reply waits for, whether anything is stored or not. It opens long before a time
// limit is used up: when none was quick for a while and several were not, because they are slow, stuck or fail.
type quickBreaker struct {
	breaker
	lastQuick atomic.Int64 // in Unix nanoseconds
	slow      atomic.Int32 // since then
}

// noteQuick is called when a read was quick, noteSlow as soon as one is not.
func (q *quickBreaker) noteQuick() {
	q.lastQuick.Store(time.Now().UnixNano())
	q.slow.Store(0)
}

func (q *quickBreaker) noteSlow() {
	if q.slow.Add(1) >= slowReads && time.Since(time.Unix(0, q.lastQuick.Load())) >= slowFor {
		q.slow.Store(0)
		q.trip()
	}
}

// guardQuick runs a read that every reply waits for. When the breaker opens meanwhile, the read is abandoned.
func guardQuick[T any](ctx context.Context, s *Store, op func(context.Context) (T, error)) (T, error) {
	q := &s.breakers.quick
	if s.config.Driver != "redis" { // a local store has no network that could be slow
		return guard(ctx, s.guardingReads(0), op)
	}
	if s.guardingQuick().refuses() {
		var none T
		return none, errBreakerOpen
	}
	reading, abandon := context.WithCancel(ctx)
	defer abandon()
	start := time.Now()
	var isSlow atomic.Bool
	var watch func()
	watch = func() {
		if reading.Err() != nil {
			return
		}
		if isSlow.CompareAndSwap(false, true) {
			q.noteSlow()
		}
		if q.open.Load() {
			abandon()
			return
		}
		time.AfterFunc(slowRead, watch)
	}
	defer time.AfterFunc(slowRead, watch).Stop()
	value, err := withTimeout(reading, s.config.Timeout.D(), op)
	switch {
	case reading.Err() != nil && ctx.Err() == nil:
		err = errBreakerOpen
	case isDown(err) && ctx.Err() == nil:
		if isSlow.CompareAndSwap(false, true) {
			q.noteSlow()
		}
	case time.Since(start) < slowRead:
		q.noteQuick()
	}
	return value, err
}

// withTimeout runs an operation in a goroutine of its own, so that a driver that is stuck in a system
// call, as on a dead disk, does not block its caller. The driver's connections bound how many can be
// stuck at once. A panic of the driver becomes an error.
func withTimeout[T any](ctx context.Context, limit time.Duration, op func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	done := make(chan answer, 1)
	go func() {
		defer cancel() // after the answer is sent, or the caller would see its context end first
		defer func() {
			if p := recover(); p != nil {
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
