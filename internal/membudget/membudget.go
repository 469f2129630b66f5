// Package membudget bounds the memory that the process holds for its callers. One [Budget]
// serves the whole process; each request, session or server connection has a [Scope], reserves
// bytes before it allocates them, and releases all of them at its end.
//
// A scope belongs to a caller, and each caller has a share, so that one caller cannot use up what
// others need. Where there are several tenants, all callers of one have the share of a caller together. Scopes of up to [MaxSmallScope] bytes draw on a reserve that larger ones cannot touch,
// so small calls go on while large ones are refused. What does not fit is refused with a fault of kind
// Full that says when to retry; what is already held is never taken away.
//
// membudget.go is the budget and its scopes, tenants.go the tenants of callers, memory_*.go the memory of the machine.
package membudget

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is how much memory the process may hold for its callers.
type Config struct {
	// The most memory that requests, replies, lists and messages in flight may hold together; a size. What
	// does not fit is rejected (HTTP 503, Retry-After). One caller may hold half of it, where there are several
	// tenants all callers of one together, and a quarter is reserved for small requests. It also sets Go's memory limit, somewhat higher, unless GOMEMLIMIT is
	// set. At least 64MiB. Default: a quarter of the machine's memory, at least 256MiB and at most 2GiB.
	Total unit.Bytes `key:"memory_budget" reload:"restart"`
}

const (
	minDefault = 256 << 20
	maxDefault = 2 << 30

	// MinTotal is the smallest budget that can be configured.
	MinTotal = 64 << 20
)

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	if c.Total != 0 && c.Total < MinTotal {
		return []error{fmt.Errorf("memory_budget: must be at least %s", unit.Bytes(MinTotal))}
	}
	return nil
}

// Size is the configured budget, or the default for this machine.
func (c Config) Size() int64 {
	if c.Total > 0 {
		return int64(c.Total)
	}
	machine, ok := machineMemory()
	if !ok {
		return minDefault
	}
	return min(max(machine/4, minDefault), maxDefault)
}

// SetRuntimeLimit sets Go's memory limit to the budget and what the process itself needs. A limit
// from the environment stays.
func (c Config) SetRuntimeLimit() {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(runtimeLimit(c.Size()))
	}
}

func runtimeLimit(budget int64) int64 { return budget + max(budget/16, 32<<20) }

// MaxSmallScope is the most bytes that a scope may hold and still draw on the reserve for small
// ones: a body of 256 KiB, and what a request costs beside its body.
const MaxSmallScope = 256<<10 + 32<<10

// How the budget is divided.
const (
	largeFraction       = 0.75 // for all large scopes together; the rest is for small ones alone
	largeCallerFraction = 0.5  // for the large scopes of one caller, or of one of several tenants
	smallCallerFraction = 0.25 // for the small scopes of one caller, or of one of several tenants
)

// What a refusal says, and when to retry.
const (
	refusedBudget  = "the gateway has no memory left for this"
	refusedCaller  = "this caller already holds its share of the gateway's memory"
	refusedTenant  = "this tenant already holds its share of the gateway's memory"
	refusedTooMuch = "this needs more memory than one caller may hold; see memory_budget"
	retryAfter     = time.Second
)

// Budget is the memory that callers may hold. A nil Budget has no bound. It is safe for
// concurrent use.
type Budget struct {
	total int64

	mu      sync.Mutex
	small   int64
	large   int64
	callers map[string]*caller
	tenants map[string]*tenant
	seen    Tenants
	refused int64
}

// caller is what one caller holds. It exists while the caller has a scope.
type caller struct {
	name         string
	tenant       *tenant // nil for what is the gateway's own
	small, large int64
	scopes       int
}

// tenant is what all callers of one tenant hold. It exists while one of them does.
type tenant struct {
	name         string
	small, large int64
	callers      int
}

// New makes a budget of total bytes.
func New(total int64) *Budget {
	return &Budget{total: total, callers: map[string]*caller{}, tenants: map[string]*tenant{}}
}

