package budget

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// clock is a fake clock.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// flakyDriver is a store that can be down. A lost write is done, and reported as failed.
type flakyDriver struct {
	state.Driver
	mu         sync.Mutex
	down, lost bool
}

func (f *flakyDriver) set(down, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.lost = down, lost
}

func (f *flakyDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, fault.New(fault.Unavailable, "down")
	}
	return f.Driver.Get(ctx, group, key, now)
}

func (f *flakyDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false, fault.New(fault.Unavailable, "down")
	}
	ok, err := f.Driver.PutIf(ctx, cond, items, lease)
	if f.lost {
		return false, fault.New(fault.Unavailable, "lost")
	}
	return ok, err
}

func newStore(d state.Driver, c *clock) *state.Store { return state.New(d, state.Default(), c.now) }

func entryOf(change func(*Entry)) Entry {
	var e Entry
	e.SetDefaults()
	change(&e)
	return e
}

func configOf(changes ...func(*Entry)) Config {
	var cfg Config
	for _, change := range changes {
		cfg.Budgets = append(cfg.Budgets, entryOf(change))
	}
	return cfg
}

// spend makes a request that reserves and uses the same.
func spend(t *testing.T, tr *Tracker, tenant string, a Amount) error {
	t.Helper()
	r, err := tr.Reserve(context.Background(), tenant, a)
	if err != nil {
		return err
	}
	r.Settle(a)
	tr.Close()
	return nil
}

// Requests are admitted until the budget is used up, and again when it renews. The error says when.
func TestHardStop(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Entry)
		each   Amount
		text   string
	}{
		"requests": {func(e *Entry) { e.Requests = 3 }, Amount{Requests: 1}, "3 requests of 3 requests this day"},
		"tokens":   {func(e *Entry) { e.Tokens = 2500 }, Amount{1, 1000, 5}, "3000 tokens of 2500 tokens this day"},
		"money":    {func(e *Entry) { e.Money = 0.25 }, Amount{1, 1000, 100_000}, "0.30 of 0.25 this day"},
		"several":  {func(e *Entry) { e.Requests, e.Tokens, e.Money = 100, 1e9, 0.3 }, Amount{1, 1000, 100_000}, "0.30 of 0.30 this day"},
	} {
		c := newClock()
		tr := New(configOf(tt.change), newStore(memory.New(), c), c.now)
		for i := range 3 {
			if err := spend(t, tr, "acme", tt.each); err != nil {
				t.Errorf("%s: request %d: %v", name, i, err)
			}
		}
		err := spend(t, tr, "acme", tt.each)
		if fault.KindOf(err) != fault.OverBudget || fault.RetryAfterOf(err) != 15*time.Hour ||
			!strings.Contains(fault.PublicOf(err), tt.text) || !strings.Contains(fault.PublicOf(err), "renews at 2026-11-17T00:00:00Z") {
			t.Errorf("%s: %v, %v", name, err, fault.RetryAfterOf(err))
		}
		if err := spend(t, tr, "other", tt.each); err != nil {
			t.Errorf("%s: another tenant: %v", name, err)
		}
		c.pass(15*time.Hour - time.Nanosecond)
		if spend(t, tr, "acme", tt.each) == nil {
			t.Errorf("%s: renewed before midnight", name)
		}
		c.pass(time.Nanosecond)
		if err := spend(t, tr, "acme", tt.each); err != nil {
			t.Errorf("%s: the next day: %v", name, err)
		}
	}
}

// A month's budget counts over its days; both apply.
func TestMonth(t *testing.T) {
	c := newClock()
	tr := New(configOf(func(e *Entry) { e.Requests = 2 }, func(e *Entry) { e.Per, e.Requests = "month", 3 }), newStore(memory.New(), c), c.now)
	one := Amount{Requests: 1}
	for i, step := range []struct {
		pass time.Duration
		wait time.Duration // 0: admitted
	}{
		{0, 0}, {0, 0}, {0, 15 * time.Hour}, {15 * time.Hour, 0},
		{0, 14 * 24 * time.Hour}, // to the first of December
		{14*24*time.Hour - 1, 1}, {1, 0},
	} {
		c.pass(step.pass)
		if err := spend(t, tr, "a", one); fault.RetryAfterOf(err) != step.wait || (err == nil) != (step.wait == 0) {
			t.Errorf("step %d: %v, %v", i, err, fault.RetryAfterOf(err))
		}
	}
	if got := renewal("month", time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)); !got.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("December renews at %v", got)
	}
}

