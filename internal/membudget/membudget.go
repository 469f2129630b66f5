// Package membudget bounds the memory that the process holds for its callers. One [Budget]
// serves the whole process; each request, session or server connection has a [Scope], takes
// bytes from the budget before it allocates them, and gives all of them back at its end.
//
// A scope belongs to a caller, and a caller has a share: one caller cannot use up what others
// need. Scopes of up to [SmallScope] bytes draw on a reserve that larger ones cannot touch, so
// small calls go on while large ones are refused. What does not fit is refused with a fault of
// kind Full that says when to come back; nothing that is already held is taken away.
//
// Path through the files: membudget.go is the budget and its scopes, default.go how large it is
// where the configuration does not say, machine_*.go how much memory the machine has.
package membudget

import (
	"context"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// SmallScope is the most bytes that a scope may hold and still draw on the reserve for small
// ones: a body of 256 KiB, and what a request costs beside its body.
const SmallScope = 256<<10 + 32<<10

// How the budget is divided.
const (
	largePart  = 0.75 // of the budget, for all large scopes together; the rest is for small ones alone
	largeShare = 0.5  // of the budget, for the large scopes of one caller
	smallShare = 0.25 // of the budget, for the small scopes of one caller
)

// What a refusal says, and when to come back.
const (
	refusedBudget  = "the gateway has no memory left for this"
	refusedCaller  = "this caller already holds its share of the gateway's memory"
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
	refused int64
}

// caller is what one caller holds. It exists while the caller has a scope.
type caller struct {
	name         string
	small, large int64
	scopes       int
}

// New makes a budget of so many bytes.
func New(total int64) *Budget {
	return &Budget{total: total, callers: map[string]*caller{}}
}

// Stats is what a budget has come to.
type Stats struct {
	Total   int64 // bytes that may be held
	Held    int64 // bytes that are held now
	Callers int   // callers that hold some
	Refused int64 // requests for bytes that were refused
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

// Scope begins to hold bytes for a caller. It must be released.
func (b *Budget) Scope(name string) *Scope {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return &Scope{budget: b, caller: b.enter(name)}
}

// enter counts a scope of a caller; the lock is held.
func (b *Budget) enter(name string) *caller {
	c := b.callers[name]
	if c == nil {
		c = &caller{name: name}
		b.callers[name] = c
	}
	c.scopes++
	return c
}

// leave counts a scope less; the lock is held.
func (b *Budget) leave(c *caller) {
	if c.scopes--; c.scopes == 0 {
		delete(b.callers, c.name)
	}
}

// over says whether so many bytes are more than a part of the budget.
func (b *Budget) over(bytes int64, part float64) bool { return float64(bytes) > part*float64(b.total) }

// Scope is what one request, session or connection holds. A nil Scope has no bound. It is safe
// for concurrent use.
type Scope struct {
	budget   *Budget
	caller   *caller
	held     int64
	released bool
}

// Take reserves n bytes. Call it before they are allocated.
func (s *Scope) Take(n int64) error {
	if s == nil || n <= 0 {
		return nil
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.released {
		return refusal(refusedBudget)
	}
	small, large := split(s.held)
	nextSmall, nextLarge := split(s.held + n)
	moreSmall, moreLarge := nextSmall-small, nextLarge-large
	var why string
	switch {
	case b.over(nextLarge, largeShare):
		why = refusedTooMuch
	case moreLarge > 0 && b.over(s.caller.large+moreLarge, largeShare), moreSmall > 0 && b.over(s.caller.small+moreSmall, smallShare):
		why = refusedCaller
	case moreLarge > 0 && b.over(b.large+moreLarge, largePart), b.small+b.large+n > b.total:
		why = refusedBudget
	}
	if why != "" {
		b.refused++
		return refusal(why)
	}
	s.held += n
	s.book(moreSmall, moreLarge)
	return nil
}

// Give returns n of the bytes that the scope holds, before its end.
func (s *Scope) Give(n int64) {
	if s == nil || n <= 0 {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.hold(s.held - min(n, s.held))
}

// Release returns everything. The scope can take nothing afterwards.
func (s *Scope) Release() {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.released {
		return
	}
	s.hold(0)
	s.released = true
	s.budget.leave(s.caller)
}

// Sibling is another scope of the same caller, for what outlives this one.
func (s *Scope) Sibling() *Scope {
	if s == nil {
		return nil
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return &Scope{budget: s.budget, caller: s.budget.enter(s.caller.name)}
}

// Assign makes another caller the one whose share the scope takes from: it is known now who
// calls.
func (s *Scope) Assign(name string) error {
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
	small, large := split(s.held)
	if to != nil && (b.over(to.small+small, smallShare) || b.over(to.large+large, largeShare)) {
		b.refused++
		return refusal(refusedCaller)
	}
	s.book(-small, -large)
	b.leave(s.caller)
	s.caller = b.enter(name)
	s.book(small, large)
	return nil
}

// MoveTo hands n of the bytes that the scope holds to another scope. The budget as a whole is not
// asked again, only the share of the other's caller.
func (s *Scope) MoveTo(to *Scope, n int64) error {
	if s == nil || to == nil || n <= 0 {
		s.Give(n)
		return to.Take(n)
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	small, large := split(to.held)
	nextSmall, nextLarge := split(to.held + n)
	if to.released || b.over(to.caller.small+nextSmall-small, smallShare) || b.over(to.caller.large+nextLarge-large, largeShare) {
		b.refused++
		return refusal(refusedCaller)
	}
	s.hold(s.held - min(n, s.held))
	to.hold(to.held + n)
	return nil
}

// split says as what a scope of this size counts: all of it is small, or all of it is large.
func split(held int64) (small, large int64) {
	if held <= SmallScope {
		return held, 0
	}
	return 0, held
}

// hold changes what the scope holds; the lock is held.
func (s *Scope) hold(next int64) {
	small, large := split(s.held)
	nextSmall, nextLarge := split(next)
	s.held = next
	s.book(nextSmall-small, nextLarge-large)
}

// book counts a change; the lock is held.
func (s *Scope) book(small, large int64) {
	s.caller.small += small
	s.caller.large += large
	s.budget.small += small
	s.budget.large += large
}

func refusal(public string) error {
	err := fault.New(fault.Full, public)
	err.RetryAfter = retryAfter
	return err
}

// Charge counts what one buffer takes from a scope while it grows.
type Charge struct {
	Scope *Scope
	Bytes int64 // what the scope holds for the buffer
}

// Take reserves n bytes more.
func (c *Charge) Take(n int64) error {
	err := c.Scope.Take(n)
	if err == nil {
		c.Bytes += max(n, 0)
	}
	return err
}

// Keep gives back all but n bytes.
func (c *Charge) Keep(n int64) {
	if c.Bytes > n {
		c.Scope.Give(c.Bytes - n)
		c.Bytes = n
	}
}

type contextKey struct{}

// With puts a request's scope into its context.
func With(ctx context.Context, s *Scope) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// From is the scope of the request whose context this is. It is nil where there is none, and where
// the request is over: what outlives it holds its bytes elsewhere.
func From(ctx context.Context) *Scope {
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
