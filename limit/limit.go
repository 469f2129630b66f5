// Package limit says how often a caller may call. Each key has a bucket of as many calls as the
// limit allows in a minute; it is full at first and refills evenly.
//
// Path through the files: limit.go holds the limiter and its table of keys; bucket.go the
// arithmetic of one bucket.
//
// Invariants: a key is never admitted more often than its bucket allows, to the nanosecond and
// without drift. Only a bucket that is full again is forgotten, when there is no room for a new
// key, so that a flood of keys cannot reset one that has used its calls up. There are never more
// than 10000 buckets: the keys that find no room share one. A process has one limiter for all its
// doors. It depends on nothing but the clock it is given.
package limit

import (
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// maxKeys is how many callers have a bucket of their own.
const maxKeys = 10_000

// sweepEvery is how often a full table may be searched for buckets to forget.
const sweepEvery = time.Second

// Config is how often a client may call.
type Config struct {
	// Calls a client may make in a minute, over all listeners and doors together: requests and
	// notifications of MCP, each message of a batch, requests to models, calls of the pruner.
	// Default 0: any number.
	PerMinute int `key:"rate_limit_per_minute" min:"0"`
}

// Limiter counts calls. It is safe for concurrent use. A nil Limiter limits nothing.
type Limiter struct {
	now   func() time.Time
	start time.Time // what a bucket's times are counted from

	mu     sync.Mutex
	rate   rate
	keys   map[string]bucket
	shared bucket // of the keys that found no room
	swept  time.Duration
}

// New makes a limiter that reads the time from now.
func New(cfg Config, now func() time.Time) *Limiter {
	l := &Limiter{now: now}
	l.Apply(cfg)
	return l
}

// Apply puts another limit into force. Where it is the same, what callers have used up stays used up;
// otherwise all begin anew.
func (l *Limiter) Apply(cfg Config) {
	next := rate(min(max(cfg.PerMinute, 0), maxRate))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate != next {
		l.start = l.now()
		l.rate, l.keys, l.shared, l.swept = next, map[string]bucket{}, bucket{}, -sweepEvery
	}
}

// Admit takes one call from the key's bucket, or says that there is none and when there will be (A9).
func (l *Limiter) Admit(key string) error {
	wait, ok := l.Take(key)
	if ok {
		return nil
	}
	err := fault.New(fault.RateLimited, "Rate limit exceeded")
	err.RetryAfter = wait
	return err
}

// Take takes one call from the key's bucket. When there is none, wait is how long until there
// will be one, if nobody takes it first. The limiter remembers the key, which should be short.
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
	if !known && !l.room(now) {
		return l.rate.take(&l.shared, now)
	}
	wait, ok = l.rate.take(&b, now)
	if ok {
		l.keys[key] = b
	}
	return wait, ok
}

// room says whether one more key fits. Searching a full table takes as long as thousands of
// calls, so it is not done for every one of them.
func (l *Limiter) room(now time.Duration) bool {
	if len(l.keys) < maxKeys {
		return true
	}
	if now-l.swept < sweepEvery {
		return false
	}
	l.swept = now
	for key, b := range l.keys {
		if l.rate.full(b, now) {
			delete(l.keys, key)
		}
	}
	return len(l.keys) < maxKeys
}
