package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

const signingKey = "0123456789abcdef0123456789abcdef"

var signedAt = time.Unix(1_763_280_000, 0)

// signedAuth returns an Authenticator with one key, whose clock stands at signedAt plus *off.
func signedAuth(off *time.Duration) *Authenticator {
	a := New(Config{HMAC: []HMACKey{
		{KeyID: "ci", Secret: secret.Literal(signingKey), Tenant: "acme", Roles: []string{"build"}},
		{KeyID: "other", Secret: secret.Literal(strings.Repeat("x", 40)), Subject: "robot"},
	}})
	a.now = func() time.Time { return signedAt.Add(*off) }
	return a
}

// signature is the parts of a signature, which a test may change before the header is made.
type signature struct {
	keyID, key, method, target, timestamp, nonce, body string
}

func rightSignature() signature {
	return signature{"ci", signingKey, "POST", "/mcp?x=1", fmt.Sprint(signedAt.Unix()), strings.Repeat("n", 16), `{"a":1}`}
}

func (s signature) header() string {
	digest := sha256.Sum256([]byte(s.body))
	mac := hmac.New(sha256.New, []byte(s.key))
	fmt.Fprintf(mac, "ctxgate-hmac-v1\n%s\n%s\n%s\n%s\n%x", s.method, s.target, s.timestamp, s.nonce, digest)
	return fmt.Sprintf("HMAC-SHA256 key_id=%s,timestamp=%s,nonce=%s,digest=%x,signature=%x", s.keyID, s.timestamp, s.nonce, digest, mac.Sum(nil))
}

func signedRequest(header, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp?x=1", strings.NewReader(body))
	r.Header.Set("Authorization", header)
	return r
}

func TestSignedRequest(t *testing.T) {
	var off time.Duration
	a := signedAuth(&off)
	r := signedRequest(rightSignature().header(), rightSignature().body)
	who, err := a.Authenticate(r)
	if err != nil || who.Tenant() != "acme" || who.Subject() != "ci" || who.Credential() != "ci" || !who.HasRole("build") || who.Issuer() != "" {
		t.Fatalf("%+v, %v", who.id, err)
	}
	if body, err := io.ReadAll(r.Body); err != nil || string(body) != rightSignature().body {
		t.Errorf("%q, %v", body, err)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Revalidate(who); err != nil {
		t.Error(err)
	}
	other := New(Config{HMAC: []HMACKey{{KeyID: "ci", Secret: secret.Literal(strings.Repeat("y", 32)), Tenant: "acme"}}})
	if err := other.Revalidate(who); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("a replaced key is still valid: %v", err)
	}
	second := rightSignature()
	second.keyID, second.key = "other", strings.Repeat("x", 40)
	if who, err := a.Authenticate(signedRequest(second.header(), second.body)); err != nil || who.Tenant() != DefaultTenant || who.Subject() != "robot" {
		t.Errorf("%v, %v", who, err)
	}
}

// S15: whatever is changed, the signature is refused.
func TestS15SignatureIsRefused(t *testing.T) {
	right := rightSignature()
	edit := func(change func(*signature)) string {
		s := right
		change(&s)
		return s.header()
	}
	for name, header := range map[string]string{
		"another key":               edit(func(s *signature) { s.key = strings.Repeat("z", 32) }),
		"an empty key":              edit(func(s *signature) { s.key = "" }),
		"an unknown key id":         edit(func(s *signature) { s.keyID = "who" }),
		"unknown id and empty key":  edit(func(s *signature) { s.keyID, s.key = "who", "" }),
		"another method":            edit(func(s *signature) { s.method = "GET" }),
		"another path":              edit(func(s *signature) { s.target = "/mcp" }),
		"an old timestamp":          edit(func(s *signature) { s.timestamp = fmt.Sprint(signedAt.Add(-signedWindow - time.Second).Unix()) }),
		"a timestamp in the future": edit(func(s *signature) { s.timestamp = fmt.Sprint(signedAt.Add(signedWindow + time.Second).Unix()) }),
		"no number":                 edit(func(s *signature) { s.timestamp = "now" }),
		"a short nonce":             edit(func(s *signature) { s.nonce = "short" }),
		"a long nonce":              edit(func(s *signature) { s.nonce = strings.Repeat("n", 65) }),
		"a parameter twice":         right.header() + ",nonce=" + right.nonce,
		"a parameter missing":       strings.Replace(right.header(), "nonce=", "none=", 1),
		"an empty parameter":        strings.Replace(right.header(), "nonce="+right.nonce, "nonce=", 1),
		"no parameters":             "HMAC-SHA256",
		"no equals sign":            "HMAC-SHA256 key_id",
		"not hexadecimal":           right.header() + "x",
		"a quote inside":            strings.Replace(right.header(), "nonce=nn", `nonce=n"n`, 1),
		"a short digest":            shortDigest(right),
	} {
		var off time.Duration
		if who, err := signedAuth(&off).Authenticate(signedRequest(header, right.body)); fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
			t.Errorf("%s: %v, %v", name, who, err)
		}
	}
	var off time.Duration
	twice := signedRequest(right.header(), right.body)
	twice.Header.Add("Authorization", right.header())
	if _, err := signedAuth(&off).Authenticate(twice); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("two headers: %v", err)
	}
	if _, err := New(Config{Token: secret.Literal("some-other-token")}).Authenticate(signedRequest(right.header(), right.body)); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("without a key: %v", err)
	}
}

