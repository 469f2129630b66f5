package oauth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// A host that only the system's resolver reads as an address (decimal, octal, hexadecimal, short) is
// checked when it is dialled, not as it is written.
func TestEgressChecksDialledAddressS12(t *testing.T) {
	local := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer local.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(local.URL, "http://"), ":")
	client := newEgressGuard("https://8.8.8.8/mcp").client()
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		resp, err := client.Get("http://" + host + ":" + port)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s was reached", host)
		}
	}
}

// A server cannot lead the gateway to an address that is closer than its own: not to this machine, not to
// a cloud's metadata service.
func TestEgressNoCloserThanServerS12(t *testing.T) {
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer local.Close()
	for server, refused := range map[string]bool{
		"http://127.0.0.1:1/mcp": false, "http://localhost/mcp": false, "http://[::1]/mcp": false,
		"https://8.8.8.8/mcp": true, "https://10.0.0.1/mcp": true, "https://169.254.1.1/mcp": false, // which is refused by itself
		"https://no.such.name.invalid/mcp": true,
	} {
		resp, err := newEgressGuard(server).client().Get(local.URL)
		if err == nil {
			resp.Body.Close()
		}
		if got := err != nil && strings.Contains(err.Error(), "closer to the gateway"); got != refused {
			t.Errorf("from %s: %v", server, err)
		}
	}
	_, err := newEgressGuard("http://127.0.0.1/").client().Get("http://169.254.169.254/latest")
	if err == nil || !strings.Contains(err.Error(), "closer to the gateway") {
		t.Errorf("link-local: %v", err)
	}
}

// A POST is never redirected; a GET only within the same host.
func TestRedirectsS12(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s came to another host", r.Method, r.URL) }))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/x", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/near", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) })
	local := httptest.NewServer(mux)
	defer local.Close()
	client := newEgressGuard(local.URL).client()
	for ask, want := range map[string]int{"GET /away": 307, "POST /away": 307, "GET /near": 200, "POST /near": 307} {
		method, path, _ := strings.Cut(ask, " ")
		req, _ := http.NewRequest(method, local.URL+path, strings.NewReader("code=SECRET"))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", ask, resp.StatusCode, want)
		}
	}
}

// Addresses that a browser should not open are not shown (CVE-2025-6514 was one).
func TestUnsafeAddressesAreNotShownS12(t *testing.T) {
	for _, at := range []string{"file://localhost/etc/passwd", "javascript://localhost/%0aalert(1)", "http://a:b@localhost/authorize", "ftp://localhost/x"} {
		w := newFakeServers(t)
		w.authEndpoint = at
		l := captureLog(t, nil)
		d := newTestTransport(t, newStore(t))
		if _, err := post(t.Context(), d, w.target(Config{}), "x"); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: got %v", at, err)
		}
		if strings.Contains(l.String(), "open this address") {
			t.Errorf("%s was shown:\n%s", at, l)
		}
		d.Close()
	}
}

// Libraries quote responses in their errors; the log does not.
func TestErrorsRepeatNoResponse(t *testing.T) {
	for name, spoil := range map[string]func(*fakeServers){
		"registration": func(w *fakeServers) {
			w.onRegister = func(rw http.ResponseWriter, _ *http.Request) bool {
				writeJSON(rw, http.StatusCreated, `{"client_id":7,"client_secret":"SECRET-client"}`)
				return true
			}
		},
		"registration refused": func(w *fakeServers) {
			w.onRegister = func(rw http.ResponseWriter, _ *http.Request) bool {
				writeJSON(rw, http.StatusBadRequest, `{"error":"invalid_redirect_uri","error_description":"SECRET"}`)
				return true
			}
		},
		"token": func(w *fakeServers) {
			w.onToken = func(rw http.ResponseWriter, _ *http.Request) bool {
				writeJSON(rw, http.StatusOK, `{"access_token":7,"refresh_token":"SECRET-refresh"}`)
				return true
			}
		},
		"token refused": func(w *fakeServers) {
			w.onToken = func(rw http.ResponseWriter, _ *http.Request) bool {
				writeJSON(rw, http.StatusBadRequest, `SECRET`)
				return true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeServers(t)
			spoil(w)
			l := captureLog(t, approve)
			_, err := post(t.Context(), newTestTransport(t, newStore(t)), w.target(Config{}), "x")
			if fault.KindOf(err) != fault.Unavailable || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(l.String(), "POST "+w.issuer.URL) {
				t.Errorf("the log does not say where:\n%s", l)
			}
		})
	}
}

