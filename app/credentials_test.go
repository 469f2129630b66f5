package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// accounts is an MCP server with an authorization server, where a browser logs in with the account of its cookie. Its tool
// "whoami" answers with the account of the token, and the account "admin" has one more tool.
type accounts struct {
	*httptest.Server
	mu     sync.Mutex
	codes  map[string]string // code → account
	tokens map[string]string // token → account
	seen   []string          // all that was sent to the MCP server
}

func newAccounts(t *testing.T) *accounts {
	t.Helper()
	a := &accounts{codes: map[string]string{}, tokens: map[string]string{}}
	serverOf := func(account string) *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "accounts", Version: "1"}, nil)
		add := func(name string) {
			s.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: account}}}, nil
			})
		}
		add("whoami")
		if account == "admin" {
			add("delete_all")
		}
		return s
	}
	inner := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server { return serverOf(a.accountOf(r)) }, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, fmt.Sprint(r.URL, r.Header))
		a.mu.Unlock()
		if a.accountOf(r) == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	say := func(path, format string, n int) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, format, []any{a.URL, a.URL, a.URL, a.URL}[:n]...)
		})
	}
	say("/.well-known/oauth-protected-resource/mcp", `{"resource":"%s/mcp","authorization_servers":["%s"]}`, 2)
	say("/.well-known/oauth-authorization-server", `{"issuer":"%s","authorization_endpoint":"%s/authorize","token_endpoint":"%s/token","registration_endpoint":"%s/register","code_challenge_methods_supported":["S256"]}`, 4)
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"client_id":"c","token_endpoint_auth_method":"none"}`)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		account, _ := r.Cookie("account")
		if account == nil {
			http.Error(w, "log in first", http.StatusForbidden)
			return
		}
		a.mu.Lock()
		code := fmt.Sprint("SECRET-code-", len(a.codes))
		a.codes[code] = account.Value
		a.mu.Unlock()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		account := a.codes[r.PostFormValue("code")]
		if r.PostFormValue("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange" {
			account = "exchanged"
		}
		token := fmt.Sprint("SECRET-token-", len(a.tokens))
		a.tokens[token] = account
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func (a *accounts) accountOf(r *http.Request) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return a.tokens[token]
}

// browserOf is a browser that is logged in with an account.
func (a *accounts) browserOf(t *testing.T, account string) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(a.URL)
	jar.SetCookies(u, []*http.Cookie{{Name: "account", Value: account, Path: "/authorize"}})
	return &http.Client{Jar: jar, Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}

// authorize opens the page and presses its button.
func authorize(t *testing.T, browser *http.Client, address, subject string) string {
	t.Helper()
	var page string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
		if err != nil {
			t.Error(err)
			return ""
		}
		resp, err := browser.Do(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if page = html.UnescapeString(string(body)); resp.StatusCode != http.StatusOK || !strings.Contains(page, subject) {
			t.Errorf("%s: %d %s", method, resp.StatusCode, page)
		}
	}
	return page
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// clientOf is a client of the gateway with a caller's token.
func clientOf(t *testing.T, r *running, token string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	pool := &http.Transport{}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: r.main + "/mcp", HTTPClient: &http.Client{Transport: bearer{token, pool}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(); pool.CloseIdleConnections() })
	return session
}

func toolNames(t *testing.T, s *mcp.ClientSession) []string {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		if strings.HasPrefix(tool.Name, "far::") {
			names = append(names, tool.Name)
		}
	}
	slices.Sort(names)
	return names
}

// awaitTools waits until a client sees these tools.
func awaitTools(t *testing.T, s *mcp.ClientSession, want ...string) {
	t.Helper()
	var got []string
	for range 500 {
		if got = toolNames(t, s); slices.Equal(got, want) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the client sees %v, want %v", got, want)
}

func callText(t *testing.T, s *mcp.ClientSession, tool string) (string, error) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

const perCaller = `
[[tokens]]
name = 'ann'
sha256 = '%s'
tenant = 'acme'
[[tokens]]
name = 'bob'
sha256 = '%s'
tenant = 'acme'
[[servers]]
id = 'far'
url = '%s/mcp'
credentials = 'caller'
`

func tokenHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

const annsToken, bobsToken = "token-of-ann-0123456789abcdef0123456789", "token-of-bob-0123456789abcdef0123456789"

var startAddress = regexp.MustCompile(`http://\S+/oauth/start\?flow=\w+`)

