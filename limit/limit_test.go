package limit

import (
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/fault"
)

// clock is a fake clock.
type clock struct{ t time.Time }

func newClock() *clock                  { return &clock{time.Date(2026, 7, 28, 0, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time         { return c.t }
func (c *clock) pass(d time.Duration)   { c.t = c.t.Add(d) }
func (c *clock) limiter(n int) *Limiter { return New(Config{PerMinute: n}, c.now) }

// take takes a call of a subject.
func take(l *Limiter, subject string) (wait time.Duration, ok bool) {
	err := l.Admit(Caller{Tenant: "default", Subject: subject})
	return fault.RetryAfterOf(err), err == nil
}

// keys are the buckets of the first limit.
func (l *Limiter) keys() map[Caller]*usage { return l.rules.Load().all[0].keys }

// A9: rate_limit_per_minute calls at once, then one every minute/limit.
func TestTakeA9(t *testing.T) {
	c := newClock()
	l := c.limiter(3)
	for i, step := range []struct {
		pass time.Duration
		key  string
		wait time.Duration
	}{
		{0, "a", 0}, {0, "a", 0}, {0, "a", 0},
		{0, "a", 20 * time.Second}, // a refusal costs nothing
		{0, "a", 20 * time.Second},
		{0, "b", 0},
		{time.Second, "a", 19 * time.Second},
		{19*time.Second - 1, "a", 1},
		{1, "a", 0},
		{0, "a", 20 * time.Second},
		{40 * time.Second, "a", 0}, {0, "a", 0}, {0, "a", 20 * time.Second},
		{time.Hour, "a", 0}, {0, "a", 0}, {0, "a", 0}, {0, "a", 20 * time.Second}, // no more than a minute's calls are saved up
	} {
		c.pass(step.pass)
		if wait, ok := take(l, step.key); wait != step.wait || ok != (step.wait == 0) {
			t.Fatalf("step %d: wait %v, %v, want %v", i, wait, ok, step.wait)
		}
	}
}

// A9: no limit, no state.
func TestUnlimitedA9(t *testing.T) {
	for _, n := range []int{0, -1} {
		l := New(Config{PerMinute: n}, nil)
		for i := range 1000 {
			if wait, ok := take(l, fmt.Sprint(i)); wait != 0 || !ok || len(l.rules.Load().all) != 0 {
				t.Fatalf("%v, %v", wait, ok)
			}
		}
	}
}

// model is a plain token bucket: a level that rises with time. Its unit is the part of a call that one
// nanosecond adds at one call a minute, so that nothing is rounded.
type model struct {
	perMinute, level int64
	last             time.Time
}

func (m *model) take(now time.Time) (wait time.Duration, ok bool) {
	m.level = min(m.level+int64(now.Sub(m.last))*m.perMinute, m.perMinute*int64(time.Minute))
	m.last = now
	if missing := int64(time.Minute) - m.level; missing > 0 {
		return time.Duration((missing + m.perMinute - 1) / m.perMinute), false
	}
	m.level -= int64(time.Minute)
	return 0, true
}

// A9: over any trace, the limiter and the model admit the same calls and return the same waits.
func TestModelA9(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 500)).Draw(t, "per minute")
		c := newClock()
		l := c.limiter(n)
		models := map[string]*model{}
		wait := time.Duration(0)
		each := time.Minute / time.Duration(n)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c.pass(rapid.OneOf(
				rapid.Just(time.Duration(0)), rapid.Just(wait), rapid.Just(max(wait, 1)-1),
				rapid.Map(rapid.Int64Range(0, 3*int64(each)), func(d int64) time.Duration { return time.Duration(d) }),
				rapid.Map(rapid.Int64Range(0, int64(2*time.Minute)), func(d int64) time.Duration { return time.Duration(d) }),
			).Draw(t, "pass"))
			key := rapid.SampledFrom([]string{"a", "b", "anonymous"}).Draw(t, "key")
			m := models[key]
			if m == nil {
				m = &model{perMinute: int64(n), level: int64(n) * int64(time.Minute), last: c.t}
				models[key] = m
			}
			for range rapid.SampledFrom([]int{1, 2, n, n + 1}).Draw(t, "calls") {
				wantWait, wantOK := m.take(c.t)
				var ok bool
				if wait, ok = take(l, key); wait != wantWait || ok != wantOK {
					t.Fatalf("%q at %v: wait %v, %v; the model says %v, %v", key, c.t, wait, ok, wantWait, wantOK)
				}
			}
		}
	})
}

