// Package budget stops tenants that have spent their budget: requests to models, tokens or money, per day or month.
//
// A [Tracker] has the budgets of the configuration. Before a request is made, [Tracker.Reserve] reserves what it may
// cost at most; at its end, [Reservation.Settle] records what it did cost. config.go is what an operator writes,
// tally.go what is stored of a tenant, account.go adds to it.
//
// Invariants: a request is admitted only while what is used and reserved is less than the budget, so that requests at
// the same time exceed it together by at most one of them, as far as none costs more than it reserved. What is used is
// in the store and survives a restart; processes that share a store share the budgets. What is used stays used when
// the configuration changes.
//
// When the store fails, each process counts for itself, and adds its part when the store is back.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/state"
)

const (
	keyPrefix = "budget\x00" // of the keys in the store; the tenant's name follows

	// storedFor is longer than any period.
	storedFor = 40 * 24 * time.Hour

	// maxAccounts is how many tenants are known at once. Those that make no requests are forgotten first: what they
	// used is in the store.
	maxAccounts = 10_000

	// busyRetry is when to come back while the rest of a budget is reserved for requests in flight.
	busyRetry = 5 * time.Second
)

// Tracker knows what tenants may use and have used. It is safe for concurrent use. A nil Tracker limits nothing.
type Tracker struct {
	store   *state.Store
	now     func() time.Time
	entries atomic.Pointer[[]entry]
	writes  sync.WaitGroup

	mu       sync.Mutex
	accounts map[string]*account
	warned   map[warning]string // the period in which a warning was logged
}

// entry is an entry of the configuration.
type entry struct {
	Entry
	tenants glob.Pattern
	limit   Amount
}

type warning struct {
	tenant string
	entry  Entry
}

// New makes a tracker that stores what is used.
func New(cfg Config, store *state.Store, now func() time.Time) *Tracker {
	t := &Tracker{store: store.WithTTL(storedFor), now: now, accounts: map[string]*account{}, warned: map[warning]string{}}
	t.Apply(cfg)
	return t
}

// Apply sets other budgets. What was used stays used.
func (t *Tracker) Apply(cfg Config) {
	entries := make([]entry, 0, len(cfg.Budgets))
	for _, e := range cfg.Budgets {
		entries = append(entries, entry{e, glob.New(e.Tenant), e.limit()})
	}
	t.entries.Store(&entries)
}

// entriesOf are the budgets of a tenant.
func (t *Tracker) entriesOf(tenant string) []entry {
	var own []entry
	for _, e := range *t.entries.Load() {
		if e.tenants.Match(tenant) {
			own = append(own, e)
		}
	}
	return own
}

// IsLimited says whether a tenant has a budget.
func (t *Tracker) IsLimited(tenant string) bool { return t != nil && len(t.entriesOf(tenant)) > 0 }

// Reservation is what a request may cost. It must be settled. A nil Reservation is of a tenant without a budget.
type Reservation struct {
	tracker *Tracker
	tenant  string
	hour    int64
	most    Amount
	warning string
	settled atomic.Bool
}

// Reserve reserves what a request of a tenant may cost at most. If the tenant's budget is used up, the error is of kind
// OverBudget and says when it renews; if the rest of it is reserved by other requests, of kind RateLimited.
func (t *Tracker) Reserve(ctx context.Context, tenant string, most Amount) (*Reservation, error) {
	if !t.IsLimited(tenant) {
		return nil, nil //nolint:nilnil // there is nothing to settle
	}
	a, err := t.accountOf(tenant)
	if err != nil {
		return nil, err
	}
	r := &Reservation{tracker: t, tenant: tenant, hour: hourOf(t.now()), most: most}
	op := &operation{change: change{held: map[int64]Amount{r.hour: most}}, mayRefuse: true, done: make(chan struct{})}
	a.submit(t, op)
	select {
	case <-op.done:
	case <-ctx.Done():
		go func() { // what is reserved all the same is given back
			if <-op.done; op.refusal == nil {
				r.Settle(Amount{})
			}
		}()
		return nil, ctx.Err()
	}
	if op.refusal != nil {
		return nil, op.refusal
	}
	r.warning = op.warning
	return r, nil
}

// Warning says what the tenant has used of its budget, if that is beyond warn_at; "" otherwise.
func (r *Reservation) Warning() string {
	if r == nil {
		return ""
	}
	return r.warning
}

// Most is what was reserved.
func (r *Reservation) Most() Amount {
	if r == nil {
		return Amount{}
	}
	return r.most
}

// Settle records what a request did cost, in place of what it reserved. It does not wait for the store. A second call
// does nothing.
func (r *Reservation) Settle(used Amount) {
	if r == nil || r.settled.Swap(true) {
		return
	}
	a, err := r.tracker.accountOf(r.tenant)
	if err != nil {
		return // the reservation expires
	}
	a.submit(r.tracker, &operation{change: change{used: used, held: map[int64]Amount{r.hour: r.most.negative()}}, done: make(chan struct{})})
}