// Which tenants have a budget. Nobody else touches the store.
func TestTenants(t *testing.T) {
	c := newClock()
	driver := &flakyDriver{Driver: memory.New()}
	tr := New(configOf(func(e *Entry) { e.Tenant, e.Requests = "team-*", 1 }), newStore(driver, c), c.now)
	if !tr.IsLimited("team-a") || tr.IsLimited("other") || (*Tracker)(nil).IsLimited("team-a") {
		t.Error("which tenants are limited")
	}
	driver.set(true, false)
	for range 3 {
		if r, err := tr.Reserve(context.Background(), "other", Amount{Requests: 9}); r != nil || err != nil {
			t.Errorf("%v, %v", r, err)
		}
	}
	var none *Reservation
	none.Settle(Amount{})
	if none.Warning() != "" || none.Most() != (Amount{}) {
		t.Error("a nil reservation")
	}
	if r, err := (*Tracker)(nil).Reserve(context.Background(), "team-a", Amount{}); r != nil || err != nil {
		t.Errorf("%v, %v", r, err)
	}
	(*Tracker)(nil).Close()
}

// A hundred requests at once exceed the budget by at most one of them, however the store answers.
func TestConcurrentRequestsStayWithinTheBudget(t *testing.T) {
	const limit, each = 1_000_000, 45_000 // 22 of them are within it, the 23rd goes beyond
	for name, open := range map[string]func(t *testing.T) state.Driver{
		"memory": func(*testing.T) state.Driver { return memory.New() },
		"sqlite": func(t *testing.T) state.Driver {
			t.Helper()
			d, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "b.db"))
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		"down": func(*testing.T) state.Driver { return &flakyDriver{Driver: memory.New(), down: true} },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			store := newStore(open(t), c)
			defer store.Close()
			// Two trackers are two processes on one store; without a store each has its own share.
			trackers := []*Tracker{New(configOf(func(e *Entry) { e.Tokens = limit }), store, c.now), New(configOf(func(e *Entry) { e.Tokens = limit }), store, c.now)}
			if name == "down" {
				trackers = trackers[:1]
			}
			var mu sync.Mutex
			admitted := 0
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					r, err := trackers[i%len(trackers)].Reserve(context.Background(), "a", Amount{1, each, 0})
					if err != nil {
						if fault.KindOf(err) != fault.RateLimited && fault.KindOf(err) != fault.OverBudget {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					admitted++
					mu.Unlock()
					r.Settle(Amount{1, each, 0})
				})
			}
			wg.Wait()
			if total := admitted * each; total > limit+each || total < limit {
				t.Errorf("%d requests used %d of %d", admitted, total, limit)
			}
			for _, tr := range trackers {
				tr.Close()
			}
			c.pass(freshFor) // until then the first may rely on what the second had reserved
			if err := spend(t, trackers[0], "a", Amount{1, each, 0}); fault.KindOf(err) != fault.OverBudget {
				t.Errorf("after all of them: %v", err)
			}
		})
	}
}

// What is reserved counts until it is settled: the rest can be used again.
func TestReserveAndSettle(t *testing.T) {
	c := newClock()
	tr := New(configOf(func(e *Entry) { e.Tokens = 1000 }), newStore(memory.New(), c), c.now)
	ctx := context.Background()
	first, err := tr.Reserve(ctx, "a", Amount{1, 1000, 0})
	if err != nil || first.Most().Tokens != 1000 {
		t.Fatal(err)
	}
	_, err = tr.Reserve(ctx, "a", Amount{1, 1, 0})
	if fault.KindOf(err) != fault.RateLimited || fault.RetryAfterOf(err) != busyRetry {
		t.Errorf("while all is reserved: %v", err)
	}
	first.Settle(Amount{1, 100, 0})
	first.Settle(Amount{1, 100, 0}) // twice is once
	tr.Close()
	second, err := tr.Reserve(ctx, "a", Amount{1, 500, 0})
	if err != nil {
		t.Fatalf("after it is settled: %v", err)
	}
	all, err := tr.Statuses(ctx)
	if err != nil || len(all) != 1 || all[0].Used != (Amount{1, 100, 0}) || all[0].Held != (Amount{1, 500, 0}) {
		t.Errorf("%+v, %v", all, err)
	}
	second.Settle(Amount{})
	tr.Close()
	if all, _ := tr.Statuses(ctx); all[0].Used != (Amount{1, 100, 0}) || all[0].Held != (Amount{}) {
		t.Errorf("%+v", all)
	}
}

