package state

import (
	"math/bits"
	"time"
)

// Rate is a limit of the generic cell rate algorithm (GCRA) and what is taken from it: Burst calls at once, and Calls more
// in each time of Every, evenly. A rate that is not used is full again after at most the time that Burst takes to refill,
// and is then forgotten. Two rates with one key must have the same numbers.
type Rate struct {
	Group string // rates of one group are taken in one step
	Key   string
	Calls int64         // at least 1, at most 10⁸
	Every time.Duration // counted in whole microseconds, rounded up
	Burst int64         // at least 1

	Cost  int64 // what must be there
	Extra int64 // what is taken beside it, or as much of it as is there; at most MaxExtra

	// Spent is what was used without asking. It is taken in any case, before Cost, but never more than there is. What is
	// given back is negative.
	Spent int64
}

// MaxExtra is the most extra calls of one Take.
const MaxExtra = 1_000_000

// Moment is a time in microseconds and a part of one in units of 1/[Rate.Calls], so that no rate drifts. The state of a
// rate is the moment at which it will be full again.
type Moment struct {
	Micros int64
	Part   int64
}

// Refill is how long a rate takes to gain n calls.
func (r Rate) Refill(n int64) Moment {
	high, low := bits.Mul64(uint64(n), uint64(r.everyMicros())) //nolint:gosec // neither is negative
	quotient, rest := bits.Div64(high, low, uint64(r.Calls))    //nolint:gosec // as above
	return Moment{Micros: int64(quotient), Part: int64(rest)}   //nolint:gosec // a year has 2⁴⁵ microseconds
}

func (r Rate) everyMicros() int64 {
	return int64((r.Every + time.Microsecond - 1) / time.Microsecond)
}

// Use takes from a rate that will be full at the moment given. It returns the moment at which the rate is full after that,
// how many calls of Extra it took, and how long to wait until Cost is there. With a wait, only Spent was taken.
func (r Rate) Use(full Moment, nowMicros int64) (next Moment, extra int64, wait time.Duration) {
	now, burst := Moment{Micros: nowMicros}, r.Refill(r.Burst)
	latest := r.addMoments(now, burst)
	full = later(full, now)
	if r.Spent >= 0 {
		full = r.addMoments(full, r.Refill(min(r.Spent, r.Burst)))
	} else {
		full = later(r.minus(full, r.Refill(min(-r.Spent, r.Burst))), now)
	}
	if full.after(latest) {
		full = latest
	}
	next = r.addMoments(full, r.Refill(r.Cost))
	if next.after(latest) {
		short := r.minus(next, latest)
		if short.Part > 0 {
			short.Micros++
		}
		return full, 0, time.Duration(short.Micros) * time.Microsecond
	}
	if r.Extra > 0 {
		room := r.minus(latest, next)
		extra = min(r.Extra, r.callsIn(room))
		next = r.addMoments(next, r.Refill(extra))
	}
	return next, extra, 0
}

// callsIn is how many calls a rate gains in a time.
func (r Rate) callsIn(m Moment) int64 {
	// (micros × calls + part) / every
	high, low := bits.Mul64(uint64(m.Micros), uint64(r.Calls)) //nolint:gosec // neither is negative
	low, carry := bits.Add64(low, uint64(m.Part), 0)           //nolint:gosec // as above
	quotient, _ := bits.Div64(high+carry, low, uint64(r.everyMicros()))
	return int64(quotient) //nolint:gosec // at most the burst
}

func (r Rate) addMoments(a, b Moment) Moment {
	sum := Moment{a.Micros + b.Micros, a.Part + b.Part}
	if sum.Part >= r.Calls {
		sum.Micros++
		sum.Part -= r.Calls
	}
	return sum
}

func (r Rate) minus(a, b Moment) Moment {
	rest := Moment{a.Micros - b.Micros, a.Part - b.Part}
	if rest.Part < 0 {
		rest.Micros--
		rest.Part += r.Calls
	}
	return rest
}

func (m Moment) after(other Moment) bool {
	return m.Micros > other.Micros || m.Micros == other.Micros && m.Part > other.Part
}

func later(a, b Moment) Moment {
	if a.after(b) {
		return a
	}
	return b
}
