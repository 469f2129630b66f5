package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/gencache"
)

// introspector asks the identity provider about opaque tokens (RFC 7662).
type introspector struct {
	provider *provider
	now      func() time.Time
	rate     *rate.Limiter
	asking   singleflight.Group
	active   *gencache.Cache[[sha256.Size]byte, *verified]
	inactive *gencache.Cache[[sha256.Size]byte, time.Time] // until when

	mu       sync.Mutex
	endpoint string    // "" before the provider's metadata was read
	retry    time.Time // not before, after a failure
}

// How long an answer is used, and how long the provider is left alone after none came.
const (
	maxAnswerAge = time.Minute
	retryAfter   = time.Second
	maxAnswer    = 64 << 10
)

func newIntrospector(p *provider, now func() time.Time) *introspector {
	perSecond := p.cfg.Introspection.Rate
	return &introspector{
		provider: p, now: now, rate: rate.NewLimiter(rate.Limit(perSecond), perSecond), endpoint: p.cfg.Introspection.Endpoint,
		active: gencache.New[[sha256.Size]byte, *verified](maxChecked), inactive: gencache.New[[sha256.Size]byte, time.Time](maxRefused),
	}
}

// lookUp returns what is known of a token: nil if it is not valid; isKnown is false if the provider must be asked.
func (i *introspector) lookUp(sum [sha256.Size]byte) (got *verified, isKnown bool) {
	if got, ok := i.active.Get(sum); ok && i.now().Before(got.until) {
		return got, true
	}
	until, ok := i.inactive.Get(sum)
	return nil, ok && i.now().Before(until)
}

// knows says whether a token is known to be valid.
func (i *introspector) knows(sum [sha256.Size]byte) bool {
	got, _ := i.lookUp(sum)
	return got != nil
}

var errInactive = errors.New("the provider says that the token is not active")

func (v *verifier) checkOpaque(ctx context.Context, token string) (*verified, error) {
	i, sum := v.opaque, v.hash(token)
	if got, isKnown := i.lookUp(sum); got != nil {
		return got, nil
	} else if isKnown || !isBearerText(token) {
		return nil, errInvalidToken
	}
	// Requests with one token share a question; it goes on if the one that asked first is gone.
	asked := i.asking.DoChan(string(sum[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
		defer cancel()
		return v.introspect(ctx, token, sum)
	})
	select {
	case <-ctx.Done():
		return nil, errNoKeys
	case answer := <-asked:
		if answer.Err != nil {
			return nil, answer.Err
		}
		return answer.Val.(*verified), nil //nolint:forcetypeassert // of v.introspect
	}
}

// isBearerText says whether a text can be a bearer token at all (RFC 6750, 2.1).
func isBearerText(token string) bool {
	return token != "" && !strings.ContainsFunc(strings.TrimRight(token, "="), func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("-._~+/", r)
	})
}

// introspect asks the provider and keeps the answer.
func (v *verifier) introspect(ctx context.Context, token string, sum [sha256.Size]byte) (*verified, error) {
	i := v.opaque
	if got, _ := i.lookUp(sum); got != nil {
		return got, nil // another request asked meanwhile
	}
	if !i.mayAsk() {
		return nil, errNoKeys
	}
	claims, err := i.ask(ctx, token)
	if err != nil && !errors.Is(err, errInactive) {
		i.mu.Lock()
		i.retry = i.now().Add(retryAfter)
		i.mu.Unlock()
		slog.Warn("the identity provider cannot be asked about a token", "issuer", v.cfg.Issuer, "error", fault.ClipTo(err.Error(), 300))
		return nil, errNoKeys
	}
	var got *verified
	if err == nil {
		got, err = v.acceptActive(claims, token)
	}
	if err != nil {
		i.inactive.Put(sum, i.now().Add(maxAnswerAge), 1)
		slog.DebugContext(ctx, "an opaque token was refused", "issuer", v.cfg.Issuer, "reason", fault.ClipTo(err.Error(), 300))
		return nil, fault.Wrap(fault.Unauthorized, errInvalidToken.Public, errors.Join(errInvalidToken, err))
	}
	i.active.Put(sum, got, 1024+4*(len(token)+len(claims)*64))
	return got, nil
}

// mayAsk says whether the provider may be asked now.
func (i *introspector) mayAsk() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.now().Before(i.retry) && i.rate.AllowN(i.now(), 1)
}

// ask returns the claims of an active token.
func (i *introspector) ask(ctx context.Context, token string) (jwt.MapClaims, error) {
	i.mu.Lock()
	endpoint := i.endpoint
	i.mu.Unlock()
	if endpoint == "" {
		var err error
		if endpoint, err = i.provider.findIntrospection(ctx); err != nil {
			return nil, err
		}
		i.mu.Lock()
		i.endpoint = endpoint
		i.mu.Unlock()
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("asking about a token: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := i.provider.cfg.Introspection
	req.SetBasicAuth(url.QueryEscape(client.ClientID), url.QueryEscape(client.ClientSecret.Reveal())) // RFC 6749, 2.3.1
	body, err := i.provider.send(req, maxAnswer)
	if err != nil {
		return nil, err
	}
	if _, err := strictObject(body); err != nil {
		return nil, err
	}
	claims := jwt.MapClaims{}
	if err := json.Unmarshal(body, &claims); err != nil {
		return nil, fmt.Errorf("the answer about a token: %w", err)
	}
	if claims["active"] != true {
		return nil, errInactive
	}
	return claims, nil
}

// acceptActive checks the claims of an active token. The provider may leave out the issuer, which is itself.
func (v *verifier) acceptActive(claims jwt.MapClaims, token string) (*verified, error) {
	if issuer, ok := claims["iss"]; ok && issuer != v.cfg.Issuer {
		return nil, errors.New("it is of another issuer")
	}
	now := v.now()
	until := now.Add(maxAnswerAge)
	expires, err := claims.GetExpirationTime()
	if err != nil {
		return nil, fmt.Errorf("the claim exp: %w", err)
	}
	if expires != nil && expires.Before(until) {
		until = expires.Time
	}
	if !now.Before(until) {
		return nil, errors.New("it has expired")
	}
	got, err := v.accept(claims, token, until)
	if err != nil {
		return nil, err
	}
	if expires == nil {
		got.caller.id.expires = time.Time{}
	} else {
		got.caller.id.expires = expires.Time
	}
	return got, nil
}
