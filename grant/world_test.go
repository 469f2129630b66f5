package grant

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var root = []byte("a root secret of thirty-two bytes")

// world is a server that wants tokens and the authorization server it names. Its fields say how
// they behave, and are set before the first request.
type world struct {
	t       *testing.T
	server  *httptest.Server
	issuer  *httptest.Server
	lasts   int    // seconds that tokens last; 0 says nothing
	refresh bool   // tokens can be renewed
	deaf    bool   // the server takes no token
	needs   string // the scope a call needs
	scheme  string // of the challenge
	authAt  string // the authorization endpoint, where it is not the usual one
	tokenAt func(w http.ResponseWriter, r *http.Request) bool
	regAt   func(w http.ResponseWriter, r *http.Request) bool
	consent func(back url.Values) // changes what the browser brings back

	mu       sync.Mutex
	n        int
	scopes   map[string]string // of a code, then of a token
	refreshs map[string]bool   // those that are good
	tokens   []string
	bodies   []string // of calls that were let in
	asks     []url.Values
	grants   []url.Values
	register int
	calls    int
	sent     []string // tokens that came with them
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, refresh: true, scheme: "Bearer", scopes: map[string]string{}, refreshs: map[string]bool{}}
	issuer := http.NewServeMux()
	issuer.HandleFunc("GET /.well-known/oauth-authorization-server", w.metadata)
	issuer.HandleFunc("POST /register", w.registers)
	issuer.HandleFunc("GET /authorize", w.authorizes)
	issuer.HandleFunc("POST /token", w.token)
	w.issuer = httptest.NewServer(issuer)
	t.Cleanup(w.issuer.Close)
	server := http.NewServeMux()
	server.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(rw http.ResponseWriter, _ *http.Request) {
		say(rw, http.StatusOK, `{"resource":%q,"authorization_servers":[%q]}`, w.server.URL+"/mcp", w.issuer.URL)
	})
	server.HandleFunc("POST /mcp", w.call)
	w.server = httptest.NewServer(server)
	t.Cleanup(w.server.Close)
	return w
}

