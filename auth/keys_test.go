package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/ctxgate/ctxgate/fault"
)

// signedBy is a token of another key.
func (s *issuer) signedBy(key *rsa.PrivateKey, id string) string {
	return sign(jwt.SigningMethodRS256, key, s.claims(map[string]any{"jti": rand.Text()}), map[string]any{"kid": id})
}

func kindOf(a *Authenticator, token string) fault.Kind {
	_, err := a.AuthenticateToken(context.Background(), token)
	if err == nil {
		return 0
	}
	return fault.KindOf(err)
}

// idle waits until no fetch is under way.
func (k *keys) idle() {
	k.mu.Lock()
	done := k.running
	k.mu.Unlock()
	if done != nil {
		<-done
	}
}

// S15: a key that the provider adds is found at once; one that it withdraws is refused soon, cached tokens included.
func TestKeyRotation(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	first := s.signedBy(rsaKey(), "k1")
	if k := kindOf(a, first); k != 0 {
		t.Fatal(k)
	}
	s.set(func() { s.keys = append(s.keys, jwk(otherRSAKey(), "k2")) })
	if k := kindOf(a, s.signedBy(otherRSAKey(), "k2")); k != fault.Unauthorized {
		t.Errorf("the keys were fetched twice within %s: %v", fetchInterval, k)
	}
	s.clock.advance(fetchInterval)
	if k := kindOf(a, s.signedBy(otherRSAKey(), "k2")); k != 0 {
		t.Errorf("the new key: %v", k)
	}
	if k := kindOf(a, first); k != 0 || s.asked("/jwks") != 2 {
		t.Errorf("the old key: %v after %v", k, s)
	}
	s.set(func() { s.keys = s.keys[1:] })
	s.clock.advance(refreshAfter - time.Second)
	if k := kindOf(a, first); k != 0 || s.asked("/jwks") != 2 {
		t.Errorf("%v after %v", k, s)
	}
	s.clock.advance(time.Second)
	_ = kindOf(a, first) // starts a fetch
	a.oidc.keys.idle()
	if k := kindOf(a, first); k != fault.Unauthorized || s.asked("/jwks") != 3 {
		t.Errorf("a key that was withdrawn: %v after %v", k, s)
	}
	if k := kindOf(a, s.signedBy(otherRSAKey(), "k2")); k != 0 {
		t.Errorf("the key that stays: %v", k)
	}
}

// The key of an id may be replaced by another: what was refused under the old one is checked again.
func TestKeyReplaced(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	token := s.signedBy(otherRSAKey(), "k1")
	if k := kindOf(a, token); k != fault.Unauthorized {
		t.Fatal(k)
	}
	s.set(func() { s.keys = []map[string]any{jwk(otherRSAKey(), "k1")} })
	s.clock.advance(refreshAfter)
	a.oidc.keys.current()
	a.oidc.keys.idle()
	if k := kindOf(a, token); k != 0 {
		t.Error(k)
	}
}

// signedByEC is signedBy with a key that signs fast.
func (s *issuer) signedByEC(id string) string {
	return sign(jwt.SigningMethodES256, ecKey(), s.claims(map[string]any{"jti": rand.Text()}), map[string]any{"kid": id})
}

// S15: an outage of ten minutes goes unnoticed by callers whose keys are known; after an hour they are refused. The
// provider is asked every ten seconds at most, whatever is sent.
func TestOutage(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"), jwk(ecKey(), "e1"))
	a := s.open(s.config())
	log := captureLog(t)
	if k := kindOf(a, s.token(nil)); k != 0 {
		t.Fatal(k)
	}
	s.set(func() { s.status = http.StatusServiceUnavailable })
	begin, fetches := s.clock.now(), s.asked("/.well-known/openid-configuration")
	for s.clock.now().Sub(begin) < 10*time.Minute {
		s.clock.advance(2500 * time.Millisecond)
		if k := kindOf(a, s.signedByEC("e1")); k != 0 {
			t.Fatalf("after %s: %v", s.clock.now().Sub(begin), k)
		}
		if k := kindOf(a, s.signedByEC("e2")); k != fault.Unauthorized {
			t.Fatalf("after %s, an unknown key: %v", s.clock.now().Sub(begin), k)
		}
		a.oidc.keys.idle()
	}
	if n := s.asked("/.well-known/openid-configuration") - fetches; n < 50 || n > 60 {
		t.Errorf("asked %d times in ten minutes", n)
	}
	if !strings.Contains(log.String(), "the keys of the identity provider cannot be fetched") || !strings.Contains(log.String(), "unexpected status 503") {
		t.Errorf("logged %.300s", log.String())
	}
	s.clock.advance(50*time.Minute - time.Second)
	if k := kindOf(a, s.token(nil)); k != 0 {
		t.Errorf("within the hour: %v", k)
	}
	a.oidc.keys.idle()
	cached := s.token(nil)
	_ = kindOf(a, cached)
	s.clock.advance(time.Second)
	for _, token := range []string{cached, s.signedBy(rsaKey(), "k1")} {
		if k := kindOf(a, token); k != fault.Unavailable {
			t.Errorf("after an hour: %v", k)
		}
	}
	s.set(func() { s.status = 0 })
	s.clock.advance(fetchInterval)
	if k := kindOf(a, s.token(nil)); k != 0 {
		t.Errorf("after the outage: %v", k)
	}
}

