package auth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// S15: what is accepted, and who it is then.
func TestAccessToken(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"), jwk(ecKey(), "k2"), jwk(edKey(), "k3"))
	a := s.open(s.config())
	kid := func(id string) map[string]any { return map[string]any{"kid": id} }
	for name, token := range map[string]string{
		"RS256": s.token(nil), "PS256": sign(jwt.SigningMethodPS256, rsaKey(), s.claims(nil), kid("k1")), "ES256": sign(jwt.SigningMethodES256, ecKey(), s.claims(nil), kid("k2")),
		"EdDSA": sign(jwt.SigningMethodEdDSA, edKey(), s.claims(nil), kid("k3")), "no kid, one key fits": sign(jwt.SigningMethodES256, ecKey(), s.claims(nil), nil),
		"access token type": sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "k1", "typ": "application/at+JWT"}),
		"no type":           sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "k1", "typ": nil}),
		"several audiences": s.token(map[string]any{"aud": []string{"other", "ctxgate"}}), "roles in one text": s.token(map[string]any{"groups": "dev ops"}),
		"the gateway": s.token(map[string]any{"aud": base}), "with a slash": s.token(map[string]any{"aud": base + "/"}), "the endpoint": s.token(map[string]any{"aud": base + "/mcp"}),
		"skewed": s.token(map[string]any{"iat": s.clock.now().Unix() + 29, "nbf": s.clock.now().Unix() + 29}), "just expired": s.token(map[string]any{"exp": s.clock.now().Unix() - 29}),
		// RFC 7515, 4.1.2 to 4.1.5: keys in the header are not those of the provider, and nobody is asked for them
		"embedded key": sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "k1", "jwk": jwk(otherRSAKey(), "k1"), "jku": s.URL + "/evil", "x5u": s.URL + "/evil"}),
	} {
		who, err := a.AuthenticateToken(context.Background(), token)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if who.Tenant() != "acme" || who.Subject() != "ann" || who.Issuer() != s.URL || who.Credential() != "oidc" || !slices.Equal(who.Roles(), []string{"dev", "ops"}) || who.Claims()["sub"] != "ann" {
			t.Errorf("%s: %+v", name, who.id)
		}
		if who.AccessToken().Reveal() != token || a.Revalidate(who) != nil || !a.IsOwn(token) {
			t.Errorf("%s: the caller has another token, or is no longer valid", name)
		}
	}
	if s.asked("/evil") > 0 || s.asked("/jwks") != 1 || s.asked("") != 2 {
		t.Errorf("asked for %v", s)
	}
}

