package front_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ctxgate/ctxgate/front"
)

func TestGuard(t *testing.T) {
	const loopback, public = "127.0.0.1:8000", "0.0.0.0:8000"
	none := http.Header{}
	origin := func(o string) http.Header { return http.Header{"Origin": {o}} }
	site := func(s string) http.Header { return http.Header{"Sec-Fetch-Site": {s}} }
	for name, tt := range map[string]struct {
		listen, method, host string
		header               http.Header
		want                 int
	}{
		"localhost":                             {loopback, "POST", "localhost", none, 200},
		"localhost with a port":                 {loopback, "POST", "LocalHost:8000", none, 200},
		"a name under localhost":                {loopback, "POST", "app.localhost:8000", none, 200},
		"127.0.0.1":                             {loopback, "POST", "127.0.0.1:8000", none, 200},
		"another of 127/8":                      {loopback, "POST", "127.9.9.9", none, 200},
		"::1":                                   {loopback, "POST", "[::1]:8000", none, 200},
		"::1 without a port":                    {loopback, "POST", "[::1]", none, 200},
		"allowed":                               {loopback, "POST", "gate.example", none, 200},
		"allowed, in capitals":                  {loopback, "POST", "GATE.example:8000", none, 200},
		"rebound name":                          {loopback, "POST", "evil.example", none, 403},
		"rebound name with a port":              {loopback, "POST", "evil.example:8000", none, 403},
		"rebound name, reading":                 {loopback, "GET", "evil.example", none, 403},
		"below an allowed name":                 {loopback, "POST", "x.gate.example", none, 403},
		"ends like localhost":                   {loopback, "POST", "evillocalhost", none, 403},
		"localhost in front":                    {loopback, "POST", "localhost.evil.example", none, 403},
		"an address in a name":                  {loopback, "POST", "127.0.0.1.evil.example", none, 403},
		"another address":                       {loopback, "POST", "10.0.0.1:8000", none, 403},
		"no host":                               {loopback, "POST", "", none, 403},
		"on localhost":                          {"localhost:8000", "POST", "evil.example", none, 403},
		"on ::1":                                {"[::1]:8000", "POST", "evil.example", none, 403},
		"public listener, a name not allowed":   {public, "POST", "gate.internal", none, 403},
		"public listener, the allowed name":     {public, "POST", "gate.example:8000", none, 200},
		"public listener, a loopback name":      {public, "POST", "localhost:8000", none, 200},
		"all interfaces":                        {":8000", "POST", "gate.internal", none, 403},
		"public listener, another address":      {public, "POST", "10.0.0.1:8000", none, 403},
		"page of the allowed name":              {loopback, "POST", "gate.example", origin("https://gate.example"), 200},
		"public listener, page of the allowed":  {public, "POST", "gate.example:8000", origin("https://gate.example:8000"), 200},
		"public listener, page of another port": {public, "POST", "gate.example:8000", origin("https://gate.example:9000"), 403},
		"browser says cross-site":               {loopback, "POST", "localhost:8000", site("cross-site"), 403},
		"browser says same-site":                {loopback, "POST", "localhost:8000", site("same-site"), 403},
		"browser says same-origin":              {loopback, "POST", "localhost:8000", site("same-origin"), 200},
		"browser says typed in":                 {loopback, "POST", "localhost:8000", site("none"), 200},
		"public listener, cross-site":           {public, "POST", "gate.example", site("cross-site"), 403},
		"public listener, no browser":           {public, "POST", "gate.example", none, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/x", nil)
			r.Host = tt.host
			r.Header = tt.header.Clone()
			if got := guarded(tt.listen, front.HTTP{AllowedHosts: []string{"gate.example"}}, r).Code; got != tt.want {
				t.Errorf("%s %q on %s with %v: got %d, want %d", tt.method, tt.host, tt.listen, tt.header, got, tt.want)
			}
		})
	}
}

