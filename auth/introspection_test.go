package auth

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// activeToken is an opaque token that the issuer knows.
func (s *issuer) activeToken(changes map[string]any) string {
	answer := map[string]any(s.claims(nil))
	answer["active"] = true
	for name, value := range changes {
		if answer[name] = value; value == nil {
			delete(answer, name)
		}
	}
	token := rand.Text()
	s.set(func() { s.tokens[token] = answer })
	return token
}

// RFC 7662: an opaque token is whose the provider says it is.
func TestOpaqueToken(t *testing.T) {
	s := newIssuer(t)
	a := s.open(s.withIntrospection())
	for name, changes := range map[string]map[string]any{"all claims": nil, "no issuer": {"iss": nil}, "no expiry": {"exp": nil}, "roles in one text": {"groups": "dev ops"}} {
		token := s.activeToken(changes)
		for range 2 {
			who, err := a.AuthenticateToken(context.Background(), token)
			if err != nil || who.Tenant() != "acme" || who.Subject() != "ann" || who.Issuer() != s.URL || !who.HasRole("ops") || who.AccessToken().Reveal() != token || a.Revalidate(who) != nil || !a.IsOwn(token) {
				t.Errorf("%s: %v", name, err)
			} else if want := s.clock.now().Add(10 * time.Minute); name == "no expiry" && !who.Expires().IsZero() || name != "no expiry" && !who.Expires().Equal(want) {
				t.Errorf("%s: expires %v", name, who.Expires())
			}
		}
	}
	if n := s.asked("/introspect"); n != 4 || s.asked("/.well-known/openid-configuration") != 1 {
		t.Errorf("asked for %v", s)
	}
	if s.secrets[0] != "gate+way s%3Acret" {
		t.Errorf("asked as %q", s.secrets[0])
	}
	for name, changes := range map[string]map[string]any{
		"not active": {"active": false}, "active as a text": {"active": "true"}, "active is missing": {"active": nil}, "other issuer": {"iss": "https://x"}, "other audience": {"aud": "x"},
		"no audience": {"aud": nil}, "expired": {"exp": s.clock.now().Unix()}, "exp is a text": {"exp": "x"}, "no tenant": {"org": nil}, "no subject": {"sub": nil},
	} {
		token := s.activeToken(changes)
		for range 2 {
			if who, err := a.AuthenticateToken(context.Background(), token); fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
				t.Errorf("%s: %v, %v", name, who, err)
			}
		}
	}
	if n := s.asked("/introspect"); n != 14 {
		t.Errorf("asked %d times", n)
	}
	// What cannot be a token is not sent to anybody.
	for _, token := range []string{"a b", "a\nb", "a{b", "a=b", "ä", strings.Repeat("x", maxToken+1), "="} {
		if k := kindOf(a, token); k != fault.Unauthorized {
			t.Errorf("%.10q: %v", token, k)
		}
	}
	if n := s.asked("/introspect"); n != 15 { // "=" can be one
		t.Errorf("asked %d times", n)
	}
	if IsOwn := a.IsOwn(s.activeToken(nil)); IsOwn {
		t.Error("a token that was not checked is known")
	}
}

// Answers are used for a minute, and never after the token expired.
func TestOpaqueTokenIsAskedAgain(t *testing.T) {
	s := newIssuer(t)
	a := s.open(s.withIntrospection())
	long, short, bad := s.activeToken(nil), s.activeToken(map[string]any{"exp": s.clock.now().Unix() + 30}), "unknown"
	want := func(n int, kinds ...fault.Kind) {
		t.Helper()
		for i, token := range []string{long, short, bad} {
			if k := kindOf(a, token); k != kinds[i] {
				t.Errorf("token %d: %v", i, k)
			}
		}
		if got := s.asked("/introspect"); got != n {
			t.Errorf("asked %d times, not %d", got, n)
		}
	}
	want(3, 0, 0, fault.Unauthorized)
	s.clock.advance(29 * time.Second)
	want(3, 0, 0, fault.Unauthorized)
	s.clock.advance(time.Second)
	if a.IsOwn(short) || !a.IsOwn(long) {
		t.Error("an expired token is known, or a valid one is not")
	}
	want(4, 0, fault.Unauthorized, fault.Unauthorized)
	s.clock.advance(29 * time.Second)
	want(4, 0, fault.Unauthorized, fault.Unauthorized)
	s.set(func() { delete(s.tokens, long) }) // it was revoked
	s.clock.advance(time.Second)
	want(6, fault.Unauthorized, fault.Unauthorized, fault.Unauthorized)
}

