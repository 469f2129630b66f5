package oauth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/ctxgate/ctxgate/fault"
)

// serverAuth is the authorization state of one server, for one principal.
type serverAuth struct {
	transport *Transport
	server    *Server
	lastUsed  atomic.Int64 // in Unix nanoseconds

	// Used only by the authorization that is under way, of which there is at most one.
	egress  *egressGuard
	handler *auth.AuthorizationCodeHandler
	attempt *attempt

	mu              sync.Mutex
	token           *token // nil for none
	authorizing     *pending
	refreshing      *pending
	warnedPlainHTTP bool            // that no token is sent over plain http
	storeRead       bool            // the store was asked for a token
	requestedScopes map[string]bool // since the process started
	backoff         time.Duration
	retryAt         time.Time // no user is asked before
	lastErr         error     // of the last authorization
}

// pending is work that requests of a server wait for: an authorization, or a token refresh.
type pending struct {
	done     chan struct{}
	err      error
	deadline time.Time // no request waits longer

	announced chan struct{} // closed when a caller has to open the address
	address   string
}

const (
	authorizationFailed = "could not be authorized: see the gateway's log"
	callerFailed        = "could not be authorized for you: call again in a minute, or ask the operator of the gateway"
	callerMustAuthorize = "needs your authorization"
)

// failureText is what a client is told of a failed authorization.
func (a *serverAuth) failureText() string {
	if a.server.principal.isCaller() {
		return callerFailed
	}
	return authorizationFailed
}

// isBusy reports whether an authorization or a refresh is under way, or was refused a moment ago. It does not wait for the
// lock, which others hold while they wait for the Transport's.
func (a *serverAuth) isBusy() bool {
	if !a.mu.TryLock() {
		return true
	}
	defer a.mu.Unlock()
	return a.authorizing != nil || a.refreshing != nil || time.Now().Before(a.retryAt)
}

var errStopping = fault.New(fault.Unavailable, "the gateway is stopping")

// challenge is what a 401 or 403 demands; the zero challenge demands nothing that OAuth could give.
type challenge struct {
	status int
	header http.Header
	scopes []string
}

func parseChallenge(resp *http.Response) challenge {
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return challenge{}
	}
	list, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	i := slices.IndexFunc(list, func(c oauthex.Challenge) bool { return c.Scheme == "bearer" })
	if err != nil || i < 0 {
		return challenge{}
	}
	if resp.StatusCode == http.StatusForbidden && list[i].Params["error"] != "insufficient_scope" {
		return challenge{}
	}
	return challenge{status: resp.StatusCode, header: resp.Header, scopes: strings.Fields(list[i].Params["scope"])}
}

// canMeet reports whether a new token may satisfy a challenge. Scopes that were requested before would
// not be granted a second time. It also records that the server accepted a token, and keeps that token
// from expiring in the store.
func (a *serverAuth) canMeet(tok *token, status int, want challenge) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tok != nil && status != http.StatusUnauthorized {
		if !tok.accepted {
			tok.accepted, a.backoff = true, 0
		}
		if time.Since(tok.touchedAt) > touchInterval {
			tok.touchedAt = time.Now()
			a.transport.background(func(ctx context.Context) { a.touchToken(ctx, tok) })
		}
	}
	switch want.status {
	case http.StatusUnauthorized:
		if !a.server.confidential && !a.warnedPlainHTTP {
			a.warnedPlainHTTP = true
			slog.Warn("a server requires a token, but tokens are not sent over plain http: use an https url", "server", a.server.id)
		}
		return a.server.confidential
	case http.StatusForbidden:
		return a.server.confidential && slices.ContainsFunc(want.scopes, func(s string) bool { return !a.requestedScopes[s] })
	}
	return false
}

// currentToken is the token to send; nil for none. A token that is about to expire is refreshed first.
func (a *serverAuth) currentToken(ctx context.Context) (*token, error) {
	a.mu.Lock()
	tok := a.token
	if tok == nil || !tok.expiresSoon() {
		a.mu.Unlock()
		return tok, nil
	}
	p := a.startRefresh(tok)
	a.mu.Unlock()
	if err := a.await(ctx, p); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token, nil
}

// meetChallenge gets a better token than the refused one, or waits until another request has got it.
// It returns nil when sending the request again is worthwhile.
func (a *serverAuth) meetChallenge(ctx context.Context, refused *token, want challenge) error {
	a.mu.Lock()
	p, err := a.chooseRemedy(ctx, refused, want)
	a.mu.Unlock()
	if p == nil || err != nil {
		return err
	}
	return a.await(ctx, p)
}

