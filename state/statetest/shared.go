package statetest

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/state"
)

// TestShared runs the suite of [state.Shared]. open returns two users of one empty store, as two processes would be; what
// it opens it closes with the test.
func TestShared(t *testing.T, open func(t *testing.T) (state.Shared, state.Shared)) {
	for _, c := range []struct {
		name string
		test func(s *sharedStore)
	}{
		{"TakeBurst", takeBurst},
		{"TakeRefills", takeRefills},
		{"TakeAllOrNone", takeAllOrNone},
		{"TakeExtra", takeExtra},
		{"TakeSpent", takeSpent},
		{"TakeLargeNumbers", takeLargeNumbers},
		{"TakeConcurrent", takeConcurrent},
		{"Add", addSums},
		{"AddExpires", addExpires},
		{"Hold", holdLease},
		{"HoldExpires", holdExpires},
		{"HoldOnce", holdOnce},
		{"Join", joinSet},
		{"JoinExpires", joinExpires},
		{"Signals", signals},
		{"SignalsEnd", signalsEnd},
		{"SharedEndedContext", sharedEndedContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := open(t)
			c.test(&sharedStore{T: t, a: a, b: b, ctx: t.Context()})
		})
	}
}

// sharedStore is the store under test as two processes see it.
type sharedStore struct {
	*testing.T
	a, b state.Shared
	ctx  context.Context
}

// slowRate is one that does not refill during a test.
func slowRate(key string, burst, cost int64) state.Rate {
	return state.Rate{Group: "g", Key: key, Calls: 1, Every: time.Hour, Burst: burst, Cost: cost}
}

func (s *sharedStore) takes(from state.Shared, rates ...state.Rate) state.Taken {
	s.Helper()
	taken, err := from.Take(s.ctx, rates)
	if err != nil {
		s.Fatalf("Take: %v", err)
	}
	return taken
}

// accepts counts how many calls of cost 1 a rate still has.
func (s *sharedStore) accepts(r state.Rate) (n int) {
	s.Helper()
	r.Cost, r.Extra, r.Spent = 1, 0, 0
	for s.takes(s.a, r).OK {
		n++
	}
	return n
}

func takeBurst(s *sharedStore) {
	for i := range 3 {
		if got := s.takes([]state.Shared{s.a, s.b}[i%2], slowRate("k", 3, 1)); !got.OK {
			s.Fatalf("Take %d of a burst of 3 was refused: %+v", i+1, got)
		}
	}
	got := s.takes(s.b, slowRate("k", 3, 1))
	if got.OK || got.Limit != 0 || got.Retry > time.Hour || got.Retry < 59*time.Minute {
		s.Fatalf("the fourth Take = %+v; want a refusal for about an hour", got)
	}
	if got := s.takes(s.a, slowRate("other", 3, 3)); !got.OK {
		s.Fatal("another key is limited by the first")
	}
	if got := s.takes(s.a, slowRate("small", 3, 4)); got.OK {
		s.Fatal("a Take larger than the burst was accepted")
	}
	if n := s.accepts(slowRate("small", 3, 1)); n != 3 {
		s.Fatalf("after a refusal there were %d of 3", n)
	}
}

func takeRefills(s *sharedStore) {
	r := state.Rate{Group: "g", Key: "k", Calls: 3, Every: 200 * time.Millisecond, Burst: 2, Cost: 1}
	start, accepted := time.Now(), 0
	for accepted < 8 {
		got := s.takes(s.a, r)
		switch {
		case got.OK:
			accepted++
		case got.Retry <= 0 || got.Retry > 67*time.Millisecond:
			s.Fatalf("refused for %v; a call comes every 66.7ms", got.Retry)
		default:
			time.Sleep(got.Retry)
		}
	}
	if least := 400 * time.Millisecond; time.Since(start) < least-time.Millisecond {
		s.Fatalf("8 calls were accepted within %v; want at least %v", time.Since(start), least)
	}
}