// S15: what is refused. Each token is refused twice, the second time out of the cache.
func TestAccessTokenRefused(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"), jwk(ecKey(), "k2"))
	a := s.open(s.config())
	kid := map[string]any{"kid": "k1"}
	now := s.clock.now().Unix()
	good := s.token(nil)
	parts := strings.Split(good, ".")
	public := x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: public})
	with := func(name string, value any) string { return s.token(map[string]any{name: value}) }
	headed := func(name string, value any) string {
		h := maps.Clone(kid)
		h[name] = value
		return sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), h)
	}
	const header = `{"alg":"RS256","kid":"k1","typ":"JWT"}`
	for name, token := range map[string]string{
		"none":                        sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, s.claims(nil), kid),
		"None":                        rawToken(`{"alg":"None","kid":"k1"}`, s.rawClaims("")),
		"no alg":                      rawToken(`{"kid":"k1"}`, s.rawClaims("")),
		"HS256 with the public key":   sign(jwt.SigningMethodHS256, public, s.claims(nil), kid),
		"HS256 with the PEM":          sign(jwt.SigningMethodHS256, asPEM, s.claims(nil), kid),
		"HS512 with the modulus":      sign(jwt.SigningMethodHS512, rsaKey().N.Bytes(), s.claims(nil), kid),
		"RS512, not allowed":          sign(jwt.SigningMethodRS512, rsaKey(), s.claims(nil), kid),
		"ES256 by the id of an RSA":   sign(jwt.SigningMethodES256, ecKey(), s.claims(nil), kid),
		"another key":                 sign(jwt.SigningMethodRS256, otherRSAKey(), s.claims(nil), kid),
		"another key, embedded":       sign(jwt.SigningMethodRS256, otherRSAKey(), s.claims(nil), map[string]any{"kid": "k1", "jwk": jwk(otherRSAKey(), "k1")}),
		"unknown kid":                 sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "k9"}),
		"kid is a path":               sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "../../../../dev/null"}),
		"kid is SQL":                  sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "k1' UNION SELECT 'x' --"}),
		"kid is a list":               headed("kid", []string{"k1"}),
		"kid is empty":                headed("kid", ""),
		"crit":                        headed("crit", []string{"exp"}),
		"empty crit":                  headed("crit", []string{}),
		"a logout":                    headed("typ", "logout+jwt"),
		"type is a number":            headed("typ", 1),
		"other audience":              with("aud", "other"),
		"part of the audience":        with("aud", "ctxgat"),
		"no audience":                 with("aud", nil),
		"empty audience":              with("aud", ""),
		"audience is a number":        with("aud", 1),
		"audience is another gateway": with("aud", base+".evil.com/mcp"),
		"audience is below":           with("aud", base+"/v1"),
		"other issuer":                with("iss", s.URL+"/"),
		"no issuer":                   with("iss", nil),
		"issuer is a list":            with("iss", []string{s.URL}),
		"expired":                     with("exp", now-31),
		"never expires":               with("exp", nil),
		"exp is a text":               with("exp", "2099"),
		"not yet valid":               with("nbf", now+31),
		"issued later":                with("iat", now+31),
		"no subject":                  with("sub", nil),
		"empty subject":               with("sub", ""),
		"subject is a list":           with("sub", []string{"ann"}),
		"subject with a NUL":          with("sub", "ann\x00"),
		"long subject":                with("sub", strings.Repeat("x", 257)),
		"no tenant":                   with("org", nil),
		"empty tenant":                with("org", ""),
		"tenant is a list":            with("org", []string{"acme"}),
		"tenant is a number":          with("org", 7),
		"tenant with a line break":    with("org", "acme\n"),
		"roles are a number":          with("groups", 7),
		"a role is a number":          with("groups", []any{"dev", 7}),
		"too many roles":              with("groups", strings.Repeat("r ", maxRoles+1)),
		"claims twice":                rawToken(header, s.rawClaims(`,"org":"umbrella"`)),
		"claims twice, escaped":       rawToken(header, s.rawClaims(`,"\u006frg":"umbrella"`)),
		"claims twice, inside":        rawToken(header, s.rawClaims(`,"a":{"b":1,"b":2}`)),
		"header twice":                rawToken(`{"alg":"RS256","kid":"k1","alg":"RS256"}`, s.rawClaims("")),
		"more after the claims":       rawToken(header, s.rawClaims("")+"{}"),
		"deep":                        rawToken(header, s.rawClaims(`,"a":`+strings.Repeat("[", 40)+strings.Repeat("]", 40))),
		"claims are a list":           rawToken(header, `[]`),
		"no signature":                parts[0] + "." + parts[1] + ".",
		"signature of another":        parts[0] + "." + parts[1] + "." + strings.Split(with("sub", "bob"), ".")[2],
		"four parts":                  good + ".x",
		"two parts":                   parts[0] + "." + parts[1],
		"opaque":                      "opaque",
		"empty parts":                 "..",
		"padded":                      parts[0] + "=." + parts[1] + "." + parts[2],
		"spaces":                      " " + good,
		"too long":                    with("x", strings.Repeat("x", maxToken)),
		"a prefix":                    good[:len(good)-1],
	} {
		for range 2 {
			if who, err := a.AuthenticateToken(context.Background(), token); fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) || strings.Contains(err.Error(), good[:20]) {
				t.Errorf("%s: %v, %v", name, who, err)
			}
		}
	}
	if _, err := a.AuthenticateToken(context.Background(), good); err != nil {
		t.Error(err)
	}
	if n := s.asked("/jwks"); n > 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	r := requestWith("/mcp", "")
	r.Header.Del("Authorization")
	r.URL.RawQuery = "access_token=" + good
	if _, err := a.Authenticate(r); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("a token in the query was accepted: %v", err)
	}
}

