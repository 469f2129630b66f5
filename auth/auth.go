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
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Config says who may call.
type Config struct {
	// The token every client must send, as "Authorization: Bearer …" or in params.proxy.authToken of
	// each message; at the LLM endpoint also as x-api-key, or as X-Ctxgate-Token beside a provider's own
	// key. Default empty: everybody who can reach the listener may call. Requests to ctxgate stdio also
	// carry it in params.proxy.authToken, unless the process was started with it in the variable
	// CTXGATE_TOKEN or AUTH_TOKEN; in a client's configuration: "env": {"CTXGATE_TOKEN": "…"}.
	Token secret.Text `key:"auth_token" literal:"ok"`
}

// Authenticator checks credentials. It is safe for concurrent use.
type Authenticator struct {
	token *[sha256.Size]byte // SHA-256 of the required token; nil: none is required
}

// New makes an Authenticator. The secrets of the configuration must be resolved.
func New(cfg Config) *Authenticator {
	a := &Authenticator{}
	if t := cfg.Token.Reveal(); t != "" {
		sum := sha256.Sum256([]byte(t))
		a.token = &sum
	}
	return a
}

// IsRequired says whether callers need a credential at all.
func (c Config) IsRequired() bool { return c.Token.IsSet() }

// IsRequired says whether callers need a credential at all.
func (a *Authenticator) IsRequired() bool { return a.token != nil }

var errUnauthorized = fault.New(fault.Unauthorized, "a valid bearer token is required")

// Authenticate identifies the sender of a request by its headers.
func (a *Authenticator) Authenticate(r *http.Request) (Caller, error) {
	if !a.IsRequired() {
		return anonymous, nil
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
	// Hashes are compared, so that the time taken reveals nothing of the token or its length.
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], a.token[:]) != 1 {
		return Caller{}, errUnauthorized
	}
	return newCaller(identity{tenant: DefaultTenant, subject: "token", credential: "auth_token", proof: sum}), nil
}

// Revalidate checks a caller that was authenticated earlier, perhaps under another configuration: a token that
// was replaced is no longer valid.
func (a *Authenticator) Revalidate(c Caller) error {
	if a.token != nil && c.id.proof != *a.token {
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
