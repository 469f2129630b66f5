// Package auth authenticates callers. An [Authenticator] turns a request's credentials into a [Caller],
// which travels in the request's context.
//
// Path through the files: config.go and oidcconfig.go are the configuration; auth.go tries the kinds of credentials in
// order; tokens.go are those of the configuration. oidc.go checks the tokens of an identity provider, with the keys of
// keys.go, which provider.go fetches; introspection.go asks it about opaque ones; claims.go makes an identity of
// claims. metadata.go tells clients where to get a token. caller.go is who it was.
//
// Authentication fails closed: a missing or wrong credential is a fault of kind Unauthorized, never an
// anonymous caller. A Caller can only be made here, so no code path can act without one. If the identity provider
// cannot be reached, its known keys are used for an hour at most, and then its tokens are refused. Whatever tokens are
// sent, it is asked rarely, and the signatures that are checked are bounded.
package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Authenticator checks credentials under one configuration. It is safe for concurrent use.
type Authenticator struct {
	required bool // whether callers need a credential at all
	now      func() time.Time
	tokens   tokens
	oidc     *verifier // nil: there is no identity provider
	base     string    // the gateway's own URL; "" if it is not configured

	signed       *signedKeys
	certificates *certificates
	operatorsOf  *Authenticator // of the main listener, at the operator's; nil elsewhere
}

// Deps is what an Authenticator uses beside its configuration.
type Deps struct {
	PublicURL string           // at which clients reach the gateway; "" if that is not configured
	Previous  *Authenticator   // of the configuration before: what it knows of the identity provider and of used nonces is kept; nil for none
	Now       func() time.Time // nil for the real clock

	// UseOnce marks a signature as used for a lifetime, and reports false if any replica has marked it before. nil where
	// there is only this process.
	UseOnce func(ctx context.Context, name string, lifetime time.Duration) (bool, error)
}

// New makes an Authenticator of a valid configuration whose secrets are resolved.
func New(cfg Config) *Authenticator { return Open(cfg, Deps{}) }

// Open is New with what the process knows.
func Open(cfg Config, d Deps) *Authenticator {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Previous == nil {
		d.Previous = &Authenticator{}
	}
	a := &Authenticator{
		required: cfg.IsRequired(), now: d.Now, tokens: newTokens(cfg), base: strings.TrimSuffix(d.PublicURL, "/"),
		signed: newSignedKeys(cfg.HMAC, d), certificates: newCertificates(cfg.TLS),
	}
	if cfg.OIDC.IsEnabled() {
		a.oidc = newVerifier(cfg.OIDC, a.base, d.Now, d.Previous.oidc)
	}
	return a
}

// IsRequired says whether callers need a credential at all.
func (a *Authenticator) IsRequired() bool { return a.required }

var errUnauthorized = fault.New(fault.Unauthorized, "a valid bearer token is required")

// Authenticate identifies the sender of a request by its headers.
func (a *Authenticator) Authenticate(r *http.Request) (Caller, error) {
	if !a.IsRequired() {
		return anonymous, nil
	}
	if who, done, err := a.authenticateConnection(r); done {
		return who, err
	}
	token, ok := bearerToken(r)
	if !ok {
		return Caller{}, errUnauthorized
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	who, err := a.identify(r.Context(), token, origin{host, r.URL.Path})
	if err != nil && a.operatorsOf != nil {
		return a.operatorsOf.authenticateOperator(r)
	}
	return who, err
}

// AdminRole is the role of callers that may use the operator's listener.
const AdminRole = "admin"

// Operators returns the Authenticator of the operator's listener. It accepts its own token, and the bearer tokens of
// callers with AdminRole.
func (a *Authenticator) Operators(token secret.Text) *Authenticator {
	o := New(Config{Token: token})
	o.operatorsOf = a
	return o
}

func (a *Authenticator) authenticateOperator(r *http.Request) (Caller, error) {
	who, err := a.Authenticate(r)
	if err != nil || !who.HasRole(AdminRole) {
		return Caller{}, errUnauthorized
	}
	return who, nil
}

// AuthenticateToken identifies the caller that sent a token. Where no credential is required, the token is
// ignored.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (Caller, error) {
	if !a.IsRequired() {
		return anonymous, nil
	}
	return a.identify(ctx, token, origin{})
}

// identify tries the kinds of tokens in order.
func (a *Authenticator) identify(ctx context.Context, token string, from origin) (Caller, error) {
	if who, ok := a.tokens.findToken(sha256.Sum256([]byte(token)), a.now()); ok {
		return who, nil
	}
	if a.oidc != nil && token != "" {
		return a.oidc.authenticate(ctx, token, from)
	}
	return Caller{}, errUnauthorized
}

// IsOwn says whether a text is a token for this gateway, valid or not, as far as that can be told without asking anybody.
// Such a text is not for a provider or a server.
func (a *Authenticator) IsOwn(token string) bool {
	_, ok := a.tokens[sha256.Sum256([]byte(token))]
	return ok || a.oidc != nil && a.oidc.isOwn(token) || len(a.signed.keys) > 0 && isSigned(token)
}

// Revalidate checks a caller that was authenticated earlier, perhaps under another configuration: its credential may
// have been removed, replaced or given to somebody else, or has expired.
func (a *Authenticator) Revalidate(c Caller) error {
	if !a.IsRequired() {
		return nil
	}
	if a.oidc != nil && a.oidc.isStillValid(c) {
		return nil
	}
	today, ok := a.tokens.findToken(c.id.proof, a.now())
	if !ok {
		today, ok = a.revalidateConnection(c)
	}
	if !ok || today.Key() != c.Key() || !slices.Equal(today.Roles(), c.Roles()) {
		return errUnauthorized
	}
	return nil
}

// tokenKey is the key of a token in a message body (A8).
const tokenKey = `"authToken"`

const (
	maxToken = 16 << 10 // the longest token that is read
	maxFound = 8        // how many tokens FindToken tries
)

// FindToken searches the first part of a message for a valid token, before the message is complete and
// can be parsed: only a sender with the token may send the rest. The final authentication happens after
// parsing.
func (a *Authenticator) FindToken(ctx context.Context, head []byte) (Caller, error) {
	for range maxFound {
		_, after, found := bytes.Cut(head, []byte(tokenKey))
		if !found {
			break
		}
		head = after
		value, ok := bytes.CutPrefix(bytes.TrimLeft(after, " \t\r\n"), []byte(":"))
		if !ok {
			continue
		}
		if who, err := a.AuthenticateToken(ctx, leadingString(bytes.TrimLeft(value, " \t\r\n"))); err == nil {
			return who, nil
		}
	}
	return Caller{}, errUnauthorized
}

// leadingString is the JSON string at the start of a text; "" when there is none.
func leadingString(text []byte) string {
	text = text[:min(len(text), maxToken)]
	if len(text) == 0 || text[0] != '"' {
		return ""
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return jsonscan.DecodeString(text[:i+1])
		}
	}
	return ""
}

// HasNoCredential reports whether a request has no Authorization header at all.
func HasNoCredential(r *http.Request) bool { return len(r.Header.Values("Authorization")) == 0 }

// bearerToken is the request's bearer token. Two Authorization headers count as none: two readers could
// disagree on which one is meant.
func bearerToken(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}
