package oauth

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

const inbound = "SECRET-inbound-token-of-the-caller"

// exchanger is an authorization server that exchanges tokens, and a server that accepts what it gives.
type exchanger struct {
	as, server *httptest.Server
	reply      func(n int, form url.Values) (status int, body string)

	mu      sync.Mutex
	forms   []url.Values
	clients []string // as they authenticated
	seen    []string // whatever the server got: headers and bodies
	refuse  bool     // the server accepts no token
}

func newExchanger(t *testing.T) *exchanger {
	x := &exchanger{reply: func(n int, _ url.Values) (int, string) {
		return 200, fmt.Sprintf(`{"access_token":"SECRET-exchanged-%d","issued_token_type":%q,"token_type":"Bearer","expires_in":3600}`, n, accessTokenType)
	}}
	x.as = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		id, password, _ := r.BasicAuth()
		x.mu.Lock()
		x.forms = append(x.forms, r.PostForm)
		x.clients = append(x.clients, id+":"+password)
		n := len(x.forms)
		x.mu.Unlock()
		status, body := x.reply(n, r.PostForm)
		if status/100 == 3 {
			w.Header().Set("Location", x.server.URL+"/mcp")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(x.as.Close)
	x.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.seen = append(x.seen, fmt.Sprint(r.URL, r.Header, string(body)))
		if x.refuse || !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer SECRET-exchanged-") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "echo %s", body)
	}))
	t.Cleanup(x.server.Close)
	t.Cleanup(func() { // never passthrough, on any path
		for _, text := range x.seen {
			if strings.Contains(text, inbound) {
				t.Errorf("the server got the caller's own token: %s", text)
			}
		}
	})
	return x
}

func (x *exchanger) target() *Server {
	return NewServer("x", x.server.URL+"/mcp?key=hunter2", Config{}).For(ann).WithExchange(Exchange{
		TokenURL: x.as.URL + "/token", ClientID: "ctx gate", ClientSecret: secret.Literal("s:ecret"), Scopes: []string{"read", "write"},
	})
}

func (x *exchanger) counts() (exchanges, calls int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.forms), len(x.seen)
}

// The caller's token is exchanged once for many calls, for a token that is for this server; the server never gets the caller's.
func TestExchange(t *testing.T) {
	x := newExchanger(t)
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	s := x.target()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := d.EnsureExchanged(t.Context(), s, secret.Literal(inbound)); err != nil {
				t.Error(err)
			}
			if got, err := post(t.Context(), d, s, "x"); err != nil || got != "200 echo x" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if exchanges, calls := x.counts(); exchanges != 1 || calls != 20 {
		t.Errorf("%d exchanges for %d calls", exchanges, calls)
	}
	want := url.Values{
		"grant_type": {tokenExchangeType}, "subject_token": {inbound}, "subject_token_type": {accessTokenType}, "requested_token_type": {accessTokenType},
		"resource": {x.server.URL + "/mcp"}, "scope": {"read write"},
	}
	if x.forms[0].Encode() != want.Encode() || x.clients[0] != "ctx+gate:s%3Aecret" {
		t.Errorf("asked with %v as %q", x.forms[0], x.clients[0])
	}
	// Another caller has its own.
	other := s.For(bob)
	if _, err := post(t.Context(), d, other, "x"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("another caller's call got %v", err)
	}
	if err := d.EnsureExchanged(t.Context(), other, secret.Literal(inbound+"-2")); err != nil {
		t.Fatal(err)
	}
	if a, _ := d.exchanges.heldFor(s.authKey()); a.access != "SECRET-exchanged-1" {
		t.Errorf("got %q", a.access)
	}
	if b, _ := d.exchanges.heldFor(other.authKey()); b.access != "SECRET-exchanged-2" {
		t.Errorf("got %q", b.access)
	}
	// What the caller's token is exchanged for is in memory alone.
	if _, err := d.grants.Get(t.Context(), "acme", d.authOf(s).grantName()); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("it was stored: %v", err)
	}
}

// A client without a secret names itself, and audience and resource are sent as configured.
func TestExchangeParameters(t *testing.T) {
	x := newExchanger(t)
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	for i, cfg := range []Exchange{{Audience: "docs"}, {Resource: "https://docs"}, {Audience: "docs", Resource: "https://docs"}} {
		cfg.TokenURL, cfg.ClientID = x.as.URL, "c"
		if err := d.EnsureExchanged(t.Context(), NewServer(fmt.Sprint(i), x.server.URL, Config{}).For(ann).WithExchange(cfg), secret.Literal(inbound)); err != nil {
			t.Fatal(err)
		}
		got := x.forms[i]
		if got.Get("client_id") != "c" || got.Get("audience") != cfg.Audience || got.Get("resource") != cfg.Resource || got.Has("scope") || x.clients[i] != ":" {
			t.Errorf("asked with %v as %q", got, x.clients[i])
		}
	}
}

// A token is exchanged again before it expires, and after the server has refused it.
func TestExchangeAgain(t *testing.T) {
	x := newExchanger(t)
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	s := x.target()
	ensure := func(want int) {
		t.Helper()
		if err := d.EnsureExchanged(t.Context(), s, secret.Literal(inbound)); err != nil {
			t.Fatal(err)
		}
		if n, _ := x.counts(); n != want {
			t.Errorf("%d exchanges, want %d", n, want)
		}
	}
	ensure(1)
	held, _ := d.exchanges.heldFor(s.authKey())
	if left := time.Until(held.expires); left > 3600*time.Second-exchangeEarly || left < 3500*time.Second {
		t.Errorf("it is used for %s", left)
	}
	held.expires = time.Now()
	d.exchanges.hold(s.authKey(), held)
	if _, err := post(t.Context(), d, s, "x"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a token that has expired was sent: %v", err)
	}
	ensure(2)
	x.mu.Lock()
	x.refuse = true
	x.mu.Unlock()
	if got, err := post(t.Context(), d, s, "x"); err != nil || !strings.HasPrefix(got, "401") {
		t.Errorf("got %q, %v", got, err)
	}
	ensure(3)
}

