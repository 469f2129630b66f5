package state_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// cells is a rate as a token bucket over rational numbers, written from the definition alone.
type cells struct {
	tokens *big.Rat
	at     int64
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// take answers as [state.Rate.Use] does.
func (c *cells) take(r state.Rate, now int64) (extra int64, waitMicros *big.Int) {
	every := rat(int64((r.Every + time.Microsecond - 1) / time.Microsecond))
	perMicro := new(big.Rat).Quo(rat(r.Calls), every)
	clamp := func() {
		if c.tokens.Cmp(rat(r.Burst)) > 0 {
			c.tokens = rat(r.Burst)
		}
		if c.tokens.Sign() < 0 {
			c.tokens = rat(0)
		}
	}
	if c.tokens == nil {
		c.tokens = rat(r.Burst)
	} else {
		c.tokens = new(big.Rat).Add(c.tokens, new(big.Rat).Mul(rat(now-c.at), perMicro))
	}
	c.at = now
	clamp()
	c.tokens = new(big.Rat).Sub(c.tokens, rat(r.Spent))
	clamp()
	if c.tokens.Cmp(rat(r.Cost)) < 0 {
		missing := new(big.Rat).Quo(new(big.Rat).Sub(rat(r.Cost), c.tokens), perMicro)
		wait, rest := new(big.Int).QuoRem(missing.Num(), missing.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			wait.Add(wait, big.NewInt(1))
		}
		return 0, wait
	}
	c.tokens = new(big.Rat).Sub(c.tokens, rat(r.Cost))
	whole := new(big.Int).Quo(c.tokens.Num(), c.tokens.Denom()).Int64()
	extra = min(whole, r.Extra)
	c.tokens = new(big.Rat).Sub(c.tokens, rat(extra))
	return extra, new(big.Int)
}

// A rate answers as a token bucket over rational numbers does, whatever its numbers are.
func TestRateEqualsModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	random := rand.New(rand.NewPCG(1, 2))
	between := func(low, high int64) int64 { return low + random.Int64N(high-low+1) }
	for trace := range 20_000 {
		r := state.Rate{Calls: between(1, 10), Every: time.Duration(between(1, 1000)) * time.Microsecond, Burst: between(1, 10)}
		if trace%3 == 0 {
			r = state.Rate{Calls: between(1, 100_000_000), Every: time.Duration(between(1, int64(366*24*time.Hour))), Burst: between(1, 100_000)}
		}
		every := r.Every.Microseconds() + 1
		var model cells
		var full state.Moment
		now := between(0, 1_900_000_000_000_000)
		for step := range 12 {
			now += between(0, 1+2*every*between(0, 3)/r.Calls)
			r.Cost, r.Extra, r.Spent = between(0, 2), max(0, between(-5, 5)), 0
			if random.IntN(4) == 0 {
				r.Spent = between(-4, 4)
			}
			wantExtra, wantWait := model.take(r, now)
			next, extra, wait := r.Use(full, now)
			if extra != wantExtra || wait.Microseconds() != wantWait.Int64() {
				t.Fatalf("trace %d, step %d: %+v at %d: %d more, wait %v; want %d, %vµs", trace, step, r, now, extra, wait, wantExtra, wantWait)
			}
			full = next
		}
	}
}
