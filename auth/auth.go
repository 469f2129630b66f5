// Package auth authenticates callers. An [Authenticator] turns a request's credentials into a [Caller],
// which travels in the request's context.
//
// Authentication fails closed: a missing or wrong credential is a fault of kind Unauthorized, never an
// anonymous caller. A Caller can only be made here, so no code path can act without one.
package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Authenticator checks credentials under one configuration. It is safe for concurrent use.
type Authenticator struct {
	required bool // whether callers need a credential at all
	now      func() time.Time
	tokens   tokens

	signed       *signedKeys
	certificates *certificates
}

// New makes an Authenticator of a valid configuration whose secrets are resolved.
func New(cfg Config) *Authenticator {
	return &Authenticator{required: cfg.IsRequired(), now: time.Now, tokens: newTokens(cfg), signed: newSignedKeys(cfg.HMAC, nil), certificates: newCertificates(cfg.TLS)}
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
	who, err := a.AuthenticateToken(r.Context(), token)
	if !ok {
		return Caller{}, errUnauthorized
	}
	return who, err
}

// AuthenticateToken identifies the caller that sent a token. Where no credential is required, the token is
// ignored.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string) (Caller, error) {
	if !a.IsRequired() {
		return anonymous, nil
	}
	who, ok := a.tokens.find(sha256.Sum256([]byte(token)), a.now())
	if !ok {
		return Caller{}, errUnauthorized
	}
	return who, nil
}

// Revalidate checks a caller that was authenticated earlier, perhaps under another configuration: its credential may
// have been removed, replaced or given to somebody else, or has expired.
func (a *Authenticator) Revalidate(c Caller) error {
	if !a.IsRequired() {
		return nil
	}
	today, ok := a.tokens.find(c.id.proof, a.now())
	if !ok {
		today, ok = a.revalidateConnection(c)
	}
	if !ok || today.Key() != c.Key() || !slices.Equal(today.Roles(), c.Roles()) {
		return errUnauthorized
	}
	return nil
}

// Challenge is the WWW-Authenticate header of a reply that refuses a request for lack of a valid credential.
func (a *Authenticator) Challenge(*http.Request, error) string { return "Bearer" }

// tokenKey is the key of a token in a message body (A8).
const tokenKey = `"authToken"`

// maxToken is the longest token that FindToken reads.
const maxToken = 4 << 10

// FindToken searches the first part of a message for a valid token, before the message is complete and
// can be parsed: only a sender with the token may send the rest. The final authentication happens after
// parsing.
func (a *Authenticator) FindToken(ctx context.Context, head []byte) (Caller, error) {
	for {
		_, after, found := bytes.Cut(head, []byte(tokenKey))
		if !found {
			return Caller{}, errUnauthorized
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
