package limit

import "time"

// bucket is the generic cell rate algorithm, GCRA, without its rounding. That keeps for each key
// the one time at which its bucket will be full again, and moves it on by a minute/rate for each
// call; since most rates do not divide a minute, the sum drifts. Here that time is written as a
// sum that is only made when it is asked for: since + calls × minute/rate. The zero bucket is
// full.
type bucket struct {
	since time.Duration
	calls int64
}

// rate is the calls per minute.
type rate int64

// maxRate is beyond what a process can serve, and small enough for times to be computed exactly.
const maxRate = 100_000_000

// refill is how long the bucket takes to gain n calls, rounded up to the nanosecond.
func (r rate) refill(n int64) time.Duration {
	minutes, rest := n/int64(r), n%int64(r)
	return time.Duration(minutes)*time.Minute +
		time.Duration((rest*int64(time.Minute)+int64(r)-1)/int64(r))
}

// full says whether the bucket has all its calls, and so nothing to remember.
func (r rate) full(b bucket, now time.Duration) bool {
	return now >= b.since+r.refill(b.calls)
}

// take takes a call, or says how long it will take to have one.
func (r rate) take(b *bucket, now time.Duration) (wait time.Duration, ok bool) {
	if r.full(*b, now) {
		*b = bucket{since: now}
	}
	// The first calls come out of the full bucket; the one after them needs one to be back.
	if back := b.calls + 1 - int64(r); back > 0 {
		if wait := b.since + r.refill(back) - now; wait > 0 {
			return wait, false
		}
	}
	b.calls++
	// A whole minute's calls are a minute: moved over, they keep the numbers small.
	if b.calls == 2*int64(r) {
		b.since += time.Minute
		b.calls -= int64(r)
	}
	return 0, true
}
