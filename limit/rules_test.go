package limit

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// entry is an entry with the defaults of a file.
func entry(change func(*Entry)) Entry {
	var e Entry
	e.SetDefaults()
	change(&e)
	return e
}

// gcra is the reference: the textbook algorithm with one theoretical arrival time, in exact fractions.
type gcra struct {
	interval, tolerance, arrival *big.Rat
}

func newGCRA(e Entry) *gcra {
	burst := e.Burst
	if burst == 0 {
		burst = e.Rate
	}
	g := &gcra{interval: big.NewRat(int64(e.Every), int64(e.Rate)), arrival: new(big.Rat)}
	g.tolerance = new(big.Rat).Mul(g.interval, big.NewRat(int64(burst-1), 1))
	return g
}

// take is a call at a time. The wait is rounded up to the nanosecond.
func (g *gcra) take(at time.Duration) (time.Duration, bool) {
	now := big.NewRat(int64(at), 1)
	arrival := g.arrival
	if arrival.Cmp(now) < 0 {
		arrival = now
	}
	if early := new(big.Rat).Sub(new(big.Rat).Sub(arrival, g.tolerance), now); early.Sign() > 0 {
		wait := new(big.Int).Add(early.Num(), new(big.Int).Sub(early.Denom(), big.NewInt(1)))
		return time.Duration(wait.Div(wait, early.Denom()).Int64()), false
	}
	g.arrival = new(big.Rat).Add(arrival, g.interval)
	return 0, true
}

// R13: limits equal a reference GCRA model on random traces, every call of them: the same calls are admitted, with the
// same waits, one bucket for each owner. The million traces of CTXGATE_LONG=1 take minutes.
func TestEqualsReferenceModelR13(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	traces := 5_000
	if os.Getenv("CTXGATE_LONG") != "" {
		traces = 1_000_000
	}
	for seed := range uint64(traces) {
		if err := compareTrace(seed); err != nil {
			t.Fatalf("trace %d: %v", seed, err)
		}
	}
}

func compareTrace(seed uint64) error {
	rnd := rand.New(rand.NewPCG(13, seed)) //nolint:gosec // a test
	e := entry(func(e *Entry) {
		e.Rate = 1 + rnd.IntN([]int{3, 50, 100_000}[rnd.IntN(3)])
		e.Burst = rnd.IntN(8)
		e.Every = unit.Duration([]time.Duration{time.Second, time.Minute, time.Hour, 7}[rnd.IntN(4)])
		e.Per = []string{"tenant", "subject", "credential", "match"}[rnd.IntN(4)]
	})
	c := newClock()
	began := c.t
	l := New(Config{Limits: []Entry{e}}, c.now)
	models := map[Caller]*gcra{}
	var wait time.Duration
	for range 20 {
		switch rnd.IntN(5) {
		case 0:
			c.pass(wait)
		case 1:
			c.pass(max(wait, 1) - 1)
		case 2:
			c.pass(time.Duration(rnd.Int64N(3*int64(e.Every)/int64(e.Rate) + 1)))
		case 3:
			c.pass(time.Duration(rnd.Int64N(2 * int64(e.Every))))
		}
		who := Caller{Tenant: "t" + fmt.Sprint(rnd.IntN(2)), Subject: "s" + fmt.Sprint(rnd.IntN(2)), Credential: "c" + fmt.Sprint(rnd.IntN(2))}
		m := models[e.ownerOf(who)]
		if m == nil {
			m = newGCRA(e)
			models[e.ownerOf(who)] = m
		}
		wantWait, want := m.take(c.t.Sub(began))
		err := l.Admit(who)
		if wait = fault.RetryAfterOf(err); wait != wantWait || (err == nil) != want {
			return fmt.Errorf("%+v: %v at %v: wait %v, %w; the model says %v, %t", e, who, c.t.Sub(began), wait, err, wantWait, want)
		}
	}
	return nil
}