func takeAllOrNone(s *sharedStore) {
	for _, group := range []string{"g", "another"} {
		large, small := slowRate("large"+group, 5, 1), slowRate("small"+group, 2, 1)
		small.Group = group
		for i := range 4 {
			got := s.takes(s.b, large, small)
			if got.OK != (i < 2) || !got.OK && got.Limit != 1 {
				s.Fatalf("Take %d = %+v", i+1, got)
			}
		}
		if n := s.accepts(large); n != 3 {
			s.Fatalf("the other rate had %d left; want 3, for refused calls cost nothing", n)
		}
	}
}

func takeExtra(s *sharedStore) {
	r := slowRate("k", 10, 1)
	r.Extra = 4
	if got := s.takes(s.a, r); !got.OK || !slices.Equal(got.Extra, []int64{4}) {
		s.Fatalf("Take of 1 and 4 more = %+v", got)
	}
	r.Extra = 100
	if got := s.takes(s.a, slowRate("other", 1, 1), r); !got.OK || !slices.Equal(got.Extra, []int64{0, 4}) {
		s.Fatalf("Take of 1 and 100 more, where 5 are left = %+v", got)
	}
	if got := s.takes(s.a, r); got.OK {
		s.Fatalf("Take from an empty rate = %+v", got)
	}
}

func takeSpent(s *sharedStore) {
	r := slowRate("k", 10, 0)
	r.Spent = 4
	s.takes(s.a, r)
	r.Spent = -1
	s.takes(s.b, r)
	if n := s.accepts(r); n != 7 {
		s.Fatalf("10 - 4 + 1 leaves %d", n)
	}
	r.Spent = -100 // never more than the burst
	s.takes(s.b, r)
	r.Spent, r.Cost = 8, 3
	if got := s.takes(s.b, r); got.OK {
		s.Fatal("a Take of 3 was accepted where 2 are left")
	}
	if n := s.accepts(r); n != 2 {
		s.Fatalf("10 - 8 leaves %d: what was spent counts though the call was refused", n)
	}
	r.Spent, r.Cost = 1000, 0 // never less than nothing
	s.takes(s.b, r)
	r.Spent = -1
	s.takes(s.b, r)
	if n := s.accepts(r); n != 1 {
		s.Fatalf("0 + 1 leaves %d", n)
	}
}

func takeLargeNumbers(s *sharedStore) {
	r := state.Rate{Group: "g", Key: "k", Calls: 99_999_989, Every: 366 * 24 * time.Hour, Burst: 99_999_989, Cost: 99_999_900, Extra: 50}
	if got := s.takes(s.a, r); !got.OK || got.Extra[0] != 50 {
		s.Fatalf("Take = %+v", got)
	}
	// One comes every 0.3 s.
	r.Cost, r.Extra = 20, 1000
	if got := s.takes(s.a, r); !got.OK || got.Extra[0] < 19 || got.Extra[0] > 200 {
		s.Fatalf("Take = %+v", got)
	}
	if got := s.takes(s.a, r); got.OK || got.Retry > 8*time.Second {
		s.Fatalf("Take = %+v", got)
	}
}

