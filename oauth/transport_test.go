package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// A server that requires a token gets one, and the refused call is sent again unchanged.
func TestFirstCall(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	mustPost(t, d, w.target(Config{}), `{"a":1}`)
	mustPost(t, d, w.target(Config{}), `{"a":2}`)
	authRequests, tokenRequests, registrations, calls := w.counts()
	if authRequests != 1 || tokenRequests != 1 || registrations != 1 || calls != 3 {
		t.Errorf("%d authorization requests, %d token requests, %d registrations, %d calls", authRequests, tokenRequests, registrations, calls)
	}
	ask, given := w.authRequests[0], w.tokenRequests[0]
	for _, key := range []string{"code_challenge", "state"} {
		if len(ask.Get(key)) < 26 {
			t.Errorf("%s is %q", key, ask.Get(key))
		}
	}
	if ask.Get("code_challenge_method") != "S256" || ask.Get("resource") != w.server.URL+"/mcp" || given.Get("resource") != w.server.URL+"/mcp" {
		t.Errorf("asked with %v, exchanged with %v", ask, given)
	}
	if !strings.HasSuffix(ask.Get("redirect_uri"), CallbackPath) || !strings.HasPrefix(ask.Get("redirect_uri"), "http://127.0.0.1:") {
		t.Errorf("the browser is sent to %q", ask.Get("redirect_uri"))
	}
}

// A key in the query of a server's URL reaches no authorization server and no browser.
func TestKeyInQueryIsNotLeaked(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	mustPost(t, d, NewServer("x", w.server.URL+"/mcp?key=hunter2", Config{}), "x")
	for _, form := range append(w.authRequests, w.tokenRequests...) {
		if strings.Contains(form.Encode(), "hunter2") || form.Get("resource") != w.server.URL+"/mcp" {
			t.Errorf("the authorization server received %v", form)
		}
	}
}

// A request that names no server gets no token, and a token is sent only to its own server.
func TestTokensStayWithTheirServer(t *testing.T) {
	w, other := newFakeServers(t), newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	mustPost(t, d, w.target(Config{}), "x")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+"/mcp", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request that named no server had a token: %d", resp.StatusCode)
	}
	mustPost(t, d, NewServer("y", other.server.URL+"/mcp", Config{}), "y")
	if _, _, registrations, _ := other.counts(); registrations != 1 {
		t.Errorf("the other server was authorized %d times", registrations)
	}
}

