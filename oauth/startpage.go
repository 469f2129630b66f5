package oauth

import (
	"crypto/rand"
	"crypto/subtle"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// StartPath is the path of the page where a caller begins an authorization.
const StartPath = "/oauth/start"

// A caller's authorization begins at a page of the gateway, not at the authorization server, for two reasons. The page says
// for whom the account will be used: somebody who was sent the address of another must be able to notice. And the browser in
// which the button was pressed gets a cookie, so that no other browser can bring the code: a link to the callback with a code
// of an attacker's account is of no use, and neither is the caller's own link in the hands of somebody else once it was used.
// Opening the page changes nothing, as programs that preview links open them too.

// crossOrigin refuses forms that pages of other sites send.
var crossOrigin = http.NewCrossOriginProtection()

// SetIdentify sets how a browser's request is authenticated, where it carries a credential: a client certificate, or a header
// of a proxy. Such a browser can only begin an authorization of its own caller. Call it before the first request.
func (t *Transport) SetIdentify(identify func(*http.Request) (Principal, bool)) {
	t.identify = identify
}

// startAddress is the address of a request's page.
func (t *Transport) startAddress(r *authRequest) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSuffix(t.redirectURL, CallbackPath) + StartPath + "?" + url.Values{"flow": {r.startID}}.Encode()
}

// HandleStart serves the page and its button. It needs no credentials: the id in the address is one, which only the caller
// was told.
func (t *Transport) HandleStart(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.RawQuery) > maxParamLength || len(r.URL.Query()["flow"]) != 1 {
		writePage(w, http.StatusBadRequest, "This address is not complete.")
		return
	}
	t.mu.Lock()
	request := t.startPages[r.URL.Query().Get("flow")]
	t.mu.Unlock()
	if request == nil {
		writePage(w, http.StatusNotFound, "This address is not valid, or not any more. Call the server again to get a new one.")
		return
	}
	if who, ok := t.identify(r); ok && who != request.server.principal {
		writePage(w, http.StatusForbidden, "This address was made for another caller of the gateway than you.")
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		showStartPage(w, request)
	case http.MethodPost:
		t.beginInBrowser(w, r, request)
	default:
		w.Header().Set("Allow", "GET, POST")
		writePage(w, http.StatusMethodNotAllowed, "Only GET and POST are served here.")
	}
}

// startPage has no script and loads nothing.
var startPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>ctxgate: authorize a server</title></head>
<body>
<h1>Authorize server “{{.Server}}”</h1>
<p><b>{{.Subject}}</b> (tenant {{.Tenant}}{{if .Issuer}}, identified by {{.Issuer}}{{end}}) will use server <b>{{.Server}}</b> through this gateway
with the account that you log in with at <b>{{.Host}}</b>.</p>
<p>Continue only if you are {{.Subject}}, and have just asked for this. If somebody sent you this address, they would get access to your account: close this window.</p>
<form method="post"><button type="submit">Continue as {{.Subject}}</button></form>
</body></html>
`))

// showStartPage says who will use which server with whose account.
func showStartPage(w http.ResponseWriter, request *authRequest) {
	p := request.server.principal
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// A browser applies form-action to the redirect, too.
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' "+request.address.Scheme+"://"+request.address.Host)
	h.Set("Referrer-Policy", "same-origin") // the address is a credential; the form needs its own origin
	h.Set("Cache-Control", "no-store")
	_ = startPage.Execute(w, map[string]string{"Server": request.server.id, "Subject": p.Subject, "Tenant": p.Tenant, "Issuer": p.Issuer, "Host": request.address.Host})
}

// beginInBrowser binds the authorization to the browser and sends it to the authorization server. That works once.
func (t *Transport) beginInBrowser(w http.ResponseWriter, r *http.Request, request *authRequest) {
	if err := crossOrigin.Check(r); err != nil {
		writePage(w, http.StatusForbidden, "Only the gateway's own page can begin an authorization.")
		return
	}
	t.mu.Lock()
	isFirst := t.startPages[request.startID] == request
	if isFirst {
		delete(t.startPages, request.startID)
		request.cookie = rand.Text()
	}
	base := t.redirectURL
	t.mu.Unlock()
	if !isFirst {
		writePage(w, http.StatusNotFound, "This authorization has begun already. Call the server again to get a new address.")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: request.cookieName(base), Value: request.cookie, Path: "/", HttpOnly: true, Secure: strings.HasPrefix(base, "https:"),
		SameSite: http.SameSiteLaxMode, // the authorization server's redirect comes from another site
		MaxAge:   int(t.timing.linkLifetime / time.Second),
	})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, request.address.String(), http.StatusSeeOther)
}

// cookieName has a name for each authorization, as a browser may run several. With the prefix, browsers accept the cookie only
// from this host itself and over https; without https there is none.
func (r *authRequest) cookieName(base string) string {
	name := "ctxgate-oauth-" + r.startID[:8]
	if strings.HasPrefix(base, "https:") {
		return "__Host-" + name
	}
	return name
}

// hasBegunIn reports whether a request comes from the browser that began the authorization; the Transport's lock is held.
func (r *authRequest) hasBegunIn(browser *http.Request) bool {
	if r.cookie == "" {
		return false
	}
	for _, c := range browser.Cookies() {
		if strings.HasSuffix(c.Name, "ctxgate-oauth-"+r.startID[:8]) && subtle.ConstantTimeCompare([]byte(c.Value), []byte(r.cookie)) == 1 {
			return true
		}
	}
	return false
}