func takeConcurrent(s *sharedStore) {
	var accepted atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			from := []state.Shared{s.a, s.b}[i%2]
			for range 20 {
				taken, err := from.Take(s.ctx, []state.Rate{slowRate("k", 50, 1), slowRate("own"+strconv.Itoa(i), 15, 1)})
				if err != nil {
					s.Errorf("Take: %v", err)
				}
				if taken.OK {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := accepted.Load(); got != 50 {
		s.Fatalf("%d calls were accepted; want 50", got)
	}
}

func addSums(s *sharedStore) {
	var last int64
	for _, delta := range []int64{5, -7, 0, 1 << 40} {
		got, err := s.a.Add(s.ctx, "k", delta, time.Hour)
		if last += delta; err != nil || got != last {
			s.Fatalf("Add(%d) = %d, %v; want %d", delta, got, err, last)
		}
		got, err = s.b.Add(s.ctx, "k", 0, time.Hour)
		if err != nil || got != last {
			s.Fatalf("the other process sees %d, %v; want %d", got, err, last)
		}
	}
}

func addExpires(s *sharedStore) {
	if _, err := s.a.Add(s.ctx, "k", 5, 20*time.Millisecond); err != nil {
		s.Fatal(err)
	}
	time.Sleep(25 * time.Millisecond)
	wait.For(s.T, "the end of the sum", func() bool {
		got, err := s.b.Add(s.ctx, "k", 0, time.Millisecond)
		return err == nil && got == 0
	})
}

func (s *sharedStore) holds(by state.Shared, key, value string, lifetime time.Duration, want bool) {
	s.Helper()
	if got, err := by.Hold(s.ctx, key, []byte(value), lifetime); err != nil || got != want {
		s.Fatalf("Hold(%q, %q) = %v, %v; want %v", key, value, got, err, want)
	}
}

func (s *sharedStore) held(key, want string) {
	s.Helper()
	for _, by := range []state.Shared{s.a, s.b} {
		if got, err := by.Held(s.ctx, key); err != nil || string(got) != want || want == "" && got != nil {
			s.Fatalf("Held(%q) = %q, %v; want %q", key, got, err, want)
		}
	}
}

func holdLease(s *sharedStore) {
	s.held("k", "")
	s.holds(s.a, "k", "one\x00\xff", time.Hour, true)
	s.holds(s.b, "k", "two", time.Hour, false)
	s.holds(s.a, "k", "one\x00\xff", time.Hour, true)
	s.holds(s.b, "other", "two", time.Hour, true)
	s.held("k", "one\x00\xff")
	if err := s.b.Release(s.ctx, "k", []byte("two")); err != nil {
		s.Fatal(err)
	}
	s.held("k", "one\x00\xff")
	for range 2 { // the second does nothing
		if err := s.a.Release(s.ctx, "k", []byte("one\x00\xff")); err != nil {
			s.Fatal(err)
		}
		s.held("k", "")
	}
	s.holds(s.b, "k", "two", time.Hour, true)
	s.held("k", "two")
}

func holdExpires(s *sharedStore) {
	s.holds(s.a, "k", "one", 10*time.Millisecond, true)
	wait.For(s.T, "the end of the lease", func() bool {
		value, err := s.b.Held(s.ctx, "k")
		return err == nil && value == nil
	})
	s.holds(s.b, "k", "two", 10*time.Millisecond, true)
	s.holds(s.b, "renewed", "two", 10*time.Millisecond, true)
	s.holds(s.b, "renewed", "two", time.Hour, true)
	wait.For(s.T, "a lease that has ended", func() bool {
		ok, err := s.a.Hold(s.ctx, "k", []byte("one"), time.Hour)
		return err == nil && ok
	})
	s.held("renewed", "two")
}

func holdOnce(s *sharedStore) {
	var held atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ok, err := []state.Shared{s.a, s.b}[i%2].Hold(s.ctx, "k", []byte(strconv.Itoa(i)), time.Hour)
			if err != nil {
				s.Errorf("Hold: %v", err)
			}
			if ok {
				held.Add(1)
			}
		})
	}
	wg.Wait()
	if got := held.Load(); got != 1 {
		s.Fatalf("%d hold the lease; want 1", got)
	}
}

func (s *sharedStore) joins(by state.Shared, set, member string, lifetime time.Duration, want ...string) {
	s.Helper()
	if got, err := by.Join(s.ctx, set, member, lifetime); err != nil || !slices.Equal(got, want) {
		s.Fatalf("Join(%q, %q) = %q, %v; want %q", set, member, got, err, want)
	}
}

