package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

var (
	ann = Principal{Tenant: "acme", Issuer: "https://idp", Subject: "ann"}
	bob = Principal{Tenant: "acme", Issuer: "https://idp", Subject: "bob"}
)

// person is a user with a browser.
type person struct{ http.Client }

func newPerson(t *testing.T) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &person{http.Client{Jar: jar, Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	return p
}

// visit makes a request and returns the status and the page.
func (p *person) visit(t *testing.T, method, address string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(page)
}

// stopBeforeCallback makes the browser stop where the authorization server sends it back, and returns that address.
func (p *person) stopBeforeCallback() *string {
	var last string
	p.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		if req.URL.Path == CallbackPath {
			last = req.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &last
}

// addressOf makes a call that lacks the caller's authorization, and returns the address that the caller is told.
func addressOf(t *testing.T, d *Transport, s *Server) string {
	t.Helper()
	_, err := post(t.Context(), d, s, "x")
	missing, ok := errors.AsType[*NotAuthorizedError](err)
	if !ok || missing.Address == "" || !missing.IsWaiting() || fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), StartPath) {
		t.Errorf("the address is in the error's text: %v", err)
	}
	return missing.Address
}

// Two callers at once each authorize the gateway with their own account, and get their own tokens. The log has no address.
func TestCallersAuthorize(t *testing.T) {
	w := newFakeServers(t)
	w.keepTokens = true
	l := captureLog(t, func(string) { t.Error("an address is in the log") })
	d := newTestTransport(t, newStore(t))
	var mu sync.Mutex
	tokens := map[string]string{}
	var wg sync.WaitGroup
	for _, who := range []Principal{ann, bob} {
		wg.Go(func() {
			s := w.target(Config{}).For(who)
			address, p := addressOf(t, d, s), newPerson(t)
			status, page := p.visit(t, http.MethodGet, address)
			if status != 200 || !strings.Contains(page, who.Subject) || !strings.Contains(page, who.Tenant) || !strings.Contains(page, "https://idp") || !strings.Contains(page, "server <b>x</b>") {
				t.Errorf("the page is %d %s", status, page)
			}
			if status, page = p.visit(t, http.MethodPost, address); status != 200 || !strings.Contains(page, who.Subject) {
				t.Errorf("after the authorization: %d %s", status, page)
			}
			mustPost(t, d, s, "y")
			mu.Lock()
			defer mu.Unlock()
			tokens[who.Subject] = d.authOf(s).token.Access
		})
	}
	wg.Wait()
	if tokens["ann"] == "" || tokens["ann"] == tokens["bob"] {
		t.Errorf("the tokens are %v", tokens)
	}
	if strings.Contains(l.String(), StartPath) || strings.Contains(l.String(), "/authorize") {
		t.Errorf("an address is in the log:\n%s", l)
	}
}

// The same subject of another issuer or another tenant, and the tenant itself, are others.
func TestPrincipalsAreApart(t *testing.T) {
	w := newFakeServers(t)
	w.keepTokens = true
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	p, s := newPerson(t), w.target(Config{})
	p.visit(t, http.MethodPost, addressOf(t, d, s.For(ann)))
	mustPost(t, d, s.For(ann), "x")
	for _, other := range []Principal{{"acme", "", "ann"}, {"acme", "https://other", "ann"}, {"globex", "https://idp", "ann"}, {"acmehttps://idp", "", "ann"}} {
		addressOf(t, d, s.For(other)) // is not authorized
		if other.Key() == ann.Key() {
			t.Errorf("%v has the key of %v", other, ann)
		}
	}
	mustPost(t, d, s.For(Principal{Tenant: "acme"}), "x") // which an operator approves, in the log
	if d.authOf(s.For(Principal{Tenant: "acme"})).token.Access == d.authOf(s.For(ann)).token.Access {
		t.Error("the tenant has the token of a caller")
	}
}

// S17 for grants: only the browser that began an authorization can end it, and only once.
func TestOnlyTheBrowserThatBeganS17(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	s := w.target(Config{}).For(ann)
	address := addressOf(t, d, s)
	own, other := newPerson(t), newPerson(t)

	// The authorization server's address, with the state, does not lead back without the page.
	d.mu.Lock()
	var direct string
	for _, r := range d.authRequests {
		direct = r.address.String()
	}
	d.mu.Unlock()
	if status, page := other.visit(t, http.MethodGet, direct); status != 400 {
		t.Errorf("past the page: %d %s", status, page)
	}
	// Pages of other sites cannot press the button.
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if status, _ := other.visit(t, http.MethodPost, address, header...); status != 403 {
			t.Errorf("%v: %d", header, status)
		}
	}
	// Opening the page, as programs do that preview links, changes nothing.
	for range 3 {
		if status, _ := other.visit(t, http.MethodGet, address); status != 200 {
			t.Errorf("the page: %d", status)
		}
	}
	back := own.stopBeforeCallback()
	own.visit(t, http.MethodPost, address)
	if *back == "" {
		t.Fatal("the browser did not come back")
	}
	if status, _ := other.visit(t, http.MethodPost, address); status != 404 {
		t.Errorf("it was begun twice: %d", status)
	}
	for _, cookie := range []string{"", "ctxgate-oauth-AAAAAAAA=x", d.cookieOf(address)[:22] + "=" + "guess"} {
		if status, page := other.visit(t, http.MethodGet, *back, "Cookie", cookie); status != 400 || !strings.Contains(page, "another browser") {
			t.Errorf("another browser with %q: %d %s", cookie, status, page)
		}
	}
	if status, page := own.visit(t, http.MethodGet, *back); status != 200 {
		t.Errorf("its own browser: %d %s", status, page)
	}
	if status, _ := own.visit(t, http.MethodGet, *back); status != 400 {
		t.Errorf("a second time: %d", status)
	}
	mustPost(t, d, s, "x")
}