// In an outage, answers that are known are used; nothing else is accepted.
func TestIntrospectionOutage(t *testing.T) {
	s := newIssuer(t)
	cfg := s.withIntrospection()
	cfg.OIDC.Introspection.Endpoint = s.URL + "/introspect"
	a := s.open(cfg)
	log := captureLog(t)
	known, other := s.activeToken(nil), s.activeToken(nil)
	if k := kindOf(a, known); k != 0 || s.asked("") != 1 {
		t.Fatalf("%v after %v", k, s)
	}
	s.set(func() { s.status = http.StatusInternalServerError })
	for range 5 {
		if k := kindOf(a, other); k != fault.Unavailable {
			t.Errorf("an unknown token: %v", k)
		}
	}
	if k := kindOf(a, known); k != 0 || s.asked("") != 2 {
		t.Errorf("a known token: %v after %v", k, s)
	}
	s.clock.advance(retryAfter)
	if k := kindOf(a, other); k != fault.Unavailable || s.asked("") != 3 {
		t.Errorf("%v after %v", k, s)
	}
	if !strings.Contains(log.String(), "status 500") || strings.Contains(log.String(), other) || strings.Contains(log.String(), "s:cret") {
		t.Errorf("logged %s", log.String())
	}
	s.clock.advance(maxAnswerAge)
	if k := kindOf(a, known); k != fault.Unavailable {
		t.Errorf("a token that was known a minute ago: %v", k)
	}
	s.set(func() { s.status = 0 })
	s.clock.advance(retryAfter)
	if k := kindOf(a, known); k != 0 {
		t.Error(k)
	}
}

// A provider whose answers cannot be used is as good as none.
func TestIntrospectionNonsense(t *testing.T) {
	for name, lie := range map[string]func(s *issuer){
		"no endpoint": func(s *issuer) { s.documents["/.well-known/openid-configuration"] = raw(`{"issuer":%q}`, s.URL) },
		"no metadata": func(s *issuer) { s.documents["/.well-known/openid-configuration"] = raw(`x`) },
		"over http": func(s *issuer) {
			s.documents["/.well-known/openid-configuration"] = raw(`{"issuer":%q,"introspection_endpoint":"http://10.0.0.1/"}`, s.URL)
		},
		"no JSON":      func(s *issuer) { s.documents["/introspect"] = raw(`x`) },
		"active twice": func(s *issuer) { s.documents["/introspect"] = raw(`{"active":false,"active":true}`) },
		"too long": func(s *issuer) {
			s.documents["/introspect"] = raw(`{"active":true,"x":%q}`, strings.Repeat("x", maxAnswer))
		},
		"redirected": func(s *issuer) {
			s.documents["/introspect"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) })
		},
		"refuses our key":   func(s *issuer) { s.status = http.StatusUnauthorized },
		"a number too long": func(s *issuer) { s.documents["/introspect"] = raw(`{"active":true,"x":1e999}`) },
	} {
		s := newIssuer(t)
		lie(s)
		if k := kindOf(s.open(s.withIntrospection()), s.activeToken(nil)); k != fault.Unavailable {
			t.Errorf("%s: %v", name, k)
		}
	}
}

// Requests with one token are one question; it does not end with the client that asked first.
func TestIntrospectionIsShared(t *testing.T) {
	s := newIssuer(t)
	s.hold = make(chan struct{})
	a := s.open(s.withIntrospection())
	token := s.activeToken(nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := a.AuthenticateToken(gone, token); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%v", err)
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if k := kindOf(a, token); k != 0 {
				t.Error(k)
			}
		})
	}
	close(s.hold)
	group.Wait()
	if s.asked("/introspect") != 1 {
		t.Errorf("asked for %v", s)
	}
}

// A flood of wrong opaque tokens reaches the provider at the configured rate only.
func TestIntrospectionRate(t *testing.T) {
	s := newIssuer(t)
	a := s.open(s.withIntrospection())
	known := s.activeToken(nil)
	if k := kindOf(a, known); k != 0 {
		t.Fatal(k)
	}
	for second := range 3 {
		for i := range 1000 {
			if k := kindOf(a, fmt.Sprintf("wrong-%d-%d", second, i)); k == 0 {
				t.Fatal("a wrong token was accepted")
			}
		}
		if k := kindOf(a, known); k != 0 {
			t.Errorf("a known token: %v", k)
		}
		s.clock.advance(time.Second)
	}
	if n := s.asked("/introspect"); n > 60 {
		t.Errorf("asked %d times in three seconds", n)
	}
}