// An idle hour is no outage.
func TestIdleHour(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	for range 3 {
		if k := kindOf(a, s.token(nil)); k != 0 {
			t.Fatal(k)
		}
		s.clock.advance(2 * time.Hour)
	}
}

// The gateway starts without its provider, refuses until it is there, and finds it by itself. It is never anonymous.
func TestStartWithoutProvider(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	s.status = http.StatusBadGateway
	a := s.open(s.config())
	for range 3 {
		who, err := a.AuthenticateToken(context.Background(), s.token(nil))
		if fault.KindOf(err) != fault.Unavailable || who != (Caller{}) {
			t.Errorf("%v, %v", who, err)
		}
	}
	if n := s.asked(""); n != 1 {
		t.Errorf("asked %d times", n)
	}
	s.set(func() { s.status = 0 })
	s.clock.advance(fetchInterval - time.Second)
	if k := kindOf(a, s.token(nil)); k != fault.Unavailable {
		t.Errorf("asked again too early: %v", k)
	}
	s.clock.advance(time.Second)
	if k := kindOf(a, s.token(nil)); k != 0 {
		t.Error(k)
	}
}

// A provider that lies, or answers nonsense, has no keys.
func TestProviderLies(t *testing.T) {
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	const discovery = "/.well-known/openid-configuration"
	elsewhere := newIssuer(t, jwk(rsaKey(), "k1"))
	for name, lie := range map[string]func(s *issuer){
		"another issuer":        func(s *issuer) { s.lies = "https://idp.example.com" },
		"its issuer with slash": func(s *issuer) { s.lies = s.URL + "/" },
		"an issuer twice": func(s *issuer) {
			s.documents[discovery] = raw(`{"issuer":"x","issuer":%q,"jwks_uri":%q}`, s.URL, s.URL+"/jwks")
		},
		"no key set": func(s *issuer) { s.documents[discovery] = raw(`{"issuer":%q}`, s.URL) },
		"keys over http": func(s *issuer) {
			s.documents[discovery] = raw(`{"issuer":%q,"jwks_uri":"http://10.0.0.1/jwks"}`, s.URL)
		},
		"keys in a file": func(s *issuer) { s.documents[discovery] = raw(`{"issuer":%q,"jwks_uri":"file:///etc/passwd"}`, s.URL) },
		"keys with a user": func(s *issuer) {
			s.documents[discovery] = raw(`{"issuer":%q,"jwks_uri":"http://u:p@127.0.0.1/jwks"}`, s.URL)
		},
		"cloud metadata": func(s *issuer) {
			s.documents[discovery] = raw(`{"issuer":%q,"jwks_uri":"https://169.254.169.254/"}`, s.URL)
		},
		"nonsense":               func(s *issuer) { s.documents[discovery] = raw(`nonsense`) },
		"a list":                 func(s *issuer) { s.documents[discovery] = raw(`[]`) },
		"more than one document": func(s *issuer) { s.documents[discovery] = raw(`{"issuer":%q,"jwks_uri":%q}{}`, s.URL, s.URL+"/jwks") },
		"huge metadata": func(s *issuer) {
			s.documents[discovery] = raw(`{"issuer":%q,"jwks_uri":%q,"x":%q}`, s.URL, s.URL+"/jwks", strings.Repeat("x", maxMetadata))
		},
		"huge key set": func(s *issuer) {
			s.documents["/jwks"] = map[string]any{"keys": s.keys, "x": strings.Repeat("x", maxKeySet)}
		},
		"a cut key set": func(s *issuer) {
			s.documents["/jwks"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte(`{"keys":[]}`))
			})
		},
		"keys are a text":        func(s *issuer) { s.documents["/jwks"] = raw(`{"keys":"x"}`) },
		"no keys":                func(s *issuer) { s.documents["/jwks"] = raw(`{"keys":[]}`) },
		"keys twice":             func(s *issuer) { s.documents["/jwks"] = raw(`{"keys":[],"keys":[]}`) },
		"many keys":              func(s *issuer) { s.documents["/jwks"] = raw(`{"keys":[%s{}]}`, strings.Repeat("{},", maxKeys)) },
		"redirect to elsewhere":  func(s *issuer) { s.documents[discovery] = redirect(elsewhere.URL + discovery) },
		"key set from elsewhere": func(s *issuer) { s.documents["/jwks"] = redirect(elsewhere.URL + "/jwks") },
		"redirects for ever":     func(s *issuer) { s.documents["/jwks"] = redirect("/jwks") },
	} {
		s := newIssuer(t, jwk(rsaKey(), "k1"))
		lie(s)
		if k := kindOf(s.open(s.config()), s.token(nil)); k != fault.Unavailable {
			t.Errorf("%s: %v", name, k)
		}
		if n := s.asked(""); n > 8 {
			t.Errorf("%s: asked %d times", name, n)
		}
	}
	if elsewhere.asked("") > 0 {
		t.Error("a redirect to another host was followed")
	}
	if log := captureLog(t); log.Len() > 0 {
		t.Error(log)
	}
}

