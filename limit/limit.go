// Package limit limits how often a caller may call, and how much it may have in flight.
//
// A [Limiter] has a token bucket for each key, of as many calls as the limit allows in a minute; it is
// full at first and refills evenly. [Slots] bounds what is in flight.
//
// Invariants of the limiter: a key is never admitted more often than its bucket allows, to the nanosecond and
// without drift. Only a bucket that is full again is removed, when there is no room for a new key, so
// that a flood of keys cannot reset one that has used its calls up. There are never more than 10000
// buckets: the keys beyond that share one. A process has one limiter for all its endpoints. It
// depends on nothing but the clock it is given.
package limit

import (
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// maxKeys is how many callers have a bucket of their own.
const maxKeys = 10_000

// sweepEvery is how often a full table is searched for buckets to remove, which takes as long as
// thousands of calls.
const sweepEvery = time.Second

// Config is how often a client may call.
type Config struct {
	// How many calls a client may make per minute, over all listeners and endpoints together: MCP requests
	// and notifications, each message of a batch, requests to models, calls of the pruner. Default 0: any
	// number.
	PerMinute int `key:"rate_limit_per_minute" min:"0"`
}

// Limiter counts calls. It is safe for concurrent use. A nil Limiter limits nothing.
type Limiter struct {
	now   func() time.Time
	start time.Time // the times of buckets count from here

	mu        sync.Mutex
	rate      rate
	keys      map[string]bucket
	shared    bucket // of the keys beyond maxKeys
	lastSweep time.Duration
}

// New makes a limiter that reads the time from now.
func New(cfg Config, now func() time.Time) *Limiter {
	l := &Limiter{now: now}
	l.Apply(cfg)
	return l
}

// Apply sets another limit. If it is the same, used calls stay used; otherwise all buckets are full
// again.
func (l *Limiter) Apply(cfg Config) {
	next := rate(min(max(cfg.PerMinute, 0), maxRate))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate != next {
		l.start = l.now()
		l.rate, l.keys, l.shared, l.lastSweep = next, map[string]bucket{}, bucket{}, -sweepEvery
	}
}

// Admit takes one call from the key's bucket. When there is none it returns an error of kind
// RateLimited that says when there will be one (A9).
func (l *Limiter) Admit(key string) error {
	wait, ok := l.Take(key)
	if ok {
		return nil
	}
	err := fault.New(fault.RateLimited, "Rate limit exceeded")
	err.RetryAfter = wait
	return err
}

// Take takes one call from the key's bucket. When there is none, wait is how long until there will be
// one, if no other call takes it first. The limiter stores the key, which should be short.
func (l *Limiter) Take(key string) (wait time.Duration, ok bool) {
	if l == nil {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return 0, true
	}
	now := l.now().Sub(l.start)
	b, known := l.keys[key]
	if !known && !l.hasRoom(now) {
		return l.rate.takeCall(&l.shared, now)
	}
	wait, ok = l.rate.takeCall(&b, now)
	if ok {
		l.keys[key] = b
	}
	return wait, ok
}

// hasRoom says whether one more key fits.
func (l *Limiter) hasRoom(now time.Duration) bool {
	if len(l.keys) < maxKeys {
		return true
	}
	if now-l.lastSweep < sweepEvery {
		return false
	}
	l.lastSweep = now
	for key, b := range l.keys {
		if l.rate.isFull(b, now) {
			delete(l.keys, key)
		}
	}
	return len(l.keys) < maxKeys
}

// bucket is a token bucket as in the generic cell rate algorithm (GCRA), without its rounding. GCRA
// stores the one time at which the bucket will be full again, and moves it by a minute/rate for each
// call; since most rates do not divide a minute, the sum drifts. Here that time is the expression
// since + calls × minute/rate, computed when it is needed. The zero bucket is full.
type bucket struct {
	since time.Duration
	calls int64
}

// rate is the calls per minute.
type rate int64

// maxRate is beyond what a process can serve, and small enough for times to be computed exactly.
const maxRate = 100_000_000

// refillTime is how long a bucket takes to gain n calls, rounded up to the nanosecond.
func (r rate) refillTime(n int64) time.Duration {
	minutes, rest := n/int64(r), n%int64(r)
	return time.Duration(minutes)*time.Minute +
		time.Duration((rest*int64(time.Minute)+int64(r)-1)/int64(r))
}

// isFull says whether the bucket has all its calls, and so can be removed.
func (r rate) isFull(b bucket, now time.Duration) bool {
	return now >= b.since+r.refillTime(b.calls)
}

// takeCall takes a call, or says how long it will take to have one.
func (r rate) takeCall(b *bucket, now time.Duration) (wait time.Duration, ok bool) {
	if r.isFull(*b, now) {
		*b = bucket{since: now}
	}
	// The first calls come out of the full bucket; the one after them needs one to be refilled.
	if refilled := b.calls + 1 - int64(r); refilled > 0 {
		if wait := b.since + r.refillTime(refilled) - now; wait > 0 {
			return wait, false
		}
	}
	b.calls++
	// As many calls as a whole minute has become a minute, which keeps the numbers small.
	if b.calls == 2*int64(r) {
		b.since += time.Minute
		b.calls -= int64(r)
	}
	return 0, true
}

// Slots bounds how much is in flight at once, in all and for one caller. The zero Slots is ready
// for use.
type Slots struct {
	mu       sync.Mutex
	inFlight int
	byCaller map[string]int // without callers that have nothing in flight
}

// Acquire takes one of total slots for a caller, who may have three quarters of them. release gives
// the slot back; it is nil when there is none.
func (s *Slots) Acquire(caller string, total int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight >= total || s.byCaller[caller] >= max(1, total-total/4) {
		return nil
	}
	if s.byCaller == nil {
		s.byCaller = map[string]int{}
	}
	s.inFlight++
	s.byCaller[caller]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
		if s.byCaller[caller]--; s.byCaller[caller] == 0 {
			delete(s.byCaller, caller)
		}
	})
}