// R13: under a load of ten times the limit, what is accepted is at most the limit and the burst, and all of that can
// be used.
func TestBoundR13(t *testing.T) {
	for _, burst := range []int{1, 10, 100} {
		c := newClock()
		l := New(Config{Limits: []Entry{entry(func(e *Entry) { e.Rate, e.Every, e.Burst, e.Server = 50, unit.Duration(time.Second), burst, "fs" })}}, c.now)
		accepted := 0
		for range 60 * 500 {
			var h Hold
			if l.Enter(Caller{Tenant: "a"}, Target{Server: "fs"}, &h) == nil {
				accepted++
			}
			c.pass(2 * time.Millisecond)
		}
		if most := 60*50 + burst; accepted > most || accepted < most*99/100 {
			t.Errorf("burst %d: %d accepted, the bound is %d", burst, accepted, most)
		}
	}
}

// Which calls an entry counts.
func TestMatches(t *testing.T) {
	who := Caller{Tenant: "acme", Issuer: "i", Subject: "ann", Credential: "ci-1"}
	read := Target{Server: "fs", Tool: "read_file"}
	model := Target{Model: "kimi-k2"}
	for name, tt := range map[string]struct {
		change func(*Entry)
		target Target
		want   bool // the second call is refused
	}{
		"a server":                   {func(e *Entry) { e.Server = "fs" }, read, true},
		"another server":             {func(e *Entry) { e.Server = "git" }, read, false},
		"every server":               {func(e *Entry) { e.Server = "*" }, read, true},
		"every server, and a model":  {func(e *Entry) { e.Server = "*" }, model, false},
		"a tool":                     {func(e *Entry) { e.Tool = "read_*" }, read, true},
		"another tool":               {func(e *Entry) { e.Tool = "write_*" }, read, false},
		"every tool":                 {func(e *Entry) { e.Tool = "*" }, read, true},
		"every tool, and no tool":    {func(e *Entry) { e.Tool = "*" }, Target{Server: "fs"}, false},
		"a tool in other letters":    {func(e *Entry) { e.Tool = "read_*" }, Target{Server: "fs", Tool: "READ_File"}, true},
		"a pattern in other letters": {func(e *Entry) { e.Tool = "READ_*" }, read, true},
		"a tool in wide letters":     {func(e *Entry) { e.Tool = "read_*" }, Target{Server: "fs", Tool: "ｒＥad_file"}, true},
		"a server in wide letters":   {func(e *Entry) { e.Server = "fs" }, Target{Server: "Ｆs"}, true},
		"a model":                    {func(e *Entry) { e.Model = "kimi-*" }, model, true},
		"a model in other letters":   {func(e *Entry) { e.Model = "kimi-*" }, Target{Model: "KIMI-k2"}, true},
		"another model":              {func(e *Entry) { e.Model = "gpt-*" }, model, false},
		"every model, and no model":  {func(e *Entry) { e.Model = "*" }, read, false},
		"a tenant":                   {func(e *Entry) { e.Server, e.Tenant = "fs", "ac*" }, read, true},
		"another tenant":             {func(e *Entry) { e.Server, e.Tenant = "fs", "Acme" }, read, false},
		"a credential":               {func(e *Entry) { e.Server, e.Credential = "fs", "ci-*" }, read, true},
		"another credential":         {func(e *Entry) { e.Server, e.Credential = "fs", "dev-*" }, read, false},
	} {
		l := New(Config{Limits: []Entry{entry(func(e *Entry) { e.Rate = 1; tt.change(e) })}}, newClock().now)
		var h Hold
		if err := l.Enter(who, tt.target, &h); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Enter(who, tt.target, &h); (err != nil) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		for range 3 { // none of them counts messages
			if err := l.Admit(who); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Who shares a bucket.
func TestPer(t *testing.T) {
	first := Caller{Tenant: "a", Issuer: "i", Subject: "ann", Credential: "c"}
	for name, tt := range map[string]struct {
		other  Caller
		shares string // the values of per where other uses what first has used
	}{
		"the same":           {first, "tenant subject credential match"},
		"another subject":    {Caller{Tenant: "a", Issuer: "i", Subject: "bob", Credential: "c"}, "tenant credential match"},
		"another issuer":     {Caller{Tenant: "a", Issuer: "j", Subject: "ann", Credential: "c"}, "tenant credential match"},
		"another credential": {Caller{Tenant: "a", Issuer: "i", Subject: "ann", Credential: "d"}, "tenant subject match"},
		"another tenant":     {Caller{Tenant: "b", Issuer: "i", Subject: "ann", Credential: "c"}, "match"},
	} {
		for _, per := range []string{"tenant", "subject", "credential", "match"} {
			l := New(Config{Limits: []Entry{entry(func(e *Entry) { e.Rate, e.Per = 1, per })}}, newClock().now)
			if err := l.Admit(first); err != nil {
				t.Fatal(err)
			}
			if shares := l.Admit(tt.other) != nil; shares != strings.Contains(tt.shares, per) {
				t.Errorf("%s, per = %q: shares %t", name, per, shares)
			}
		}
	}
}

// All entries that match apply. What one refuses costs nothing at the others, and the longest wait is named.
func TestAllEntriesApply(t *testing.T) {
	c := newClock()
	l := New(Config{Limits: []Entry{
		entry(func(e *Entry) { e.Name, e.Server, e.Rate, e.Every = "slow", "fs", 2, unit.Duration(time.Hour) }),
		entry(func(e *Entry) { e.Server, e.Rate, e.Every = "fs", 1, unit.Duration(time.Second) }),
	}}, c.now)
	call := func() (string, time.Duration) {
		var h Hold
		err := l.Enter(Caller{Tenant: "a"}, Target{Server: "fs"}, &h)
		if err == nil {
			return "", 0
		}
		if fault.KindOf(err) != fault.RateLimited {
			t.Errorf("kind of %v", err)
		}
		return fault.PublicOf(err), fault.RetryAfterOf(err)
	}
	for i, step := range []struct {
		pass time.Duration
		text string
		wait time.Duration
	}{
		{0, "", 0},
		{0, "Rate limit exceeded: limits[1]", time.Second},
		{time.Second, "", 0}, // the refusal took nothing from the slow one
		{time.Second, "Rate limit exceeded: slow", 30*time.Minute - 2*time.Second},
		{0, "Rate limit exceeded: slow", 30*time.Minute - 2*time.Second},
		{30*time.Minute - 2*time.Second, "", 0},
	} {
		c.pass(step.pass)
		if text, wait := call(); text != step.text || wait != step.wait {
			t.Errorf("step %d: %q, %v; want %q, %v", i, text, wait, step.text, step.wait)
		}
	}
}

// What is in flight is bounded, for callers and for targets, and comes back when calls end.
func TestConcurrency(t *testing.T) {
	l := New(Config{Limits: []Entry{
		entry(func(e *Entry) { e.Name, e.Concurrency = "all", 4 }),
		entry(func(e *Entry) { e.Name, e.Server, e.Concurrency = "fs", "fs", 2 }),
		entry(func(e *Entry) { e.Name, e.Tool, e.Concurrency = "tool", "x", 100 }),
	}}, newClock().now)
	enter := func(tenant, server string) (*Hold, error) {
		h := &Hold{}
		return h, l.Enter(Caller{Tenant: tenant}, Target{Server: server, Tool: "x"}, h)
	}
	var held []*Hold
	for i, step := range []struct{ server, refused string }{
		{"fs", ""}, {"fs", ""}, {"fs", "fs"}, {"git", ""}, {"git", ""}, {"git", "all"}, {"fs", "all"},
	} {
		h, err := enter("a", step.server)
		if err == nil {
			held = append(held, h)
		}
		if text := strings.TrimPrefix(fault.PublicOf(err), "Rate limit exceeded: "); err != nil && (text != step.refused || fault.RetryAfterOf(err) != busyRetry) || (err == nil) != (step.refused == "") {
			t.Errorf("step %d: %v, %v", i, err, fault.RetryAfterOf(err))
		}
		h.Release() // what was refused holds nothing; what was not is held by another reference
		if err == nil {
			if h, err = enter("a", step.server); err != nil {
				t.Errorf("step %d, again: %v", i, err)
			}
			held[len(held)-1] = h
		}
	}
	if _, err := enter("b", "fs"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	for _, h := range held {
		h.Release()
		h.Release()
	}
	for _, r := range l.rules.Load().all {
		if u := r.keys[Caller{Tenant: "a"}]; u.inFlight != 0 {
			t.Errorf("%s: %d in flight at the end", r.name, u.inFlight)
		}
	}
}

// Many calls at once never exceed the limit on what is in flight.
func TestConcurrencyHolds(t *testing.T) {
	l := New(Config{Limits: []Entry{entry(func(e *Entry) { e.Concurrency, e.Per = 3, "match" })}}, time.Now)
	var inFlight, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 200 {
				var h Hold
				if l.Enter(Caller{Tenant: fmt.Sprint(i)}, Target{}, &h) != nil {
					continue
				}
				n := inFlight.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				inFlight.Add(-1)
				h.Release()
			}
		})
	}
	if wg.Wait(); most.Load() > 3 {
		t.Errorf("%d in flight", most.Load())
	}
}

// A flood of callers at a limit neither grows its table nor removes one with calls in flight.
func TestFloodWithCallsInFlight(t *testing.T) {
	c := newClock()
	l := New(Config{Limits: []Entry{entry(func(e *Entry) { e.Concurrency, e.Per = 1, "subject" })}}, c.now)
	busy := Caller{Subject: "busy"}
	var h Hold
	if err := l.Enter(busy, Target{}, &h); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for i := range maxKeys + 10 {
			var other Hold
			if err := l.Enter(Caller{Subject: fmt.Sprint(c.t.UnixNano(), i)}, Target{}, &other); err != nil {
				t.Fatal(err)
			}
			other.Release()
		}
		c.pass(2 * sweepEvery)
		if n := len(l.keys()); n > maxKeys {
			t.Fatalf("%d keys", n)
		}
		if l.Enter(busy, Target{}, &Hold{}) == nil {
			t.Fatal("the flood reset a caller")
		}
	}
	if h.Release(); l.Enter(busy, Target{}, &h) != nil {
		t.Error("refused with nothing in flight")
	}
}