func raw(format string, args ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, format, args...) }
}

// An OAuth server without OpenID Connect has its metadata elsewhere (RFC 8414), and an issuer may have a path.
func TestDiscovery(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	s.documents["/.well-known/openid-configuration"] = http.HandlerFunc(http.NotFound)
	s.documents["/.well-known/oauth-authorization-server/t/1"] = raw(`{"issuer":%q,"jwks_uri":%q}`, s.URL+"/t/1/", s.URL+"/jwks")
	cfg := s.config()
	cfg.OIDC.Issuer += "/t/1/"
	if k := kindOf(s.open(cfg), s.token(map[string]any{"iss": s.URL + "/t/1/"})); k != 0 {
		t.Errorf("%v after %v", k, s)
	}
	if s.asked("/t/1/.well-known/openid-configuration") != 1 {
		t.Errorf("asked for %v", s)
	}
	cfg = s.config()
	cfg.OIDC.JWKSURL = s.URL + "/jwks"
	if k := kindOf(s.open(cfg), s.token(nil)); k != 0 {
		t.Errorf("with jwks_url: %v", k)
	}
}

// Keys that cannot be used are left out; the others work.
func TestParseKeySet(t *testing.T) {
	weak := must(rsa.GenerateKey(rand.Reader, 1024)) //nolint:gosec // on purpose
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	meta := func(change func(*jwkset.JWKMetadataOptions)) func(*jwkset.JWKMetadataOptions) { return change }
	for name, tt := range map[string]struct {
		key  map[string]any
		algs string // those that it is for
	}{
		"RSA":                  {jwk(rsaKey(), "k"), "RS256 RS512 PS256"},
		"RSA for one":          {jwk(rsaKey(), "k", meta(func(m *jwkset.JWKMetadataOptions) { m.ALG = "RS256" })), "RS256"},
		"RSA for signatures":   {jwk(rsaKey(), "k", meta(func(m *jwkset.JWKMetadataOptions) { m.USE = "sig" })), "RS256 RS512 PS256"},
		"RSA for encryption":   {jwk(rsaKey(), "k", meta(func(m *jwkset.JWKMetadataOptions) { m.USE = "enc" })), ""},
		"RSA to verify":        {jwk(rsaKey(), "k", meta(func(m *jwkset.JWKMetadataOptions) { m.KEYOPS = []jwkset.KEYOPS{"verify"} })), "RS256 RS512 PS256"},
		"RSA to wrap":          {jwk(rsaKey(), "k", meta(func(m *jwkset.JWKMetadataOptions) { m.KEYOPS = []jwkset.KEYOPS{"wrapKey"} })), ""},
		"RSA for an EC":        {jwk(rsaKey(), "k", meta(func(m *jwkset.JWKMetadataOptions) { m.ALG = "ES256" })), ""},
		"RSA too short":        {jwk(weak, "k"), ""},
		"RSA too long":         {map[string]any{"kty": "RSA", "kid": "k", "e": "AQAB", "n": strings.Repeat("_", 12000)}, ""},
		"P-256":                {jwk(ecKey(), "k"), "ES256"},
		"P-384":                {jwk(p384, "k"), "ES384"},
		"Ed25519":              {jwk(edKey(), "k"), "EdDSA"},
		"a shared secret":      {map[string]any{"kty": "oct", "kid": "k", "k": "c2VjcmV0"}, ""},
		"a shared secret, HS":  {map[string]any{"kty": "oct", "kid": "k", "k": "c2VjcmV0", "alg": "HS256"}, ""},
		"not on the curve":     {map[string]any{"kty": "EC", "kid": "k", "crv": "P-256", "x": "AQ", "y": "AQ"}, ""},
		"an unknown type":      {map[string]any{"kty": "XX", "kid": "k"}, ""},
		"a text for a number":  {map[string]any{"kty": 7}, ""},
		"Ed25519 for exchange": {map[string]any{"kty": "OKP", "crv": "X25519", "kid": "k", "x": "AQ"}, ""},
	} {
		if name == "an address of a certificate" {
			tt.key["x5u"] = "http://127.0.0.1:1/"
		}
		set, err := parseKeySet(must(json.Marshal(map[string]any{"keys": []any{tt.key, jwk(otherRSAKey(), "last")}})))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var algs []string
		for _, alg := range []string{"RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA", "HS256", "none"} {
			if _, ok := set.publicKey("k", alg); ok {
				algs = append(algs, alg)
			}
		}
		if got := strings.Join(algs, " "); got != tt.algs {
			t.Errorf("%s: for %q", name, got)
		}
		if _, ok := set.publicKey("last", "RS256"); !ok {
			t.Errorf("%s: the other key is lost", name)
		}
	}
	if set, err := parseKeySet(must(json.Marshal(map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "k", "n": jwk(rsaKey(), "k")["n"], "e": "AQAB", "x5u": "http://127.0.0.1:1/", "x5c": []string{"no certificate"}}}}))); err != nil || len(set.keys) != 1 {
		t.Errorf("a key with a certificate that cannot be read: %v", err)
	}
	two, err := parseKeySet(must(json.Marshal(map[string]any{"keys": []any{jwk(rsaKey(), "a"), jwk(otherRSAKey(), "b"), jwk(ecKey(), "c"), jwk(ecKey(), "b")}})))
	if err != nil {
		t.Fatal(err)
	}
	for ask, want := range map[[2]string]bool{{"a", "RS256"}: true, {"b", "RS256"}: true, {"b", "ES256"}: true, {"", "RS256"}: false, {"", "ES256"}: false, {"A", "RS256"}: false} {
		if _, ok := two.publicKey(ask[0], ask[1]); ok != want {
			t.Errorf("%v: %t", ask, ok)
		}
	}
}

// A provider that answers slowly holds a bounded number of requests, and asks of many at once are one.
func TestSlowProvider(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	s.hold = make(chan struct{})
	a := s.open(s.config())
	token := s.token(nil)
	gone, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := a.AuthenticateToken(gone, token); left <- err }()
	results := make(chan fault.Kind, maxWaiting+50)
	var group sync.WaitGroup
	for range maxWaiting + 49 {
		group.Go(func() { results <- kindOf(a, token) })
	}
	for range 50 { // those above the bound are refused at once
		if k := <-results; k != fault.Unavailable {
			t.Errorf("one that does not wait: %v", k)
		}
	}
	leave()
	if err := <-left; fault.KindOf(err) != fault.Unavailable {
		t.Errorf("one whose client left: %v", err)
	}
	close(s.hold)
	group.Wait()
	close(results)
	for k := range results {
		if k != 0 {
			t.Errorf("one that waits: %v", k)
		}
	}
	if s.asked("/jwks") != 1 || a.oidc.keys.waiting != 0 {
		t.Errorf("asked for %v, %d are waiting", s, a.oidc.keys.waiting)
	}
}

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func captureLog(t *testing.T) *logBuffer {
	t.Helper()
	log, before := &logBuffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}