// cookieOf is the name of an authorization's cookie.
func (t *Transport) cookieOf(address string) string {
	u, _ := url.Parse(address)
	return "ctxgate-oauth-" + u.Query().Get("flow")[:8]
}

// A browser that is known to be another caller's cannot begin an authorization, and the page cannot be framed.
func TestKnownBrowser(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	d.SetIdentify(func(r *http.Request) (Principal, bool) {
		name := r.Header.Get("X-Subject")
		return Principal{"acme", "https://idp", name}, name != ""
	})
	address := addressOf(t, d, w.target(Config{}).For(ann))
	p := newPerson(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if status, _ := p.visit(t, method, address, "X-Subject", "bob"); status != 403 {
			t.Errorf("%s by another caller: %d", method, status)
		}
	}
	if status, _ := p.visit(t, http.MethodPut, address); status != 405 {
		t.Errorf("PUT: %d", status)
	}
	for _, bad := range []string{"", "?flow=x", "?flow=x&flow=y", "?flow=" + strings.Repeat("x", maxParamLength+1)} {
		if status, _ := p.visit(t, http.MethodGet, strings.Split(address, "?")[0]+bad); status != 400 && status != 404 {
			t.Errorf("%.20s: %d", bad, status)
		}
	}
	rec := httptest.NewRecorder()
	d.HandleStart(rec, httptest.NewRequest(http.MethodGet, address, nil))
	if csp := rec.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "form-action 'self' "+w.issuer.URL) {
		t.Errorf("the page's policy is %s", csp)
	}
	if status, _ := p.visit(t, http.MethodPost, address, "X-Subject", "ann"); status != 200 {
		t.Errorf("the caller itself: %d", status)
	}
}

// Over https the cookie has the prefix that binds it to the host.
func TestCookie(t *testing.T) {
	captureLog(t, nil)
	d, err := New(Deps{Base: http.DefaultTransport, Store: newStore(t), Secret: root})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for base, want := range map[string]string{"https://gateway.example": "__Host-ctxgate-oauth-", "http://127.0.0.1:8000": "ctxgate-oauth-"} {
		d.SetRedirectURL(nil, base)
		to, _ := url.Parse("https://as.example/authorize?state=s")
		r := d.expectCallback(NewServer("x", "https://x", Config{}).For(ann), "s", to)
		rec := httptest.NewRecorder()
		d.HandleStart(rec, httptest.NewRequest(http.MethodPost, d.startAddress(r), nil))
		c := rec.Result().Cookies()
		if len(c) != 1 || !strings.HasPrefix(c[0].Name, want) || !c[0].HttpOnly || c[0].SameSite != http.SameSiteLaxMode || c[0].Secure != strings.HasPrefix(base, "https") || c[0].Path != "/" || c[0].Domain != "" {
			t.Errorf("%s: %v", base, rec.Result().Header)
		}
		if rec.Code != http.StatusSeeOther || rec.Header().Get("Location") != to.String() {
			t.Errorf("%d to %s", rec.Code, rec.Header().Get("Location"))
		}
		d.forgetAuthRequest(r)
	}
}

// A caller's token survives the process, and the record of one is of no use under another's name.
func TestCallersTokenIsStored(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, nil)
	store := newStore(t)
	first := newTestTransport(t, store)
	s := w.target(Config{})
	newPerson(t).visit(t, http.MethodPost, addressOf(t, first, s.For(ann)))
	mustPost(t, first, s.For(ann), "x")

	second := newTestTransport(t, store)
	mustPost(t, second, s.For(ann), "x")
	a, b := second.authOf(s.For(ann)), second.authOf(s.For(bob))
	text, err := second.grants.Get(t.Context(), "acme", a.grantName())
	if err != nil {
		t.Fatal(err)
	}
	for _, copied := range []*serverAuth{b, second.authOf(s.For(Principal{Tenant: "acme"})), second.authOf(s)} {
		if err := second.grants.Put(t.Context(), copied.server.principal.Tenant, copied.grantName(), text); err != nil {
			t.Fatal(err)
		}
		if stolen, err := copied.loadToken(t.Context()); err != nil || stolen != nil {
			t.Errorf("%v has the token of %v", copied.server.principal, ann)
		}
	}
}