// shortDigest signs a digest that is none.
func shortDigest(s signature) string {
	mac := hmac.New(sha256.New, []byte(s.key))
	fmt.Fprintf(mac, "ctxgate-hmac-v1\n%s\n%s\n%s\n%s\n%s", s.method, s.target, s.timestamp, s.nonce, "abcd")
	return fmt.Sprintf("HMAC-SHA256 key_id=%s,timestamp=%s,nonce=%s,digest=abcd,signature=%x", s.keyID, s.timestamp, s.nonce, mac.Sum(nil))
}

// The window has both ends, and quotes around a value are allowed.
func TestSignedWindow(t *testing.T) {
	for _, off := range []time.Duration{-signedWindow, signedWindow} {
		header := strings.Replace(rightSignature().header(), "key_id=ci", `key_id="ci"`, 1)
		if _, err := signedAuth(&off).Authenticate(signedRequest(header, rightSignature().body)); err != nil {
			t.Errorf("%s: %v", off, err)
		}
	}
}

// S15: a signature is used once, for as long as it would be accepted, also across a reload.
func TestS15SignatureIsNotReplayed(t *testing.T) {
	var off time.Duration
	a := signedAuth(&off)
	s := rightSignature()
	s.timestamp = fmt.Sprint(signedAt.Add(signedWindow).Unix()) // accepted for two windows
	if _, err := a.Authenticate(signedRequest(s.header(), s.body)); err != nil {
		t.Fatal(err)
	}
	for off = 0; off <= 2*signedWindow; off += time.Minute {
		if _, err := a.Authenticate(signedRequest(s.header(), s.body)); fault.KindOf(err) != fault.Unauthorized {
			t.Fatalf("replayed after %s: %v", off, err)
		}
	}
	off = 0
	a.signed = newSignedKeys([]HMACKey{{KeyID: "ci", Secret: secret.Literal(signingKey)}}, Deps{Previous: a})
	if _, err := a.Authenticate(signedRequest(s.header(), s.body)); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("replayed after a reload: %v", err)
	}
	other := s
	other.nonce = strings.Repeat("m", 16)
	if _, err := a.Authenticate(signedRequest(other.header(), other.body)); err != nil {
		t.Errorf("another nonce: %v", err)
	}
}