// Stats is the state of a budget.
type Stats struct {
	Total   int64 // bytes that may be held
	Held    int64 // bytes that are held now
	Callers int   // callers with a scope
	Refused int64 // reservations that were refused
}

// Stats says what is held now.
func (b *Budget) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Total: b.total, Held: b.small + b.large, Callers: len(b.callers), Refused: b.refused}
}

// Scope opens a scope for a caller. It must be released.
func (b *Budget) Scope(name string) *Scope {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return &Scope{budget: b, caller: b.addScope(name)}
}

// addScope counts a scope of a caller; the lock is held.
func (b *Budget) addScope(name string) *caller {
	c := b.callers[name]
	if c == nil {
		c = &caller{name: name, tenant: b.addCaller(TenantOf(name))}
		b.callers[name] = c
	}
	c.scopes++
	return c
}

// addCaller counts a caller of a tenant; the lock is held.
func (b *Budget) addCaller(name string) *tenant {
	if name == "" {
		return nil
	}
	b.seen.AreSeveral(name)
	t := b.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		b.tenants[name] = t
	}
	t.callers++
	return t
}

// isBeyondShare says whether a tenant would have more than its share with so many bytes more; the lock is held.
func (b *Budget) isBeyondShare(t *tenant, moreSmall, moreLarge int64) bool {
	return t != nil && b.seen.several && (moreLarge > 0 && b.exceeds(t.large+moreLarge, largeCallerFraction) || moreSmall > 0 && b.exceeds(t.small+moreSmall, smallCallerFraction))
}

// removeScope counts a scope less; the lock is held.
func (b *Budget) removeScope(c *caller) {
	if c.scopes--; c.scopes > 0 {
		return
	}
	delete(b.callers, c.name)
	if t := c.tenant; t != nil {
		if t.callers--; t.callers == 0 {
			delete(b.tenants, t.name)
		}
	}
}

// exceeds says whether bytes are more than a fraction of the budget.
func (b *Budget) exceeds(bytes int64, fraction float64) bool {
	return float64(bytes) > fraction*float64(b.total)
}

// Scope is what one request, session or connection holds. A nil Scope has no bound. It is safe
// for concurrent use.
type Scope struct {
	budget   *Budget
	caller   *caller
	held     int64
	released bool
}

