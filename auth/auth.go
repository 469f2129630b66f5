// Package auth authenticates callers. An [Authenticator] turns a request's credentials into a [Caller],
// which travels in the request's context. Today the only credential is a shared token.
//
// Authentication fails closed: a missing or wrong credential is a fault of kind Unauthorized, never an
// anonymous caller. A Caller can only be made here, so no code path can act without one.
package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// DefaultTenant owns the stored originals where there is only one tenant.
const DefaultTenant = "default"

// Config says who may call.
type Config struct {
	// The token every client must send, as "Authorization: Bearer …" or in params.proxy.authToken of
	// each message; at the LLM endpoint also as x-api-key, or as X-Ctxgate-Token beside a provider's own
	// key. Default empty: everybody who can reach the listener may call. Requests to ctxgate stdio also
	// carry it in params.proxy.authToken, unless the process was started with it in the variable
	// CTXGATE_TOKEN or AUTH_TOKEN; in a client's configuration: "env": {"CTXGATE_TOKEN": "…"}.
	Token secret.Text `key:"auth_token" literal:"ok"`
}

// Caller is an authenticated client. The zero Caller is not authenticated.
type Caller struct {
	tenant, subject string
	token           *[sha256.Size]byte // the SHA-256 of the token it sent; nil where none is required
}

// Tenant is the tenant whose data the caller may see.
func (c Caller) Tenant() string { return c.tenant }

// Subject identifies the caller within the tenant.
func (c Caller) Subject() string { return c.subject }

// Authenticator checks credentials.
type Authenticator struct {
	token *[sha256.Size]byte // SHA-256 of the required token; nil: none is required
}

// New makes an Authenticator. The token must be resolved.
func New(cfg Config) *Authenticator {
	a := &Authenticator{}
	if t := cfg.Token.Reveal(); t != "" {
		sum := sha256.Sum256([]byte(t))
		a.token = &sum
	}
	return a
}

var errUnauthorized = fault.New(fault.Unauthorized, "a valid bearer token is required")

// Authenticate identifies the sender of a request by its headers.
func (a *Authenticator) Authenticate(r *http.Request) (Caller, error) {
	if a.token == nil {
		return Caller{tenant: DefaultTenant, subject: "anonymous"}, nil
	}
	token, ok := bearerToken(r)
	who, err := a.AuthenticateToken(token)
	if !ok {
		return Caller{}, errUnauthorized
	}
	return who, err
}

// AuthenticateToken identifies the caller that sent a token. Where no token is required, the token is
// ignored.
func (a *Authenticator) AuthenticateToken(token string) (Caller, error) {
	if a.token == nil {
		return Caller{tenant: DefaultTenant, subject: "anonymous"}, nil
	}
	// Hashes are compared, so that the time taken reveals nothing of the token or its length.
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], a.token[:]) != 1 {
		return Caller{}, errUnauthorized
	}
	return Caller{tenant: DefaultTenant, subject: "token", token: a.token}, nil
}

// Revalidate checks a caller that was authenticated under an earlier configuration: a token that was
// replaced is no longer valid.
func (a *Authenticator) Revalidate(c Caller) error {
	if a.token != nil && (c.token == nil || *c.token != *a.token) {
		return errUnauthorized
	}
	return nil
}

// tokenKey is the key of a token in a message body (A8).
const tokenKey = `"authToken"`

// maxToken is the longest token that FindToken reads.
const maxToken = 4 << 10

// FindToken searches the first part of a message for a valid token, before the message is complete and
// can be parsed: only a sender with the token may send the rest. The final authentication happens after
// parsing.
func (a *Authenticator) FindToken(head []byte) (Caller, error) {
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
		if who, err := a.AuthenticateToken(leadingString(bytes.TrimLeft(value, " \t\r\n"))); err == nil {
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

// LocalCaller is the client on stdin. Where a token is required, each request or the environment of the
// process must have provided it.
func LocalCaller() Caller { return Caller{tenant: DefaultTenant, subject: "local"} }

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

type contextKey struct{}

// WithCaller adds the caller to the context.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// CallerFrom returns the caller of the context, or a fault if the request was not authenticated.
func CallerFrom(ctx context.Context) (Caller, error) {
	c, ok := ctx.Value(contextKey{}).(Caller)
	if !ok || c == (Caller{}) {
		return Caller{}, errUnauthorized
	}
	return c, nil
}
