package front_test

import (
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
		"localhost":                     {loopback, "POST", "localhost", none, 200},
		"localhost with a port":         {loopback, "POST", "LocalHost:8000", none, 200},
		"a name under localhost":        {loopback, "POST", "app.localhost:8000", none, 200},
		"127.0.0.1":                     {loopback, "POST", "127.0.0.1:8000", none, 200},
		"another of 127/8":              {loopback, "POST", "127.9.9.9", none, 200},
		"::1":                           {loopback, "POST", "[::1]:8000", none, 200},
		"::1 without a port":            {loopback, "POST", "[::1]", none, 200},
		"allowed":                       {loopback, "POST", "gate.example", none, 200},
		"allowed, in capitals":          {loopback, "POST", "GATE.example:8000", none, 200},
		"rebound name":                  {loopback, "POST", "evil.example", none, 403},
		"rebound name with a port":      {loopback, "POST", "evil.example:8000", none, 403},
		"rebound name, reading":         {loopback, "GET", "evil.example", none, 403},
		"below an allowed name":         {loopback, "POST", "x.gate.example", none, 403},
		"ends like localhost":           {loopback, "POST", "evillocalhost", none, 403},
		"localhost in front":            {loopback, "POST", "localhost.evil.example", none, 403},
		"an address in a name":          {loopback, "POST", "127.0.0.1.evil.example", none, 403},
		"another address":               {loopback, "POST", "10.0.0.1:8000", none, 403},
		"no host":                       {loopback, "POST", "", none, 403},
		"on localhost":                  {"localhost:8000", "POST", "evil.example", none, 403},
		"on ::1":                        {"[::1]:8000", "POST", "evil.example", none, 403},
		"any name where all may come":   {public, "POST", "gate.internal", none, 200},
		"all interfaces":                {":8000", "POST", "gate.internal", none, 200},
		"page from elsewhere":           {loopback, "POST", "localhost:8000", origin("https://evil.example"), 403},
		"page from elsewhere, reading":  {loopback, "GET", "localhost:8000", origin("https://evil.example"), 403},
		"page of no origin":             {loopback, "POST", "localhost:8000", origin("null"), 403},
		"page of a file":                {loopback, "POST", "localhost:8000", origin("file://"), 403},
		"junk for an origin":            {loopback, "POST", "localhost:8000", origin("http://%zz"), 403},
		"localhost in an origin":        {loopback, "POST", "localhost:8000", origin("http://localhost.evil.example"), 403},
		"page of this machine":          {loopback, "POST", "localhost:8000", origin("http://localhost:3000"), 200},
		"page of 127.0.0.1":             {loopback, "POST", "localhost:8000", origin("http://127.0.0.1:5173"), 200},
		"page of ::1":                   {loopback, "POST", "localhost:8000", origin("http://[::1]:5173"), 200},
		"page of the allowed name":      {loopback, "POST", "gate.example", origin("https://gate.example"), 200},
		"same origin, on a public one":  {public, "POST", "gate.internal:8000", origin("https://gate.internal:8000"), 200},
		"other port, on a public one":   {public, "POST", "gate.internal:8000", origin("https://gate.internal:9000"), 403},
		"localhost, on a public one":    {public, "POST", "gate.internal:8000", origin("http://localhost:3000"), 403},
		"elsewhere, on a public one":    {public, "POST", "gate.internal:8000", origin("https://evil.example"), 403},
		"browser says cross-site":       {loopback, "POST", "localhost:8000", site("cross-site"), 403},
		"browser says same-site":        {loopback, "POST", "localhost:8000", site("same-site"), 403},
		"browser says same-origin":      {loopback, "POST", "localhost:8000", site("same-origin"), 200},
		"browser says typed in":         {loopback, "POST", "localhost:8000", site("none"), 200},
		"browser says it, on a public":  {public, "POST", "gate.internal", site("cross-site"), 403},
		"no browser, on a public one":   {public, "POST", "gate.internal", none, 200},
		"with a page's origin and site": {loopback, "POST", "localhost:8000", http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			guard := front.NewGuard(tt.listen, []string{"gate.example"})
			h := front.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), guard.Stage(refuse))
			r := httptest.NewRequest(tt.method, "/x", nil)
			r.Host = tt.host
			r.Header = tt.header.Clone()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("%s %q on %s with %v: got %d, want %d", tt.method, tt.host, tt.listen, tt.header, w.Code, tt.want)
			}
		})
	}
}