func joinSet(s *sharedStore) {
	s.joins(s.b, "set", "b", time.Hour, "b")
	s.joins(s.a, "set", "a", time.Hour, "a", "b")
	s.joins(s.a, "other", "c", time.Hour, "c")
	s.joins(s.b, "set", "b", time.Hour, "a", "b")
	if err := s.a.Leave(s.ctx, "set", "a"); err != nil {
		s.Fatal(err)
	}
	if err := s.a.Leave(s.ctx, "nowhere", "a"); err != nil {
		s.Fatal(err)
	}
	s.joins(s.b, "set", "b", time.Hour, "b")
}

func joinExpires(s *sharedStore) {
	s.joins(s.a, "set", "long", time.Hour, "long")
	if _, err := s.a.Join(s.ctx, "set", "short", 10*time.Millisecond); err != nil {
		s.Fatal(err)
	}
	wait.For(s.T, "the end of the membership", func() bool {
		got, err := s.b.Join(s.ctx, "set", "third", time.Hour)
		return err == nil && slices.Equal(got, []string{"long", "third"})
	})
}

// inbox is what a subscriber got.
type inbox struct {
	mu       sync.Mutex
	payloads []string
	begun    int
}

func (i *inbox) add(payload []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if payload == nil {
		i.begun++
		return
	}
	i.payloads = append(i.payloads, string(bytes.Clone(payload)))
}

func (i *inbox) has(payloads ...string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.begun > 0 && slices.Equal(i.payloads, payloads)
}

func signals(s *sharedStore) {
	var first, second, other inbox
	s.a.Subscribe(s.ctx, "t", first.add)
	s.b.Subscribe(s.ctx, "t", second.add)
	s.b.Subscribe(s.ctx, "other", other.add)
	wait.For(s.T, "the subscriptions", func() bool { return first.has() && second.has() && other.has() })
	var sent []string // one after the other: nobody promises an order
	for _, payload := range []string{"one", "\x00\xff"} {
		if err := s.a.Publish(s.ctx, "t", []byte(payload)); err != nil {
			s.Fatal(err)
		}
		sent = append(sent, payload)
		wait.For(s.T, "the signals", func() bool { return first.has(sent...) && second.has(sent...) })
	}
	if !other.has() {
		s.Fatal("a signal of another topic arrived")
	}
}

func signalsEnd(s *sharedStore) {
	ctx, cancel := context.WithCancel(s.ctx)
	var ended, stays inbox
	s.a.Subscribe(ctx, "t", ended.add)
	s.a.Subscribe(s.ctx, "t", stays.add)
	wait.For(s.T, "the subscriptions", func() bool { return ended.has() && stays.has() })
	cancel()
	// When it ends is not said; but it does.
	last := 0
	wait.For(s.T, "the end of the subscription", func() bool {
		last++
		payload := strconv.Itoa(last)
		if err := s.b.Publish(s.ctx, "t", []byte(payload)); err != nil {
			s.Fatal(err)
		}
		arrived := func(i *inbox) bool {
			i.mu.Lock()
			defer i.mu.Unlock()
			return slices.Contains(i.payloads, payload)
		}
		wait.For(s.T, "a signal to the subscription that has not ended", func() bool { return arrived(&stays) })
		return !arrived(&ended)
	})
}

func sharedEndedContext(s *sharedStore) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.a.Take(ctx, []state.Rate{slowRate("k", 1, 1)}); err == nil {
		s.Error("Take: no error")
	}
	if _, err := s.a.Hold(ctx, "k", []byte("v"), time.Hour); err == nil {
		s.Error("Hold: no error")
	}
	if _, err := s.a.Add(ctx, "k", 1, time.Hour); err == nil {
		s.Error("Add: no error")
	}
	if err := s.a.Publish(ctx, "t", []byte("v")); err == nil {
		s.Error("Publish: no error")
	}
	s.held("k", "")
	if n := s.accepts(slowRate("k", 1, 1)); n != 1 {
		s.Errorf("Take with an ended context took from the rate")
	}
}
