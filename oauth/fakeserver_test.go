package oauth

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

// fakeServers is an MCP server that requires tokens and the authorization server it names. Its fields
// say how they behave, and are set before the first request.
type fakeServers struct {
	t             *testing.T
	server        *httptest.Server
	issuer        *httptest.Server
	lifetime      int    // seconds that tokens last; 0: not stated
	refresh       bool   // tokens can be refreshed
	rejectAll     bool   // the server accepts no token
	keepTokens    bool   // a new token does not revoke the others
	requiredScope string // of a call
	scheme        string // of the challenge
	authEndpoint  string // if it is not the usual one
	onToken       func(w http.ResponseWriter, r *http.Request) bool
	onRegister    func(w http.ResponseWriter, r *http.Request) bool
	onConsent     func(back url.Values) // changes what the browser brings back

	mu            sync.Mutex
	counter       int
	scopes        map[string]string // of a code, then of a token
	refreshTokens map[string]bool   // the valid ones
	tokens        []string          // the valid ones
	bodies        []string          // of accepted calls
	authRequests  []url.Values      // authorization requests
	tokenRequests []url.Values      // token requests
	registrations int
	calls         int
	sent          []string // the calls' tokens
}

func newFakeServers(t *testing.T) *fakeServers {
	w := &fakeServers{t: t, refresh: true, scheme: "Bearer", scopes: map[string]string{}, refreshTokens: map[string]bool{}}
	issuer := http.NewServeMux()
	issuer.HandleFunc("GET /.well-known/oauth-authorization-server", w.metadata)
	issuer.HandleFunc("POST /register", w.registers)
	issuer.HandleFunc("GET /authorize", w.authorizes)
	issuer.HandleFunc("POST /token", w.token)
	w.issuer = httptest.NewServer(issuer)
	t.Cleanup(w.issuer.Close)
	server := http.NewServeMux()
	server.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, http.StatusOK, `{"resource":%q,"authorization_servers":[%q]}`, w.server.URL+"/mcp", w.issuer.URL)
	})
	server.HandleFunc("POST /mcp", w.call)
	w.server = httptest.NewServer(server)
	t.Cleanup(w.server.Close)
	return w
}