// Reserve reserves n bytes. Call it before they are allocated.
func (s *Scope) Reserve(n int64) error {
	if s == nil || n <= 0 {
		return nil
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.released {
		return newRefusal(refusedBudget)
	}
	small, large := smallOrLarge(s.held)
	nextSmall, nextLarge := smallOrLarge(s.held + n)
	moreSmall, moreLarge := nextSmall-small, nextLarge-large
	var why string
	switch {
	case b.exceeds(nextLarge, largeCallerFraction):
		why = refusedTooMuch
	case moreLarge > 0 && b.exceeds(s.caller.large+moreLarge, largeCallerFraction), moreSmall > 0 && b.exceeds(s.caller.small+moreSmall, smallCallerFraction):
		why = refusedCaller
	case b.isBeyondShare(s.caller.tenant, moreSmall, moreLarge):
		why = refusedTenant
	case moreLarge > 0 && b.exceeds(b.large+moreLarge, largeFraction), b.small+b.large+n > b.total:
		why = refusedBudget
	}
	if why != "" {
		b.refused++
		return newRefusal(why)
	}
	s.held += n
	s.addHeld(moreSmall, moreLarge)
	return nil
}

// Free returns n of the bytes that the scope holds, before its end.
func (s *Scope) Free(n int64) {
	if s == nil || n <= 0 {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.setHeld(s.held - min(n, s.held))
}

// Release returns everything. Later reservations of the scope are refused.
func (s *Scope) Release() {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.released {
		return
	}
	s.setHeld(0)
	s.released = true
	s.budget.removeScope(s.caller)
}

// Sibling is another scope of the same caller, for what outlives this one.
func (s *Scope) Sibling() *Scope {
	if s == nil {
		return nil
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return &Scope{budget: s.budget, caller: s.budget.addScope(s.caller.name)}
}

// SetCaller moves the scope to the share of another caller, once it is known who calls.
func (s *Scope) SetCaller(name string) error {
	if s == nil {
		return nil
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.released || s.caller.name == name {
		return nil
	}
	to := b.callers[name]
	small, large := smallOrLarge(s.held)
	if to != nil && (b.exceeds(to.small+small, smallCallerFraction) || b.exceeds(to.large+large, largeCallerFraction)) {
		b.refused++
		return newRefusal(refusedCaller)
	}
	if name := TenantOf(name); name != TenantOf(s.caller.name) && b.isBeyondShare(b.tenants[name], small, large) {
		b.refused++
		return newRefusal(refusedTenant)
	}
	s.addHeld(-small, -large)
	b.removeScope(s.caller)
	s.caller = b.addScope(name)
	s.addHeld(small, large)
	return nil
}

// MoveTo moves n of the bytes that the scope holds to another scope. Only the share of the other
// scope's caller is checked, not the budget as a whole.
func (s *Scope) MoveTo(to *Scope, n int64) error {
	if s == nil || to == nil || n <= 0 {
		s.Free(n)
		return to.Reserve(n)
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	small, large := smallOrLarge(to.held)
	nextSmall, nextLarge := smallOrLarge(to.held + n)
	if to.released || b.exceeds(to.caller.small+nextSmall-small, smallCallerFraction) || b.exceeds(to.caller.large+nextLarge-large, largeCallerFraction) {
		b.refused++
		return newRefusal(refusedCaller)
	}
	if to.caller.tenant != s.caller.tenant && b.isBeyondShare(to.caller.tenant, nextSmall-small, nextLarge-large) {
		b.refused++
		return newRefusal(refusedTenant)
	}
	s.setHeld(s.held - min(n, s.held))
	to.setHeld(to.held + n)
	return nil
}

// smallOrLarge says how a scope of this size counts: all of it as small, or all of it as large.
func smallOrLarge(held int64) (small, large int64) {
	if held <= MaxSmallScope {
		return held, 0
	}
	return 0, held
}

// setHeld changes what the scope holds; the lock is held.
func (s *Scope) setHeld(next int64) {
	small, large := smallOrLarge(s.held)
	nextSmall, nextLarge := smallOrLarge(next)
	s.held = next
	s.addHeld(nextSmall-small, nextLarge-large)
}

// addHeld adds to the totals of the caller and the budget; the lock is held.
func (s *Scope) addHeld(small, large int64) {
	s.caller.small += small
	s.caller.large += large
	if t := s.caller.tenant; t != nil {
		t.small += small
		t.large += large
	}
	s.budget.small += small
	s.budget.large += large
}

func newRefusal(public string) error {
	err := fault.New(fault.Full, public)
	err.RetryAfter = retryAfter
	return err
}

// Charge counts what a growing buffer has reserved in a scope.
type Charge struct {
	Scope *Scope
	Bytes int64 // what the scope holds for the buffer
}

// Reserve reserves n bytes more.
func (c *Charge) Reserve(n int64) error {
	err := c.Scope.Reserve(n)
	if err == nil {
		c.Bytes += max(n, 0)
	}
	return err
}

// ShrinkTo returns all but n bytes.
func (c *Charge) ShrinkTo(n int64) {
	if c.Bytes > n {
		c.Scope.Free(c.Bytes - n)
		c.Bytes = n
	}
}

type contextKey struct{}

// NewContext returns a context that carries a request's scope.
func NewContext(ctx context.Context, s *Scope) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext returns the scope of the request. It is nil when there is none and when it was released:
// work that outlives the request holds its bytes elsewhere.
func FromContext(ctx context.Context) *Scope {
	s, _ := ctx.Value(contextKey{}).(*Scope)
	if s == nil {
		return nil
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.released {
		return nil
	}
	return s
}
