// Package limit limits how often callers may call, and how much they may have in flight.
//
// config.go is what an operator writes; limit.go the [Limiter], which admits messages of callers and calls of
// targets; bucket.go the token bucket; shared.go rates that replicas share through a store; slots.go the [Slots], which
// bound what is in flight at one endpoint.
//
// Invariants of the limiter: nobody is admitted more often than a bucket allows, to the nanosecond and without
// drift. A call that any limit refuses costs nothing at the others. Names are compared without regard to case and
// to the forms that Unicode has for one character, so that another spelling of a tool's name is not another tool.
// Only a bucket that is full again is removed, when there is no room for a new one, so that a flood of callers
// cannot reset one that has used its calls up. A limit never has more than 10000 buckets: the callers beyond that
// share one. A process has one limiter for all its endpoints.
//
// Alone, it depends on nothing but the clock it is given. With [Limiter.Share] a store counts the rates of all replicas:
// together they are within the rate, and within 1 % of the burst in any window. A call waits at most 50 ms for the store.
// While the store does not answer, no call waits for it, and each replica has an equal share of every rate. What is in
// flight always counts in one process.
package limit

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/glob"
)

// maxKeys is how many callers have a bucket of their own, at each limit.
const maxKeys = 10_000

// sweepEvery is how often a full table is searched for buckets to remove, which takes as long as
// thousands of calls.
const sweepEvery = time.Second

// busyRetry is when to come back to a limit on what is in flight. Nobody knows when a call will end.
const busyRetry = time.Second

// Caller is who calls. The limiter stores its texts.
type Caller struct {
	Tenant, Issuer, Subject, Credential string
}

// Target is what is called. Names are the server's own; those that do not apply are empty.
type Target struct {
	Server, Tool, Model string
}

// Limiter counts calls. It is safe for concurrent use. A nil Limiter limits nothing.
type Limiter struct {
	now   func() time.Time
	rules atomic.Pointer[ruleSet]

	mu    sync.Mutex // guards the tables of the rules
	start time.Time  // the times of buckets count from here
	store *rateStore // counts for all replicas; nil if this process is alone
}

// ruleSet is the limits of one configuration.
type ruleSet struct {
	all     []*rule
	callers []*rule // rates that count every message of a caller
	targets []*rule // those that look at the target, and all that bound what is in flight
}

// rule is one limit and its buckets.
type rule struct {
	entry                                    Entry        // what it was made of
	name                                     string       // in errors
	tenant, credential, server, tool, models glob.Pattern // nil matches everything
	rate                                     rate
	id                                       string // the same in all replicas

	keys      map[Caller]*usage
	shared    usage // of the callers beyond maxKeys
	lastSweep time.Duration
}

// usage is what those who share a bucket have used.
type usage struct {
	bucket
	inFlight int
	grant
}

// New makes a limiter that reads the time from now.
func New(cfg Config, now func() time.Time) *Limiter {
	l := &Limiter{now: now}
	l.Apply(cfg)
	return l
}

// Apply sets other limits. What is used of a limit that stays the same stays used; the buckets of the others are full.
func (l *Limiter) Apply(cfg Config) {
	entries := cfg.entries()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start.IsZero() && len(entries) > 0 {
		l.start = l.now()
	}
	var old []*rule
	if set := l.rules.Load(); set != nil {
		old = append(old, set.all...)
	}
	next := &ruleSet{}
	ids := map[string]int{}
	for _, e := range entries {
		r := newRule(e.Entry)
		for i, had := range old {
			if had != nil && had.entry == e.Entry {
				r, old[i] = had, nil
				break
			}
		}
		r.name, r.id = e.name, e.id(ids)
		next.all = append(next.all, r)
		if e.isForCallers() && e.Rate > 0 {
			next.callers = append(next.callers, r)
		}
		if !e.isForCallers() || e.Concurrency > 0 {
			next.targets = append(next.targets, r)
		}
	}
	l.rules.Store(next)
}

func newRule(e Entry) *rule {
	r := &rule{entry: e, rate: e.rate(), keys: map[Caller]*usage{}, lastSweep: -sweepEvery}
	for _, p := range []struct {
		to   *glob.Pattern
		text string
	}{{&r.tenant, e.Tenant}, {&r.credential, e.Credential}, {&r.server, foldName(e.Server)}, {&r.tool, foldName(e.Tool)}, {&r.models, foldName(e.Model)}} {
		if p.text != "" && p.text != "*" {
			*p.to = glob.New(p.text)
		}
	}
	return r
}

// foldName is a name without what its spellings may differ in.
func foldName(name string) string {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return strings.ToLower(norm.NFKC.String(strings.ToLower(name)))
		}
	}
	return strings.ToLower(name)
}

// Admit counts one message of a caller against the limits that look at nothing but the caller. Beyond one of them it
// returns an error of kind RateLimited that says when to retry (A9).
func (l *Limiter) Admit(c Caller) error {
	if l == nil {
		return nil
	}
	set := l.rules.Load()
	if len(set.callers) == 0 {
		return nil
	}
	return l.take(set.callers, c, Target{}, nil)
}

