package grant

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

func TestNearness(t *testing.T) {
	for address, want := range map[string]nearness{
		"8.8.8.8": far, "2606:4700::1": far, "10.1.2.3": inside, "192.168.0.1": inside, "fd00::1": inside,
		"100.64.0.1": inside, "::ffff:10.0.0.1": inside, "127.0.0.1": here, "::1": here, "::ffff:127.0.0.1": here,
		"169.254.169.254": nowhere, "fe80::1": nowhere, "0.0.0.0": nowhere, "224.0.0.1": nowhere,
	} {
		if got := nearnessOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %d, want %d", address, got, want)
		}
	}
}

// An IPv6 address that a translator or a tunnel turns into an IPv4 address is as near as that one.
func TestEmbeddedAddressesCountAsWhatTheyEmbed(t *testing.T) {
	for address, want := range map[string]nearness{
		// NAT64, well-known prefix
		"64:ff9b::7f00:1": here, "64:ff9b::a00:1": inside, "64:ff9b::a9fe:a9fe": nowhere, "64:ff9b::808:808": far,
		"64:ff9b::": nowhere, "64:ff9b::6440:1": inside,
		// NAT64, local prefix, embedded at /96, /64, /56 and /48
		"64:ff9b:1::7f00:1": here, "64:ff9b:1::808:808": far, "64:ff9b:1::a9fe:a9fe": nowhere, "64:ff9b:1:0:a9:fea9:fe00:0": nowhere,
		"64:ff9b:1:a9:fe:a9fe::": nowhere, "64:ff9b:1:a9fe:a9:fe00::": nowhere, "64:ff9b:1:a9fe:a9:fe00::1": nowhere, "64:ff9b:1:7f00:0:100::": here,
		"64:ff9b:1:808:8:800::": far, "64:ff9b:1::1": nowhere,
		// 6to4
		"2002:7f00:1::1": here, "2002:a9fe:a9fe::": nowhere, "2002:c0a8:1::1": inside, "2002:808:808::1": far,
		// Teredo: server, and client inverted
		"2001:0:a9fe:a9fe::": nowhere, "2001:0:808:808:0:0:80ff:fffe": here, "2001:0:808:808:0:0:f5ff:fffe": inside, "2001:0:808:808:0:0:f7f7:f7f7": far,
		// IPv4-compatible, IPv4-translated, IPv4-mapped with a zone
		"::7f00:1": here, "::a00:1": inside, "::a9fe:a9fe": nowhere, "::ffff:0:7f00:1": here, "::ffff:0:a9fe:a9fe": nowhere, "::ffff:a9fe:a9fe": nowhere,
		// ISATAP, with either bit
		"2606:4700::5efe:7f00:1": here, "2606:4700::200:5efe:a9fe:a9fe": nowhere, "2606:4700::5efe:808:808": far,
		// addresses that no authorization server has
		"0.1.2.3": nowhere, "255.255.255.255": nowhere, "240.0.0.1": nowhere, "192.0.0.192": nowhere, "100.100.100.200": nowhere,
		"168.63.129.16": nowhere, "fd00:ec2::254": nowhere, "fec0::1": inside, "198.18.0.1": inside, "fe80::1%lo": nowhere,
	} {
		if got := nearnessOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %d, want %d", address, got, want)
		}
	}
}

// A host that only the system's resolver reads as an address (decimal, octal, hexadecimal, short) is
// looked at when it is dialled, not as it is written.
func TestReachLooksAtTheDialledAddress(t *testing.T) {
	local := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer local.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(local.URL, "http://"), ":")
	client := newReach("https://8.8.8.8/mcp").client()
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		resp, err := client.Get("http://" + host + ":" + port)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s was reached", host)
		}
	}
}

// A server cannot send the gateway to a place that is nearer than itself: not to this machine, not
// to a cloud's metadata.
func TestReachNoNearer(t *testing.T) {
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer local.Close()
	for server, refused := range map[string]bool{
		"http://127.0.0.1:1/mcp": false, "http://localhost/mcp": false, "http://[::1]/mcp": false,
		"https://8.8.8.8/mcp": true, "https://10.0.0.1/mcp": true, "https://169.254.1.1/mcp": false, // which is refused by itself
		"https://no.such.name.invalid/mcp": true,
	} {
		resp, err := newReach(server).client().Get(local.URL)
		if err == nil {
			resp.Body.Close()
		}
		if got := err != nil && strings.Contains(err.Error(), "nearer"); got != refused {
			t.Errorf("from %s: %v", server, err)
		}
	}
	_, err := newReach("http://127.0.0.1/").client().Get("http://169.254.169.254/latest")
	if err == nil || !strings.Contains(err.Error(), "nearer") {
		t.Errorf("link-local: %v", err)
	}
}

// What is posted goes where it was meant to or nowhere; what is read may move within its place.
func TestRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s came to another place", r.Method, r.URL) }))
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
	client := newReach(local.URL).client()
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

