package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

const replicaCount = 4

// slowStore answers after a while, or not at all.
type slowStore struct {
	state.Counters
	delay  time.Duration // at most
	isAway atomic.Bool
	takes  atomic.Int64
}

var errAway = errors.New("the store is away")

func (s *slowStore) Take(ctx context.Context, rates []state.Rate) (state.Taken, error) {
	s.takes.Add(1)
	if s.isAway.Load() {
		<-ctx.Done()
		return state.Taken{}, errAway
	}
	if s.delay > 0 {
		time.Sleep(rand.N(s.delay))
	}
	return s.Counters.Take(ctx, rates)
}

// newReplicas are the limiters of several processes that share a store.
func newReplicas(store state.Counters, cfg Config) []*Limiter {
	var all []*Limiter
	for range replicaCount {
		l := New(cfg, time.Now)
		l.Share(Shared{Counters: store, Replicas: func() int { return replicaCount }})
		all = append(all, l)
	}
	return all
}

// load is what callers got.
type load struct {
	mu       sync.Mutex
	accepted []time.Duration // when
	asked    int
}

// run calls the replicas for a time: each with a number of workers that call once in each pause.
func (o *load) run(replicas []*Limiter, workers int, pause, span time.Duration) {
	start := time.Now()
	var wg sync.WaitGroup
	for _, l := range replicas {
		for range workers {
			wg.Go(func() {
				for time.Since(start) < span {
					var h Hold
					err := l.Enter(Caller{Tenant: "a"}, Target{Server: "fs"}, &h)
					h.Release()
					o.mu.Lock()
					o.asked++
					if err == nil {
						o.accepted = append(o.accepted, time.Since(start))
					}
					o.mu.Unlock()
					time.Sleep(pause/2 + rand.N(pause))
				}
			})
		}
	}
	wg.Wait()
}

// mostBeyond is by how much the calls of any window exceed what the rate allows in it, with 1 % of that.
func (o *load) mostBeyond(perSecond, burst float64) (most float64, from, to time.Duration) {
	// Among windows that begin with a call: burst + rate × length ≥ calls. With tolerance 1.01 × (…) or at least one more.
	for i := 0; i < len(o.accepted); i += 1 + len(o.accepted)/500 {
		for j := i; j < len(o.accepted); j++ {
			allowed := burst + perSecond*(o.accepted[j]-o.accepted[i]).Seconds()
			if beyond := float64(j-i+1) - allowed - max(1, allowed/100); beyond > most {
				most, from, to = beyond, o.accepted[i], o.accepted[j]
			}
		}
	}
	return most, from, to
}

func sharedLimit(perSecond, burst int) Config {
	return Config{Limits: []Entry{entry(func(e *Entry) {
		e.Rate, e.Every, e.Burst, e.Server = perSecond, unit.Duration(time.Second), burst, "fs"
	})}}
}

// R13: four replicas under ten times the limit accept at most the limit, the burst and 1 % in any window, and at least
// 99 % of all that is allowed. Where calls come often, few of them ask the store.
func TestR13Replicas(t *testing.T) {
	cases := []struct{ perSecond, burst int }{{10, 5}, {50, 10}, {200, 400}, {1000, 1000}, {2000, 20_000}}
	if testing.Short() {
		cases = cases[:3]
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d per second, burst %d", c.perSecond, c.burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slowStore{Counters: memory.New(), delay: 2 * time.Millisecond}
				var o load
				span := 10 * time.Second
				// Each worker calls a hundred times a second; the burst is used up within the first quarter.
				workers := 1 + (10*c.perSecond+4*c.burst/int(span.Seconds()))/(100*replicaCount)
				o.run(newReplicas(store, sharedLimit(c.perSecond, c.burst)), workers, 10*time.Millisecond, span)
				most, from, to := o.mostBeyond(float64(c.perSecond), float64(c.burst))
				allowed := float64(c.burst) + float64(c.perSecond)*span.Seconds()
				if got := float64(len(o.accepted)); most > 0 || got < 0.99*allowed-1 {
					t.Errorf("%.0f of %.0f allowed were accepted; in the window from %v to %v, %.1f too many", got, allowed, from, to, most)
				}
				t.Logf("%d calls, %d accepted of %.0f allowed, %d requests to the store", o.asked, len(o.accepted), allowed, store.takes.Load())
				if c.burst >= 1000 && store.takes.Load() > int64(o.asked/4) {
					t.Errorf("%d calls asked the store %d times", o.asked, store.takes.Load())
				}
			})
		})
	}
}

