package grant

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

// A server that wants a token gets one, and the call that found it out is made again as it was.
func TestFirstCall(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	mustPost(t, d, w.to(Config{}), `{"a":1}`)
	mustPost(t, d, w.to(Config{}), `{"a":2}`)
	asks, grants, registrations, calls := w.counts()
	if asks != 1 || grants != 1 || registrations != 1 || calls != 3 {
		t.Errorf("asked %d, granted %d, registered %d, called %d", asks, grants, registrations, calls)
	}
	ask, given := w.asks[0], w.grants[0]
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

// A key in the query of a server's URL goes to no authorization server and into no browser.
func TestKeyInTheQueryStaysWithTheServer(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	mustPost(t, d, For("x", w.server.URL+"/mcp?key=hunter2", Config{}), "x")
	for _, said := range append(w.asks, w.grants...) {
		if strings.Contains(said.Encode(), "hunter2") || said.Get("resource") != w.server.URL+"/mcp" {
			t.Errorf("the authorization server was told %v", said)
		}
	}
}

// A request that names no server is nobody's business, and a token is for the server it was
// given for.
func TestTokensStayWithTheirServer(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	mustPost(t, d, w.to(Config{}), "x")
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
	mustPost(t, d, For("y", other.server.URL+"/mcp", Config{}), "y")
	if _, _, registrations, _ := other.counts(); registrations != 1 {
		t.Errorf("the other server was authorized %d times", registrations)
	}
}

// However many calls find out at once, one user is asked once.
func TestOneAsking(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			body := fmt.Sprintf("call %d", i)
			if got, err := post(t.Context(), d, w.to(Config{}), body); err != nil || got != "200 echo "+body {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if asks, _, registrations, _ := w.counts(); asks != 1 || registrations != 1 {
		t.Errorf("asked %d times, registered %d times", asks, registrations)
	}
}

// While nobody has opened the address, calls fail soon and say why, but not where; when somebody
// has, they can tell.
func TestNobodyOpensTheAddress(t *testing.T) {
	w := newWorld(t)
	shown := make(chan string, 1)
	listenTo(t, func(a string) { shown <- a })
	d := open(t, newStore(t))
	d.pace.patience = 50 * time.Millisecond
	_, err := post(t.Context(), d, w.to(Config{}), "x")
	var want *Missing
	if fault.KindOf(err) != fault.Unavailable || !errors.As(err, &want) || want.Until == nil {
		t.Fatalf("got %v", err)
	}
	if text := fault.PublicOf(err); text != `server "x" waits to be authorized: the gateway's log says how` || strings.Contains(err.Error(), "/authorize") {
		t.Errorf("the client is told %q (%v)", text, err)
	}
	start := time.Now()
	if _, err := post(t.Context(), d, w.to(Config{}), "x"); !errors.As(err, &want) || time.Since(start) > 2*time.Second {
		t.Errorf("the next call got %v after %s", err, time.Since(start))
	}
	if page := browser(<-shown); !strings.HasPrefix(page, `200 ctxgate may use server "x" now.`) {
		t.Errorf("the browser was shown %q", page)
	}
	select {
	case <-want.Until:
	case <-time.After(2 * time.Second):
		t.Fatal("nobody was told")
	}
	mustPost(t, d, w.to(Config{}), "x")
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
}

// A caller who leaves does not end the asking for the others.
func TestCallerLeaves(t *testing.T) {
	w := newWorld(t)
	shown := make(chan string, 1)
	listenTo(t, func(a string) { shown <- a })
	d := open(t, newStore(t))
	ctx, leave := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := post(ctx, d, w.to(Config{}), "x")
		result <- err
	}()
	address := <-shown
	leave()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	browser(address)
	mustPost(t, d, w.to(Config{}), "x")
}

// An asking that failed is not followed by another at once, and is told as a failure.
func TestRefusedByTheUser(t *testing.T) {
	w := newWorld(t)
	w.consent = func(back url.Values) {
		back.Del("code")
		back.Set("error", "access_denied")
	}
	pages := make(chan string, 8)
	l := listenTo(t, func(a string) { pages <- browser(a) })
	d := open(t, newStore(t))
	for range 3 {
		_, err := post(t.Context(), d, w.to(Config{}), "x")
		if fault.PublicOf(err) != `server "x" could not be authorized: see the gateway's log` {
			t.Errorf("got %v", err)
		}
	}
	if page := <-pages; !strings.HasPrefix(page, `403 ctxgate may not use server "x"`) {
		t.Errorf("the browser was shown %q", page)
	}
	if asks, _, _, _ := w.counts(); asks != 1 || strings.Count(l.String(), "access_denied") != 1 {
		t.Errorf("asked %d times; the log:\n%s", asks, l)
	}
}

// The pause between two askings grows, and ends.
func TestPauseGrows(t *testing.T) {
	w := newWorld(t)
	w.deaf = true
	listenTo(t, willing)
	d := open(t, newStore(t))
	d.pace.firstPause, d.pace.longPause = 20*time.Millisecond, 40*time.Millisecond
	p := d.permit(w.to(Config{}))
	for _, want := range []time.Duration{20, 40, 40} {
		if _, err := post(t.Context(), d, w.to(Config{}), "x"); fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("got %v", err)
		}
		p.mu.Lock()
		if p.pause != want*time.Millisecond {
			t.Errorf("the pause is %s, want %dms", p.pause, want)
		}
		p.held = nil // as if the token had been lost
		p.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

// A server that does not take the token it was authorized with is not authorized again and again.
func TestTokenIsNotTaken(t *testing.T) {
	w := newWorld(t)
	w.deaf = true
	listenTo(t, willing)
	d := open(t, newStore(t))
	for range 4 {
		if _, err := post(t.Context(), d, w.to(Config{}), "x"); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("got %v", err)
		}
	}
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
}

// A call that needs more is let in with all the scopes there were and the one it needs; one that
// was asked for in vain is not asked for again.
func TestStepUp(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	s := w.to(Config{Scopes: []string{"read"}})
	mustPost(t, d, s, "x")
	w.require("write")
	mustPost(t, d, s, "y")
	got := strings.Fields(w.asks[1].Get("scope"))
	slices.Sort(got)
	if len(w.asks) != 2 || w.asks[0].Get("scope") != "read" || fmt.Sprint(got) != "[read write]" {
		t.Errorf("asked for %q, then for %v", w.asks[0].Get("scope"), got)
	}
	w.mu.Lock()
	w.scopes[w.tokens[0]] = "" // what was granted is not what was asked for
	w.mu.Unlock()
	for range 3 {
		if got, err := post(t.Context(), d, s, "z"); err != nil || got != "403 " {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if asks, _, _, _ := w.counts(); asks != 2 {
		t.Errorf("asked %d times", asks)
	}
}

// What a token has is asked for again with what it lacks, also by the process after the one that
// got it.
func TestStepUpAfterRestart(t *testing.T) {
	w := newWorld(t)
	w.needs = "read"
	listenTo(t, willing)
	store := newStore(t)
	mustPost(t, open(t, store), w.to(Config{}), "x")
	w.require("write")
	mustPost(t, open(t, store), w.to(Config{}), "y")
	got := strings.Fields(w.asks[len(w.asks)-1].Get("scope"))
	slices.Sort(got)
	if len(w.asks) != 3 || fmt.Sprint(got) != "[read write]" {
		t.Errorf("asked %d times, in the end for %v", len(w.asks), got)
	}
}

// What is no question for a token is an answer like any other.
func TestOtherRefusalsPass(t *testing.T) {
	w := newWorld(t)
	w.scheme = "Basic"
	listenTo(t, willing)
	d := open(t, newStore(t))
	if got, err := post(t.Context(), d, w.to(Config{}), "x"); err != nil || got != "401 " {
		t.Errorf("got %q, %v", got, err)
	}
	if _, _, registrations, calls := w.counts(); registrations != 0 || calls != 1 {
		t.Errorf("registered %d times, called %d times", registrations, calls)
	}
}

// A client that was registered beforehand is used instead of a new one.
func TestRegisteredBeforehand(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	known := Config{ClientID: "client-7", ClientSecret: secret.Literal("SECRET-client"), Issuer: w.issuer.URL}
	mustPost(t, d, w.to(known), "x")
	if _, _, registrations, _ := w.counts(); registrations != 0 {
		t.Errorf("registered %d times", registrations)
	}
}

// A client's secret is not shown to an issuer that it does not belong to.
func TestSecretStaysWithItsIssuer(t *testing.T) {
	w := newWorld(t)
	w.tokenAt = func(rw http.ResponseWriter, r *http.Request) bool {
		t.Errorf("the secret of another issuer came with %v", r.Header["Authorization"])
		return false
	}
	listenTo(t, willing)
	d := open(t, newStore(t))
	known := Config{ClientID: "client-7", ClientSecret: secret.Literal("SECRET-client"), Issuer: "https://issuer.example"}
	if _, err := post(t.Context(), d, w.to(known), "x"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	if asks, _, _, _ := w.counts(); asks != 0 {
		t.Errorf("asked %d times", asks)
	}
}

// Close ends an asking that nobody answers, and calls that wait for it.
func TestCloseEndsWhatWaits(t *testing.T) {
	w := newWorld(t)
	shown := make(chan string, 1)
	listenTo(t, func(a string) { shown <- a })
	d := open(t, newStore(t))
	result := make(chan error, 1)
	go func() {
		_, err := post(t.Context(), d, w.to(Config{}), "x")
		result <- err
	}()
	<-shown
	d.Close()
	if err := <-result; fault.PublicOf(err) != "the gateway is being stopped" {
		t.Errorf("got %v", err)
	}
	if _, err := post(t.Context(), d, w.to(Config{}), "x"); fault.PublicOf(err) != "the gateway is being stopped" {
		t.Errorf("a call after the end got %v", err)
	}
}

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// A body that can be read only once is sent as often as needed.
func TestBodyIsSentAgain(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	s := w.to(Config{})
	body := &closing{Reader: strings.NewReader("once")}
	req, err := http.NewRequestWithContext(With(t.Context(), s), http.MethodPost, s.url, body)
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

// A token is not sent where others can read it, so none is asked for.
func TestNoTokenOverPlainHTTP(t *testing.T) {
	for url, want := range map[string]bool{
		"https://h/mcp": true, "http://localhost:1/": true, "http://[::1]/": true, "http://127.0.0.9/": true,
		"http://h/mcp": false, "http://10.0.0.1/": false, "http://localhost.example/": false,
	} {
		if got := For("x", url, Config{}).private; got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
	w := newWorld(t)
	l := listenTo(t, willing)
	d := open(t, newStore(t))
	s := w.to(Config{})
	s.private = false
	for range 2 {
		if got, err := post(t.Context(), d, s, "x"); err != nil || got != "401 " {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, _, registrations, _ := w.counts(); registrations != 0 || strings.Count(l.String(), "plain http") != 1 {
		t.Errorf("registered %d times; the log:\n%s", registrations, l)
	}
}