// Many calls that are refused at once ask the user once.
func TestOneAuthorizationForManyCalls(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			body := fmt.Sprintf("call %d", i)
			if got, err := post(t.Context(), d, w.target(Config{}), body); err != nil || got != "200 echo "+body {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if authRequests, _, registrations, _ := w.counts(); authRequests != 1 || registrations != 1 {
		t.Errorf("%d authorization requests, %d registrations", authRequests, registrations)
	}
}

// While the user has not opened the address, calls fail soon and say why, but do not show the address; Retry is
// closed when the user has.
func TestNobodyOpensTheAddress(t *testing.T) {
	w := newFakeServers(t)
	shown := make(chan string, 1)
	captureLog(t, func(a string) { shown <- a })
	d := newTestTransport(t, newStore(t))
	d.timing.requestWait = 50 * time.Millisecond
	_, err := post(t.Context(), d, w.target(Config{}), "x")
	var want *NotAuthorizedError
	if fault.KindOf(err) != fault.Unavailable || !errors.As(err, &want) || want.Retry == nil {
		t.Fatalf("got %v", err)
	}
	if text := fault.PublicOf(err); text != `server "x" waits to be authorized: open the address in the gateway's log` || strings.Contains(err.Error(), "/authorize") {
		t.Errorf("the client receives %q (%v)", text, err)
	}
	start := time.Now()
	if _, err := post(t.Context(), d, w.target(Config{}), "x"); !errors.As(err, &want) || time.Since(start) > 2*time.Second {
		t.Errorf("the next call got %v after %s", err, time.Since(start))
	}
	if page := browser(<-shown); !strings.HasPrefix(page, `200 ctxgate may use server "x" now.`) {
		t.Errorf("the browser was shown %q", page)
	}
	select {
	case <-want.Retry:
	case <-time.After(2 * time.Second):
		t.Fatal("Retry was not closed")
	}
	mustPost(t, d, w.target(Config{}), "x")
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// A caller who leaves does not end the authorization for the others.
func TestCallerLeaves(t *testing.T) {
	w := newFakeServers(t)
	shown := make(chan string, 1)
	captureLog(t, func(a string) { shown <- a })
	d := newTestTransport(t, newStore(t))
	ctx, leave := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := post(ctx, d, w.target(Config{}), "x")
		result <- err
	}()
	address := <-shown
	leave()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	browser(address)
	mustPost(t, d, w.target(Config{}), "x")
}

// A failed authorization is reported as a failure, and not followed by another at once.
func TestRefusedByTheUser(t *testing.T) {
	w := newFakeServers(t)
	w.onConsent = func(back url.Values) {
		back.Del("code")
		back.Set("error", "access_denied")
	}
	pages := make(chan string, 8)
	l := captureLog(t, func(a string) { pages <- browser(a) })
	d := newTestTransport(t, newStore(t))
	for range 3 {
		_, err := post(t.Context(), d, w.target(Config{}), "x")
		if fault.PublicOf(err) != `server "x" could not be authorized: see the gateway's log` {
			t.Errorf("got %v", err)
		}
	}
	if page := <-pages; !strings.HasPrefix(page, `403 ctxgate may not use server "x"`) {
		t.Errorf("the browser was shown %q", page)
	}
	if authRequests, _, _, _ := w.counts(); authRequests != 1 || strings.Count(l.String(), "access_denied") != 1 {
		t.Errorf("%d authorization requests; the log:\n%s", authRequests, l)
	}
}

// The backoff between two authorizations grows up to its limit.
func TestBackoffGrows(t *testing.T) {
	w := newFakeServers(t)
	w.rejectAll = true
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	d.timing.firstBackoff, d.timing.maxBackoff = 20*time.Millisecond, 40*time.Millisecond
	p := d.authOf(w.target(Config{}))
	for _, want := range []time.Duration{20, 40, 40} {
		if _, err := post(t.Context(), d, w.target(Config{}), "x"); fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("got %v", err)
		}
		p.mu.Lock()
		if p.backoff != want*time.Millisecond {
			t.Errorf("the pause is %s, want %dms", p.backoff, want)
		}
		p.token = nil // as if the token had been lost
		p.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// A server that rejects the token it was authorized with is not authorized again and again.
func TestRejectedTokenIsNotAskedForAgain(t *testing.T) {
	w := newFakeServers(t)
	w.rejectAll = true
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	for range 4 {
		if _, err := post(t.Context(), d, w.target(Config{}), "x"); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("got %v", err)
		}
	}
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// A call that needs another scope is authorized with the token's scopes and the new one; a scope that was
// requested without effect is not requested again.
func TestStepUp(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	s := w.target(Config{Scopes: []string{"read"}})
	mustPost(t, d, s, "x")
	w.require("write")
	mustPost(t, d, s, "y")
	got := strings.Fields(w.authRequests[1].Get("scope"))
	slices.Sort(got)
	if len(w.authRequests) != 2 || w.authRequests[0].Get("scope") != "read" || fmt.Sprint(got) != "[read write]" {
		t.Errorf("asked for %q, then for %v", w.authRequests[0].Get("scope"), got)
	}
	w.mu.Lock()
	w.scopes[w.tokens[0]] = "" // what was granted is not what was asked for
	w.mu.Unlock()
	for range 3 {
		if got, err := post(t.Context(), d, s, "z"); err != nil || got != "403 " {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if authRequests, _, _, _ := w.counts(); authRequests != 2 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// The scopes of a stored token are requested again together with the missing one.
func TestStepUpAfterRestart(t *testing.T) {
	w := newFakeServers(t)
	w.requiredScope = "read"
	captureLog(t, approve)
	store := newStore(t)
	mustPost(t, newTestTransport(t, store), w.target(Config{}), "x")
	w.require("write")
	mustPost(t, newTestTransport(t, store), w.target(Config{}), "y")
	got := strings.Fields(w.authRequests[len(w.authRequests)-1].Get("scope"))
	slices.Sort(got)
	if len(w.authRequests) != 3 || fmt.Sprint(got) != "[read write]" {
		t.Errorf("%d authorization requests, in the end for %v", len(w.authRequests), got)
	}
}

// A refusal that is not a Bearer challenge is passed on.
func TestOtherRefusalsPass(t *testing.T) {
	w := newFakeServers(t)
	w.scheme = "Basic"
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	if got, err := post(t.Context(), d, w.target(Config{}), "x"); err != nil || got != "401 " {
		t.Errorf("got %q, %v", got, err)
	}
	if _, _, registrations, calls := w.counts(); registrations != 0 || calls != 1 {
		t.Errorf("%d registrations, called %d times", registrations, calls)
	}
}

// A configured client is used instead of a registration.
func TestPreregisteredClient(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	known := Config{ClientID: "client-7", ClientSecret: secret.Literal("SECRET-client"), Issuer: w.issuer.URL}
	mustPost(t, d, w.target(known), "x")
	if _, _, registrations, _ := w.counts(); registrations != 0 {
		t.Errorf("%d registrations", registrations)
	}
}

// A client secret is not sent to an issuer that it does not belong to.
func TestSecretStaysWithItsIssuer(t *testing.T) {
	w := newFakeServers(t)
	w.onToken = func(rw http.ResponseWriter, r *http.Request) bool {
		t.Errorf("the secret of another issuer came with %v", r.Header["Authorization"])
		return false
	}
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	known := Config{ClientID: "client-7", ClientSecret: secret.Literal("SECRET-client"), Issuer: "https://issuer.example"}
	if _, err := post(t.Context(), d, w.target(known), "x"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	if authRequests, _, _, _ := w.counts(); authRequests != 0 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// Close ends a pending authorization and the calls that wait for it.
func TestCloseEndsPending(t *testing.T) {
	w := newFakeServers(t)
	shown := make(chan string, 1)
	captureLog(t, func(a string) { shown <- a })
	d := newTestTransport(t, newStore(t))
	result := make(chan error, 1)
	go func() {
		_, err := post(t.Context(), d, w.target(Config{}), "x")
		result <- err
	}()
	<-shown
	d.Close()
	if err := <-result; fault.PublicOf(err) != "the gateway is stopping" {
		t.Errorf("got %v", err)
	}
	if _, err := post(t.Context(), d, w.target(Config{}), "x"); fault.PublicOf(err) != "the gateway is stopping" {
		t.Errorf("a call after the end got %v", err)
	}
}

// closeRecorder records that it was closed.
type closeRecorder struct {
	io.Reader
	closed bool
}

func (c *closeRecorder) Close() error {
	c.closed = true
	return nil
}

// A body that can be read only once is sent as often as needed.
func TestBodyIsSentAgain(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	s := w.target(Config{})
	body := &closeRecorder{Reader: strings.NewReader("once")}
	req, err := http.NewRequestWithContext(WithServer(t.Context(), s), http.MethodPost, s.url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || fmt.Sprint(w.bodies) != "[once]" || !body.closed || req.Header.Get("Authorization") != "" {
		t.Errorf("status %d, sent %q, headers %v", resp.StatusCode, w.bodies, req.Header)
	}
}

// No token is requested where it could be read on the way.
func TestNoTokenOverPlainHTTP(t *testing.T) {
	for url, want := range map[string]bool{
		"https://h/mcp": true, "http://localhost:1/": true, "http://[::1]/": true, "http://127.0.0.9/": true,
		"http://h/mcp": false, "http://10.0.0.1/": false, "http://localhost.example/": false,
	} {
		if got := NewServer("x", url, Config{}).confidential; got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
	w := newFakeServers(t)
	l := captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	s := w.target(Config{})
	s.confidential = false
	for range 2 {
		if got, err := post(t.Context(), d, s, "x"); err != nil || got != "401 " {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, _, registrations, _ := w.counts(); registrations != 0 || strings.Count(l.String(), "plain http") != 1 {
		t.Errorf("%d registrations; the log:\n%s", registrations, l)
	}
}