// R13: a load below the limit is never refused, though the store grants calls to processes that do not use them.
func TestR13BelowTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Counters: memory.New(), delay: 2 * time.Millisecond}
		replicas := newReplicas(store, sharedLimit(1000, 1000))
		var o load
		for i := range 20 { // in turn, and after a pause
			o.run(replicas[i%replicaCount:][:1], 9, 10*time.Millisecond, time.Second)
			time.Sleep(150 * time.Millisecond)
		}
		if len(o.accepted) != o.asked {
			t.Errorf("%d of %d calls were refused", o.asked-len(o.accepted), o.asked)
		}
	})
}

// R13: while the store is away, the replicas accept their shares: together at most 1.2 times the limit, and not much less. A
// store that comes and goes makes no difference.
func TestR13StoreAway(t *testing.T) {
	for _, c := range []struct {
		name       string
		away, here time.Duration
	}{
		{"all the time", time.Hour, 0},
		{"for ten seconds", 10 * time.Second, 10 * time.Second},
		{"again and again", time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slowStore{Counters: memory.New(), delay: 2 * time.Millisecond}
				span := 60 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), span)
				defer cancel()
				go func() {
					for isAway := false; ctx.Err() == nil; isAway = !isAway {
						store.isAway.Store(isAway)
						span := c.here
						if isAway {
							span = c.away
						}
						select {
						case <-time.After(span):
						case <-ctx.Done():
						}
					}
				}()
				const perSecond, burst = 100, 100
				var o load
				o.run(newReplicas(store, sharedLimit(perSecond, burst)), 3, 10*time.Millisecond, span)
				allowed := burst + perSecond*span.Seconds()
				if got := float64(len(o.accepted)); got > 1.2*allowed || got < 0.9*allowed {
					t.Errorf("%.0f calls were accepted of %.0f allowed", got, allowed)
				}
				t.Logf("%d accepted of %.0f allowed", len(o.accepted), allowed)
				cancel()
				time.Sleep(time.Second) // until the store is no longer tried
			})
		})
	}
}

// A store that is away delays the calls that ask it when it goes, and no others.
func TestStoreAwayDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Counters: memory.New()}
		var changes []error
		l := New(sharedLimit(1_000_000, 1_000_000), time.Now)
		l.Share(Shared{Counters: store, Replicas: func() int { return 1 }, OnChange: func(err error) { changes = append(changes, err) }})
		enter := func() time.Duration {
			start := time.Now()
			var h Hold
			if err := l.Enter(Caller{Tenant: "a"}, Target{Server: "fs"}, &h); err != nil {
				t.Error(err)
			}
			return time.Since(start)
		}
		enter()
		store.isAway.Store(true)
		if got := enter(); got != storeBudget {
			t.Errorf("the first call waited %v for the store; want %v", got, storeBudget)
		}
		for range 1000 {
			if got := enter(); got != 0 {
				t.Fatalf("a call waited %v for a store that is away", got)
			}
			time.Sleep(time.Millisecond)
		}
		if got := store.takes.Load(); got > 7 {
			t.Errorf("within a second the store was asked %d times", got)
		}
		store.isAway.Store(false)
		time.Sleep(probeEvery)
		enter() // the store is tried again
		synctest.Wait()
		before := store.takes.Load()
		time.Sleep(2 * grantFor)
		if enter(); store.takes.Load() != before+1 {
			t.Error("the store is not asked though it answers again")
		}
		if len(changes) != 2 || !errors.Is(changes[0], errAway) || changes[1] != nil {
			t.Errorf("reported %v", changes)
		}
	})
}

// R13: four replicas equal the reference model on random traces, as one process does. The million traces of CTXGATE_LONG=1
// take minutes.
func TestR13ReplicasEqualReferenceModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	traces := 5_000
	if os.Getenv("CTXGATE_LONG") != "" {
		traces = 1_000_000
	}
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(traces) {
			if err := compareSharedTrace(seed); err != nil {
				t.Fatalf("trace %d: %v", seed, err)
			}
		}
	})
}