// A reload keeps what is used of the limits that stay the same, wherever they stand; another limit begins anew.
func TestApplyKeepsWhatIsUsed(t *testing.T) {
	c := newClock()
	one := entry(func(e *Entry) { e.Server, e.Rate = "fs", 1 })
	two := entry(func(e *Entry) { e.Tool, e.Rate = "x", 5 })
	l := New(Config{Limits: []Entry{one}}, c.now)
	call := func() error { return l.Enter(Caller{Tenant: "a"}, Target{Server: "fs", Tool: "x"}, &Hold{}) }
	if call() != nil || call() == nil {
		t.Fatal("one call a minute")
	}
	l.Apply(Config{Limits: []Entry{two, one}, PerMinute: 7})
	if err := call(); fault.PublicOf(err) != "Rate limit exceeded: limits[1]" {
		t.Errorf("after a reload: %v", err)
	}
	one.Burst = 2
	l.Apply(Config{Limits: []Entry{two, one}})
	if err := call(); err != nil {
		t.Errorf("another limit: %v", err)
	}
	l.Apply(Config{})
	for range 10 {
		if err := call(); err != nil {
			t.Errorf("no limit: %v", err)
		}
	}
	if err := (*Limiter)(nil).Enter(Caller{}, Target{}, &Hold{}); err != nil {
		t.Error(err)
	}
}

