// Package oauth authorizes the gateway at MCP servers, as an OAuth client. A [Transport] is an
// http.RoundTripper. A request whose context names a [Server] (see [WithServer]) is sent with a token for that
// server: the one of the [Principal] on whose behalf the request is made, a tenant or one caller. When the server
// demands a token, or more scopes, the Transport obtains one and
// sends the request again. Discovery, registration, PKCE and the code exchange are done by the Go
// SDK; this package decides when to authorize, how often, and where tokens are stored. Where the server has an
// [Exchange], the token is exchanged for the caller's own (RFC 8693), and no user is asked.
//
// Path through the files: transport.go sends a request, principal.go says whose token it carries, serverauth.go holds
// the state of one server and principal
// and reacts to its challenges, flow.go runs one authorization by a user, startpage.go is the page where a caller begins
// it, callback.go receives the
// browser, token.go stores and refreshes a token, exchange.go exchanges one, egress.go connects to authorization servers and
// ipscope.go classifies their addresses, config.go is the configuration.
//
// Invariants: a token is sent only to the server it was issued for, and only for its principal. A caller's own token is
// sent to the configured token endpoint alone. A refresh token and a client
// secret are sent only to the token endpoint they came from or, where the operator configured an
// issuer, to that issuer. At most one authorization per server and principal runs at a time. After one that failed,
// or whose token the server rejected, the next waits for a growing backoff; scopes that were requested
// without effect are not requested again. The address to open appears only in the log or, where a caller authorizes,
// only in the reply to that caller. Tokens are
// stored sealed and appear in no log and no error.
//
// A request that lacks authorization fails with fault.Unavailable and a [NotAuthorizedError] inside.
// When the store fails, a new token is used but not stored. When a stored token cannot be read, the
// user is not asked again, because the token may still be there.
package oauth

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/state"
)

// timing says how long things may take.
type timing struct {
	requestWait  time.Duration // a request waits so long for a user; less than a handshake may take
	linkLifetime time.Duration // an address can be opened so long after it was logged
	firstBackoff time.Duration // after an authorization that failed; doubled each time
	maxBackoff   time.Duration
}

// The address stays valid for an hour: a new one costs the authorization server a registration, and
// the operator may not watch the log all the time.
var defaultTiming = timing{requestWait: 4 * time.Second, linkLifetime: time.Hour, firstBackoff: 30 * time.Second, maxBackoff: time.Hour}

// maxRetries bounds how often one request is sent again: with a token from the store, with a
// refreshed one, with a new one, with more scopes.
const maxRetries = 4

// Transport sends requests with the token of their server.
type Transport struct {
	base      http.RoundTripper
	grants    Grants
	oldGrants Grants // where earlier versions kept those of the default tenant; without functions for nowhere
	timing    timing
	exchanges exchanges

	life context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu           sync.Mutex
	servers      map[string]*serverAuth  // by Server.authKey
	authRequests map[string]*authRequest // by state
	startPages   map[string]*authRequest // by the id of the page that begins it; those of callers only
	authorizing  map[string]int          // authorizations under way, by tenant
	identify     func(*http.Request) (Principal, bool)
	redirectURL  string    // of HandleCallback; "" until it is known
	ownListener  io.Closer // for the callback, where the gateway has no listener
	closed       bool
}

// Deps is what a Transport needs.
type Deps struct {
	Base   http.RoundTripper // sends requests to servers
	Store  *state.Store      // stores tokens, unless Grants does; then it may still have those of an earlier version
	Secret []byte            // the root of the key that seals them there
	Grants Grants            // stores tokens by tenant; without functions: Store does

	OldSecrets [][]byte // tokens that were sealed with them are still read
}

// New makes a Transport.
func New(d Deps) (*Transport, error) {
	sealer, err := seal.New(d.Secret, "oauth", d.OldSecrets...)
	if err != nil {
		return nil, err
	}
	t := &Transport{
		base: d.Base, grants: d.Grants, timing: defaultTiming, servers: map[string]*serverAuth{}, authRequests: map[string]*authRequest{},
		startPages: map[string]*authRequest{}, authorizing: map[string]int{},
		identify: func(*http.Request) (Principal, bool) { return Principal{}, false },
	}
	if sealed := sealedGrants(d.Store, sealer); d.Grants.Get == nil {
		t.grants = sealed
	} else {
		t.oldGrants = sealed
	}
	t.life, t.stop = context.WithCancel(context.Background())
	return t, nil
}

// Close ends pending authorizations and waits for them. A token refresh under way still completes and
// its token is stored: the old token may already be invalid.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	listener := t.ownListener
	t.ownListener = nil
	t.mu.Unlock()
	t.stop()
	if listener != nil {
		listener.Close()
	}
	t.work.Wait()
}