func compareSharedTrace(seed uint64) error {
	rnd := rand.New(rand.NewPCG(14, seed)) //nolint:gosec // a test
	e := entry(func(e *Entry) {
		e.Rate = 1 + rnd.IntN([]int{3, 50, 700}[rnd.IntN(3)])
		e.Burst = rnd.IntN(8)
		e.Every = unit.Duration([]time.Duration{time.Second, time.Minute, time.Hour, 7 * time.Microsecond}[rnd.IntN(4)])
		e.Per = []string{"tenant", "subject", "credential", "match"}[rnd.IntN(4)]
	})
	began := time.Now()
	replicas := newReplicas(memory.New(), Config{Limits: []Entry{e}})
	models := map[Caller]*gcra{}
	var wait time.Duration
	for range 20 {
		pass := time.Duration(0)
		switch rnd.IntN(5) {
		case 0:
			pass = wait
		case 1:
			pass = max(wait, time.Microsecond) - time.Microsecond
		case 2:
			pass = time.Duration(rnd.Int64N(3*int64(e.Every)/int64(e.Rate) + 1))
		case 3:
			pass = time.Duration(rnd.Int64N(2 * int64(e.Every)))
		}
		time.Sleep(pass.Truncate(time.Microsecond))
		who := Caller{Tenant: "t" + fmt.Sprint(rnd.IntN(2)), Subject: "s" + fmt.Sprint(rnd.IntN(2)), Credential: "c" + fmt.Sprint(rnd.IntN(2))}
		m := models[e.ownerOf(who)]
		if m == nil {
			m = newGCRA(e)
			models[e.ownerOf(who)] = m
		}
		now := time.Since(began)
		wantWait, want := m.take(now)
		wantWait = (wantWait + time.Microsecond - 1).Truncate(time.Microsecond)
		err := replicas[rnd.IntN(replicaCount)].Admit(who)
		if wait = fault.RetryAfterOf(err); wait != wantWait || (err == nil) != want {
			return fmt.Errorf("%+v: %v at %v: wait %v, %w; the model says %v, %t", e, who, now, wait, err, wantWait, want)
		}
	}
	return nil
}

// A call that the store refuses holds nothing of the limits on what is in flight, and costs nothing at the others.
func TestSharedRefusalHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Limits: []Entry{
			entry(func(e *Entry) { e.Concurrency, e.Server = 1, "fs" }),
			entry(func(e *Entry) { e.Rate, e.Server, e.Tool = 1, "fs", "write" }),
			entry(func(e *Entry) { e.Rate, e.Server, e.Per = 3, "fs", "match" }),
		}}
		replicas := newReplicas(memory.New(), cfg)
		enter := func(i int, tool string) (*Hold, error) {
			var h Hold
			return &h, replicas[i].Enter(Caller{Tenant: "a"}, Target{Server: "fs", Tool: tool}, &h)
		}
		held, err := enter(0, "write")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := enter(0, "read"); err == nil {
			t.Error("two calls are in flight")
		}
		other, err := enter(1, "read") // what is in flight counts in each process
		if err != nil {
			t.Error(err)
		}
		held.Release()
		other.Release()
		for i := range replicas {
			if _, err := enter(i, "write"); fault.RetryAfterOf(err) != time.Minute {
				t.Errorf("a second write was answered with %v", err)
			}
		}
		last, err := enter(0, "read") // the third of the last limit
		if err != nil {
			t.Error(err)
		}
		last.Release()
		if _, err := enter(2, "read"); err == nil {
			t.Error("the fourth call was accepted")
		}
	})
}

// Callers beyond the size of the table are counted in the store, each by itself, and the table stays as it is.
func TestSharedBeyondTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newReplicas(memory.New(), Config{PerMinute: 2})[0]
		for i := range maxKeys + 100 {
			who := fmt.Sprint(i)
			for call := range 3 {
				if _, ok := take(l, who); ok != (call < 2) {
					t.Fatalf("call %d of caller %d: accepted is %t", call, i, ok)
				}
			}
		}
		if n := len(l.keys()); n != maxKeys {
			t.Errorf("%d callers are in the table", n)
		}
	})
}