// A call in flight across a reload ends as any other.
func TestApplyWithCallsInFlight(t *testing.T) {
	e := entry(func(e *Entry) { e.Concurrency = 1 })
	l := New(Config{Limits: []Entry{e}}, newClock().now)
	var first, second Hold
	if err := l.Enter(Caller{}, Target{}, &first); err != nil {
		t.Fatal(err)
	}
	l.Apply(Config{Limits: []Entry{e}, PerMinute: 100})
	if l.Enter(Caller{}, Target{}, &second) == nil {
		t.Error("a reload forgot what is in flight")
	}
	if first.Release(); l.Enter(Caller{}, Target{}, &second) != nil {
		t.Error("refused with nothing in flight")
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", 513)
	for want, change := range map[string]func(*Entry){
		"":                                       func(*Entry) {},
		"limits[0].name: is longer than 512":     func(e *Entry) { e.Name = long },
		"limits[0].tenant: is longer":            func(e *Entry) { e.Tenant = long },
		"limits[0].credential: is longer":        func(e *Entry) { e.Credential = long },
		"limits[0].server: is longer":            func(e *Entry) { e.Server = long },
		"limits[0].tool: is longer":              func(e *Entry) { e.Tool = long },
		"limits[0].model: is longer":             func(e *Entry) { e.Model = long },
		"limits[0].model: no call is for":        func(e *Entry) { e.Model, e.Tool = "m", "t" },
		"limits[0].model: no call is for a":      func(e *Entry) { e.Model, e.Server = "m", "s" },
		"limits[0].rate: set rate":               func(e *Entry) { e.Rate = 0 },
		"limits[0].burst: needs rate":            func(e *Entry) { e.Rate, e.Burst, e.Concurrency = 0, 1, 1 },
		"limits[0].every: must be positive":      func(e *Entry) { e.Every = 0 },
		"limits[0].every: must be positive, and": func(e *Entry) { e.Every = unit.Duration(longestRefill + 1) },
		"limits[0].burst: at this rate":          func(e *Entry) { e.Rate, e.Burst, e.Every = 1, 400, unit.Duration(24*time.Hour) },
	} {
		e := entry(func(e *Entry) { e.Rate = 1 })
		change(&e)
		problems := Config{Limits: []Entry{e}}.Validate()
		if want == "" && len(problems) != 0 || want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want)) {
			t.Errorf("%q: %v", want, problems)
		}
	}
	var many Config
	for range maxEntries {
		many.Limits = append(many.Limits, entry(func(e *Entry) { e.Rate = 1 }))
	}
	if problems := many.Validate(); problems != nil {
		t.Error(problems)
	}
	many.Limits = append(many.Limits, many.Limits[0])
	if problems := many.Validate(); len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "limits: there are more") {
		t.Error(problems)
	}
}

