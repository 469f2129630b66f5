package auth

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// OIDC names the identity provider whose access tokens are accepted. The gateway is a resource server: it checks tokens
// and never issues them.
type OIDC struct {
	// The issuer of the tokens, exactly as their claim iss and the provider's metadata have it: an https URL; http only
	// on this machine, or with allow_http. Its keys are found through <issuer>/.well-known/openid-configuration. If the
	// provider cannot be reached, known keys are used for an hour at most, and the gateway starts without it. Default
	// empty: no such tokens are accepted.
	Issuer string `key:"issuer"`

	// What the claim aud of a token must contain. Tokens for the gateway's own URL (public_url, public_url + "/mcp") are
	// accepted too, those for public_url + "/mcp/{server}" at that path. Required unless public_url is set.
	Audience string `key:"audience"`

	// The claim that names the tenant: any text it holds is one, so the provider must be trusted to set it for
	// everybody. A token without it is refused. A claim inside another is written "outer.inner". Default empty: every
	// token belongs to the tenant of the key tenant.
	TenantClaim string `key:"tenant_claim"`

	// The tenant of all callers of this issuer, if no claim names it. Default "default".
	Tenant string `key:"tenant"`

	// The claim that names the caller. A token of a client itself (client credentials) may have no sub: then the subject
	// is its client_id or azp. Default "sub".
	SubjectClaim string `key:"subject_claim"`

	// The claim that lists the caller's roles: a list of texts, or one text with spaces. Default empty: no roles.
	RolesClaim string `key:"roles_claim"`

	// The scopes that a token must have; they are also what the gateway tells clients to ask for. Default none.
	Scopes []string `key:"scopes"`

	// The signature algorithms that are accepted. Default RS256, PS256, ES256, ES384, EdDSA; RS384, RS512, PS384,
	// PS512 and ES512 are known too.
	Algorithms []string `key:"algorithms"`

	// How far the provider's clock may be off; a duration. Default 30s, at most 60s.
	Leeway unit.Duration `key:"leeway" min:"0s" max:"60s"`

	// Where the provider's keys are, if not where its metadata says. Default empty.
	JWKSURL string `key:"jwks_url"`

	// Ask the provider over http, though it is not on this machine. Whoever can change that traffic can sign tokens.
	// Default false.
	AllowHTTP bool `key:"allow_http"`

	// How opaque tokens are checked, which are not JWTs (RFC 7662). Without client_id they are refused.
	Introspection Introspection `key:"introspection"`
}

// Introspection says how the provider is asked about opaque tokens. Answers are kept for a minute at most. Such a token
// must be sent to the provider to be checked, whatever it is: clients that send a key of an LLM provider beside the
// gateway's token send the latter as X-Ctxgate-Token.
type Introspection struct {
	// The provider's introspection endpoint. Default: what its metadata says.
	Endpoint string `key:"endpoint"`

	// The gateway's own client id there. Default empty: opaque tokens are refused.
	ClientID string `key:"client_id"`

	// The secret of that client.
	ClientSecret secret.Text `key:"client_secret"`

	// How many tokens are asked about in a second, at most; more of them are refused as if the provider were busy, so that
	// a flood of wrong tokens does not become one at the provider. Default 20.
	Rate int `key:"rate" min:"1"`
}

// algorithms are the signature algorithms of JWTs that need no shared secret; those that are on by default first.
var algorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA", "RS384", "RS512", "PS384", "PS512", "ES512"}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{OIDC: OIDC{
		SubjectClaim: defaultSubjectClaim, Algorithms: slices.Clone(algorithms[:5]), Leeway: unit.Duration(30 * time.Second),
		Introspection: Introspection{Rate: 20},
	}}
}

const defaultSubjectClaim = "sub"

// IsEnabled says whether tokens of an identity provider are accepted.
func (c OIDC) IsEnabled() bool { return c.Issuer != "" }

// Validate lists every problem; each text begins with the key it is about.
func (c OIDC) Validate() []error {
	if !c.IsEnabled() {
		if c.Audience != "" || c.TenantClaim != "" || c.Introspection.ClientID != "" {
			return []error{errors.New("issuer: is required")}
		}
		return nil
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, at := range []struct{ key, url string }{{"issuer", c.Issuer}, {"jwks_url", c.JWKSURL}, {"introspection.endpoint", c.Introspection.Endpoint}} {
		if err := c.checkURL(at.url); at.url != "" && err != nil {
			problem("%s: %w", at.key, err)
		}
	}
	if c.TenantClaim != "" && c.Tenant != "" {
		problem("tenant: set either tenant or tenant_claim")
	}
	if err := checkName(cmp.Or(c.Tenant, DefaultTenant)); err != nil {
		problem("tenant: %w", err)
	}
	if c.SubjectClaim == "" {
		problem("subject_claim: must not be empty")
	}
	for i, scope := range c.Scopes {
		if scope == "" || strings.ContainsFunc(scope, isNoScopeChar) {
			problem("scopes[%d]: %q is not a scope", i, scope)
		}
	}
	if len(c.Algorithms) == 0 {
		problem("algorithms: must not be empty")
	}
	for i, alg := range c.Algorithms {
		if !slices.Contains(algorithms, alg) {
			problem("algorithms[%d]: want one of %s, found %q", i, strings.Join(algorithms, ", "), alg)
		}
	}
	if in := c.Introspection; (in.ClientID != "") != in.ClientSecret.IsSet() {
		problem("introspection.client_secret: client_id and client_secret belong together")
	}
	return problems
}

// isNoScopeChar says whether a scope cannot have a character (RFC 6749, 3.3).
func isNoScopeChar(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r > '~' }

// checkURL refuses an address at which the provider is not to be asked.
func (c OIDC) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return fmt.Errorf("%.200q is not a URL such as https://idp.example.com", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(text, "?#"):
		return errors.New("must have no user, query or fragment")
	case u.Scheme == "https", u.Scheme == "http" && (c.AllowHTTP || isLoopbackHost(u.Hostname())):
		return nil
	}
	return fmt.Errorf("%.200q: must be https; http only on this machine, or with allow_http = true", text)
}

func isLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