// What the authorization server refuses is not asked for again at once with the same token; nothing of tokens is in the error.
func TestExchangeFails(t *testing.T) {
	for name, reply := range map[string]func(int, url.Values) (int, string){
		"refused": func(int, url.Values) (int, string) {
			return 400, `{"error":"invalid_grant","error_description":"SECRET"}`
		},
		"redirect": func(int, url.Values) (int, string) { return 307, `` },
		"no token": func(int, url.Values) (int, string) { return 200, `{"token_type":"Bearer"}` },
		"no bearer": func(int, url.Values) (int, string) {
			return 200, `{"access_token":"SECRET-exchanged-1","token_type":"N_A"}`
		},
		"another type": func(int, url.Values) (int, string) {
			return 200, `{"access_token":"SECRET-exchanged-1","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:id_token"}`
		},
		"line break": func(int, url.Values) (int, string) {
			return 200, `{"access_token":"SECRET\r\nX: y","token_type":"Bearer"}`
		},
		"no JSON": func(int, url.Values) (int, string) { return 200, `SECRET` },
		"its own back": func(_ int, f url.Values) (int, string) {
			return 200, fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer"}`, f.Get("subject_token"))
		},
		"endless answer": func(int, url.Values) (int, string) {
			return 200, `{"access_token":"` + strings.Repeat("a", maxExchangeReply)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExchanger(t)
			x.reply = reply
			captureLog(t, nil)
			d := newTestTransport(t, newStore(t))
			s := x.target()
			for range 3 {
				err := d.EnsureExchanged(t.Context(), s, secret.Literal(inbound))
				if fault.KindOf(err) != fault.Unavailable || strings.Contains(err.Error(), "SECRET") {
					t.Errorf("got %v", err)
				}
				if _, err := post(t.Context(), d, s, "x"); fault.KindOf(err) != fault.Unavailable {
					t.Errorf("the call got %v", err)
				}
			}
			if n, calls := x.counts(); n != 1 || calls != 0 {
				t.Errorf("%d exchanges, %d calls", n, calls)
			}
			_ = d.EnsureExchanged(t.Context(), s, secret.Literal(inbound+"-new"))
			if n, _ := x.counts(); n != 2 {
				t.Errorf("%d exchanges: a new token was not tried", n)
			}
		})
	}
}

// A caller without a token of an identity provider, and a server whose URL is not confidential, get none.
func TestNothingToExchange(t *testing.T) {
	x := newExchanger(t)
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	if err := d.EnsureExchanged(t.Context(), x.target(), secret.Text{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	plain := NewServer("x", "http://mcp.example/mcp", Config{}).For(ann).WithExchange(Exchange{TokenURL: x.as.URL, ClientID: "c"})
	if err := d.EnsureExchanged(t.Context(), plain, secret.Literal(inbound)); fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.PublicOf(err), "plain http") {
		t.Errorf("got %v", err)
	}
	if err := d.EnsureExchanged(t.Context(), NewServer("x", "http://mcp.example/mcp", Config{}), secret.Text{}); err != nil {
		t.Errorf("a server without an exchange: %v", err)
	}
	if n, _ := x.counts(); n != 0 {
		t.Errorf("%d exchanges", n)
	}
}

// Tokens that are held are bounded: what expires first goes first.
func TestExchangedAreBounded(t *testing.T) {
	var e exchanges
	now := time.Now()
	for i := range maxExchanged + 100 {
		e.hold(fmt.Sprint(i), exchanged{access: "x", expires: now.Add(time.Hour + time.Duration(i)*time.Second)})
	}
	if _, ok := e.heldFor("99"); ok || len(e.tokens) != maxExchanged {
		t.Errorf("%d tokens", len(e.tokens))
	}
	if _, ok := e.heldFor("100"); !ok {
		t.Error("a later one is gone")
	}
	e.tokens["100"] = exchanged{expires: now}
	e.tokens["101"] = exchanged{expires: now}
	e.hold("new", exchanged{expires: now.Add(time.Minute)})
	if _, ok := e.heldFor("102"); !ok || len(e.tokens) != maxExchanged-1 {
		t.Errorf("%d tokens", len(e.tokens))
	}
}

func TestExchangeConfig(t *testing.T) {
	for want, cfg := range map[string]Exchange{
		"":                       {},
		" ":                      {TokenURL: "https://as/token", ClientID: "c"},
		"token_url: is not":      {ClientID: "c", Audience: "a"},
		"token_url: is not an":   {TokenURL: "http://as.example/token", ClientID: "c"},
		"client_id: is missing":  {TokenURL: "http://127.0.0.1/token"},
		`scopes: "a b" is not`:   {TokenURL: "https://as", ClientID: "c", Scopes: []string{"a b"}},
		`scopes: "" is not one`:  {TokenURL: "https://as", ClientID: "c", Scopes: []string{""}},
		"client_id: is missing ": {TokenURL: "https://as", ClientSecret: secret.Literal("x")},
	} {
		problems := cfg.Validate()
		if (len(problems) == 0) != (strings.TrimSpace(want) == "") || len(problems) > 0 && !strings.HasPrefix(problems[0].Error(), strings.TrimSpace(want)) {
			t.Errorf("%+v: %v, want %q", cfg, problems, want)
		}
	}
}