// Admission allocates nothing once a caller is known.
func TestNoAllocations(t *testing.T) {
	l := New(Config{PerMinute: maxRate, Limits: manyEntries()}, time.Now)
	who, target := Caller{Tenant: "acme", Subject: "ann", Credential: "c"}, Target{Server: "fs", Tool: "read_file"}
	var h Hold
	if n := testing.AllocsPerRun(1000, func() {
		if l.Admit(who) != nil || l.Enter(who, target, &h) != nil {
			t.Fatal("refused")
		}
		h.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func manyEntries() []Entry {
	all := []Entry{
		entry(func(e *Entry) { e.Server, e.Rate = "fs", maxRate }), entry(func(e *Entry) { e.Tool, e.Rate, e.Concurrency = "read_*", maxRate, 10 }),
	}
	for i := range 18 {
		all = append(all, entry(func(e *Entry) { e.Tool, e.Rate, e.Tenant = "write_*", 1, fmt.Sprint("tenant", i) }))
	}
	return all
}

func BenchmarkEnter(b *testing.B) {
	l := New(Config{PerMinute: maxRate, Limits: manyEntries()}, time.Now)
	who, target := Caller{Tenant: "acme", Subject: "ann", Credential: "c"}, Target{Server: "fs", Tool: "read_file"}
	for b.Loop() {
		var h Hold
		_, _ = l.Admit(who), l.Enter(who, target, &h)
		h.Release()
	}
}

// One entry may limit both how often its callers call and how much they have in flight: messages count when they are
// admitted, calls in flight when they enter.
func TestRateAndConcurrencyOfCallers(t *testing.T) {
	c := &clock{}
	l := New(Config{Limits: []Entry{entry(func(e *Entry) { e.Rate, e.Burst, e.Concurrency = 3, 3, 1 })}}, c.now)
	who := Caller{Tenant: "t", Subject: "s"}
	var first, second Hold
	for i, want := range []bool{true, true, true, false} {
		if err := l.Admit(who); (err == nil) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if err := l.Enter(who, Target{Server: "fs"}, &first); err != nil {
		t.Fatal(err)
	}
	if err := l.Enter(who, Target{Server: "fs"}, &second); fault.KindOf(err) != fault.RateLimited {
		t.Errorf("a second call in flight: %v", err)
	}
	first.Release()
	if err := l.Enter(who, Target{Server: "fs"}, &second); err != nil {
		t.Error(err)
	}
	second.Release()
}