type serverKey struct{}

// WithServer names the server that a request goes to.
func WithServer(ctx context.Context, s *Server) context.Context {
	return context.WithValue(ctx, serverKey{}, s)
}

// authOf is the authorization state of a server.
func (t *Transport) authOf(s *Server) *serverAuth {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.servers[s.authKey()]
	if a == nil {
		if len(t.servers) >= maxServerAuths {
			t.forgetUnused()
		}
		a = &serverAuth{transport: t, server: s, egress: newEgressGuard(s.url), requestedScopes: map[string]bool{}}
		t.servers[s.authKey()] = a
	}
	a.lastUsed.Store(time.Now().UnixNano())
	return a
}

// ForgetTenant forgets the tokens of a tenant that are held in memory: those in the store cannot be read any more.
func (t *Transport) ForgetTenant(tenant string) {
	t.mu.Lock()
	for key, a := range t.servers {
		if a.server.principal.Tenant == tenant {
			delete(t.servers, key)
		}
	}
	t.mu.Unlock()
	t.exchanges.forgetTenant(tenant)
}

// maxServerAuths bounds the authorization states that are held; their tokens are in the store.
const maxServerAuths = 4096

// forgetUnused forgets the older half of the states that have nothing under way; t.mu is held.
func (t *Transport) forgetUnused() {
	var times []int64
	for _, a := range t.servers {
		times = append(times, a.lastUsed.Load())
	}
	slices.Sort(times)
	for key, a := range t.servers {
		if a.lastUsed.Load() <= times[len(times)/2] && !a.isBusy() {
			delete(t.servers, key)
		}
	}
}

// RoundTrip sends a request with the server's token, and again after each challenge that could be
// met.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	s, ok := req.Context().Value(serverKey{}).(*Server)
	if !ok {
		return t.base.RoundTrip(req)
	}
	if s.exchange != nil {
		return t.sendExchanged(req, s)
	}
	a := t.authOf(s)
	newBody, err := replayBody(req)
	if err != nil {
		return nil, err
	}
	for retries := 0; ; retries++ {
		tok, err := a.currentToken(req.Context())
		if err != nil {
			return nil, err
		}
		// A RoundTripper must not change the request it was given: each attempt is a clone.
		out := req.Clone(req.Context())
		if out.Body, err = newBody(); err != nil {
			return nil, fmt.Errorf("reading the request again: %w", err)
		}
		if tok != nil {
			out.Header.Set("Authorization", "Bearer "+tok.Access)
		}
		resp, err := t.base.RoundTrip(out)
		if err != nil {
			return nil, err
		}
		want := parseChallenge(resp)
		if retries == maxRetries || !a.canMeet(tok, resp.StatusCode, want) {
			return resp, nil
		}
		// Read the rest of the refusal, so that the connection can be reused.
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		resp.Body.Close()
		if err := a.meetChallenge(req.Context(), tok, want); err != nil {
			return nil, err
		}
	}
}

// replayBody returns a function that gives a request's body as often as needed. The request's own
// body is closed.
func replayBody(req *http.Request) (func() (io.ReadCloser, error), error) {
	if req.Body == nil || req.Body == http.NoBody {
		return func() (io.ReadCloser, error) { return req.Body, nil }, nil
	}
	defer req.Body.Close()
	if req.GetBody != nil {
		return req.GetBody, nil
	}
	whole, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }, nil
}

// background runs work that outlives a request and ends with the Transport. It reports false after
// Close.
func (t *Transport) background(work func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Go(func() { work(t.life) })
	return true
}

// NotAuthorizedError is inside the failure of a call that lacked authorization.
type NotAuthorizedError struct {
	// Retry is closed when a retry may succeed; nil if that is not known.
	Retry <-chan struct{}

	// Address is the page that the caller has to open in a browser; "" where an operator has to, or nobody can. It is for that
	// caller alone: it is not in the error's text.
	Address string

	// Cause is for the log.
	Cause error
}

func (e *NotAuthorizedError) Error() string { return fmt.Sprintf("not authorized: %v", e.Cause) }

// IsWaiting reports whether the authorization waits for a user to open an address.
func (e *NotAuthorizedError) IsWaiting() bool {
	if e.Address == "" {
		return false
	}
	select {
	case <-e.Retry:
		return false
	default:
		return true
	}
}

// notAuthorized is the error a client sees. The address to open is not part of the text.
func notAuthorized(server, public string, e *NotAuthorizedError) error {
	return fault.Wrap(fault.Unavailable, fmt.Sprintf("server %q %s", server, public), e)
}