// What an earlier version stored for everybody is the default tenant's, and moves to where that tenant's tokens are.
func TestOldTokenMoves(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	store := newStore(t)
	s := w.target(Config{})
	old := newTestTransport(t, store)
	mustPost(t, old, s, "x")
	name := old.authOf(s).grantName()

	moved := map[string][]byte{}
	now := newTestTransport(t, store)
	now.oldGrants = now.grants
	now.grants = mapGrants(moved)
	mustPost(t, now, s, "x")
	if moved["default/"+name] == nil {
		t.Error("the token was not moved")
	}
	if _, err := old.grants.Get(t.Context(), "default", name); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("the old one is still there: %v", err)
	}
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("a user was asked %d times", authRequests)
	}
	if got, err := now.authOf(s.For(Principal{Tenant: "acme"})).loadToken(t.Context()); got != nil || err != nil {
		t.Errorf("another tenant has it: %v, %v", got, err)
	}
}

// A tenant that is forgotten has no tokens any more, also none of an earlier version; another keeps its own.
func TestForgetTenant(t *testing.T) {
	w := newFakeServers(t)
	w.keepTokens = true
	captureLog(t, nil)
	store := newStore(t)
	d := newTestTransport(t, store)
	other := Principal{"globex", "https://idp", "ann"}
	for _, who := range []Principal{ann, bob, other} {
		newPerson(t).visit(t, http.MethodPost, addressOf(t, d, w.target(Config{}).For(who)))
		mustPost(t, d, w.target(Config{}).For(who), "x")
		d.exchanges.hold(who.Key(), exchanged{tenant: who.Tenant, expires: time.Now().Add(time.Hour)})
	}
	if err := DropOldGrants(t.Context(), store, "acme"); err != nil {
		t.Fatal(err)
	}
	d.ForgetTenant("acme")
	addressOf(t, d, w.target(Config{}).For(ann))
	addressOf(t, d, w.target(Config{}).For(bob))
	mustPost(t, d, w.target(Config{}).For(other), "x")
	if len(d.exchanges.tokens) != 1 {
		t.Errorf("%d exchanged tokens are left", len(d.exchanges.tokens))
	}
}

// mapGrants keeps tokens in a map.
func mapGrants(m map[string][]byte) Grants {
	var unknown = fault.New(fault.UnknownHandle, "unknown")
	return Grants{
		Get: func(_ context.Context, tenant, name string) ([]byte, error) {
			if v, ok := m[tenant+"/"+name]; ok {
				return v, nil
			}
			return nil, unknown
		},
		Put:   func(_ context.Context, tenant, name string, v []byte) error { m[tenant+"/"+name] = v; return nil },
		Touch: func(_ context.Context, tenant, name string) (bool, error) { return m[tenant+"/"+name] != nil, nil },
		Drop:  func(_ context.Context, tenant, name string) error { delete(m, tenant+"/"+name); return nil },
	}
}

// One tenant cannot use up all authorizations, and states that nobody uses are forgotten.
func TestAuthorizationsAreBounded(t *testing.T) {
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	var releases []func()
	for range maxAuthorizingPerTenant {
		release, err := d.reserveAuthorization("acme")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	if _, err := d.reserveAuthorization("acme"); fault.KindOf(err) != fault.Full {
		t.Errorf("got %v", err)
	}
	for i := range maxAuthorizing - maxAuthorizingPerTenant {
		release, err := d.reserveAuthorization(fmt.Sprint("t", i/maxAuthorizingPerTenant))
		if err != nil {
			t.Fatal(i, err)
		}
		releases = append(releases, release)
	}
	if _, err := d.reserveAuthorization("other"); fault.KindOf(err) != fault.Full {
		t.Errorf("got %v", err)
	}
	for _, release := range releases {
		release()
	}
	if len(d.authorizing) != 0 {
		t.Errorf("left: %v", d.authorizing)
	}

	s := NewServer("x", "https://x", Config{})
	busy := d.authOf(s.For(ann))
	busy.retryAt = time.Now().Add(time.Hour)
	for i := range 3 * maxServerAuths {
		d.authOf(s.For(Principal{"acme", "", fmt.Sprint(i)}))
	}
	if len(d.servers) > maxServerAuths || d.authOf(s.For(ann)) != busy {
		t.Errorf("%d states, or one that is needed is forgotten", len(d.servers))
	}
}

// A token that the server refuses later leads to a new page for the same caller, and other callers keep theirs.
func TestCallerAuthorizesAgain(t *testing.T) {
	w := newFakeServers(t)
	w.keepTokens, w.refresh = true, false
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	d.timing.firstBackoff = time.Millisecond
	a, b := w.target(Config{}).For(ann), w.target(Config{}).For(bob)
	for _, s := range []*Server{a, b} {
		newPerson(t).visit(t, http.MethodPost, addressOf(t, d, s))
		mustPost(t, d, s, "x")
	}
	gone := d.authOf(a).token.Access
	w.mu.Lock()
	w.tokens = slices.DeleteFunc(w.tokens, func(s string) bool { return s == gone })
	w.mu.Unlock()
	address := addressOf(t, d, a)
	mustPost(t, d, b, "x")
	newPerson(t).visit(t, http.MethodPost, address)
	mustPost(t, d, a, "x")
}
