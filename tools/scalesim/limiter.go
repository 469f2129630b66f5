package main

import (
	"math/rand/v2"
	"time"
)

// Granting is how replicas take from a limit that all share: the rules and values of package limit. A replica asks the store for
// a call and as many more as it used lately; what it does not use within For it gives back. All replicas together hold at most
// a Part of the burst.
type Granting struct {
	For  time.Duration
	Part float64
}

var granting = Granting{For: 100 * time.Millisecond, Part: .01}

// limiterResult compares what was accepted with the limit.
type limiterResult struct {
	accepted, refused int64
	allowed           float64 // rate × time + burst
	worst             float64 // the most that a window of a second had above rate × 1 s + burst, as a share of that
	trips             int64   // requests to the store
}

// simulateLimiter is one limit of calls per second for all replicas, asked for demand times as often; a tenth of the replicas get half of the calls.
func simulateLimiter(n int, limit float64, demand float64, g Granting, a Assumptions, seconds int, seed uint64) limiterResult {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	burst := limit // one second's worth
	interval := 1e9 / limit
	end := int64(seconds) * 1e9
	perReplica := max(0, int64(g.Part*burst/float64(n)))
	type holder struct {
		left, until, used int64
		refusedUntil      int64
	}
	holders := make([]holder, n)
	var full int64 // the time at which the bucket is full again, of GCRA
	var out limiterResult
	perTenth := make([]int64, seconds*10)
	rate := demand * limit / 1e9
	for at := int64(rng.ExpFloat64() / rate); at < end; at += int64(rng.ExpFloat64()/rate) + 1 {
		r := rng.IntN(n)
		if rng.IntN(2) == 0 {
			r = rng.IntN(max(1, n/10))
		}
		h := &holders[r]
		if h.until <= at && h.left > 0 { // given back
			full -= int64(float64(h.left) * interval)
			h.left = 0
		}
		switch {
		case h.left > 0:
			h.left--
		case at < h.refusedUntil:
			out.refused++
			continue
		default:
			out.trips++
			store := at + a.RedisTrip.draw(rng)/2 // its clock decides
			full = max(full, store)
			if float64(full-store)+interval > burst*interval {
				out.refused++
				h.refusedUntil = at + max(int64(time.Millisecond), int64(interval))
				continue
			}
			full += int64(interval)
			extra := min(perReplica, h.used, int64((burst*interval-float64(full-store))/interval))
			h.left, h.until, h.used = max(0, extra), at+int64(g.For), 0
			full += int64(float64(h.left) * interval)
		}
		h.used++
		out.accepted++
		perTenth[at/1e8]++
	}
	out.allowed = limit*float64(seconds) + burst
	var window int64
	for i, c := range perTenth {
		window += c
		if i >= 10 {
			window -= perTenth[i-10]
		}
		out.worst = max(out.worst, float64(window)/(limit+burst)-1)
	}
	return out
}
