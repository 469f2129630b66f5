// Package limit says how often a caller may call. Each key has a bucket of as many calls as the
// limit allows in a minute; it is full at first and refills evenly.
//
// Path through the files: limit.go holds the limiter and its table of keys; bucket.go the
// arithmetic of one bucket.
//
// Invariants: a key is never admitted more often than its bucket allows, to the nanosecond and
// without drift. Only a bucket that is full again is forgotten, when there is no room for a new
// key, so that a flood of keys cannot reset one that has used its calls up. There are never more
// than 10000 buckets: the keys that find no room share one. It depends on nothing but the clock
// it is given.
package limit

import (
	"sync"
	"time"
)

// maxKeys is how many callers have a bucket of their own.
const maxKeys = 10_000

// sweepEvery is how often a full table may be searched for buckets to forget.
const sweepEvery = time.Second

// Config is how often a client may call.
type Config struct {
	// Calls a client may make in a minute. Default 0: any number.
	PerMinute int `key:"rate_limit_per_minute" min:"0"`
}

// Limiter counts calls. It is safe for concurrent use.
type Limiter struct {
	now   func() time.Time
	start time.Time // what a bucket's times are counted from
	rate  rate

	mu     sync.Mutex
	keys   map[string]bucket
	shared bucket // of the keys that found no room
	swept  time.Duration
}

// New makes a limiter that reads the time from now.
func New(cfg Config, now func() time.Time) *Limiter {
	l := &Limiter{now: now, rate: rate(min(max(cfg.PerMinute, 0), maxRate))}
	if l.rate > 0 {
		l.start = now()
		l.keys = map[string]bucket{}
		l.swept = -sweepEvery
	}
	return l
}

// Take takes one call from the key's bucket. When there is none, wait is how long until there
// will be one, if nobody takes it first. The limiter remembers the key, which should be short.
func (l *Limiter) Take(key string) (wait time.Duration, ok bool) {
	if l.rate == 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
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
