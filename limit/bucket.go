package limit

import (
	"math/bits"
	"time"
)

// bucket is a token bucket as in the generic cell rate algorithm (GCRA), without its rounding. GCRA
// stores the one time at which the bucket will be full again, and moves it by every/calls for each
// call; since most rates do not divide a minute, the sum drifts. Here that time is the expression
// since + calls × every/rate, computed when it is needed. The zero bucket is full.
type bucket struct {
	since time.Duration
	calls int64
}

// rate is how fast a bucket refills, and how many calls it holds. The zero rate limits nothing.
type rate struct {
	calls int64 // in each time of every
	every time.Duration
	burst int64
}

// maxRate is beyond what a process can serve.
const maxRate = 100_000_000

// refillTime is how long a bucket takes to gain n calls, rounded up to the nanosecond.
func (r rate) refillTime(n int64) time.Duration {
	high, low := bits.Mul64(uint64(n), uint64(r.every)) //nolint:gosec // neither is negative
	low, carry := bits.Add64(low, uint64(r.calls-1), 0) //nolint:gosec // as above
	quotient, _ := bits.Div64(high+carry, low, uint64(r.calls))
	return time.Duration(quotient) //nolint:gosec // at most two times longestRefill
}

// isFull says whether the bucket has all its calls, and so can be removed.
func (r rate) isFull(b bucket, now time.Duration) bool {
	return r.calls == 0 || now >= b.since+r.refillTime(b.calls)
}

// wait is how long it takes until the bucket has a call; 0 if it has one.
func (r rate) wait(b bucket, now time.Duration) time.Duration {
	// The first calls come out of the full bucket; the one after them needs one to be refilled.
	refilled := b.calls + 1 - r.burst
	if refilled <= 0 || r.isFull(b, now) {
		return 0
	}
	return max(b.since+r.refillTime(refilled)-now, 0)
}

// takeCall takes a call that the bucket has.
func (r rate) takeCall(b *bucket, now time.Duration) {
	if r.isFull(*b, now) {
		*b = bucket{since: now}
	}
	b.calls++
	// A whole period of calls is dropped, and the start moves by one period: the numbers stay small.
	if b.calls >= r.burst+r.calls {
		b.since += r.every
		b.calls -= r.calls
	}
}