// A request that is given up while it waits for the store leaves nothing reserved.
func TestReserveGivenUp(t *testing.T) {
	c := newClock()
	driver := &flakyDriver{Driver: memory.New()}
	tr := New(configOf(func(e *Entry) { e.Tokens = 1000 }), newStore(driver, c), c.now)
	driver.mu.Lock() // the store does not answer
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := tr.Reserve(ctx, "a", Amount{1, 1000, 0})
		failed <- err
	}()
	cancel()
	if err := <-failed; fault.KindOf(err) != fault.Canceled {
		t.Errorf("got %v", err)
	}
	driver.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		r, err := tr.Reserve(context.Background(), "a", Amount{1, 1, 0})
		if err == nil {
			r.Settle(Amount{})
			tr.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// What is used survives a restart, and a reload; reservations of a process that was killed expire.
func TestSurvivesRestart(t *testing.T) {
	c := newClock()
	store := newStore(memory.New(), c)
	cfg := configOf(func(e *Entry) { e.Tokens = 1000 })
	tr := New(cfg, store, c.now)
	if err := spend(t, tr, "a", Amount{1, 400, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Reserve(context.Background(), "a", Amount{1, 600, 0}); err != nil { // and never settles
		t.Fatal(err)
	}
	again := New(cfg, store, c.now)
	if err := spend(t, again, "a", Amount{1, 1, 0}); fault.KindOf(err) != fault.RateLimited {
		t.Errorf("while the killed process may still run: %v", err)
	}
	c.pass(2 * time.Hour)
	if err := spend(t, again, "a", Amount{1, 600, 0}); err != nil {
		t.Errorf("after its reservations expired: %v", err)
	}
	if err := spend(t, again, "a", Amount{1, 1, 0}); fault.KindOf(err) != fault.OverBudget {
		t.Errorf("all is used: %v", err)
	}
	again.Apply(configOf(func(e *Entry) { e.Tokens = 2000 }))
	if err := spend(t, again, "a", Amount{1, 999, 0}); err != nil {
		t.Errorf("a larger budget: %v", err)
	}
	again.Apply(cfg)
	if err := spend(t, again, "a", Amount{1, 1, 0}); fault.KindOf(err) != fault.OverBudget {
		t.Errorf("the old budget: %v", err)
	}
}

// While the store is down, a process counts by itself, and adds its part when the store is back. A write that was
// reported as failed and was done is not counted twice.
func TestStoreDown(t *testing.T) {
	for name, lost := range map[string]bool{"down": false, "lost": true} {
		c := newClock()
		driver := &flakyDriver{Driver: memory.New()}
		store := newStore(driver, c)
		tr := New(configOf(func(e *Entry) { e.Tokens = 1000 }), store, c.now)
		if err := spend(t, tr, "a", Amount{1, 200, 0}); err != nil {
			t.Fatal(err)
		}
		driver.set(!lost, lost)
		if err := spend(t, tr, "a", Amount{1, 300, 0}); err != nil {
			t.Errorf("%s: while it is down: %v", name, err)
		}
		driver.set(true, false)
		if err := spend(t, tr, "a", Amount{1, 500, 0}); err != nil {
			t.Errorf("%s: while it is down: %v", name, err)
		}
		if err := spend(t, tr, "a", Amount{1, 1, 0}); fault.KindOf(err) != fault.OverBudget {
			t.Errorf("%s: all is used: %v", name, err)
		}
		driver.set(false, false)
		tr.Apply(configOf(func(e *Entry) { e.Tokens = 10_000 }))
		if err := spend(t, tr, "a", Amount{1, 1, 0}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		other := New(configOf(func(e *Entry) { e.Tokens = 10_000 }), store, c.now)
		if all, err := other.Statuses(context.Background()); err != nil || all[0].Used != (Amount{4, 1001, 0}) || all[0].Held != (Amount{}) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}

// A refusal is read again after a second: another process may have given something back.
func TestRefusalIsFresh(t *testing.T) {
	c := newClock()
	store := newStore(memory.New(), c)
	cfg := configOf(func(e *Entry) { e.Tokens = 1000 })
	one, two := New(cfg, store, c.now), New(cfg, store, c.now)
	r, err := one.Reserve(context.Background(), "a", Amount{1, 1000, 0})
	if err != nil {
		t.Fatal(err)
	}
	if err := spend(t, two, "a", Amount{1, 1, 0}); fault.KindOf(err) != fault.RateLimited {
		t.Fatal(err)
	}
	r.Settle(Amount{})
	one.Close()
	if err := spend(t, two, "a", Amount{1, 1, 0}); fault.KindOf(err) != fault.RateLimited {
		t.Errorf("at once: %v", err)
	}
	c.pass(freshFor)
	if err := spend(t, two, "a", Amount{1, 1, 0}); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

// Beyond warn_at the log has one line in each period, and replies say so.
func TestWarning(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	c := newClock()
	tr := New(configOf(func(e *Entry) { e.Tokens = 1000 }, func(e *Entry) { e.Per, e.Requests, e.WarnAt = "month", 1, 0 }), newStore(memory.New(), c), c.now)
	tr.Apply(configOf(func(e *Entry) { e.Tokens = 1000 }, func(e *Entry) { e.Per, e.Requests, e.WarnAt = "month", 100, 0 }))
	for i, want := range []string{"", "", "80% of this day", "81% of this day"} {
		r, err := tr.Reserve(context.Background(), "a", Amount{Requests: 1})
		if err != nil || r.Warning() != want {
			t.Errorf("request %d: %q, %v", i, r.Warning(), err)
		}
		r.Settle(Amount{1, []int64{799, 1, 10, 0}[i], 0})
		tr.Close()
	}
	if n := strings.Count(log.String(), "has used most of its budget"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	c.pass(24 * time.Hour)
	if err := spend(t, tr, "a", Amount{1, 900, 0}); err != nil {
		t.Fatal(err)
	}
	if err := spend(t, tr, "a", Amount{1, 1, 0}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "has used most of its budget"); n != 2 {
		t.Errorf("%d warnings after the next day:\n%s", n, log.String())
	}
}

// Many tenants do not grow what a process remembers, and none loses what it used.
func TestManyTenants(t *testing.T) {
	c := newClock()
	tr := New(configOf(func(e *Entry) { e.Requests = 1 }), newStore(memory.New(), c), c.now)
	for i := range maxAccounts + 50 {
		if err := spend(t, tr, fmt.Sprint("t", i), Amount{Requests: 1}); err != nil {
			t.Fatalf("tenant %d: %v", i, err)
		}
		if n := len(tr.accounts); n > maxAccounts {
			t.Fatalf("%d accounts", n)
		}
	}
	if err := spend(t, tr, "t0", Amount{Requests: 1}); fault.KindOf(err) != fault.OverBudget {
		t.Errorf("a tenant that was forgotten: %v", err)
	}
}

func TestStatuses(t *testing.T) {
	c := newClock()
	tr := New(configOf(func(e *Entry) { e.Tokens, e.Money = 1000, 20 }, func(e *Entry) { e.Tenant, e.Per, e.Requests = "b", "month", 4 }), newStore(memory.New(), c), c.now)
	for tenant, a := range map[string]Amount{"a": {1, 100, 1_500_000}, "b": {3, 50, 0}} {
		if err := spend(t, tr, tenant, a); err != nil {
			t.Fatal(err)
		}
	}
	all, err := tr.Statuses(context.Background())
	var lines []string
	for _, s := range all {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", s.Tenant, s.Per, s, s.Renews.Format(time.DateOnly)))
	}
	want := "b month 3 of 4 requests 2026-12-01\na day 100 of 1000 tokens, 1.50 of 20.00 2026-11-17\nb day 50 of 1000 tokens, 0.00 of 20.00 2026-11-17"
	if got := strings.Join(lines, "\n"); err != nil || got != want {
		t.Errorf("got\n%s\n%v", got, err)
	}
	for _, none := range []*Tracker{nil, New(Config{}, newStore(memory.New(), c), c.now)} {
		if all, err := none.Statuses(context.Background()); all != nil || err != nil {
			t.Errorf("%v, %v", all, err)
		}
	}
	down := New(configOf(func(e *Entry) { e.Tokens = 1 }), newStore(memory.New(), c), c.now)
	_ = down.store.Close()
	if _, err := down.Statuses(context.Background()); err == nil {
		t.Error("no error of a store that is closed")
	}
}