// Enter counts a call against the limits of its target, and against those on what is in flight. Beyond one of them it
// returns an error as Admit does. If there is none, the Hold must be released at the end of the call.
func (l *Limiter) Enter(c Caller, t Target, h *Hold) error {
	if l == nil {
		return nil
	}
	set := l.rules.Load()
	if len(set.targets) == 0 {
		return nil
	}
	t = Target{foldName(t.Server), foldName(t.Tool), foldName(t.Model)}
	h.limiter = l
	return l.take(set.targets, c, t, h)
}

// match is a rule that matches a call, and what the owner of the call has used of it.
type match struct {
	*rule
	*usage
	owner    Caller
	isRating bool
	isHeld   bool // counts what is in flight
	isLeased bool // the call is from the calls that the store has granted this process
}

// take takes a call from the buckets of all rules that match, or of none. With a Hold it also counts the call as in
// flight, and without the rates of callers, which Admit has counted.
func (l *Limiter) take(rules []*rule, c Caller, t Target, h *Hold) error {
	var buffer [8]match
	matches := buffer[:0]
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now().Sub(l.start)
	isRating := false
	for _, r := range rules {
		if !r.matches(c, t) {
			continue
		}
		m := match{rule: r, owner: r.entry.ownerOf(c), isRating: r.entry.Rate > 0 && (h == nil || !r.entry.isForCallers()), isHeld: r.entry.Concurrency > 0 && h != nil}
		m.usage = r.usageOf(m.owner, now)
		matches = append(matches, m)
		isRating = isRating || m.isRating
	}
	if isRating && l.isStoreUp(now) {
		if isDecided, err := l.takeShared(matches, now, h); isDecided {
			return err
		}
		now = l.now().Sub(l.start)
	}
	var refusal *rule
	var wait time.Duration
	for _, m := range matches {
		if m.isHeld && m.inFlight >= m.entry.Concurrency && wait < busyRetry {
			refusal, wait = m.rule, busyRetry
		}
		if m.isRating {
			if need := l.localRate(m.rule).wait(m.bucket, now); need > wait {
				refusal, wait = m.rule, need
			}
		}
	}
	if refusal != nil {
		return refusal.refuse(wait)
	}
	for _, m := range matches {
		if m.isRating {
			r := l.localRate(m.rule)
			r.takeCall(&m.bucket, now)
			m.unreported++
		}
		if m.isHeld {
			m.inFlight++
			h.addUsage(m.usage)
		}
		m.store()
	}
	return nil
}

// store puts what is used into the table, if it is not there yet.
func (m match) store() {
	if m.usage != &m.shared {
		m.keys[m.owner] = m.usage
	}
}

func (r *rule) matches(c Caller, t Target) bool {
	return (r.tenant == nil || r.tenant.Match(c.Tenant)) && (r.credential == nil || r.credential.Match(c.Credential)) &&
		(r.server == nil || r.server.Match(t.Server)) && (r.tool == nil || r.tool.Match(t.Tool)) && (r.models == nil || r.models.Match(t.Model)) &&
		(r.entry.Tool == "" || t.Tool != "") && (r.entry.Server == "" || t.Server != "") && (r.entry.Model == "" || t.Model != "")
}

// refuse is the error of a call beyond the limit. It says nothing about others who share it.
func (r *rule) refuse(wait time.Duration) error {
	public := "Rate limit exceeded"
	if r.name != "" {
		public += ": " + r.name
	}
	err := fault.New(fault.RateLimited, public)
	err.RetryAfter = wait
	return err
}

// usageOf is what an owner has used of the limit. A new one is not in the table yet.
func (r *rule) usageOf(owner Caller, now time.Duration) *usage {
	if u := r.keys[owner]; u != nil {
		return u
	}
	if !r.hasRoom(now) {
		return &r.shared
	}
	return &usage{}
}

// hasRoom says whether one more key fits.
func (r *rule) hasRoom(now time.Duration) bool {
	if len(r.keys) < maxKeys {
		return true
	}
	if now-r.lastSweep < sweepEvery {
		return false
	}
	r.lastSweep = now
	for key, u := range r.keys {
		if u.inFlight == 0 && r.rate.isFull(u.bucket, now) && now >= u.grantedUntil {
			delete(r.keys, key)
		}
	}
	return len(r.keys) < maxKeys
}

// Hold is what a call holds of the limits on what is in flight. The zero Hold holds nothing.
type Hold struct {
	limiter *Limiter
	first   [2]*usage
	count   int
	rest    []*usage
}

func (h *Hold) addUsage(u *usage) {
	if h.count < len(h.first) {
		h.first[h.count] = u
		h.count++
		return
	}
	h.rest = append(h.rest, u)
}

// Release gives back what the call holds. A second call does nothing.
func (h *Hold) Release() {
	if h.count == 0 {
		return
	}
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	for _, u := range h.first[:h.count] {
		u.inFlight--
	}
	for _, u := range h.rest {
		u.inFlight--
	}
	h.count, h.rest = 0, nil
}