// T22, CVE-2026-35030: a token is known by all of it, and only for the issuer and the audience that it was checked for.
func TestCacheIsByWholeToken(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	good := s.token(nil)
	for range 2 {
		if _, err := a.AuthenticateToken(context.Background(), good); err != nil {
			t.Fatal(err)
		}
	}
	for i := len(good) - 400; i < len(good); i += 7 {
		if _, err := a.AuthenticateToken(context.Background(), good[:i]+flip(good[i])+good[i+1:]); err == nil {
			t.Errorf("a token that differs at byte %d was accepted", i)
		}
	}
	other := s.config()
	other.OIDC.Audience = "another"
	if _, err := s.open(other).AuthenticateToken(context.Background(), good); err == nil {
		t.Error("accepted for another audience")
	}
	if v := a.oidc; v.hash("x") == s.open(other).oidc.hash("x") || v.hash("x") == Open(s.config(), Deps{}).oidc.hash("x") {
		t.Error("two audiences share what is cached")
	}
	// A cached token expires like any other.
	s.clock.advance(10*time.Minute + 29*time.Second)
	if _, err := a.AuthenticateToken(context.Background(), good); err != nil {
		t.Error(err)
	}
	s.clock.advance(time.Second)
	if _, err := a.AuthenticateToken(context.Background(), good); err == nil {
		t.Error("an expired token was accepted")
	}
}