// Unknown, used and ambiguous callbacks are refused, and the page repeats nothing of them.
func TestCallback(t *testing.T) {
	captureLog(t, nil)
	d := newTestTransport(t, newStore(t))
	v := d.expectCallback(NewServer("x", "http://x", Config{}), "good", nil)
	v.recordOutcome(nil)
	for _, step := range []struct {
		query  string
		status int
	}{
		{"", 400},
		{"state=bad&code=<script>", 400},
		{"state=good&state=good&code=c", 400},
		{"state=good&code=" + strings.Repeat("c", maxParamLength+1), 400},
		{"state=good&code=c&iss=i", 200},
		{"state=good&code=c", 400},
	} {
		rec := httptest.NewRecorder()
		d.HandleCallback(rec, httptest.NewRequest(http.MethodGet, CallbackPath+"?"+step.query, nil))
		if rec.Code != step.status || strings.Contains(rec.Body.String(), "<") || rec.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%.40s: %d %s", step.query, rec.Code, rec.Body)
		}
	}
	if result := <-v.result; result.Code != "c" || result.State != "good" || result.Iss != "i" {
		t.Errorf("got %+v", result)
	}
}

// A gateway without a listener opens one for the browser, and closes it with itself.
func TestOwnListener(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d, err := New(Deps{Base: &http.Transport{DisableKeepAlives: true}, Store: newStore(t), Secret: root})
	if err != nil {
		t.Fatal(err)
	}
	mustPost(t, d, w.target(Config{}), "x")
	back, err := url.Parse(w.authRequests[0].Get("redirect_uri"))
	if err != nil || back.Hostname() != "127.0.0.1" {
		t.Fatalf("sent to %v, %v", back, err)
	}
	d.Close()
	if page := browser(back.String()); !strings.Contains(page, "refused") {
		t.Errorf("after the end: %s", page)
	}
}

func TestSetRedirectURL(t *testing.T) {
	for _, tt := range []struct{ listen, public, want string }{
		{"127.0.0.1:8000", "", "http://127.0.0.1:8000/oauth/callback"},
		{"0.0.0.0:8000", "", "http://127.0.0.1:8000/oauth/callback"},
		{"[::]:8000", "", "http://127.0.0.1:8000/oauth/callback"},
		{"[::1]:8000", "", "http://[::1]:8000/oauth/callback"},
		{"0.0.0.0:8000", "https://gateway.example/x/", "https://gateway.example/x/oauth/callback"},
	} {
		d := &Transport{}
		d.SetRedirectURL(address(tt.listen), tt.public)
		if d.redirectURL != tt.want {
			t.Errorf("%+v: %s", tt, d.redirectURL)
		}
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, ""},
		{Config{ClientID: "a", ClientSecret: secret.Literal("b"), Issuer: "https://i", ClientMetadataURL: "https://h/x", Scopes: []string{"a:b"}}, ""},
		{Config{ClientSecret: secret.Literal("b")}, "client_secret: needs client_id beside it"},
		{Config{Issuer: "i"}, "issuer: is not an http or https URL"},
		{Config{ClientMetadataURL: "http://h/x"}, "client_metadata_url: is not an https URL with a path"},
		{Config{ClientMetadataURL: "https://h/"}, "client_metadata_url: is not an https URL with a path"},
		{Config{Scopes: []string{"a b"}}, `scopes: "a b" is not one scope`},
	} {
		var got []string
		for _, err := range tt.cfg.Validate() {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, "\n"); text != tt.want {
			t.Errorf("%+v: %q, want %q", tt.cfg, text, tt.want)
		}
		if tt.cfg.IsSet() == (tt.want == "" && tt.cfg.ClientID == "") {
			t.Errorf("%+v: IsSet is %v", tt.cfg, tt.cfg.IsSet())
		}
	}
	if a, b := NewServer("x", "u", Config{ClientSecret: secret.Literal("1")}), NewServer("x", "u", Config{ClientSecret: secret.Literal("2")}); a.key == b.key {
		t.Error("another secret is another client")
	}
}