func say(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

func (w *world) metadata(rw http.ResponseWriter, _ *http.Request) {
	at := w.authAt
	if at == "" {
		at = w.issuer.URL + "/authorize"
	}
	say(rw, http.StatusOK, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"registration_endpoint":%q,
		"code_challenge_methods_supported":["S256"],"response_types_supported":["code"]}`,
		w.issuer.URL, at, w.issuer.URL+"/token", w.issuer.URL+"/register")
}

func (w *world) registers(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.register++
	w.mu.Unlock()
	if w.regAt != nil && w.regAt(rw, r) {
		return
	}
	say(rw, http.StatusCreated, `{"client_id":"client-7","client_secret":"SECRET-client","redirect_uris":[],"token_endpoint_auth_method":"client_secret_basic"}`)
}

func (w *world) authorizes(rw http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.mu.Lock()
	w.n++
	code := fmt.Sprintf("SECRET-code-%d", w.n)
	w.scopes[code] = q.Get("scope")
	w.asks = append(w.asks, q)
	w.mu.Unlock()
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if w.consent != nil {
		w.consent(back)
	}
	http.Redirect(rw, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (w *world) token(rw http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	w.mu.Lock()
	w.grants = append(w.grants, r.PostForm)
	w.mu.Unlock()
	if w.tokenAt != nil && w.tokenAt(rw, r) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	if id != "client-7" || secret != "SECRET-client" {
		say(rw, http.StatusUnauthorized, `{"error":"invalid_client"}`)
		return
	}
	scope, known := w.scopes[r.PostForm.Get("code")]
	if r.PostForm.Get("grant_type") == "refresh_token" {
		known = w.refreshs[r.PostForm.Get("refresh_token")]
		delete(w.refreshs, r.PostForm.Get("refresh_token")) // they are good once
	}
	if !known {
		say(rw, http.StatusBadRequest, `{"error":"invalid_grant","error_description":"SECRET-description"}`)
		return
	}
	w.issue(rw, scope)
}

// issue gives a token, and makes all others useless; the lock is held.
func (w *world) issue(rw http.ResponseWriter, scope string) {
	w.n++
	token := fmt.Sprintf("SECRET-token-%d", w.n)
	w.tokens = []string{token}
	w.scopes[token] = scope
	more := ""
	if w.refresh {
		more = fmt.Sprintf(`,"refresh_token":"SECRET-refresh-%d"`, w.n)
		w.refreshs[fmt.Sprintf("SECRET-refresh-%d", w.n)] = true
	}
	if w.lasts > 0 {
		more += fmt.Sprintf(`,"expires_in":%d`, w.lasts)
	}
	say(rw, http.StatusOK, `{"access_token":%q,"token_type":"Bearer"%s}`, token, more)
}

func (w *world) call(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.sent = append(w.sent, token)
	meta := fmt.Sprintf("resource_metadata=%q", w.server.URL+"/.well-known/oauth-protected-resource/mcp")
	switch {
	case w.deaf || !slices.Contains(w.tokens, token):
		rw.Header().Set("WWW-Authenticate", w.scheme+" "+meta)
		rw.WriteHeader(http.StatusUnauthorized)
	case w.needs != "" && !slices.Contains(strings.Fields(w.scopes[token]), w.needs):
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer error=\"insufficient_scope\", scope=%q, %s", w.needs, meta))
		rw.WriteHeader(http.StatusForbidden)
	default:
		w.bodies = append(w.bodies, string(body))
		fmt.Fprintf(rw, "echo %s", body)
	}
}

func (w *world) revoke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = nil
}

func (w *world) require(scope string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needs = scope
}

func (w *world) counts() (asks, grants, registrations, calls int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asks), len(w.grants), w.register, w.calls
}

// log is where the gateway's log goes: it shows each address to a user.
type log struct {
	mu   sync.Mutex
	text strings.Builder
	show func(address string)
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(line)
	if _, after, ok := strings.Cut(string(line), `address="`); ok && l.show != nil {
		address, _, _ := strings.Cut(after, `"`)
		go l.show(address)
	}
	return len(line), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// listenTo gives the log to a user who opens what it says, or to nobody; at its end it must hold
// no secret.
func listenTo(t *testing.T, show func(string)) *log {
	l := &log{show: show}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		if strings.Contains(l.String(), "SECRET") {
			t.Errorf("the log holds a secret:\n%s", l)
		}
	})
	return l
}

// browser opens an address and gives what it was shown in the end.
func browser(address string) string {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(address)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, page)
}

func willing(address string) { _ = browser(address) }

func newStore(t *testing.T) *state.Store {
	store := state.New(memory.New(), state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// open makes a desk with a listener, as the gateway does.
func open(t *testing.T, store *state.Store) *Desk {
	t.Helper()
	pool := &http.Transport{DisableKeepAlives: true}
	d, err := New(Deps{Next: pool, Store: store, Secret: root})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(d.Callback))
	d.Serve(front.Listener.Addr(), "")
	t.Cleanup(func() {
		d.Close()
		front.Close()
	})
	return d
}

// to is the world's server.
func (w *world) to(cfg Config) *Server { return For("x", w.server.URL+"/mcp", cfg) }

// post makes one call through a desk; what it gives is the answer's status and body.
func post(ctx context.Context, d *Desk, s *Server, body string) (string, error) {
	req, err := http.NewRequestWithContext(With(ctx, s), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: d}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, text), err
}

func mustPost(t *testing.T, d *Desk, s *Server, body string) {
	t.Helper()
	if got, err := post(t.Context(), d, s, body); err != nil || got != "200 echo "+body {
		t.Fatalf("got %q, %v", got, err)
	}
}
