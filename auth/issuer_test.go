package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// The keys of tests; making RSA keys takes time.
var (
	rsaKey      = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	otherRSAKey = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey       = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	edKey       = sync.OnceValue(func() ed25519.PrivateKey { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// jwk is a public key as a provider publishes it.
func jwk(key crypto.Signer, id string, more ...func(*jwkset.JWKMetadataOptions)) map[string]any {
	meta := jwkset.JWKMetadataOptions{KID: id}
	for _, m := range more {
		m(&meta)
	}
	k := must(jwkset.NewJWKFromKey(key.Public(), jwkset.JWKOptions{Metadata: meta}))
	var out map[string]any
	if err := json.Unmarshal(must(json.Marshal(k.Marshal())), &out); err != nil {
		panic(err)
	}
	return out
}

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// issuer is an identity provider that does what a test says.
type issuer struct {
	*httptest.Server
	clock *clock

	mu        sync.Mutex
	keys      []map[string]any
	requests  []string       // what it was asked for
	lies      string         // the issuer that it claims to be; "" for itself
	status    int            // of every answer; 0 for 200
	documents map[string]any // other answers, by path
	hold      chan struct{}  // answers wait for it; nil for no waiting
	tokens    map[string]any // the answers about opaque tokens
	secrets   []string       // the credentials that came with questions about tokens
}

func newIssuer(t testing.TB, keys ...map[string]any) *issuer {
	t.Helper()
	s := &issuer{clock: &clock{at: time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)}, keys: keys, documents: map[string]any{}, tokens: map[string]any{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *issuer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.URL.Path)
	hold, status := s.hold, s.status
	var answer any
	switch {
	case s.documents[r.URL.Path] != nil:
		answer = s.documents[r.URL.Path]
	case r.URL.Path == "/.well-known/openid-configuration":
		name := s.URL
		if s.lies != "" {
			name = s.lies
		}
		answer = map[string]any{"issuer": name, "jwks_uri": s.URL + "/jwks", "introspection_endpoint": s.URL + "/introspect"}
	case r.URL.Path == "/jwks":
		answer = map[string]any{"keys": s.keys}
	case r.URL.Path == "/introspect":
		id, password, _ := r.BasicAuth()
		s.secrets = append(s.secrets, id+" "+password)
		answer = s.tokens[r.PostFormValue("token")]
		if answer == nil {
			answer = map[string]any{"active": false}
		}
	}
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	switch answer := answer.(type) {
	case nil:
		http.NotFound(w, r)
	case http.HandlerFunc:
		answer(w, r)
	default:
		if status != 0 {
			w.WriteHeader(status)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// set changes the issuer.
func (s *issuer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked is how often the issuer was asked for a path; for any with "".
func (s *issuer) asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if path == "" || r == path {
			n++
		}
	}
	return n
}

// config is the configuration for this issuer.
func (s *issuer) config() Config {
	c := Default()
	c.OIDC.Issuer, c.OIDC.Audience, c.OIDC.TenantClaim, c.OIDC.RolesClaim = s.URL, "ctxgate", "org", "groups"
	return c
}

func (s *issuer) withIntrospection() Config {
	c := s.config()
	c.OIDC.Introspection = Introspection{ClientID: "gate way", ClientSecret: secret.Literal("s:cret"), Rate: 20}
	return c
}

const base = "https://gate.example.com"

// open makes an authenticator for this issuer, with its clock.
func (s *issuer) open(cfg Config) *Authenticator {
	return Open(cfg, Deps{PublicURL: base + "/", Now: s.clock.now})
}

// claims are valid claims, with changes; a nil value removes a claim.
func (s *issuer) claims(changes map[string]any) jwt.MapClaims {
	now := s.clock.now()
	c := jwt.MapClaims{
		"iss": s.URL, "aud": "ctxgate", "sub": "ann", "org": "acme", "groups": []string{"dev", "ops"}, "iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
	}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

// sign makes a token. Header changes with a nil value remove a header.
func sign(method jwt.SigningMethod, key any, claims jwt.MapClaims, header map[string]any) string {
	t := jwt.NewWithClaims(method, claims)
	for name, value := range header {
		if t.Header[name] = value; value == nil {
			delete(t.Header, name)
		}
	}
	return must(t.SignedString(key))
}

// token is a valid token of the key "k1", with changed claims.
func (s *issuer) token(changes map[string]any) string {
	return sign(jwt.SigningMethodRS256, rsaKey(), s.claims(changes), map[string]any{"kid": "k1"})
}

// rawToken signs header and claims as they are written.
func rawToken(header, claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	return text + "." + base64.RawURLEncoding.EncodeToString(must(jwt.SigningMethodRS256.Sign(text, rsaKey())))
}

// rawClaims are valid claims as JSON, with more members at the end.
func (s *issuer) rawClaims(more string) string {
	text := string(must(json.Marshal(s.claims(nil))))
	return strings.TrimSuffix(text, "}") + more + "}"
}

func leeway(d time.Duration) unit.Duration { return unit.Duration(d) }

// requestWith is a request with a bearer token.
func requestWith(path, token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, base+path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func (s *issuer) String() string { return fmt.Sprint(s.requests) }