func writeJSON(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

func (w *fakeServers) metadata(rw http.ResponseWriter, _ *http.Request) {
	at := w.authEndpoint
	if at == "" {
		at = w.issuer.URL + "/authorize"
	}
	writeJSON(rw, http.StatusOK, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"registration_endpoint":%q,
		"code_challenge_methods_supported":["S256"],"response_types_supported":["code"]}`,
		w.issuer.URL, at, w.issuer.URL+"/token", w.issuer.URL+"/register")
}

func (w *fakeServers) registers(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.registrations++
	w.mu.Unlock()
	if w.onRegister != nil && w.onRegister(rw, r) {
		return
	}
	writeJSON(rw, http.StatusCreated, `{"client_id":"client-7","client_secret":"SECRET-client","redirect_uris":[],"token_endpoint_auth_method":"client_secret_basic"}`)
}

func (w *fakeServers) authorizes(rw http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.mu.Lock()
	w.counter++
	code := fmt.Sprintf("SECRET-code-%d", w.counter)
	w.scopes[code] = q.Get("scope")
	w.authRequests = append(w.authRequests, q)
	w.mu.Unlock()
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if w.onConsent != nil {
		w.onConsent(back)
	}
	http.Redirect(rw, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (w *fakeServers) token(rw http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	w.mu.Lock()
	w.tokenRequests = append(w.tokenRequests, r.PostForm)
	w.mu.Unlock()
	if w.onToken != nil && w.onToken(rw, r) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	if id != "client-7" || secret != "SECRET-client" {
		writeJSON(rw, http.StatusUnauthorized, `{"error":"invalid_client"}`)
		return
	}
	scope, known := w.scopes[r.PostForm.Get("code")]
	if r.PostForm.Get("grant_type") == "refresh_token" {
		known = w.refreshTokens[r.PostForm.Get("refresh_token")]
		delete(w.refreshTokens, r.PostForm.Get("refresh_token")) // they are good once
	}
	if !known {
		writeJSON(rw, http.StatusBadRequest, `{"error":"invalid_grant","error_description":"SECRET-description"}`)
		return
	}
	w.issue(rw, scope)
}

// issue gives a token and revokes all others; w.mu is held.
func (w *fakeServers) issue(rw http.ResponseWriter, scope string) {
	w.counter++
	token := fmt.Sprintf("SECRET-token-%d", w.counter)
	if !w.keepTokens {
		w.tokens = nil
	}
	w.tokens = append(w.tokens, token)
	w.scopes[token] = scope
	more := ""
	if w.refresh {
		more = fmt.Sprintf(`,"refresh_token":"SECRET-refresh-%d"`, w.counter)
		w.refreshTokens[fmt.Sprintf("SECRET-refresh-%d", w.counter)] = true
	}
	if w.lifetime > 0 {
		more += fmt.Sprintf(`,"expires_in":%d`, w.lifetime)
	}
	writeJSON(rw, http.StatusOK, `{"access_token":%q,"token_type":"Bearer"%s}`, token, more)
}

func (w *fakeServers) call(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.sent = append(w.sent, token)
	meta := fmt.Sprintf("resource_metadata=%q", w.server.URL+"/.well-known/oauth-protected-resource/mcp")
	switch {
	case w.rejectAll || !slices.Contains(w.tokens, token):
		rw.Header().Set("WWW-Authenticate", w.scheme+" "+meta)
		rw.WriteHeader(http.StatusUnauthorized)
	case w.requiredScope != "" && !slices.Contains(strings.Fields(w.scopes[token]), w.requiredScope):
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer error=\"insufficient_scope\", scope=%q, %s", w.requiredScope, meta))
		rw.WriteHeader(http.StatusForbidden)
	default:
		w.bodies = append(w.bodies, string(body))
		fmt.Fprintf(rw, "echo %s", body)
	}
}

func (w *fakeServers) revoke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = nil
}

func (w *fakeServers) require(scope string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requiredScope = scope
}

func (w *fakeServers) counts() (authRequests, tokenRequests, registrations, calls int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.authRequests), len(w.tokenRequests), w.registrations, w.calls
}

// log captures the gateway's log, and passes each address to a user.
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

// captureLog captures the log and passes each address in it to show. At the end of the test the log must hold no
// secret.
func captureLog(t *testing.T, show func(string)) *log {
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

// browser opens an address and returns the last page.
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

func approve(address string) { _ = browser(address) }

func newStore(t *testing.T) *state.Store {
	store := state.New(memory.New(), state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// newTestTransport makes a Transport with a listener, as the gateway does.
func newTestTransport(t *testing.T, store *state.Store) *Transport {
	t.Helper()
	pool := &http.Transport{DisableKeepAlives: true}
	d, err := New(Deps{Base: pool, Store: store, Secret: root})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(CallbackPath, d.HandleCallback)
	mux.HandleFunc(StartPath, d.HandleStart)
	front := httptest.NewServer(mux)
	d.SetRedirectURL(front.Listener.Addr(), "")
	t.Cleanup(func() {
		d.Close()
		front.Close()
	})
	return d
}

// target is the MCP server.
func (w *fakeServers) target(cfg Config) *Server { return NewServer("x", w.server.URL+"/mcp", cfg) }

// post makes one call; it returns the status and body.
func post(ctx context.Context, d *Transport, s *Server, body string) (string, error) {
	req, err := http.NewRequestWithContext(WithServer(ctx, s), http.MethodPost, s.url, strings.NewReader(body))
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

func mustPost(t *testing.T, d *Transport, s *Server, body string) {
	t.Helper()
	if got, err := post(t.Context(), d, s, body); err != nil || got != "200 echo "+body {
		t.Fatalf("got %q, %v", got, err)
	}
}