// RFC 9728: a client without a token learns where to get one.
func TestMetadata(t *testing.T) {
	s := newIssuer(t)
	cfg := s.config()
	cfg.OIDC.Scopes = []string{"mcp", "llm"}
	a := s.open(cfg)
	for path, resource := range map[string]string{"": base, "/mcp": base + "/mcp", "/mcp/files": base + "/mcp/files", "/mcp/": "404", "/mcp/a/b": "404", "/v1": "404", "mcp": "404"} {
		w := httptest.NewRecorder()
		a.ServeMetadata(w, httptest.NewRequest(http.MethodGet, "http://other.example.com"+MetadataPath+path, nil))
		want := fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q],"scopes_supported":["mcp","llm"],"bearer_methods_supported":["header"],"resource_name":"ctxgate"}`, resource, s.URL)
		if resource == "404" && w.Code != http.StatusNotFound || resource != "404" && (strings.TrimSpace(w.Body.String()) != want || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%q: %d %s", path, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	New(twoTenants()).ServeMetadata(w, httptest.NewRequest(http.MethodGet, MetadataPath, nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("without an identity provider: %d", w.Code)
	}
	w = httptest.NewRecorder()
	Open(s.config(), Deps{}).ServeMetadata(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8000"+MetadataPath+"/mcp", nil))
	if !strings.Contains(w.Body.String(), `"resource":"http://127.0.0.1:8000/mcp"`) || strings.Contains(w.Body.String(), "scopes") {
		t.Errorf("without public_url: %s", w.Body)
	}
	w = httptest.NewRecorder()
	Open(s.config(), Deps{}).ServeMetadata(w, httptest.NewRequest(http.MethodGet, "https://127.0.0.1:8000"+MetadataPath, nil))
	if !strings.Contains(w.Body.String(), `"resource":"https://127.0.0.1:8000"`) {
		t.Errorf("with TLS: %s", w.Body)
	}
}

func TestChallenge(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	cfg := s.config()
	cfg.OIDC.Scopes = []string{"mcp", "llm"}
	a := s.open(cfg)
	const at = `Bearer resource_metadata="https://gate.example.com/.well-known/oauth-protected-resource`
	for name, tt := range map[string]struct{ path, token, want string }{
		"no token":     {"/mcp", "", at + `/mcp", scope="mcp llm"`},
		"one server":   {"/mcp/files", "", at + `/mcp/files", scope="mcp llm"`},
		"a model":      {"/v1/chat/completions", "", at + `", scope="mcp llm"`},
		"a quote":      {"/mcp/a\"b\\c\u00e9", "", at + `/mcp/abc", scope="mcp llm"`},
		"wrong token":  {"/mcp", "x", at + `/mcp", scope="mcp llm", error="invalid_token", error_description="the token is not valid"`},
		"wrong JWT":    {"/mcp", s.token(map[string]any{"aud": "x"}), at + `/mcp", scope="mcp llm", error="invalid_token", error_description="the token is not valid"`},
		"other server": {"/mcp", s.token(map[string]any{"aud": base + "/mcp/x", "scope": "mcp llm"}), at + `/mcp", scope="mcp llm", error="invalid_token", error_description="the token is not valid"`},
		"no scope":     {"/mcp", s.token(nil), at + `/mcp", scope="mcp llm", error="insufficient_scope"`},
	} {
		r := requestWith("/", tt.token)
		r.URL.Path = tt.path
		if tt.token == "" {
			r.Header.Del("Authorization")
		}
		_, err := a.Authenticate(r)
		if got := a.Challenge(r, err); err == nil || got != tt.want {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
	if got := s.open(s.config()).Challenge(requestWith("/mcp", ""), errUnauthorized); got != at+`/mcp"` {
		t.Errorf("without scopes: %s", got)
	}
	if got := New(twoTenants()).Challenge(requestWith("/mcp", ""), errUnauthorized); got != "Bearer" {
		t.Errorf("without an identity provider: %s", got)
	}
}