// chooseRemedy picks the cheapest way to a better token; a.mu is held. It returns nil and no error
// when there already is another token.
func (a *serverAuth) chooseRemedy(ctx context.Context, refused *token, want challenge) (*pending, error) {
	// A token from an earlier process may be in the store.
	if !a.storeRead {
		stored, err := a.loadToken(ctx)
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, "the server's token cannot be read from the store", err)
		}
		a.storeRead = true
		if stored != nil {
			a.token = stored
		}
	}
	switch {
	case a.token != refused:
		return nil, nil
	case want.status == http.StatusUnauthorized && refused.refreshMayHelp():
		return a.startRefresh(refused), nil
	case a.authorizing != nil:
		return a.authorizing, nil
	case time.Now().Before(a.retryAt):
		return nil, notAuthorized(a.server.id, a.failureText(), &NotAuthorizedError{Cause: a.lastErr})
	case refused != nil && refused.fromUser && !refused.accepted && want.status == http.StatusUnauthorized:
		return nil, a.recordFailure(errors.New("the server rejects the token it was authorized with"))
	}
	release, err := a.transport.reserveAuthorization(a.server.principal.Tenant)
	if err != nil {
		return nil, err
	}
	return a.startPending(&a.authorizing, a.transport.timing.requestWait, func(ctx context.Context) error {
		defer release()
		return a.authorize(ctx, want)
	}), nil
}

// startRefresh starts a token refresh, or joins the one under way; a.mu is held.
func (a *serverAuth) startRefresh(old *token) *pending {
	if a.refreshing != nil {
		return a.refreshing
	}
	return a.startPending(&a.refreshing, 2*refreshTimeout, func(ctx context.Context) error { return a.refreshToken(ctx, old) })
}

// recordFailure starts the backoff after a failed authorization; a.mu is held.
func (a *serverAuth) recordFailure(cause error) error {
	t := a.transport.timing
	a.backoff = min(max(2*a.backoff, t.firstBackoff), t.maxBackoff)
	a.retryAt, a.lastErr = time.Now().Add(a.backoff), cause
	slog.Warn("a server could not be authorized; a call after the pause tries again", append(a.server.logAttrs(), "error", cause, "pause", a.backoff.String())...)
	return notAuthorized(a.server.id, a.failureText(), &NotAuthorizedError{Cause: cause})
}

// startPending runs work in the background and puts it into slot until it ends; a.mu is held.
func (a *serverAuth) startPending(slot **pending, wait time.Duration, work func(context.Context) error) *pending {
	p := &pending{done: make(chan struct{}), announced: make(chan struct{}), deadline: time.Now().Add(wait)}
	finish := func(err error) {
		*slot, p.err = nil, err
		close(p.done)
	}
	*slot = p
	started := a.transport.background(func(ctx context.Context) {
		err := work(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		finish(err)
	})
	if !started {
		finish(errStopping)
	}
	return p
}

// await waits for pending work, but not for a user who takes longer than its deadline.
func (a *serverAuth) await(ctx context.Context, p *pending) error {
	limit := time.NewTimer(time.Until(p.deadline))
	defer limit.Stop()
	announced := p.announced
	select {
	case <-p.done:
		announced = nil
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-announced: // it depends on the caller, who has to be told
		return notAuthorized(a.server.id, callerMustAuthorize,
			&NotAuthorizedError{Retry: p.done, Address: p.address, Cause: errors.New("the caller has not authorized it yet")})
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return notAuthorized(a.server.id, "waits to be authorized: open the address in the gateway's log",
			&NotAuthorizedError{Retry: p.done, Cause: errors.New("the address has not been opened yet")})
	}
}

// announce tells the requests that wait where a caller has to go.
func (a *serverAuth) announce(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.authorizing; p != nil {
		p.address = address
		close(p.announced)
	}
}

// logAttrs says in a log line which server, and whose authorization it is.
func (s *Server) logAttrs() []any {
	attrs := []any{"server", s.id}
	if s.principal.Tenant != defaultTenant {
		attrs = append(attrs, "tenant", s.principal.Tenant)
	}
	if s.principal.isCaller() {
		attrs = append(attrs, "subject", s.principal.Subject)
	}
	return attrs
}

// Authorizations under way each hold a client registration and a page to open.
const (
	maxAuthorizing          = 1024 // of all tenants
	maxAuthorizingPerTenant = 256
)

// reserveAuthorization counts an authorization until the returned function is called.
func (t *Transport) reserveAuthorization(tenant string) (release func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := 0
	for _, n := range t.authorizing {
		all += n
	}
	if all >= maxAuthorizing || t.authorizing[tenant] >= maxAuthorizingPerTenant {
		return nil, fault.New(fault.Full, "too many authorizations are under way: finish some of them, or call again later")
	}
	t.authorizing[tenant]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.authorizing[tenant]--; t.authorizing[tenant] == 0 {
			delete(t.authorizing, tenant)
		}
	}, nil
}
