package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ctxgate/ctxgate/fault"
)

// S15: of 10,000 bad tokens a second, whatever is wrong with them, few signatures are checked and the provider is asked
// less than once a second. Valid callers do not notice: neither those that were here before, nor new ones.
func TestFloodOfBadTokens(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"), jwk(ecKey(), "e1"))
	a := s.open(s.config())
	known := requestWith("/mcp", s.token(map[string]any{"exp": s.clock.now().Add(time.Hour).Unix()}))
	known.RemoteAddr = "10.0.0.1:1"
	if _, err := a.Authenticate(known); err != nil {
		t.Fatal(err)
	}
	signed := strings.Split(s.token(nil), ".")
	unknown := strings.Split(sign(jwt.SigningMethodRS256, rsaKey(), s.claims(nil), map[string]any{"kid": "k9"}), ".")
	same := signed[0] + "." + signed[1] + "." + strings.Split(s.token(map[string]any{"sub": "x"}), ".")[2]
	signature := func() string {
		b := make([]byte, 256)
		_, _ = rand.Read(b)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	const seconds, perSecond = 3, 10_000
	checked, limited := 0, 0
	var spent, ofValid time.Duration
	for second := range seconds {
		for i := range perSecond {
			token := same
			switch i % 4 {
			case 0:
				token = signed[0] + "." + signed[1] + "." + signature()
			case 1:
				token = unknown[0] + "." + unknown[1] + "." + signature()
			case 2:
				token = fmt.Sprintf("%d.%d.x", second, i)
			}
			r := requestWith("/mcp", token)
			r.RemoteAddr = "10.6.6.6:666"
			start := time.Now()
			who, err := a.Authenticate(r)
			spent += time.Since(start)
			switch kind := fault.KindOf(err); {
			case err == nil || who != (Caller{}):
				t.Fatalf("a bad token was accepted: %.60s", token)
			case kind == fault.Full && fault.RetryAfterOf(err) > 0:
				limited++
			case kind != fault.Unauthorized:
				t.Fatal(err)
			case i%4 == 0:
				checked++
			}
			s.clock.advance(time.Second / perSecond)
		}
		start := time.Now()
		for range 1000 {
			if _, err := a.Authenticate(known); err != nil {
				t.Fatal(err)
			}
		}
		ofValid += time.Since(start)
		fresh := requestWith("/mcp", s.signedByEC("e1"))
		fresh.RemoteAddr = fmt.Sprintf("10.0.1.%d:1", second)
		if _, err := a.Authenticate(fresh); err != nil {
			t.Errorf("second %d: a new token of another host: %v", second, err)
		}
	}
	if n := s.asked(""); n > seconds {
		t.Errorf("the provider was asked %d times in %d s", n, seconds)
	}
	if most := maxFailuresOfHost * (seconds + 1); checked > most+1 || checked < most/2 || limited < seconds*perSecond/4-most-1 {
		t.Errorf("%d signatures were checked and %d refused unchecked, want at most %d", checked, limited, most)
	}
	t.Logf("%d bad tokens: the provider was asked %d times, %d signatures checked, %.1f µs each; a valid caller %.1f µs",
		seconds*perSecond, s.asked(""), checked, spent.Seconds()/seconds/perSecond*1e6, ofValid.Seconds()/seconds/1000*1e6)
}

// A flood from many hosts has a bound too.
func TestFloodFromManyHosts(t *testing.T) {
	f, now := newFailureLimit(), time.Now()
	n := 0
	for host := 0; f.isBelow(fmt.Sprint(host), now) && n < 2*maxFailures; host++ {
		f.countFailure(fmt.Sprint(host), now)
		n++
	}
	if n != maxFailures {
		t.Errorf("%d wrong signatures at once", n)
	}
	if !f.isBelow("x", now.Add(time.Second/maxFailures)) {
		t.Error("the limit does not recover")
	}
	for n = 0; f.isBelow("y", now.Add(time.Hour)) && n < 2*maxFailures; n++ {
		f.countFailure("y", now.Add(time.Hour))
	}
	if n != maxFailuresOfHost {
		t.Errorf("%d wrong signatures of one host", n)
	}
}

// FuzzVerifier: no mutation of a valid token is accepted, whatever the mutation is.
func FuzzVerifier(f *testing.F) {
	s := newIssuer(f, jwk(rsaKey(), "k1"), jwk(ecKey(), "k2"), jwk(edKey(), "k3"))
	cfg := s.config()
	a := s.open(cfg)
	valid := map[string]bool{}
	for id, token := range map[string]string{
		"k1": s.token(nil), "k2": sign(jwt.SigningMethodES256, ecKey(), s.claims(nil), map[string]any{"kid": "k2"}), "k3": sign(jwt.SigningMethodEdDSA, edKey(), s.claims(nil), map[string]any{"kid": "k3"}),
	} {
		if _, err := a.AuthenticateToken(context.Background(), token); err != nil {
			f.Fatal(id, err)
		}
		valid[token] = true
		parts := strings.Split(token, ".")
		header, claims := must(base64.RawURLEncoding.DecodeString(parts[0])), must(base64.RawURLEncoding.DecodeString(parts[1]))
		f.Add(string(header), string(claims), parts[2])
		f.Add(`{"alg":"none"}`, string(claims), "")
		f.Add(string(header), string(claims)+" ", parts[2])
		f.Add(strings.Replace(string(header), "RS256", "HS256", 1), string(claims), parts[2])
		f.Add(string(header), strings.Replace(string(claims), "acme", "umbrella", 1), parts[2])
	}
	f.Fuzz(func(t *testing.T, header, claims, signature string) {
		encode := base64.RawURLEncoding.EncodeToString
		for _, token := range []string{
			encode([]byte(header)) + "." + encode([]byte(claims)) + "." + signature,
			encode([]byte(header)) + "." + encode([]byte(claims)) + "." + encode([]byte(signature)),
			header + "." + claims + "." + signature, header,
		} {
			if who, err := a.AuthenticateToken(context.Background(), token); !valid[token] && (err == nil || who != (Caller{})) {
				t.Errorf("accepted %q", token)
			}
		}
	})
}