// A9: a busy caller gets exactly the limit, minute after minute, also when the limit does not divide a
// minute.
func TestNoDriftA9(t *testing.T) {
	for _, n := range []int{7, 59, 61, 700} {
		c := newClock()
		l := c.limiter(n)
		admitted := 0
		for end := c.t.Add(100 * time.Minute); ; {
			wait, ok := take(l, "a")
			if ok {
				admitted++
				continue
			}
			if c.pass(wait); c.t.After(end) {
				break
			}
		}
		if admitted != 101*n {
			t.Errorf("%d a minute: %d in 100 minutes and the first bucket, want %d", n, admitted, 101*n)
		}
	}
}

// The times are exact up to the largest rate.
func TestRefill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, maxRate), rapid.Just(int64(maxRate))).Draw(t, "rate")
		n := rapid.OneOf(rapid.Int64Range(0, 2*r), rapid.Just(2*r-1)).Draw(t, "calls")
		want := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(time.Minute)))
		want.Add(want, big.NewInt(r-1)).Div(want, big.NewInt(r))
		if got := (rate{r, time.Minute, r}).refillTime(n); big.NewInt(int64(got)).Cmp(want) != 0 {
			t.Fatalf("%d calls at %d a minute: %d, want %d", n, r, got, want)
		}
	})
	if r := newClock().limiter(1 << 60).rules.Load().all[0].rate; r.calls != maxRate {
		t.Errorf("rate %d", r.calls)
	}
}

// A flood of keys neither grows the table nor resets a key that has used its calls up.
func TestFloodA9(t *testing.T) {
	c := newClock()
	l := c.limiter(2)
	for range 2 {
		take(l, "limited")
	}
	flood := func(n int) (admitted int) {
		for i := range n {
			if _, ok := take(l, fmt.Sprint(c.t.UnixNano(), i)); ok {
				admitted++
			}
			if len(l.keys()) > maxKeys {
				t.Fatalf("%d keys", len(l.keys()))
			}
		}
		return admitted
	}
	// All but one get a bucket of their own; the rest share the calls of one.
	if got := flood(2 * maxKeys); got != maxKeys-1+2 {
		t.Errorf("%d of the flood admitted", got)
	}
	if wait, ok := take(l, "limited"); ok || wait != 30*time.Second {
		t.Errorf("wait %v, %v", wait, ok)
	}
	c.pass(30 * time.Second) // the flood's buckets are full again, and give way
	if got := flood(maxKeys / 2); got != maxKeys/2 {
		t.Errorf("%d of the second flood admitted", got)
	}
	for _, want := range []bool{true, false} {
		if _, ok := take(l, "limited"); ok != want {
			t.Errorf("admitted %v, want %v", ok, want)
		}
	}
}

func TestConcurrent(t *testing.T) {
	c := newClock()
	l := c.limiter(100)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				if _, ok := take(l, fmt.Sprint(i%2)); ok {
					admitted.Add(1)
				}
			}
		})
	}
	if wg.Wait(); admitted.Load() != 200 {
		t.Errorf("%d admitted, want 200", admitted.Load())
	}
}

func BenchmarkTake(b *testing.B) {
	l := New(Config{PerMinute: 1_000_000}, time.Now)
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			take(l, "key")
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				take(l, "key")
			}
		})
	})
	full := New(Config{PerMinute: 1}, time.Now)
	names := make([]string, 2*maxKeys)
	for i := range names {
		names[i] = fmt.Sprint(i)
		take(full, names[i])
	}
	b.Run("flood", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			take(full, names[i%len(names)])
		}
	})
}

// A reload with the same limit keeps used calls; another limit fills all buckets, and none removes it.
func TestApplyA9(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(Config{PerMinute: 1}, func() time.Time { return now })
	if l.Admit(Caller{Subject: "a"}) != nil || l.Admit(Caller{Subject: "a"}) == nil {
		t.Fatal("one call a minute")
	}
	l.Apply(Config{PerMinute: 1})
	if err := l.Admit(Caller{Subject: "a"}); fault.KindOf(err) != fault.RateLimited || err.Error() == "" {
		t.Errorf("the same limit gave a call back: %v", err)
	}
	now = now.Add(time.Second)
	l.Apply(Config{PerMinute: 2})
	for call, want := range []bool{true, true, false} {
		if got := l.Admit(Caller{Subject: "a"}) == nil; got != want {
			t.Errorf("two calls a minute: call %d is admitted: %t", call, got)
		}
	}
	l.Apply(Config{})
	if l.Admit(Caller{Subject: "a"}) != nil || (*Limiter)(nil).Admit(Caller{}) != nil {
		t.Error("no limit")
	}
}