// The nonces are bounded, and forgotten when their signatures are too old.
func TestNoncesAreBounded(t *testing.T) {
	n, now := &nonces{}, signedAt
	for i := range maxNonces {
		if err := n.use("k", fmt.Sprint(i), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.use("k", "one more", now); fault.KindOf(err) != fault.RateLimited {
		t.Errorf("got %v", err)
	}
	if err := n.use("other", "one more", now); err != nil {
		t.Errorf("another key: %v", err)
	}
	now = now.Add(2*signedWindow + time.Second)
	if err := n.use("k", "one more", now); err != nil {
		t.Error(err)
	}
	if err := n.use("k", "1", now); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("the generation before is forgotten too early: %v", err)
	}
	now = now.Add(10 * signedWindow)
	if err := n.use("k", "1", now); err != nil {
		t.Errorf("after a long pause: %v", err)
	}
	if k := n.byKey["k"]; len(k.before) != 0 || len(k.now) != 1 {
		t.Errorf("%d and %d nonces are kept", len(k.before), len(k.now))
	}
}

// A body that is not the one that was signed fails, whoever reads it and however.
func TestSignedBody(t *testing.T) {
	right := rightSignature()
	for _, declared := range []int64{-1, 7} {
		for name, read := range map[string]func(io.Reader) ([]byte, error){
			"to the end": io.ReadAll,
			"its length": func(r io.Reader) ([]byte, error) {
				b := make([]byte, 7)
				_, err := io.ReadFull(r, b)
				return b, err
			},
			"by bytes": func(r io.Reader) (out []byte, err error) {
				for b := make([]byte, 1); err == nil; {
					var n int
					n, err = r.Read(b)
					out = append(out, b[:n]...)
				}
				if err == io.EOF {
					err = nil
				}
				return out, err
			},
		} {
			if declared < 0 && name == "its length" {
				continue // who does not know it reads to the end
			}
			for body, want := range map[string]bool{right.body: true, `{"a":2}`: false} {
				var off time.Duration
				r := signedRequest(right.header(), body)
				r.ContentLength = declared
				if _, err := signedAuth(&off).Authenticate(r); err != nil {
					t.Fatal(err)
				}
				got, err := read(r.Body)
				if want && (err != nil || string(got) != body) || !want && fault.KindOf(err) != fault.Unauthorized {
					t.Errorf("%s, declared %d, %s: %q, %v", name, declared, body, got, err)
				}
			}
		}
	}
}

// A request without a body is checked at once: perhaps nobody reads it.
func TestSignedWithoutBody(t *testing.T) {
	s := rightSignature()
	for body, want := range map[string]bool{"": true, "{}": false} {
		for _, empty := range []io.ReadCloser{nil, http.NoBody} {
			var off time.Duration
			s.body = body
			r := signedRequest(s.header(), "")
			r.Body, r.ContentLength = empty, 0
			if _, err := signedAuth(&off).Authenticate(r); (err == nil) != want {
				t.Errorf("signed %q: %v", body, err)
			}
		}
	}
}

func TestHMACKeyIsValidated(t *testing.T) {
	right := HMACKey{KeyID: "ci", Secret: secret.Literal(signingKey)}
	if problems := (Config{HMAC: []HMACKey{right}}).Validate(); len(problems) > 0 {
		t.Error(problems)
	}
	for want, change := range map[string]func(*HMACKey){
		"hmac[0].key_id: ":   func(k *HMACKey) { k.KeyID = "" },
		"hmac[0].key_id: mu": func(k *HMACKey) { k.KeyID = "a,b" },
		"hmac[0].secret: ":   func(k *HMACKey) { k.Secret = secret.Text{} },
		"hmac[0].secret: m":  func(k *HMACKey) { k.Secret = secret.Literal("short") },
		"hmac[0].tenant: ":   func(k *HMACKey) { k.Tenant = "a\x00b" },
		"hmac[0].subject: ":  func(k *HMACKey) { k.Subject = "a\x00b" },
		"hmac[0].roles[0]: ": func(k *HMACKey) { k.Roles = []string{""} },
	} {
		k := right
		change(&k)
		problems := Config{HMAC: []HMACKey{k}}.Validate()
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want) {
			t.Errorf("want %q, got %v", want, problems)
		}
	}
	if problems := (Config{HMAC: []HMACKey{right, right}}).Validate(); len(problems) != 1 {
		t.Errorf("a key id twice: %v", problems)
	}
	short := New(Config{HMAC: []HMACKey{{KeyID: "ci", Secret: secret.Literal("short")}}})
	s := rightSignature()
	s.key = "short"
	if _, err := short.Authenticate(signedRequest(s.header(), s.body)); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("a key that is too short is used: %v", err)
	}
}

// A signature is accepted once by all replicas together. If the store does not answer, it is not accepted at all.
func TestSignedRequestOnceInAllReplicas(t *testing.T) {
	used := map[string]bool{}
	var away error
	useOnce := func(_ context.Context, name string, lifetime time.Duration) (bool, error) {
		if lifetime < 2*signedWindow {
			t.Errorf("a signature that is valid for %v is remembered for %v", 2*signedWindow, lifetime)
		}
		if away != nil {
			return false, away
		}
		isFirst := !used[name]
		used[name] = true
		return isFirst, nil
	}
	replica := func(before *Authenticator) *Authenticator {
		return Open(Config{HMAC: []HMACKey{{KeyID: "ci", Secret: secret.Literal(signingKey)}, {KeyID: "two", Secret: secret.Literal(signingKey)}}},
			Deps{UseOnce: useOnce, Now: func() time.Time { return signedAt }, Previous: before})
	}
	first, second := replica(nil), replica(nil)
	s := rightSignature()
	for i, step := range []struct {
		at    *Authenticator
		keyID string
		nonce string
		away  error
		want  fault.Kind
	}{
		{first, "ci", "n", nil, fault.Internal},
		{second, "ci", "n", nil, fault.Unauthorized},
		{first, "ci", "n", nil, fault.Unauthorized},
		{replica(second), "ci", "n", nil, fault.Unauthorized},
		{second, "two", "n", nil, fault.Internal}, // a nonce of another key
		{first, "ci", "m", errors.New("the store is away"), fault.Unavailable},
		{second, "ci", "l", nil, fault.Internal},
	} {
		s.keyID, s.nonce, away = step.keyID, strings.Repeat(step.nonce, 16), step.away
		_, err := step.at.Authenticate(signedRequest(s.header(), s.body))
		if isAccepted := err == nil; isAccepted != (step.want == fault.Internal) || !isAccepted && fault.KindOf(err) != step.want {
			t.Errorf("step %d: %v", i, err)
		}
		if step.away != nil && fault.RetryAfterOf(err) == 0 {
			t.Errorf("step %d does not say when to retry", i)
		}
	}
}