// Addresses that a browser should not be given are not shown (CVE-2025-6514 was one).
func TestAddressesThatAreNone(t *testing.T) {
	for _, at := range []string{"file://localhost/etc/passwd", "javascript://localhost/%0aalert(1)", "http://a:b@localhost/authorize", "ftp://localhost/x"} {
		w := newWorld(t)
		w.authAt = at
		l := listenTo(t, nil)
		d := open(t, newStore(t))
		if _, err := post(t.Context(), d, w.to(Config{}), "x"); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: got %v", at, err)
		}
		if strings.Contains(l.String(), "open this address") {
			t.Errorf("%s was shown:\n%s", at, l)
		}
		d.Close()
	}
}

// Libraries repeat answers in their errors; the log does not.
func TestAnswersAreNotRepeated(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"registration": func(w *world) {
			w.regAt = func(rw http.ResponseWriter, _ *http.Request) bool {
				say(rw, http.StatusCreated, `{"client_id":7,"client_secret":"SECRET-client"}`)
				return true
			}
		},
		"registration refused": func(w *world) {
			w.regAt = func(rw http.ResponseWriter, _ *http.Request) bool {
				say(rw, http.StatusBadRequest, `{"error":"invalid_redirect_uri","error_description":"SECRET"}`)
				return true
			}
		},
		"token": func(w *world) {
			w.tokenAt = func(rw http.ResponseWriter, _ *http.Request) bool {
				say(rw, http.StatusOK, `{"access_token":7,"refresh_token":"SECRET-refresh"}`)
				return true
			}
		},
		"token refused": func(w *world) {
			w.tokenAt = func(rw http.ResponseWriter, _ *http.Request) bool {
				say(rw, http.StatusBadRequest, `SECRET`)
				return true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			spoil(w)
			l := listenTo(t, willing)
			_, err := post(t.Context(), open(t, newStore(t)), w.to(Config{}), "x")
			if fault.KindOf(err) != fault.Unavailable || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(l.String(), "POST "+w.issuer.URL) {
				t.Errorf("the log does not say where:\n%s", l)
			}
		})
	}
}

// The browser's way back: unknown, used and ambiguous answers are refused, and nothing of them is
// repeated.
func TestCallback(t *testing.T) {
	listenTo(t, nil)
	d := open(t, newStore(t))
	v := d.expect("x", "good")
	v.done(nil)
	for _, step := range []struct {
		query  string
		status int
	}{
		{"", 400},
		{"state=bad&code=<script>", 400},
		{"state=good&state=good&code=c", 400},
		{"state=good&code=" + strings.Repeat("c", mostCode+1), 400},
		{"state=good&code=c&iss=i", 200},
		{"state=good&code=c", 400},
	} {
		rec := httptest.NewRecorder()
		d.Callback(rec, httptest.NewRequest(http.MethodGet, CallbackPath+"?"+step.query, nil))
		if rec.Code != step.status || strings.Contains(rec.Body.String(), "<") || rec.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%.40s: %d %s", step.query, rec.Code, rec.Body)
		}
	}
	if came := <-v.came; came.Code != "c" || came.State != "good" || came.Iss != "i" {
		t.Errorf("came %+v", came)
	}
}

// A gateway without a listener opens one for the browser, and closes it with itself.
func TestOwnListener(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d, err := New(Deps{Next: &http.Transport{DisableKeepAlives: true}, Store: newStore(t), Secret: root})
	if err != nil {
		t.Fatal(err)
	}
	mustPost(t, d, w.to(Config{}), "x")
	back, err := url.Parse(w.asks[0].Get("redirect_uri"))
	if err != nil || back.Hostname() != "127.0.0.1" {
		t.Fatalf("sent to %v, %v", back, err)
	}
	d.Close()
	if page := browser(back.String()); !strings.Contains(page, "refused") {
		t.Errorf("after the end: %s", page)
	}
}

func TestWhereBrowsersComeBack(t *testing.T) {
	for _, tt := range []struct{ listen, public, want string }{
		{"127.0.0.1:8000", "", "http://127.0.0.1:8000/oauth/callback"},
		{"0.0.0.0:8000", "", "http://127.0.0.1:8000/oauth/callback"},
		{"[::]:8000", "", "http://127.0.0.1:8000/oauth/callback"},
		{"[::1]:8000", "", "http://[::1]:8000/oauth/callback"},
		{"0.0.0.0:8000", "https://gateway.example/x/", "https://gateway.example/x/oauth/callback"},
	} {
		d := &Desk{}
		d.Serve(address(tt.listen), tt.public)
		if d.address != tt.want {
			t.Errorf("%+v: %s", tt, d.address)
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
		{Config{ClientID: "a", ClientSecret: secret.Literal("b"), Issuer: "https://i", MetadataURL: "https://h/x", Scopes: []string{"a:b"}}, ""},
		{Config{ClientSecret: secret.Literal("b")}, "client_secret: wants a client_id"},
		{Config{Issuer: "i"}, "issuer: is not an http or https URL"},
		{Config{MetadataURL: "http://h/x"}, "client_metadata_url: is not an https URL with a path"},
		{Config{MetadataURL: "https://h/"}, "client_metadata_url: is not an https URL with a path"},
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
	if a, b := For("x", "u", Config{ClientSecret: secret.Literal("1")}), For("x", "u", Config{ClientSecret: secret.Literal("2")}); a.key == b.key {
		t.Error("another secret is another client")
	}
}
