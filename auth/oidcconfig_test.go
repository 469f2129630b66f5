package auth

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
)

func TestValidateOIDC(t *testing.T) {
	with := func(change func(*OIDC)) Config {
		c := Default()
		c.OIDC.Issuer, c.OIDC.Audience = "https://idp.example.com/t", "ctxgate"
		change(&c.OIDC)
		return c
	}
	for want, cfg := range map[string]Config{
		"":                         with(func(*OIDC) {}),
		" ":                        Default(),
		"  ":                       with(func(c *OIDC) { c.Issuer = "http://127.0.0.1:1" }),
		"   ":                      with(func(c *OIDC) { c.Issuer = "http://localhost:1/x" }),
		"    ":                     with(func(c *OIDC) { c.Issuer, c.AllowHTTP = "http://idp.internal", true }),
		"     ":                    with(func(c *OIDC) { c.Introspection.ClientID, c.Introspection.ClientSecret = "x", secret.Parse("env:X") }),
		"      ":                   with(func(c *OIDC) { c.Scopes = []string{"a:b/c!#[]"} }),
		"       ":                  with(func(c *OIDC) { c.Issuer = "http://[::1]:1" }),
		"oidc.issuer: is required": {OIDC: OIDC{Audience: "x"}},
		"oidc.issuer: is":          {OIDC: OIDC{TenantClaim: "x"}},
		"oidc.issuer: is re":       {OIDC: OIDC{Introspection: Introspection{ClientID: "x"}}},
		"oidc.issuer: \"http://idp.example.com\": must be https":               with(func(c *OIDC) { c.Issuer = "http://idp.example.com" }),
		"oidc.issuer: \"http://10.0.0.1\": must be https":                      with(func(c *OIDC) { c.Issuer = "http://10.0.0.1" }),
		"oidc.issuer: \"ftp://localhost\": must be https":                      with(func(c *OIDC) { c.Issuer, c.AllowHTTP = "ftp://localhost", true }),
		"oidc.issuer: \"idp.example.com\" is not a URL":                        with(func(c *OIDC) { c.Issuer = "idp.example.com" }),
		"oidc.issuer: \"https://\\x7f\" is not a URL":                          with(func(c *OIDC) { c.Issuer = "https://\x7f" }),
		"oidc.issuer: must have no user":                                       with(func(c *OIDC) { c.Issuer = "https://u@idp.example.com" }),
		"oidc.issuer: must have no user, query":                                with(func(c *OIDC) { c.Issuer = "https://idp.example.com?a=b" }),
		"oidc.issuer: must have no user, query ":                               with(func(c *OIDC) { c.Issuer = "https://idp.example.com#a" }),
		"oidc.issuer: must have no user, query or":                             with(func(c *OIDC) { c.Issuer = "https://idp.example.com?" }),
		"oidc.jwks_url: \"http://x\": must be https":                           with(func(c *OIDC) { c.JWKSURL = "http://x" }),
		"oidc.introspection.endpoint: \"http://x\": must be https":             with(func(c *OIDC) { c.Introspection.Endpoint = "http://x" }),
		"oidc.tenant: set either":                                              with(func(c *OIDC) { c.Tenant, c.TenantClaim = "a", "b" }),
		"oidc.tenant: must be 1":                                               with(func(c *OIDC) { c.Tenant = "\n" }),
		"oidc.subject_claim: must not":                                         with(func(c *OIDC) { c.SubjectClaim = "" }),
		"oidc.scopes[1]: \"a b\" is not":                                       with(func(c *OIDC) { c.Scopes = []string{"a", "a b"} }),
		"oidc.scopes[0]: \"\" is not":                                          with(func(c *OIDC) { c.Scopes = []string{""} }),
		"oidc.scopes[0]: \"a\\\"\" is not":                                     with(func(c *OIDC) { c.Scopes = []string{`a"`} }),
		"oidc.scopes[0]: \"ä\" is not":                                         with(func(c *OIDC) { c.Scopes = []string{"ä"} }),
		"oidc.algorithms: must not be empty":                                   with(func(c *OIDC) { c.Algorithms = nil }),
		"oidc.algorithms[0]: want one of RS256":                                with(func(c *OIDC) { c.Algorithms = []string{"HS256"} }),
		"oidc.algorithms[1]: want one of RS256":                                with(func(c *OIDC) { c.Algorithms = []string{"ES512", "none"} }),
		"oidc.introspection.client_secret: client_id and client_secret":        with(func(c *OIDC) { c.Introspection.ClientID = "x" }),
		"oidc.introspection.client_secret: client_id and client_secret belong": with(func(c *OIDC) { c.Introspection.ClientSecret = secret.Literal("x") }),
	} {
		errs := cfg.Validate()
		if strings.TrimSpace(want) == "" {
			if len(errs) > 0 {
				t.Errorf("%q: %v", want, errs)
			}
		} else if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%q: %v", want, errs)
		}
	}
	if cfg := with(func(*OIDC) {}); !cfg.IsRequired() || Default().IsRequired() || !Open(cfg, Deps{}).IsRequired() {
		t.Error("with an identity provider a credential is required, and without one it is not")
	}
}