// Two callers of one gateway each use a server with their own account: each is told its own address, sees its own tools and never
// the other's, before and after a restart. The operator's log has neither addresses nor tokens.
func TestCallersHaveTheirOwnAuthorization(t *testing.T) {
	far := newAccounts(t)
	var log syncBuilder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(before)
	dir := filepath.Join(t.TempDir(), "data")
	text := fmt.Sprintf(perCaller, tokenHash(annsToken), tokenHash(bobsToken), far.URL)
	r := start(t, load(t, dir, text))
	ann, bob := clientOf(t, r, annsToken, nil), clientOf(t, r, bobsToken, nil)
	awaitTools(t, ann, "far::authorize")
	awaitTools(t, bob, "far::authorize")
	addresses := map[string]bool{}
	for _, who := range []struct {
		client           *mcp.ClientSession
		subject, account string
		tools            []string
	}{{ann, "ann", "admin", []string{"far::delete_all", "far::whoami"}}, {bob, "bob", "guest", []string{"far::whoami"}}} {
		_, err := callText(t, who.client, "far::authorize")
		address := startAddress.FindString(fmt.Sprint(err))
		if address == "" || addresses[address] {
			t.Fatalf("%s is told %v", who.subject, err)
		}
		addresses[address] = true
		authorize(t, far.browserOf(t, who.account), address, who.subject)
		awaitTools(t, who.client, who.tools...)
		if got, err := callText(t, who.client, "far::whoami"); err != nil || got != who.account {
			t.Errorf("%s is %q, %v", who.subject, got, err)
		}
	}
	awaitTools(t, ann, "far::delete_all", "far::whoami")
	if got, err := callText(t, bob, "far::delete_all"); err == nil {
		t.Errorf("bob called ann's tool: %q", got)
	}
	_ = ann.Close()
	_ = bob.Close()
	r.end(t)

	r = start(t, load(t, dir, text))
	ann, bob = clientOf(t, r, annsToken, nil), clientOf(t, r, bobsToken, nil)
	awaitTools(t, bob, "far::whoami")
	awaitTools(t, ann, "far::delete_all", "far::whoami")
	if got, err := callText(t, bob, "far::whoami"); err != nil || got != "guest" {
		t.Errorf("after a restart bob is %q, %v", got, err)
	}
	_ = ann.Close()
	_ = bob.Close()
	r.end(t)
	for _, secret := range []string{"SECRET", "/oauth/start?", annsToken, bobsToken} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %s:\n%s", secret, log.String())
		}
	}
	for _, request := range far.seen {
		if strings.Contains(request, annsToken) || strings.Contains(request, bobsToken) {
			t.Errorf("the server got a caller's own token: %s", request)
		}
	}
}

type syncBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A client that opens addresses for its user (elicitation by URL) needs to do nothing more: the call succeeds once the user is done.
func TestAuthorizationByElicitation(t *testing.T) {
	far := newAccounts(t)
	r := start(t, load(t, t.TempDir(), fmt.Sprintf(perCaller, tokenHash(annsToken), tokenHash(bobsToken), far.URL)))
	defer r.end(t)
	var asked []string
	client := clientOf(t, r, annsToken, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked = append(asked, req.Params.URL+" "+req.Params.Message)
			browser := far.browserOf(t, "admin")
			go authorize(t, browser, req.Params.URL, "ann")
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
	})
	defer client.Close()
	awaitTools(t, client, "far::authorize")
	if got, err := callText(t, client, "far::authorize"); err != nil || !strings.Contains(got, "is authorized") {
		t.Errorf("got %q, %v", got, err)
	}
	if len(asked) != 1 || !startAddress.MatchString(asked[0]) || !strings.Contains(asked[0], `server "far"`) {
		t.Errorf("asked %q", asked)
	}
	awaitTools(t, client, "far::delete_all", "far::whoami")
}

// The page and its button are open to browsers without credentials; a browser with the credential of another caller is refused.
func TestStartRoute(t *testing.T) {
	far := newAccounts(t)
	r := start(t, load(t, t.TempDir(), fmt.Sprintf(perCaller, tokenHash(annsToken), tokenHash(bobsToken), far.URL)))
	defer r.end(t)
	_, body := r.do(t, http.MethodPost, r.main+"/api/mcp-gateway/far/rpc", annsToken, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	address := startAddress.FindString(body)
	if address == "" {
		t.Fatalf("got %s", body)
	}
	for _, tt := range []struct {
		method, address, token string
		status                 int
	}{
		{http.MethodGet, address, bobsToken, 403},
		{http.MethodPost, address, bobsToken, 403},
		{http.MethodGet, address, annsToken, 200},
		{http.MethodGet, address, "", 200},
		{http.MethodGet, address, "wrong", 200},
		{http.MethodGet, strings.Split(address, "?")[0] + "?flow=guess", "", 404},
		{http.MethodDelete, address, "", 401},
	} {
		if status, page := r.do(t, tt.method, tt.address, tt.token, ""); status != tt.status {
			t.Errorf("%s with %q: %d %s", tt.method, tt.token, status, page)
		}
	}
}
