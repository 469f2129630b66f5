// Package gate is the one way in: every request of every endpoint, protocol revision and transport is authenticated,
// admitted and, once it is known what it is for, authorized here.
//
// A [Gate] belongs to one configuration. [Gate.Authenticate] and its variants find out who calls;
// [Gate.Admit] counts the request against the caller's limits; [Gate.Enter] decides, after routing, whether the caller
// may use the target. Lists ask [Gate.MayList], and reading back asks [Gate.MayRead], which follow the same rules.
//
// Invariants: failures are closed, and no failure makes an anonymous caller. What is denied is unknown: an endpoint
// answers as for a name that does not exist. One request for one target is one decision.
package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/limit"
)

// Gate decides under one configuration. It is safe for concurrent use.
type Gate struct {
	*auth.Authenticator
	rules     *access.Rules
	limiter   *limit.Limiter
	audit     *audit.Log
	decisions *atomic.Int64
}

// Deps is what a Gate is made of.
type Deps struct {
	Authenticator *auth.Authenticator // nil: no credential is required
	Rules         *access.Rules       // nil: everything is allowed
	Limiter       *limit.Limiter      // of the process; nil: no limits
	Audit         *audit.Log          // of the process; nil: no log
}

// New makes a gate.
func New(d Deps) *Gate {
	if d.Authenticator == nil {
		d.Authenticator = auth.New(auth.Config{})
	}
	return &Gate{Authenticator: d.Authenticator, rules: d.Rules, limiter: d.Limiter, audit: d.Audit, decisions: new(atomic.Int64)}
}

// Admit counts one message of a caller against its limits.
func (g *Gate) Admit(c auth.Caller) error {
	err := g.limiter.Admit(limitsOf(c))
	if err != nil {
		g.recordLimit(context.Background(), c, access.Target{}, err)
	}
	return err
}

// limitsOf is the part of a caller that limits look at.
func limitsOf(c auth.Caller) limit.Caller {
	return limit.Caller{Tenant: c.Tenant(), Issuer: c.Issuer(), Subject: c.Subject(), Credential: c.Credential()}
}

// Pass is a request that may go on. Done must be called at its end.
type Pass struct {
	Decision access.Decision
	hold     limit.Hold
	entry    *entry // of the audit log; nil without one
}

// Done ends the request: it is recorded, and what it holds of the limits is free for others. A second call does nothing.
func (p *Pass) Done() {
	p.hold.Release()
	p.entry.finish()
}

// ErrDenied is the failure of a request that the rules deny. Endpoints answer as for something that does not exist.
var ErrDenied error = fault.New(fault.NotFound, "there is no such thing")

// Enter decides whether a caller may use a target. If it may not, the error is ErrDenied. A request that may is counted
// against the limits of its target, beyond which the error is of kind RateLimited.
func (g *Gate) Enter(ctx context.Context, c auth.Caller, t access.Target) (*Pass, error) {
	g.decisions.Add(1)
	d := g.rules.Decide(c, t)
	if !d.IsAllowed() {
		g.recordDenied(ctx, c, t, d)
		return nil, ErrDenied
	}
	p := &Pass{Decision: d}
	if err := g.limiter.Enter(limitsOf(c), limit.Target{Server: t.Server, Tool: t.Tool, Model: t.Model}, &p.hold); err != nil {
		g.recordLimit(ctx, c, t, err)
		return nil, err
	}
	if err := g.recordAllowed(ctx, c, t, p); err != nil {
		p.hold.Release()
		return nil, err
	}
	return p, nil
}

// Decide decides about what no request is for, such as a notification of a server.
func (g *Gate) Decide(c auth.Caller, t access.Target) access.Decision { return g.rules.Decide(c, t) }

// FiltersLists says whether lists differ between callers.
func (g *Gate) FiltersLists() bool { return g.rules.FiltersLists() }

// MayList says whether a target is shown to a caller in lists.
func (g *Gate) MayList(c auth.Caller, t access.Target) bool { return g.rules.MayList(c, t) }

// NeedsAnnotations says whether the rules read the annotations of tools, so that a target must have them.
func (g *Gate) NeedsAnnotations() bool { return g.rules.NeedsAnnotations() }

// MayUseServer says whether a server exists for a caller: whether it could be allowed to use anything there.
func (g *Gate) MayUseServer(c auth.Caller, server string) bool {
	return g.rules.MayUseServer(c, server)
}

// MayRead says whether a caller may read back what came from a target, stored under a scope.
func (g *Gate) MayRead(c auth.Caller, t access.Target, scope string) bool {
	g.decisions.Add(1)
	return g.rules.MayRead(c, t, scope)
}

// SubjectScope is the scope of originals that only their own caller may read back, where the rules tell callers apart;
// otherwise it is empty.
func (g *Gate) SubjectScope(c auth.Caller) string {
	if !g.FiltersLists() {
		return ""
	}
	sum := sha256.Sum256([]byte("subject\x00" + c.Key()))
	return hex.EncodeToString(sum[:16])
}

// Decisions is how many requests for a target were decided.
func (g *Gate) Decisions() int64 { return g.decisions.Load() }