var errTooManyTenants = fault.New(fault.Full, "too many tenants use models at once")

// accountOf is the account of a tenant.
func (t *Tracker) accountOf(tenant string) (*account, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.accounts[tenant]; a != nil {
		return a, nil
	}
	if len(t.accounts) >= maxAccounts {
		for name, a := range t.accounts {
			if a.isIdle() {
				delete(t.accounts, name)
			}
		}
		clear(t.warned)
	}
	if len(t.accounts) >= maxAccounts {
		return nil, errTooManyTenants
	}
	a := &account{tenant: tenant}
	t.accounts[tenant] = a
	return a, nil
}

// refusalOf is the error of a request of a tenant with a tally; nil if it may be made.
func (t *Tracker) refusalOf(tenant string, have tally) error {
	now := t.now()
	reserved := have.reserved()
	var busy error
	for _, e := range t.entriesOf(tenant) {
		used := have.used(e.Per)
		for _, p := range parts(used, e.limit) {
			if p.limit > 0 && p.used >= p.limit {
				renews := renewal(e.Per, now)
				err := fault.New(fault.OverBudget, fmt.Sprintf("the budget of this tenant is used up: %s of %s this %s; it renews at %s",
					p.text(p.used), p.text(p.limit), e.Per, renews.Format(time.RFC3339)))
				err.RetryAfter = renews.Sub(now)
				return err
			}
		}
		for _, p := range parts(used.sum(reserved), e.limit) {
			if p.limit > 0 && p.used >= p.limit {
				err := fault.New(fault.RateLimited, "the rest of this tenant's budget is reserved for its requests in flight")
				err.RetryAfter = busyRetry
				busy = err
			}
		}
	}
	return busy
}

// warningOf says what a tenant has used of the budget that is closest to its end, if it is to be warned.
func (t *Tracker) warningOf(tenant string, have tally) string {
	text, most := "", 0.0
	for _, e := range t.entriesOf(tenant) {
		used := share(have.used(e.Per), e.limit)
		if e.WarnAt == 0 || used < e.WarnAt {
			continue
		}
		if used > most {
			text, most = fmt.Sprintf("%d%% of this %s", int(used*100), e.Per), used
		}
		t.logOnce(tenant, e, have, used)
	}
	return text
}

// logOnce warns once in each period.
func (t *Tracker) logOnce(tenant string, e entry, have tally, used float64) {
	period := have.Day
	if e.Per == perMonth {
		period = have.Month
	}
	key := warning{tenant, e.Entry}
	t.mu.Lock()
	told := t.warned[key] == period
	if !told {
		if len(t.warned) >= maxAccounts {
			clear(t.warned)
		}
		t.warned[key] = period
	}
	t.mu.Unlock()
	if !told {
		slog.Warn("a tenant has used most of its budget", "tenant", tenant, "per", e.Per, "used_percent", int(used*100), "renews", renewal(e.Per, t.now()))
	}
}

// Close waits until what was settled is stored.
func (t *Tracker) Close() {
	if t != nil {
		t.writes.Wait()
	}
}

// Status is what a tenant has used of one budget.
type Status struct {
	Tenant string
	Per    string
	Used   Amount
	Held   Amount // reserved by requests in flight
	Limit  Amount // 0: any number
	Renews time.Time
}

// maxStatuses is how many tenants Statuses reads.
const maxStatuses = 1000

// Statuses lists the budgets of the tenants that have used some, those that have used most of theirs first.
func (t *Tracker) Statuses(ctx context.Context) ([]Status, error) {
	if t == nil || len(*t.entries.Load()) == 0 {
		return nil, nil
	}
	stored, err := t.store.List(ctx, state.ListRequest{Prefix: keyPrefix, Groups: keyPrefix, Limit: maxStatuses})
	if err != nil {
		return nil, err
	}
	now := t.now()
	var all []Status
	for _, item := range stored {
		raw, err := t.store.Get(ctx, item.Key)
		if err != nil {
			continue // it has expired since
		}
		tenant := strings.TrimPrefix(item.Key, keyPrefix)
		have := readTally(raw).at(now)
		for _, e := range t.entriesOf(tenant) {
			all = append(all, Status{tenant, e.Per, have.used(e.Per), have.reserved(), e.limit, renewal(e.Per, now)})
		}
	}
	slices.SortStableFunc(all, func(a, b Status) int { return cmp.Compare(b.Share(), a.Share()) })
	return all, nil
}

// Share is how much of the budget is used, by the count of which most is used.
func (s Status) Share() float64 { return share(s.Used, s.Limit) }

// String is what is used of each limited count, for people.
func (s Status) String() string {
	var texts []string
	for i, p := range parts(s.Used, s.Limit) {
		if p.limit > 0 {
			used := strconv.FormatInt(p.used, 10)
			if i == 2 {
				used = p.text(p.used)
			}
			texts = append(texts, used+" of "+p.text(p.limit))
		}
	}
	return strings.Join(texts, ", ")
}
