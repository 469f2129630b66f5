// Package auth says who is calling. A [Gate] turns a request's credentials into a [Caller]; the
// caller travels in the request's context. Today there is one way in, a shared token; the ways
// to come give the same Caller.
//
// Authentication fails closed: no credential, a wrong one, or an error on the way is a fault of
// kind Unauthorized, never an anonymous caller. A Caller can only be made here, so that no code
// path can act for nobody.
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

// DefaultTenant owns what is kept where there is only one user.
const DefaultTenant = "default"

// Config is who may call.
type Config struct {
	// The token every client must send, as "Authorization: Bearer …" or in params.proxy.authToken
	// of each message; at the model's door also as x-api-key, or as X-Ctxgate-Token beside a
	// provider's own key. Default empty: whoever can reach the listener may call. On ctxgate stdio
	// too each request carries it in params.proxy.authToken, unless the process was started with it
	// in the variable CTXGATE_TOKEN or AUTH_TOKEN: in a client's configuration
	// "env": {"CTXGATE_TOKEN": "…"}.
	Token secret.Text `key:"auth_token" literal:"ok"`
}

// Caller is an authenticated client. The zero Caller is nobody.
type Caller struct {
	tenant, subject string
	token           *[sha256.Size]byte // the sum of the token that was shown; nil where none was asked
}

// Tenant is whose data the caller may see.
func (c Caller) Tenant() string { return c.tenant }

// Subject is who the caller is within the tenant.
func (c Caller) Subject() string { return c.subject }

// Gate checks credentials.
type Gate struct {
	token *[sha256.Size]byte // nil: no token is asked
}

// New makes a gate. The token must be resolved.
func New(cfg Config) *Gate {
	g := &Gate{}
	if t := cfg.Token.Reveal(); t != "" {
		sum := sha256.Sum256([]byte(t))
		g.token = &sum
	}
	return g
}

var errUnauthorized = fault.New(fault.Unauthorized, "a valid bearer token is required")

// Identify says who sent the request.
func (g *Gate) Identify(r *http.Request) (Caller, error) {
	if g.token == nil {
		return Caller{tenant: DefaultTenant, subject: "anonymous"}, nil
	}
	token, ok := bearer(r)
	who, err := g.Check(token)
	if !ok {
		return Caller{}, errUnauthorized
	}
	return who, err
}

// Check says who knows a token. Where no token is asked, whatever was sent is as good as nothing.
func (g *Gate) Check(token string) (Caller, error) {
	if g.token == nil {
		return Caller{tenant: DefaultTenant, subject: "anonymous"}, nil
	}
	// The sums are compared, so that the time taken tells nothing of the token or its length.
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], g.token[:]) != 1 {
		return Caller{}, errUnauthorized
	}
	return Caller{tenant: DefaultTenant, subject: "token", token: g.token}, nil
}

// Recheck says whether a caller that another gate let in would be let in by this one: a token that
// was replaced is not good any more.
func (g *Gate) Recheck(c Caller) error {
	if g.token != nil && (c.token == nil || *c.token != *g.token) {
		return errUnauthorized
	}
	return nil
}

// tokenKey is how a message names the token that stands in it (A8).
const tokenKey = `"authToken"`

// longestToken is the longest token that Find looks at.
const longestToken = 4 << 10

// Find looks for a token in the first part of a message, before the message is whole and can be
// read: whoever knows the token may send the rest. Who sent it is decided when it is read.
func (g *Gate) Find(head []byte) (Caller, error) {
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
		if who, err := g.Check(leadingString(bytes.TrimLeft(value, " \t\r\n"))); err == nil {
			return who, nil
		}
	}
}

// leadingString is the JSON string that a text begins with; "" when it begins with none.
func leadingString(text []byte) string {
	text = text[:min(len(text), longestToken)]
	if len(text) == 0 || text[0] != '"' {
		return ""
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return jsonscan.TextOf(text[:i+1])
		}
	}
	return ""
}

// Local is whoever speaks to this process on its stdin. Where a token is asked for, each request, or
// the environment in which the process was started, must have shown it.
func Local() Caller { return Caller{tenant: DefaultTenant, subject: "local"} }

// Silent says that a request has no credential in its headers at all.
func Silent(r *http.Request) bool { return len(r.Header.Values("Authorization")) == 0 }

// bearer is the request's token. Two Authorization headers are none: which one counts is
// something two readers could disagree on.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

type contextKey struct{}

// With puts the caller into the context.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// From takes the caller from the context. A request that did not pass the gate has none.
func From(ctx context.Context) (Caller, error) {
	c, ok := ctx.Value(contextKey{}).(Caller)
	if !ok || c == (Caller{}) {
		return Caller{}, errUnauthorized
	}
	return c, nil
}
