package auth

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// DefaultTenant is the tenant of callers whose credential names none.
const DefaultTenant = "default"

// Caller is an authenticated client. Only this package makes one: the zero Caller is nobody, and asking who it is
// panics.
type Caller struct{ id *identity }

// identity is what a credential says of its owner. It does not change.
type identity struct {
	tenant     string
	subject    string
	issuer     string // who vouches for the subject; "" for credentials of the configuration
	credential string // the name of the credential, which is no secret
	roles      []string
	claims     map[string]any    // of an access token; nil for none
	proof      [sha256.Size]byte // the hash of the credential, so that it can be checked again; zero for none
	expires    time.Time         // zero for never
	source     string            // the configuration of the identity provider that vouches for it; "" for none

	// The access token itself, of a caller that sent one of [oidc]: to be exchanged for one that a server accepts (RFC 8693),
	// and for nothing else. Nil for none; behind a pointer, so that an identity prints without it.
	accessToken *secret.Text
}

func newCaller(id identity) Caller { return Caller{&id} }

var (
	anonymous = newCaller(identity{tenant: DefaultTenant, subject: "anonymous", credential: "none"})
	local     = newCaller(identity{tenant: DefaultTenant, subject: "local", credential: "local"})
)

// LocalCaller is the client on stdin. Where a token is required, each request or the environment of the
// process must have provided it.
func LocalCaller() Caller { return local }

// Tenant is the tenant whose data the caller may see.
func (c Caller) Tenant() string { return c.id.tenant }

// Subject identifies the caller within the tenant, for its issuer.
func (c Caller) Subject() string { return c.id.subject }

// Issuer vouches for the subject; "" for credentials of the configuration.
func (c Caller) Issuer() string { return c.id.issuer }

// Credential is the name of the credential, for logs and limits. It is no secret.
func (c Caller) Credential() string { return c.id.credential }

// Roles are the caller's roles. They must not be changed.
func (c Caller) Roles() []string { return c.id.roles }

// HasRole says whether the caller has a role.
func (c Caller) HasRole(role string) bool { return slices.Contains(c.id.roles, role) }

// Claims are the claims of the caller's access token; nil for other credentials. They must not be changed.
func (c Caller) Claims() map[string]any { return c.id.claims }

// Expires is when the credential expires; the zero time for never.
func (c Caller) Expires() time.Time { return c.id.expires }

// AccessToken is the token of an identity provider that the caller sent; not set for other credentials. It is meant for this
// gateway alone: it may be exchanged for another token at the authorization server, and is never sent to a server.
func (c Caller) AccessToken() secret.Text {
	if c.id.accessToken == nil {
		return secret.Text{}
	}
	return *c.id.accessToken
}

// Key identifies the caller among all callers of all tenants and issuers. No two callers have the same.
func (c Caller) Key() string { return c.id.tenant + "\x00" + c.id.issuer + "\x00" + c.id.subject }

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