func guarded(listen string, cfg front.HTTP, r *http.Request) *httptest.ResponseRecorder {
	h := front.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), front.NewGuard(listen, cfg).Protect(refuse))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A request whose Origin is not its Host needs application/json, which a browser sends to another origin
// only after a preflight, or an entry of allowed_origins; whatever the method.
func TestForeignOriginNeedsJSONOrAnEntry(t *testing.T) {
	const loopback, public, json = "127.0.0.1:8000", "0.0.0.0:8000", "application/json"
	for name, tt := range map[string]struct {
		listen, method, host, origin, kind string
		want                               int
	}{
		"page of another site, plain":                 {loopback, "POST", "localhost:8000", "https://evil.example", "text/plain", 403},
		"page of another site, form":                  {loopback, "POST", "localhost:8000", "https://evil.example", "application/x-www-form-urlencoded", 403},
		"page of another site, no type":               {loopback, "POST", "localhost:8000", "https://evil.example", "", 403},
		"page of another site, a trick":               {loopback, "POST", "localhost:8000", "https://evil.example", "text/plain; application/json", 403},
		"page of another site, another":               {loopback, "POST", "localhost:8000", "https://evil.example", "application/json, text/plain", 403},
		"page of another site, JSON":                  {loopback, "POST", "localhost:8000", "https://evil.example", json, 200},
		"page of another site, JSON in UTF-8":         {loopback, "POST", "localhost:8000", "https://evil.example", "Application/JSON; charset=utf-8", 200},
		"event stream for another site":               {loopback, "GET", "localhost:8000", "https://evil.example", "", 403},
		"ends a session from another site":            {loopback, "DELETE", "localhost:8000", "https://evil.example", "", 403},
		"preflight":                                   {loopback, "OPTIONS", "localhost:8000", "https://evil.example", "", 403},
		"page of no origin":                           {loopback, "POST", "localhost:8000", "null", "text/plain", 403},
		"page of a file":                              {loopback, "POST", "localhost:8000", "file://", "text/plain", 403},
		"a malformed origin":                          {loopback, "POST", "localhost:8000", "http://%zz", "text/plain", 403},
		"another page of this machine":                {loopback, "POST", "localhost:8000", "http://localhost:3000", "text/plain", 403},
		"another page of this machine, JSON":          {loopback, "POST", "localhost:8000", "http://localhost:3000", json, 200},
		"same origin":                                 {loopback, "POST", "localhost:8000", "http://localhost:8000", "text/plain", 200},
		"same origin, reading":                        {loopback, "GET", "localhost:8000", "http://LOCALHOST:8000", "", 200},
		"another name of this machine":                {loopback, "POST", "127.0.0.1:8000", "http://localhost:8000", "text/plain", 403},
		"rebound page, whatever it sends":             {loopback, "POST", "evil.example:8000", "http://evil.example:8000", json, 403},
		"allowed origin":                              {loopback, "POST", "localhost:8000", "https://app.example", "text/plain", 200},
		"allowed origin, reading":                     {loopback, "GET", "localhost:8000", "https://app.example", "", 200},
		"allowed origin, other scheme":                {loopback, "POST", "localhost:8000", "http://app.example", "text/plain", 403},
		"allowed origin, other port":                  {loopback, "POST", "localhost:8000", "https://app.example:444", "text/plain", 403},
		"allowed origin, rebound":                     {loopback, "POST", "evil.example", "https://app.example", json, 403},
		"public listener: page of another site":       {public, "POST", "gate.internal", "https://evil.example", "text/plain", 403},
		"public listener: page of another site, JSON": {public, "POST", "gate.internal", "https://evil.example", json, 200},
		"public listener: a name that is not allowed": {public, "POST", "evil.example:8000", "http://evil.example:8000", json, 403},
		"public listener: the same by address":        {public, "POST", "192.168.1.5:8000", "http://192.168.1.5:8000", "text/plain", 200},
		"public listener: no browser, any type":       {public, "POST", "gate.internal", "", "text/plain", 200},
		"no browser, any type":                        {loopback, "POST", "localhost:8000", "", "application/x-www-form-urlencoded", 200}, // what curl -d sends
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/x", nil)
			r.Host = tt.host
			for key, value := range map[string]string{"Origin": tt.origin, "Content-Type": tt.kind} {
				if value != "" {
					r.Header.Set(key, value)
				}
			}
			if got := guarded(tt.listen, front.HTTP{AllowedOrigins: []string{"https://app.example"}}, r).Code; got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	two := httptest.NewRequest(http.MethodPost, "http://localhost/x", nil)
	two.Header = http.Header{"Origin": {"https://app.example", "https://evil.example"}, "Content-Type": {json}}
	if got := guarded(loopback, front.HTTP{AllowedOrigins: []string{"https://app.example"}}, two).Code; got != 403 {
		t.Errorf("two origins: %d", got)
	}
}

// What a browser fetches for another site's page without an Origin (images, scripts, GET without CORS) is
// rejected; a navigation, as from an authorization server, is not.
func TestFetchMetadata(t *testing.T) {
	for _, tt := range []struct {
		method, site, mode string
		want               int
	}{
		{"GET", "cross-site", "no-cors", 403}, {"GET", "same-site", "no-cors", 403}, {"GET", "cross-site", "navigate", 200},
		{"GET", "same-origin", "cors", 200}, {"GET", "none", "navigate", 200}, {"POST", "cross-site", "navigate", 403},
	} {
		r := httptest.NewRequest(tt.method, "http://localhost/x", nil)
		r.Header.Set("Sec-Fetch-Site", tt.site)
		r.Header.Set("Sec-Fetch-Mode", tt.mode)
		if got := guarded("127.0.0.1:8000", front.HTTP{}, r).Code; got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}

// A page of an allowed origin may send a preflight and read the reply; others are not answered.
func TestPreflightOfAllowedOrigin(t *testing.T) {
	cfg := front.HTTP{AllowedOrigins: []string{"https://app.example"}}
	preflight := httptest.NewRequest(http.MethodOptions, "http://localhost/mcp", nil)
	preflight.Header = http.Header{"Origin": {"https://app.example"}, "Access-Control-Request-Method": {"POST"}}
	w := guarded("127.0.0.1:8000", cfg, preflight)
	if h := w.Header(); w.Code != 204 || h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Access-Control-Allow-Methods") == "" || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%d %v", w.Code, h)
	}
	call := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", nil)
	call.Header = http.Header{"Origin": {"https://app.example"}, "Content-Type": {"application/json"}}
	if w := guarded("127.0.0.1:8000", cfg, call); w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	call.Header.Set("Origin", "https://evil.example")
	if w := guarded("127.0.0.1:8000", cfg, call); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin may read: %v", w.Header())
	}
}

// The address that a connection came in on is a known host, whatever allowed_hosts says: probes use it.
func TestOwnAddressIsAKnownHost(t *testing.T) {
	cfg := front.HTTP{AllowedHosts: []string{"gate.example:8443"}}
	for host, want := range map[string]int{"10.1.2.3:8000": 200, "10.1.2.4:8000": 403, "gate.example:8443": 200, "gate.example:8000": 403, "gate.example": 403} {
		r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
		r.Host = host
		local := &net.TCPAddr{IP: net.ParseIP("10.1.2.3"), Port: 8000}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
		if got := guarded("0.0.0.0:8000", cfg, r).Code; got != want {
			t.Errorf("%s: got %d, want %d", host, got, want)
		}
	}
}

func TestGuardEntriesAreChecked(t *testing.T) {
	cfg := front.Default()
	cfg.HTTP.AllowedHosts = []string{"gate.example", "gate.example:80", "", "https://x", "*.example"}
	cfg.HTTP.AllowedOrigins = []string{"https://app.example", "http://localhost:3000", "*", "null", "https://app.example/", "app.example"}
	if got := len(cfg.Validate()); got != 7 {
		t.Errorf("%d problems: %v", got, cfg.Validate())
	}
}
