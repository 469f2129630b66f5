package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// Exchange says how a caller's access token is exchanged for one that the server accepts (RFC 8693). The caller's own token is
// for the gateway, and is never sent to a server.
type Exchange struct {
	// The token endpoint of the authorization server that knows both the callers' tokens and the server. Default empty: tokens
	// are not exchanged.
	TokenURL string `key:"token_url"`

	// The OAuth client id of the gateway there.
	ClientID string `key:"client_id"`

	// The client's secret, as "env:NAME" or "file:PATH". Default empty: the client has no secret.
	ClientSecret secret.Text `key:"client_secret"`

	// The name of the server at the authorization server. Default empty: resource alone names it.
	Audience string `key:"audience"`

	// The URL of the server at the authorization server. Default empty: the server's url without its query, if audience is not
	// set either.
	Resource string `key:"resource"`

	// The scopes to request. Default empty: what the authorization server gives.
	Scopes []string `key:"scopes"`
}

// IsSet reports whether tokens are exchanged.
func (e Exchange) IsSet() bool {
	return e.TokenURL != "" || e.ClientID != "" || e.ClientSecret.IsSet() || e.Audience != "" || e.Resource != "" || len(e.Scopes) > 0
}

// Validate lists every problem; each text begins with the key it is about.
func (e Exchange) Validate() []error {
	if !e.IsSet() {
		return nil
	}
	var problems []error
	if !isHTTP(e.TokenURL) || !isConfidential(e.TokenURL) {
		problems = append(problems, errors.New("token_url: is not an https URL, or an http URL of this machine"))
	}
	if e.ClientID == "" {
		problems = append(problems, errors.New("client_id: is missing"))
	}
	for _, scope := range e.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n\"\\") {
			problems = append(problems, fmt.Errorf("scopes: %q is not one scope", scope))
		}
	}
	return problems
}

const (
	exchangeTimeout   = 10 * time.Second
	exchangeEarly     = 30 * time.Second // a token is exchanged again so long before it expires
	unknownLifetime   = 5 * time.Minute  // of a token whose lifetime the authorization server does not say
	failedExchange    = 5 * time.Second  // the same token is not exchanged again so soon after a refusal
	maxExchanged      = 4096             // tokens that are held
	maxExchangeReply  = 1 << 20
	accessTokenType   = "urn:ietf:params:oauth:token-type:access_token"
	jwtType           = "urn:ietf:params:oauth:token-type:jwt"
	tokenExchangeType = "urn:ietf:params:oauth:grant-type:token-exchange"
)

// exchanges holds the tokens that were exchanged, in memory alone.
type exchanges struct {
	flights singleflight.Group

	mu     sync.Mutex
	tokens map[string]exchanged // by Server.authKey
}

type exchanged struct {
	tenant  string
	access  string
	expires time.Time // it is not used from then on, or a failure is forgotten

	failure error             // of the last exchange; nil if there is a token
	subject [sha256.Size]byte // hash of the caller's token that could not be exchanged
}

// heldFor returns what is held for a server and principal.
func (e *exchanges) heldFor(key string) (exchanged, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.tokens[key]
	if ok && !time.Now().Before(x.expires) {
		delete(e.tokens, key)
		return exchanged{}, false
	}
	return x, ok
}

func (e *exchanges) hold(key string, x exchanged) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tokens == nil {
		e.tokens = map[string]exchanged{}
	}
	if _, there := e.tokens[key]; !there && len(e.tokens) >= maxExchanged {
		e.evict()
	}
	e.tokens[key] = x
}

// evict removes what has expired, or else the token that expires first; the lock is held.
func (e *exchanges) evict() {
	first, now := "", time.Now()
	for key, x := range e.tokens {
		switch {
		case !now.Before(x.expires):
			delete(e.tokens, key)
		case first == "" || x.expires.Before(e.tokens[first].expires):
			first = key
		}
	}
	if len(e.tokens) >= maxExchanged {
		delete(e.tokens, first)
	}
}

// forgetTenant removes the tokens of a tenant.
func (e *exchanges) forgetTenant(tenant string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.tokens, func(_ string, x exchanged) bool { return x.tenant == tenant })
}

// drop removes a token that its server refused.
func (e *exchanges) drop(key, access string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tokens[key].access == access {
		delete(e.tokens, key)
	}
}