func flip(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

// A token that is not valid yet becomes valid.
func TestNotYetValid(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	for _, claim := range []string{"nbf", "iat"} {
		token := s.token(map[string]any{claim: s.clock.now().Unix() + 60})
		if _, err := a.AuthenticateToken(context.Background(), token); err == nil {
			t.Errorf("%s: accepted too early", claim)
		}
		s.clock.advance(31 * time.Second)
		if _, err := a.AuthenticateToken(context.Background(), token); err != nil {
			t.Errorf("%s: %v", claim, err)
		}
	}
}

// Who a token is for, if the claims are named otherwise.
func TestClaims(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	for name, tt := range map[string]struct {
		change  func(*OIDC)
		claims  map[string]any
		tenant  string // "" for a refusal
		subject string
		roles   []string
	}{
		"fixed tenant":                  {func(c *OIDC) { c.TenantClaim, c.Tenant = "", "fixed" }, map[string]any{"org": nil}, "fixed", "ann", []string{"dev", "ops"}},
		"no tenant configured":          {func(c *OIDC) { c.TenantClaim = "" }, nil, "default", "ann", []string{"dev", "ops"}},
		"the default by its name":       {func(*OIDC) {}, map[string]any{"org": "default"}, "default", "ann", []string{"dev", "ops"}},
		"no roles configured":           {func(c *OIDC) { c.RolesClaim = "" }, map[string]any{"groups": 7}, "acme", "ann", nil},
		"no roles":                      {func(*OIDC) {}, map[string]any{"groups": nil}, "acme", "ann", nil},
		"roles inside":                  {func(c *OIDC) { c.RolesClaim = "realm_access.roles" }, map[string]any{"realm_access": map[string]any{"roles": []string{"a"}}}, "acme", "ann", []string{"a"}},
		"roles inside what is no table": {func(c *OIDC) { c.RolesClaim = "realm_access.roles" }, map[string]any{"realm_access": "x"}, "acme", "ann", nil},
		"a claim with dots":             {func(c *OIDC) { c.TenantClaim = "https://x.y/org" }, map[string]any{"https://x.y/org": "z"}, "z", "ann", []string{"dev", "ops"}},
		"other subject":                 {func(c *OIDC) { c.SubjectClaim = "email" }, map[string]any{"email": "a@b.c"}, "acme", "a@b.c", []string{"dev", "ops"}},
		"other subject missing":         {func(c *OIDC) { c.SubjectClaim = "email" }, map[string]any{"client_id": "x"}, "", "", nil},
		"a client":                      {func(*OIDC) {}, map[string]any{"sub": nil, "client_id": "ci", "azp": "y"}, "acme", "ci", []string{"dev", "ops"}},
		"a client by azp":               {func(*OIDC) {}, map[string]any{"sub": nil, "azp": "ci"}, "acme", "ci", []string{"dev", "ops"}},
		"a client without a name":       {func(*OIDC) {}, map[string]any{"sub": nil, "client_id": ""}, "", "", nil},
	} {
		cfg := s.config()
		tt.change(&cfg.OIDC)
		who, err := s.open(cfg).AuthenticateToken(context.Background(), s.token(tt.claims))
		if tt.tenant == "" {
			if fault.KindOf(err) != fault.Unauthorized {
				t.Errorf("%s: %v, %v", name, who, err)
			}
		} else if err != nil || who.Tenant() != tt.tenant || who.Subject() != tt.subject || !slices.Equal(who.Roles(), tt.roles) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// RFC 8707: a token for the endpoint of one server is valid there and nowhere else.
func TestTokenOfOneServer(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	token := s.token(map[string]any{"aud": []string{base + "/mcp/files", base + "/mcp/git"}})
	for path, ok := range map[string]bool{"/mcp/files": true, "/mcp/git": true, "/mcp": false, "/mcp/file": false, "/mcp/files/x": false, "/v1/chat/completions": false} {
		if _, err := a.Authenticate(requestWith(path, token)); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := a.AuthenticateToken(context.Background(), token); err == nil {
		t.Error("it is valid in a message")
	}
	noBase := Open(s.config(), Deps{Now: s.clock.now})
	for _, aud := range []string{"/mcp/files", "", "/", "/mcp", "http://gate.example.com/mcp/files"} {
		if _, err := noBase.Authenticate(requestWith("/mcp/files", s.token(map[string]any{"aud": aud}))); err == nil {
			t.Errorf("without a URL of its own, the gateway accepts the audience %q", aud)
		}
	}
}

func TestScopes(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	cfg := s.config()
	cfg.OIDC.Scopes = []string{"mcp", "llm"}
	a := s.open(cfg)
	for name, tt := range map[string]struct {
		claims map[string]any
		want   fault.Kind
	}{
		"both": {map[string]any{"scope": "llm other mcp"}, 0}, "scp": {map[string]any{"scp": []string{"llm", "mcp"}}, 0}, "scp in one text": {map[string]any{"scp": "llm mcp"}, 0},
		"one": {map[string]any{"scope": "mcp"}, fault.Forbidden}, "the other": {map[string]any{"scope": "llm"}, fault.Forbidden}, "none": {nil, fault.Forbidden},
		"not a text": {map[string]any{"scope": 7}, fault.Forbidden}, "part of one": {map[string]any{"scope": "mcp llmx"}, fault.Forbidden},
	} {
		for range 2 {
			who, err := a.AuthenticateToken(context.Background(), s.token(tt.claims))
			if tt.want == 0 && err != nil || tt.want != 0 && (fault.KindOf(err) != tt.want || who != (Caller{})) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Tokens of the configuration work beside an identity provider, and do not ask it.
func TestTokensBesideProvider(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	cfg := s.config()
	cfg.Tokens = twoTenants().Tokens
	a := s.open(cfg)
	who, err := a.AuthenticateToken(context.Background(), annNew)
	if err != nil || who.Issuer() != "" || who.AccessToken().IsSet() || a.Revalidate(who) != nil {
		t.Errorf("%v, %v", who, err)
	}
	if _, err := a.AuthenticateToken(context.Background(), ""); fault.KindOf(err) != fault.Unauthorized {
		t.Error(err)
	}
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	if who, err := a.Authenticate(r); fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
		t.Errorf("a request without a credential is %v, %v", who, err)
	}
	for text, own := range map[string]bool{annNew: true, s.token(map[string]any{"exp": 1}): true, s.token(map[string]any{"iss": "https://x"}): false, "sk-provider-key": false, "a.b.c": false, "": false} {
		if a.IsOwn(text) != own {
			t.Errorf("%.20s: own is not %t", text, own)
		}
	}
	if New(Config{}).IsOwn("x.y.z") || s.asked("") != 0 {
		t.Errorf("asked for %v", s)
	}
}

// A caller is valid until its token expires, under the configuration that identified it.
func TestRevalidateAccessToken(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	who, err := a.AuthenticateToken(context.Background(), s.token(nil))
	if err != nil {
		t.Fatal(err)
	}
	if !who.Expires().Equal(s.clock.now().Add(10*time.Minute + 30*time.Second)) {
		t.Errorf("expires %v", who.Expires())
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"unchanged":      {func(*Config) {}, true},
		"more tokens":    {func(c *Config) { c.Tokens = twoTenants().Tokens }, true},
		"other secret":   {func(c *Config) { c.OIDC.Introspection.ClientSecret = secret.Literal("x") }, false},
		"other audience": {func(c *Config) { c.OIDC.Audience = "x" }, false},
		"other claim":    {func(c *Config) { c.OIDC.TenantClaim = "tid" }, false},
		"other issuer":   {func(c *Config) { c.OIDC.Issuer = "https://x" }, false},
		"no provider":    {func(c *Config) { *c = twoTenants() }, false},
	} {
		cfg := s.config()
		tt.change(&cfg)
		if err := Open(cfg, Deps{PublicURL: base, Now: s.clock.now, Previous: a}).Revalidate(who); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.clock.advance(10*time.Minute + 29*time.Second)
	if a.Revalidate(who) != nil {
		t.Error("refused before it expires")
	}
	s.clock.advance(time.Second)
	if a.Revalidate(who) == nil {
		t.Error("valid after it expired")
	}
	if a.Revalidate(anonymous) == nil {
		t.Error("an anonymous caller is valid")
	}
}

// What is known of the provider survives a reload.
func TestReloadKeepsKeys(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	if _, err := a.AuthenticateToken(context.Background(), s.token(nil)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change  func(*Config)
		fetches int
	}{
		"unchanged":      {func(*Config) {}, 0},
		"other leeway":   {func(c *Config) { c.OIDC.Leeway = leeway(time.Second) }, 0},
		"other key set":  {func(c *Config) { c.OIDC.JWKSURL = s.URL + "/jwks" }, 1},
		"allow_http":     {func(c *Config) { c.OIDC.AllowHTTP = true }, 1},
		"introspection":  {func(c *Config) { c.OIDC.Introspection = s.withIntrospection().OIDC.Introspection }, 0},
		"another secret": {func(c *Config) { c.OIDC.Introspection.ClientSecret = secret.Literal("2") }, 0},
	} {
		before := s.asked("/jwks")
		cfg := s.config()
		tt.change(&cfg)
		b := Open(cfg, Deps{PublicURL: base, Now: s.clock.now, Previous: a})
		if _, err := b.AuthenticateToken(context.Background(), s.token(nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.asked("/jwks") - before; got != tt.fetches {
			t.Errorf("%s: the keys were fetched %d times", name, got)
		}
		if same := b.oidc == a.oidc; same != (name == "unchanged") {
			t.Errorf("%s: the same verifier: %t", name, same)
		}
	}
	if b := Open(s.config(), Deps{PublicURL: "https://other", Now: s.clock.now, Previous: a}); b.oidc == a.oidc || b.oidc.keys != a.oidc.keys {
		t.Error("with another URL, the keys are the same and what is checked is not")
	}
}

func TestFindTokenTriesFew(t *testing.T) {
	a := New(twoTenants())
	body := func(wrong int) []byte {
		return []byte(strings.Repeat(`{"authToken": "x"}`, wrong) + fmt.Sprintf(`{"authToken": %q}`, annNew))
	}
	if _, err := a.FindToken(context.Background(), body(maxFound-1)); err != nil {
		t.Error(err)
	}
	if _, err := a.FindToken(context.Background(), body(maxFound)); fault.KindOf(err) != fault.Unauthorized {
		t.Error(err)
	}
}
