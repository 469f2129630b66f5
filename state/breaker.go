package state

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// breaker is a circuit breaker: after an operation that used up its whole time limit, the driver is
// not called for a while and callers get [errBreakerOpen] at once, instead of waiting as long.
type breaker struct {
	openUntil atomic.Int64 // in Unix nanoseconds
}

// openFactor is for how many time limits the breaker stays open.
const openFactor = 5

var errBreakerOpen = fault.New(fault.Unavailable, "the store is unavailable: its circuit breaker is open after a timeout")

// guard runs an operation of the driver under the store's time limit, unless the breaker is open.
func guard[T any](ctx context.Context, s *Store, op func(context.Context) (T, error)) (T, error) {
	start, limit := time.Now(), s.config.Timeout.D()
	if start.UnixNano() < s.breaker.openUntil.Load() {
		var none T
		return none, errBreakerOpen
	}
	value, err := withTimeout(ctx, limit, op)
	if now := time.Now(); err != nil && fault.KindOf(err) == fault.Timeout && now.Sub(start) >= limit {
		s.breaker.openUntil.Store(now.Add(openFactor * limit).UnixNano())
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