// EnsureExchanged makes sure that there is a token for the requests of a caller, whose own access token it exchanges if there is
// none. Requests at the same time cost one exchange. A server without an Exchange needs nothing.
func (t *Transport) EnsureExchanged(ctx context.Context, s *Server, own secret.Text) error {
	if s.exchange == nil {
		return nil
	}
	key, hash := s.authKey(), sha256.Sum256([]byte(own.Reveal()))
	x, ok := t.exchanges.heldFor(key)
	switch {
	case ok && x.failure == nil:
		return nil
	case !own.IsSet():
		return notAuthorized(s.id, "needs a token of the identity provider, which this caller has not sent", &NotAuthorizedError{Cause: errors.New("the caller has no access token to exchange")})
	case ok && x.subject == hash:
		return x.failure
	case !s.confidential:
		return notAuthorized(s.id, "cannot get a token: tokens are not sent over plain http", &NotAuthorizedError{Cause: errors.New("the server's url is not https")})
	}
	// Another request may wait for it, so it does not end with this one.
	done := t.exchanges.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(t.life, exchangeTimeout)
		defer cancel()
		got, err := t.requestExchange(ctx, s, own.Reveal())
		if err != nil {
			err = notAuthorized(s.id, "cannot get a token for this caller: the authorization server refuses", &NotAuthorizedError{Cause: err})
			t.exchanges.hold(key, exchanged{tenant: s.principal.Tenant, failure: err, subject: hash, expires: time.Now().Add(failedExchange)})
			return nil, err
		}
		got.tenant = s.principal.Tenant
		t.exchanges.hold(key, got)
		return nil, nil
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requestExchange asks the token endpoint. No error repeats anything of a token or of the answer but the error's code.
func (t *Transport) requestExchange(ctx context.Context, s *Server, subjectToken string) (exchanged, error) {
	cfg := s.exchange
	form := url.Values{
		"grant_type": {tokenExchangeType}, "requested_token_type": {accessTokenType},
		"subject_token": {subjectToken}, "subject_token_type": {accessTokenType},
	}
	resource := cfg.Resource
	if resource == "" && cfg.Audience == "" {
		resource, _, _ = strings.Cut(s.url, "?")
	}
	for key, value := range map[string]string{"audience": cfg.Audience, "resource": resource, "scope": strings.Join(cfg.Scopes, " ")} {
		if value != "" {
			form.Set(key, value)
		}
	}
	if !cfg.ClientSecret.IsSet() {
		form.Set("client_id", cfg.ClientID)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return exchanged{}, errors.New("the token endpoint's URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if cfg.ClientSecret.IsSet() {
		req.SetBasicAuth(url.QueryEscape(cfg.ClientID), url.QueryEscape(cfg.ClientSecret.Reveal())) // RFC 6749, 2.3.1
	}
	// No redirect is followed: it would carry the caller's token elsewhere.
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return exchanged{}, fmt.Errorf("the token endpoint cannot be reached: %w", secret.WithoutURL(err))
	}
	defer resp.Body.Close()
	var reply struct {
		AccessToken string `json:"access_token"`
		IssuedType  string `json:"issued_token_type"`
		Type        string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxExchangeReply)).Decode(&reply)
	switch {
	case resp.StatusCode != http.StatusOK:
		return exchanged{}, fmt.Errorf("the token endpoint refused: HTTP status %d, error %.60q", resp.StatusCode, reply.Error)
	case err != nil:
		return exchanged{}, errors.New("the token endpoint's answer cannot be read")
	case reply.AccessToken == "" || !strings.EqualFold(reply.Type, "Bearer") || reply.IssuedType != "" && reply.IssuedType != accessTokenType && reply.IssuedType != jwtType:
		return exchanged{}, errors.New("the token endpoint gave no bearer token")
	case strings.ContainsAny(reply.AccessToken, " \t\r\n"):
		return exchanged{}, errors.New("the token endpoint gave a token that no header can carry")
	case reply.AccessToken == subjectToken:
		return exchanged{}, errors.New("the token endpoint gave the caller's own token back, which is never sent to a server")
	}
	lifetime := unknownLifetime
	if reply.ExpiresIn > 0 {
		lifetime = time.Duration(min(reply.ExpiresIn, 86400)) * time.Second
	}
	early := min(exchangeEarly, lifetime/2)
	return exchanged{access: reply.AccessToken, expires: time.Now().Add(lifetime - early)}, nil
}

// sendExchanged sends a request with the token that was exchanged for its caller. One that the server refuses is dropped, so
// that the caller's next request exchanges anew.
func (t *Transport) sendExchanged(req *http.Request, s *Server) (*http.Response, error) {
	x, ok := t.exchanges.heldFor(s.authKey())
	if !ok || x.failure != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, notAuthorized(s.id, "has no valid token for this caller: call again", &NotAuthorizedError{Cause: errors.New("the exchanged token has expired or was refused")})
	}
	out := req.Clone(req.Context())
	out.Header.Set("Authorization", "Bearer "+x.access)
	resp, err := t.base.RoundTrip(out)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.exchanges.drop(s.authKey(), x.access)
	}
	return resp, err
}
